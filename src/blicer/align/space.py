"""``Space``: two vocabularies in one vector space, with what made it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from blicer.embeddings import Embeddings
from blicer.errors import FileError, InputError
from blicer.files import VERIFIED, atomic_folder, check_replaceable, read_marker, write_marker
from blicer.io.matrices import map_tensor

if TYPE_CHECKING:
    from blicer.neighbours.retriever import Retriever

FORMAT, VERSION = "blicer-space", 1
DESCRIPTION, HUBNESS = "space.json", "hubness.safetensors"
SIDES = ("source", "target")
LARGEST_K = 10_000  # neighbours that make up a word's hubness
Hubness = tuple[int, tuple[np.ndarray, np.ndarray]]  # the k of CSLS; source and target words


class Space:
    """Two mapped vector sets of one dimension, the method, and its settings.

    On disk it is a folder of ``space.json`` and two vector folders, ``source`` and ``target``. If
    the hubness of all words was measured, it is saved too: it takes a pass over all pairs.
    """

    def __init__(
        self,
        source: Embeddings,
        target: Embeddings,
        *,
        method: str = "files",
        settings: dict[str, Any] | None = None,
    ) -> None:
        if source.dim != target.dim:
            raise InputError(
                f"a space needs vectors of one dimension, found {source.dim} on the source side "
                f"and {target.dim} on the target side"
            )
        self.source, self.target = source, target
        self.method = method
        self.settings = dict(settings or {})
        self._hubness: Hubness | None = None

    def __repr__(self) -> str:
        return f"Space({self.method!r}, {self.source!r}, {self.target!r})"

    @property
    def dim(self) -> int:
        return self.source.dim

    @property
    def k_csls(self) -> int:
        return int(self.settings.get("k_csls", 10))

    @cached_property
    def retriever(self) -> Retriever:
        """The nearest-neighbour engine of this space, made on first use."""
        from blicer.devices import resolve_device
        from blicer.neighbours.retriever import Retriever

        device = self.settings.get("device", "auto")
        try:
            resolve_device(device)
        except InputError:  # this machine lacks the device that made the space
            device = "auto"
        k, hubness = self._hubness or (0, None)
        return Retriever(
            self.source.vectors,
            self.target.vectors,
            k_csls=self.k_csls,
            device=device,
            hubness=hubness if k == self.k_csls else None,
        )

    def use_k_csls(self, k: int) -> None:
        """Set the size of the neighbourhood in CSLS from now on."""
        if k != self.k_csls:
            self.__dict__.pop("retriever", None)
        self.settings["k_csls"] = k

    def measure_hubness(self) -> None:
        """Measure the hubness of all words now, so that ``save`` saves it."""
        _ = self.retriever.hubness

    @property
    def hubness_k(self) -> int | None:
        """The k of CSLS that the hubness was measured with; None if it was not measured."""
        measured = self._measured()
        return measured[0] if measured is not None else None

    def _measured(self) -> Hubness | None:
        """The hubness if it was measured, by the retriever or before the space was saved."""
        retriever: Retriever | None = self.__dict__.get("retriever")
        if retriever is None or retriever.known_hubness is None:
            return self._hubness
        of_source, of_target = retriever.known_hubness
        return retriever.k_csls, (of_source.cpu().numpy(), of_target.cpu().numpy())

    def gold_ranks(
        self, queries: np.ndarray, golds: Sequence[np.ndarray], *, reverse: bool = False
    ) -> np.ndarray:
        """Rank (from 1) by CSLS of each query's best gold."""
        return self.retriever.gold_ranks(queries, golds, reverse=reverse)

    def best(self, queries: np.ndarray, *, reverse: bool = False) -> np.ndarray:
        """The nearest word of each query by CSLS."""
        return self.retriever.search(1, queries, reverse=reverse).indices[:, 0]

    def save(self, folder: str | Path) -> None:
        """Write the space atomically; another space in ``folder`` is replaced."""
        description = {
            "format": FORMAT,
            "version": VERSION,
            "method": self.method,
            "settings": _plain(self.settings),
            "dim": self.dim,
            "source": {"language": self.source.language, "words": len(self.source)},
            "target": {"language": self.target.language, "words": len(self.target)},
        }
        check_replaceable(folder, DESCRIPTION, "a space")
        measured = self._measured()
        with atomic_folder(folder) as temporary:
            self.source.save(temporary / "source.safetensors")
            self.target.save(temporary / "target.safetensors")
            if measured is not None:
                description["hubness"] = {"k_csls": measured[0]}
                save_file(dict(zip(SIDES, measured[1], strict=True)), temporary / HUBNESS)
            write_marker(temporary, DESCRIPTION, description)

    @classmethod
    def load(cls, folder: str | Path) -> Space:
        """Read what ``save`` wrote."""
        folder = Path(folder)
        description = read_description(folder)
        sides = []
        for side in SIDES:
            about = description[side]
            file, language = folder / f"{side}.safetensors", about.get("language")
            words = Embeddings.load(
                file,
                lowercase=False,
                cache=False,
                language=language,
                checked=description[VERIFIED],
            )
            if len(words) != about.get("words"):
                raise FileError(
                    file,
                    f"has {len(words)} words; {DESCRIPTION} says {about.get('words')}",
                )
            sides.append(words)
        settings = description["settings"]
        space = cls(sides[0], sides[1], method=description["method"], settings=settings)
        if (about := description.get("hubness")) is not None:
            space._hubness = _read_hubness(folder, about, (len(sides[0]), len(sides[1])))
        return space

    def save_vec(self, folder: str | Path) -> tuple[Path, Path]:
        """Write two word2vec text files that other tools read, named after the languages."""
        paths = []
        for side, embeddings in zip(SIDES, (self.source, self.target), strict=True):
            language = f".{embeddings.language}" if embeddings.language else ""
            paths.append(Path(folder) / f"{side}{language}.vec")
            embeddings.save(paths[-1])
        return paths[0], paths[1]


def read_description(folder: Path) -> dict[str, Any]:
    """Content of ``space.json``; raises ``FileError`` if it lacks what ``Space.load`` needs."""
    description = read_marker(folder, DESCRIPTION, FORMAT, VERSION, "a space")
    expected = {"method": str, "settings": dict, "source": dict, "target": dict}
    if not all(isinstance(description.get(key), kind) for key, kind in expected.items()):
        raise FileError(folder / DESCRIPTION, "lacks the method, its settings, or a side")
    k = description["settings"].get("k_csls", 10)
    if type(k) is not int or not 1 <= k <= LARGEST_K:
        raise FileError(folder / DESCRIPTION, f"k_csls is {k!r}; expected 1 to {LARGEST_K}")
    return description


def _read_hubness(folder: Path, about: Any, words: tuple[int, int]) -> Hubness:
    if not isinstance(about, dict) or not isinstance(about.get("k_csls"), int):
        raise FileError(folder / DESCRIPTION, "does not say of which k its hubness is")
    first, second = (map_tensor(folder / HUBNESS, side) for side in SIDES)
    if (first.shape, second.shape) != ((words[0],), (words[1],)):
        raise FileError(
            folder / HUBNESS, f"has shapes {first.shape} and {second.shape}; expected {words} words"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise FileError(folder / HUBNESS, "has NaN or infinity in it")
    return about["k_csls"], (first, second)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON values; NumPy numbers and paths are converted."""

    def convert(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Path):
            return str(value)
        raise InputError(f"the setting {value!r} cannot be written as JSON")

    return json.loads(json.dumps(settings, default=convert))
