"""A workshop that knows how long each stage took, also one that another unit made before."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from blicer.files import read_json, write_json
from blicer.workshop import Workshop

if TYPE_CHECKING:
    from blicer.align.base import Aligner
    from blicer.align.space import Space
    from blicer.lexicon import Lexicon
    from blicer.pairs import TrainingPairs
    from blicer.scorers.cross_encoder import CrossEncoderScorer

T = TypeVar("T")


class TimedWorkshop(Workshop):
    """Units share stages; each still reports what its fit would have taken on its own."""

    def __init__(self, *arguments: Any) -> None:
        self.spared = 0.0  # seconds that stages found on disk took when they were made
        self._place: Path | None = None
        self._was_there = False
        self._rerankers: list[Path] = []
        super().__init__(*arguments)

    def stage(self, kind: str, *what: Any) -> Path | None:
        place = super().stage(kind, *what)
        if kind == "reranker" and place is not None:
            self._rerankers.append(place)
        return self._seen(place)

    def kept_space(self, aligner: Aligner, seeds: Lexicon | None) -> Space:
        def make() -> Space:
            self._seen(aligner.place(self.source, self.target, seeds))
            return super(TimedWorkshop, self).kept_space(aligner, seeds)

        return self._timed(make)

    def pairs(self, space: Space, seeds: Lexicon, reserved: Lexicon | None = None) -> TrainingPairs:
        return self._timed(lambda: super(TimedWorkshop, self).pairs(space, seeds, reserved))

    def cross_encoder(self, space: Space, pairs: TrainingPairs) -> CrossEncoderScorer:
        return self._timed(lambda: super(TimedWorkshop, self).cross_encoder(space, pairs))

    def _seen(self, place: Path | None) -> Path | None:
        self._place = place
        self._was_there = place is not None and place.is_dir()
        return place

    def _timed(self, make: Callable[[], T]) -> T:
        self._place = None
        started = time.perf_counter()
        made = make()
        seconds = time.perf_counter() - started
        if self._place is None:
            return made
        record = _record(self._place)
        if not self._was_there:
            write_json(record, seconds)
        elif record.is_file():
            self.spared += max(0.0, float(read_json(record)) - seconds)
        return made

    def remove_rerankers(self) -> None:
        """Spaces serve other units; a finished unit's cross-encoders only fill the disk."""
        remove(self._rerankers)


def kept_rerankers(folder: Path) -> set[Path]:
    """Trained cross-encoders in a work folder, without checkpoints of unfinished ones."""
    return {path for path in folder.glob("reranker-*") if path.is_dir() and not path.suffix}


def remove(places: Iterable[Path]) -> None:
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
        _record(place).unlink(missing_ok=True)


def _record(place: Path) -> Path:
    return place.with_name(f"{place.name}.seconds.json")
