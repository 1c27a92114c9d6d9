"""What every method shares: the ``Aligner`` interface, seeds as indices, linear algebra.

Word matrices are float32 tensors (words, dimensions) that may have millions of rows, so functions
whose name ends in ``_`` change them in place, block by block. Matrices of size (dimensions,
dimensions) are float64 on the CPU, which is cheap and keeps small singular values exact.
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from blicer.align.space import DESCRIPTION, Space
from blicer.config import check_value, setting
from blicer.embeddings import Embeddings
from blicer.encoders.loading import encoder_version
from blicer.errors import InputError, expect
from blicer.files import digest
from blicer.lexicon import Lexicon, check_columns
from blicer.neighbours.mining import Pairs
from blicer.progress import note
from blicer.stage_cache import stage, stage_folder

if TYPE_CHECKING:
    from typing_extensions import Self

Seeds = Pairs | None  # None in modes that need no seeds
Masks = Sequence[NDArray[np.bool_]]  # of seeds: parts that are held out
Folder = Path | None  # None where nothing is kept on disk
BLOCK_ROWS = 16_384  # rows changed at once, so that temporary copies are small
PCA_WORDS = 20_000
FEW = 0.1  # the likely reason is reported if a smaller share of the seed pairs is usable
SHOWN = 5  # missing words in a message
LOOKED_AT = 2000  # words that the script is recognised from


@dataclass(kw_only=True)
class Aligner(ABC):
    """A method that maps two vector sets into one space.

    A subclass is a dataclass whose fields are its hyper-parameters (``setting``), checked on
    construction. The first line of its docstring is its help text.
    """

    method: ClassVar[str]
    """Name on the command line."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Modes, such as supervised, and the settings of each."""

    device: str = setting("auto", "auto, cpu, cuda, cuda:1 or mps")

    def __post_init__(self) -> None:
        for one in fields(self):
            check_value(one, getattr(self, one.name))

    @classmethod
    def usual_mode(cls, preset: str) -> str:
        """The mode for a setup of the paper; zero-shot has few seeds."""
        return "semi_supervised" if preset == "zero_shot" else preset

    def align(
        self,
        source: Embeddings,
        target: Embeddings,
        seeds: Lexicon | None = None,
        *,
        work: Folder = None,
    ) -> Space:
        """Map both vocabularies into one space.

        ``seeds``: word pairs, source first; None for modes that need none. ``work``: a folder
        that caches finished parts, for the same call after a kill (None: no cache).
        """
        check_sides(source, target, seeds)
        pairs = None if seeds is None else seed_indices(source, target, seeds)
        return self.fit(source, target, pairs, work=work)

    @abstractmethod
    def fit(
        self, source: Embeddings, target: Embeddings, pairs: Seeds, *, work: Folder = None
    ) -> Space:
        """``align`` with seeds as word indices (n, 2); a pair listed twice counts twice."""

    def fit_cached(
        self,
        source: Embeddings,
        target: Embeddings,
        pairs: Seeds,
        *,
        work: Folder,
        k_csls: int | None = None,
    ) -> Space:
        """``fit``, cached in ``work`` by a hash of the data and settings.

        ``work``: None caches nothing. ``k_csls``: cache the hubness too, which on large
        vocabularies takes longer to measure than some maps to fit.
        """
        folder = None if work is None else self.cache_folder(source, target, pairs, work)
        fit = partial(self.fit, source, target, pairs, work=work)
        return self.cached(folder, fit, (source, target), k_csls)

    def fit_folds(
        self,
        source: Embeddings,
        target: Embeddings,
        pairs: Pairs,
        held: Masks,
        *,
        work: Folder = None,
        k_csls: int | None = None,
    ) -> Iterator[Space]:
        """Yield a space without each held-out part of the seeds, then one with all seeds.

        The arguments are those of ``fit_cached``. Spaces are fitted one by one, on demand.
        """
        for part in held:
            yield self.fit_cached(source, target, pairs[~part], work=work, k_csls=k_csls)
        yield self.fit_cached(source, target, pairs, work=work, k_csls=k_csls)

    def cached(
        self,
        folder: Folder,
        fit: Callable[[], Space],
        sides: tuple[Embeddings, Embeddings],
        k_csls: int | None,
    ) -> Space:
        """The space saved in ``folder``; if there is none, fit one and save it there."""
        if folder is None:
            return fit()
        with stage(folder):
            cached = (folder / DESCRIPTION).is_file()
            if cached:
                note(f"{self.method}: taken from {folder}")
                space = Space.load(folder)
                space.source.language, space.target.language = (side.language for side in sides)
            else:
                space = fit()
            if k_csls is not None and space.hubness_k != k_csls:
                cached = False
                space.use_k_csls(k_csls)
                space.measure_hubness()
            if not cached:
                space.save(folder)
        return space

    def cache_folder(
        self, source: Embeddings, target: Embeddings, pairs: Seeds, work: Path
    ) -> Path:
        """Where ``fit_cached`` caches the space of this data."""
        return stage_folder(work, "space", *self.inputs(source, target, pairs))

    def inputs(self, source: Embeddings, target: Embeddings, pairs: Seeds) -> list[Any]:
        """All that a fit depends on: the key of cached stages."""
        data = digest(source.words, target.words, source.vectors, target.vectors)
        known = None if pairs is None else digest(pairs)
        # Other weights under the same name are another encoder.
        encoder = encoder_version(getattr(self, "encoder", ""))
        return [data, self.method, self.settings, known, encoder]

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """The settings of a mode (supervised, semi_supervised, unsupervised, ...)."""
        key = name.replace("-", "_")
        if key not in cls.presets:
            raise InputError(
                f"{cls.method} has no mode {name!r}; it has {', '.join(sorted(cls.presets))}"
            )
        return cls.configured({**cls.presets[key], **overrides})

    @classmethod
    def configured(cls, settings: Mapping[str, Any]) -> Self:
        """An instance from named settings; unknown names raise InputError."""
        names = cls.setting_names()
        if unknown := sorted(set(settings) - set(names)):
            raise InputError(
                f"{cls.method} has no setting {unknown[0]!r}; it has {', '.join(names)}"
            )
        return cls(**settings)

    @classmethod
    def setting_names(cls) -> list[str]:
        return [one.name for one in fields(cls)]

    @classmethod
    def help(cls) -> str:
        """One line on the method."""
        return (cls.__doc__ or "").split("\n")[0]

    @property
    def settings(self) -> dict[str, Any]:
        """The hyper-parameters, as given to the constructor."""
        return {name: getattr(self, name) for name in self.setting_names()}

    def require_seeds(self, pairs: Seeds) -> Pairs:
        """The seed pairs; ``InputError`` if there are none in a mode that cannot do without."""
        if pairs is None:
            raise InputError(f"{self.method} in this mode needs seed pairs, and none were given")
        return pairs

    def space(
        self, source: Embeddings, target: Embeddings, x: Tensor, y: Tensor, **outcome: Any
    ) -> Space:
        """Wrap mapped matrices (words, dimensions); ``outcome`` says how the run went."""
        return Space(
            source.with_vectors(x.cpu().numpy()),
            target.with_vectors(y.cpu().numpy()),
            method=self.method,
            settings={**self.settings, **outcome},
        )


