"""The shape that every method has: hyper-parameters in the constructor, data in ``align``."""

from __future__ import annotations

import inspect
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from blicer.align.linear import (
    centre_,
    matrix,
    normalise_,
    principal_directions,
    reduce,
    unit_,
)
from blicer.align.space import DESCRIPTION, Space
from blicer.embeddings import Embeddings
from blicer.encoders.loading import encoder_version
from blicer.errors import InputError
from blicer.files import digest
from blicer.lexicon import Lexicon
from blicer.progress import note
from blicer.stage_cache import stage, stage_folder

if TYPE_CHECKING:
    from typing_extensions import Self


# === align.seed_problems ===
SHOWN = 5  # missing words in a sentence
LOOKED_AT = 2000  # words that decide on a script


def sample(words: Iterable[str]) -> str:
    """The first few distinct words, quoted."""
    return ", ".join(f"'{word}'" for word in islice(dict.fromkeys(words), SHOWN))


def likely_reasons(source: Embeddings, target: Embeddings, seeds: Lexicon) -> list[str]:
    """Sentences, most telling first; never empty."""
    now = len(seeds.indices(source, target))
    reversed_pairs = len(seeds.reverse().indices(source, target))
    if reversed_pairs > now:
        return [
            f"the columns are swapped ({reversed_pairs} of {len(seeds)} pairs are found the other "
            "way round)"
        ]
    reasons = []
    for side, embeddings, words in (
        ("source", source, [a for a, _ in seeds]),
        ("target", target, [b for _, b in seeds]),
    ):
        missing = [word for word in words if word not in embeddings]
        if not missing:
            continue
        folded = {word.casefold() for word in embeddings.words}
        other_case = sum(word.casefold() in folded for word in missing)
        seed_script, own_script = main_script(missing), main_script(embeddings.words)
        if other_case:
            reasons.append(
                f"{other_case} of {len(missing)} missing {side} words are in the vocabulary in "
                "another case (load both with the same lowercase setting)"
            )
        elif seed_script and own_script and seed_script != own_script:
            reasons.append(
                f"the {side} seed words are written in {seed_script.capitalize()} script, the "
                f"{side} vocabulary in {own_script.capitalize()}"
            )
    return reasons or ["the seeds and the vectors are of other languages or other kinds of words"]


def main_script(words: Iterable[str]) -> str | None:
    """The script most letters are in, by the first word of their Unicode names."""
    counts: Counter[str] = Counter()
    for word in islice(words, LOOKED_AT):
        for letter in word:
            if letter.isalpha():
                counts[unicodedata.name(letter, "UNKNOWN").split()[0]] += 1
    return counts.most_common(1)[0][0] if counts else None


# === align.base ===
UNIT_CENTRE_UNIT = ("unit", "centre", "unit")
FEW = 0.1  # below this share of usable seed pairs the likely reason is said


class Aligner(ABC):
    """A way to bring two vector sets into one space.

    A subclass gives its name, its presets, and ``align``. Its constructor takes keyword
    hyper-parameters only and keeps each under its own name, so that ``settings`` can list them.
    """

    work: Path | None = None
    """A folder for what a killed run should find again; a method may leave it unused."""
    method: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]

    @abstractmethod
    def align(self, source: Embeddings, target: Embeddings, seeds: Lexicon | None = None) -> Space:
        """Map both vocabularies into one space."""

    def kept(
        self,
        source: Embeddings,
        target: Embeddings,
        seeds: Lexicon | None = None,
        *,
        k_csls: int | None = None,
    ) -> Space:
        """``align``, or the space that it made of the same data before, from ``work``.

        With ``k_csls`` its hubness is kept too, which on large vocabularies takes longer to measure
        than some maps to fit.
        """
        folder = self.place(source, target, seeds)
        if folder is None:
            return self.align(source, target, seeds)
        with stage(folder):
            return self._kept(folder, source, target, seeds, k_csls)

    def _kept(
        self,
        folder: Path,
        source: Embeddings,
        target: Embeddings,
        seeds: Lexicon | None,
        k_csls: int | None,
    ) -> Space:
        there = (folder / DESCRIPTION).is_file()
        if there:
            note(f"{self.method}: taken from {folder}")
            space = Space.load(folder)
            space.source.language, space.target.language = source.language, target.language
        else:
            space = self.align(source, target, seeds)
        if k_csls is not None and space.hubness_k != k_csls:
            there = False
            space.use_k_csls(k_csls)
            space.measure_hubness()
        if not there:
            space.save(folder)
        return space

    def fit_cached(
        self,
        source: Embeddings,
        target: Embeddings,
        pairs: np.ndarray | None,
        *,
        work: Path | None,
        k_csls: int | None = None,
    ) -> Space:
        seeds = None
        if pairs is not None:
            seeds = Lexicon((source.words[a], target.words[b]) for a, b in pairs.tolist())
        self.work = work
        return self.kept(source, target, seeds, k_csls=k_csls)

    @classmethod
    def usual_mode(cls, preset: str) -> str:
        table = {("vecmap", "semi_supervised"): "supervised", ("vecmap", "zero_shot"): "supervised"}
        usual = "semi_supervised" if preset == "zero_shot" else preset
        return table.get((cls.method, preset), usual)

    def place(self, source: Embeddings, target: Embeddings, seeds: Lexicon | None) -> Path | None:
        """Where ``kept`` keeps the space of this data."""
        if self.work is None:
            return None
        data = digest(list(source.words), list(target.words), source.vectors, target.vectors)
        known = None if seeds is None else list(seeds.listed())
        # Other weights under the same name are another encoder.
        encoder = encoder_version(getattr(self, "encoder", ""))
        return stage_folder(self.work, "space", data, self.method, self.settings, known, encoder)

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """The settings of a setup of the paper (supervised, semi_supervised, unsupervised)."""
        key = name.replace("-", "_")
        if key not in cls.presets:
            raise InputError(
                f"{cls.method} has no mode {name!r}; it has {', '.join(sorted(cls.presets))}"
            )
        return cls.configured({**cls.presets[key], **overrides})

    @classmethod
    def configured(cls, settings: Mapping[str, Any]) -> Self:
        """An instance from named settings; an unknown name is the user's mistake, and said."""
        unknown = sorted(set(settings) - set(cls.setting_names()))
        if unknown:
            raise InputError(
                f"{cls.method} has no setting {unknown[0]!r}; "
                f"it has {', '.join(cls.setting_names())}"
            )
        for name, value in settings.items():
            expected = str(inspect.signature(cls.__init__).parameters[name].annotation)
            if not _is_of_type(value, expected):
                raise InputError(
                    f"the setting {name} of {cls.method} is {value!r}; expected {expected}"
                )
        return cls(**settings)

    @classmethod
    def setting_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    @property
    def settings(self) -> dict[str, Any]:
        """The hyper-parameters, as given to the constructor."""
        return {name: getattr(self, name) for name in self.setting_names()}

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


