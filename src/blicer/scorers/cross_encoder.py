"""The cross-encoder as a scorer: both orders of a pair, each word in its template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blicer.crossencoder.model import Reranker
from blicer.scorers import CROSS_ENCODER, UNTUNED
from blicer.templates import Template


class CrossEncoderScorer:
    """The paper's cross-encoder, tuned on the training pairs.

    The score is the mean of the sigmoids of the two orders; each word keeps its own language's
    name in both (docs/method.md §4).
    """

    name = CROSS_ENCODER
    folder = "reranker"

    def __init__(
        self, reranker: Reranker, template: Template | str, names: tuple[str, str]
    ) -> None:
        self.reranker, self.template, self.names = reranker, Template.parse(template), names

    def texts(self, source: Sequence[str], target: Sequence[str]) -> tuple[list[str], list[str]]:
        fill, (left, right) = self.template.fill_all, self.names
        return fill(source, left), fill(target, right)

    def score(self, source: Sequence[str], target: Sequence[str]) -> NDArray[np.float32]:
        return self.reranker.score_both_orders(*self.texts(source, target))

    def score_parts(
        self, source: Sequence[str], target: Sequence[str], reverse: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Score one order of each pair (1: target first), for early exit."""
        return self.reranker.score_parts(*self.texts(source, target), reverse)

    def save(self, folder: Path) -> dict[str, Any]:
        self.reranker.save(folder / self.folder)
        return {"template": self.template.name, "names": list(self.names)}

    @classmethod
    def load(cls, folder: Path, values: dict[str, Any], **options: Any) -> CrossEncoderScorer:
        source, target = values["names"]
        reranker = Reranker.load(folder / cls.folder, **options)
        return cls(reranker, values["template"], (source, target))


class Untuned(CrossEncoderScorer):
    """The cross-encoder before any training: the paper's off-the-shelf ablation."""

    name = UNTUNED
    folder = "untuned"