def check_sides(source: object, target: object, seeds: object = None) -> None:
    """Raise ``InputError`` unless both sides are ``Embeddings`` and the seeds a ``Lexicon``."""
    for name, side in (("source", source), ("target", target)):
        expect(name, side, Embeddings, hint="blicer.Embeddings.load reads a file")
    expect("seeds", seeds, Lexicon, type(None), hint="blicer.Lexicon.load reads a file")


def seed_indices(source: Embeddings, target: Embeddings, seeds: Lexicon) -> Pairs:
    """Rows (n, 2) of the seed pairs in both vocabularies, each as often as it is listed.

    Notes how many pairs are missing, and the likely reason if most are. Raises InputError if all
    are missing or the columns are swapped.
    """
    if len(seeds) == 0:
        raise InputError("the seed dictionary is empty; expected at least one pair")
    pairs = seeds.indices(source, target, repeated=True)
    found, swapped = check_columns(seeds, source, target, "the seeds")
    if found >= FEW * len(seeds) and found > 0:
        if found < len(seeds):
            note(f"{len(seeds) - found} of {len(seeds)} seed pairs are not in the vocabularies")
        return pairs
    reasons, missing = [], []
    for side, embeddings, words in (
        ("source", source, dict.fromkeys(word for word, _ in seeds)),
        ("target", target, dict.fromkeys(word for _, word in seeds)),
    ):
        absent = [word for word in words if word not in embeddings]
        if absent:
            sample = ", ".join(f"'{word}'" for word in absent[:SHOWN])
            missing.append(f"{sample} from the {side} vocabulary")
            reasons += _likely_reason(side, absent, embeddings)
    if swapped > found:
        reasons = [f"the columns are swapped ({swapped} of {len(seeds)} pairs are found then)"]
    reasons = reasons or ["the seeds and the vectors are of other languages or kinds of words"]
    message = (
        f"{f'only {found}' if found else 'none'} of the {len(seeds)} seed pairs are in both "
        f"vocabularies; missing are {' and '.join(missing) or 'pairs'}; likely reason: "
        f"{'; '.join(reasons)}"
    )
    if found == 0:
        raise InputError(message)
    note(message)
    return pairs


def _likely_reason(side: str, missing: list[str], embeddings: Embeddings) -> list[str]:
    """Whether the missing words are there in another case, or are of another script."""
    folded = {word.casefold() for word in embeddings.words}
    if other_case := sum(word.casefold() in folded for word in missing):
        return [
            f"{other_case} of {len(missing)} missing {side} words are in the vocabulary in another "
            "case (load both with the same lowercase setting)"
        ]
    seeds, own = _main_script(missing), _main_script(embeddings.words)
    if seeds and own and seeds != own:
        return [f"the {side} seed words are written in {seeds} script, the vocabulary in {own}"]
    return []