def check_at_least(**limits: tuple[float | None, float]) -> None:
    """Each setting with its least value; one that is None is left open."""
    for name, (value, least) in limits.items():
        if value is not None and value < least:
            raise InputError(f"{name} is {value}; expected at least {least}")


def _is_of_type(value: Any, annotation: str) -> bool:
    """Whether a value given by name (a command line, a file) fits ``int``, ``float | None``, …"""
    plain = {"bool": bool, "int": int, "float": (int, float), "str": str, "None": type(None)}
    names = [name.strip() for name in annotation.split("|")]
    if not set(names) <= set(plain):
        return True  # of a richer type: its constructor checks it
    if isinstance(value, bool):
        return "bool" in names
    return any(isinstance(value, plain[name]) for name in names)  # type: ignore[arg-type]


def seeds_to_indices(
    source: Embeddings, target: Embeddings, seeds: Lexicon | None, *, method: str = "this method"
) -> np.ndarray:
    """Rows (pairs, 2) int64 of the seed pairs that both vocabularies hold; at least one.

    A pair that the user listed twice is there twice, and counts twice.
    """
    if seeds is None:
        raise InputError(f"{method} in this mode needs seed pairs, and none were given")
    if len(seeds) == 0:
        raise InputError("the seed dictionary is empty; expected at least one pair")
    pairs = seeds.indices(source, target)
    turned = len(seeds.reverse().indices(source, target))
    if turned > 2 * len(pairs) > 0:  # names that both languages share are found either way
        raise InputError(
            f"the columns of the seeds are swapped: {len(pairs)} of {len(seeds)} pairs are in the "
            f"vocabularies as they stand, {turned} the other way round"
        )
    if len(pairs) >= FEW * len(seeds) and len(pairs) > 0:
        if len(pairs) < len(seeds):
            note(
                f"{len(seeds) - len(pairs)} of {len(seeds)} seed pairs are not in the vocabularies"
            )
        return seeds.indices(source, target, repeated=True)
    reasons = likely_reasons(source, target, seeds)
    missing_source = sample([a for a, _ in seeds if a not in source])
    missing_target = sample([b for _, b in seeds if b not in target])
    missing = " and ".join(
        f"{words} from the {side} vocabulary"
        for side, words in (("source", missing_source), ("target", missing_target))
        if words
    )
    found = "none" if len(pairs) == 0 else f"only {len(pairs)}"
    sentence = (
        f"{found} of the {len(seeds)} seed pairs are in both vocabularies; missing are "
        f"{missing or 'pairs'}; likely reason: {'; '.join(reasons)}"
    )
    if len(pairs) == 0:
        raise InputError(sentence)
    note(sentence)
    return pairs


seed_indices = seeds_to_indices


def prepare(
    source: Embeddings,
    target: Embeddings,
    *,
    normalisation: tuple[str, ...] = UNIT_CENTRE_UNIT,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Normalised copies of both matrices, of one dimension.

    When the dimensions differ, the wider side is reduced to the narrower by PCA of its
    normalised vectors (centred for that, if they are not yet), to unit length.
    """
    for side, embeddings in (("source", source), ("target", target)):
        if len(embeddings) == 0:
            raise InputError(f"the {side} vectors hold no word; expected at least one")
    x = normalise_(matrix(source.vectors, device), normalisation)
    y = normalise_(matrix(target.vectors, device), normalisation)
    if source.dim == target.dim:
        return x, y
    narrow = min(source.dim, target.dim)
    side, wide = ("source", source.dim) if source.dim > narrow else ("target", target.dim)
    note(f"the {side} vectors have {wide} dimensions: reduced by PCA to {narrow}, as the others")
    if side == "source":
        return _narrowed(x, narrow, normalisation), y
    return x, _narrowed(y, narrow, normalisation)


def _narrowed(rows: Tensor, dimensions: int, normalisation: tuple[str, ...]) -> Tensor:
    """PCA of normalised rows; unit rows again."""
    if "centre" not in normalisation:
        centre_(rows)
    return unit_(reduce(rows, principal_directions(rows, dimensions)))