def _main_script(words: Iterable[str]) -> str | None:
    """The script of most letters, by the first word of their Unicode names."""
    letters = (letter for word in islice(words, LOOKED_AT) for letter in word if letter.isalpha())
    counts = Counter(unicodedata.name(letter, "UNKNOWN").split()[0] for letter in letters)
    return counts.most_common(1)[0][0].capitalize() if counts else None


def prepare(
    source: Embeddings,
    target: Embeddings,
    *,
    centre: bool = True,
    frequent: int | None = None,
    reduced: bool = True,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Copies of both matrices with unit rows (unit, centred, unit again).

    The mean row is that of the most ``frequent`` words (None: all). If the dimensions differ, the
    wider side is reduced to the narrower by PCA of its centred rows, unless ``reduced`` is False.
    """
    for name, side in (("source", source), ("target", target)):
        if len(side) == 0:
            raise InputError(f"the {name} vectors hold no word; expected at least one")
    narrow = min(source.dim, target.dim) if reduced else max(source.dim, target.dim)
    ready = []
    for name, side in (("source", source), ("target", target)):
        rows = unit_(matrix(side.vectors, device))
        if centre:
            unit_(centre_(rows, frequent))
        if side.dim > narrow:
            note(f"the {name} vectors have {side.dim} dimensions: reduced by PCA to {narrow}")
            rows = unit_(reduce_by_pca(rows if centre else centre_(rows), narrow))
        ready.append(rows)
    return ready[0], ready[1]


def matrix(vectors: np.ndarray, device: torch.device) -> Tensor:
    """A float32 copy (words, dimensions) that may be changed in place."""
    return torch.from_numpy(np.array(vectors, dtype=np.float32, order="C")).to(device)


def unit_(rows: Tensor) -> Tensor:
    """Scale every row to length one, in place; zero rows stay zero."""
    for block in rows.split(BLOCK_ROWS):
        length = block.norm(dim=1, keepdim=True)
        block /= torch.where(length > 0, length, torch.ones_like(length))
    return rows


def centre_(rows: Tensor, first: int | None = None) -> Tensor:
    """Subtract the mean of the ``first`` rows (None: of all) from every row, in place."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for block in rows[:first].split(BLOCK_ROWS):
        total += block.cpu().double().sum(dim=0)
    mean = (total / max(1, len(rows[:first]))).to(rows.dtype).to(rows.device)
    for block in rows.split(BLOCK_ROWS):
        block -= mean
    return rows


def apply_(rows: Tensor, weights: Tensor | None) -> Tensor:
    """``rows @ weights`` for a square map, in place; None changes nothing."""
    if weights is not None:
        weights = weights.to(rows.dtype).to(rows.device)
        for block in rows.split(BLOCK_ROWS):
            block.copy_(block @ weights)
    return rows


def reduce_by_pca(rows: Tensor, dimensions: int) -> Tensor:
    """PCA of centred rows to fewer dimensions.

    The most frequent words choose the directions: their vectors have the least noise.
    """
    frequent = rows[:PCA_WORDS]
    directions = torch.linalg.eigh(cross_product(frequent, frequent)).eigenvectors
    directions = directions.flip(1)[:, :dimensions].to(rows.dtype).to(rows.device)
    narrow = rows.new_empty(len(rows), dimensions)
    for block, out in zip(rows.split(BLOCK_ROWS), narrow.split(BLOCK_ROWS), strict=True):
        torch.mm(block, directions, out=out)
    return narrow


def cross_product(left: Tensor, right: Tensor, *, exact: bool = True) -> Tensor:
    """``left.T @ right`` (dimensions, dimensions), accumulated in float64 on the CPU.

    ``exact=False`` multiplies the blocks in float32.
    """
    total = torch.zeros(left.shape[1], right.shape[1], dtype=torch.float64)
    for one, other in zip(left.split(BLOCK_ROWS), right.split(BLOCK_ROWS), strict=True):
        if exact:
            total += one.cpu().double().T @ other.cpu().double()
        else:
            total += (one.T @ other).cpu()
    return total


def orthogonal_map(source: Tensor, target: Tensor, *, exact: bool = True) -> Tensor:
    """The orthogonal float64 W with ``source @ W`` nearest to ``target`` (Procrustes)."""
    left, _, right = torch.linalg.svd(cross_product(source, target, exact=exact))
    return left @ right


def mapped_unit(rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mapped rows at unit length, and the lengths (rows, 1) that they had."""
    mapped = rows @ weights
    lengths = mapped.norm(dim=1, keepdim=True).clamp_min_(1e-9)
    return mapped.div_(lengths), lengths
