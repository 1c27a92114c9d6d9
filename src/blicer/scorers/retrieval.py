"""Facts about candidates that CSLS ignores: their own best matches, and word frequencies.

These scorers use the space instead of the words, so they suit all languages (docs/method.md §7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from blicer.align.space import Space

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Retrieved:
    """Queries with their candidates in a space."""

    space: Space
    queries: Ints  # (q,)
    indices: Ints  # (q, k)
    csls: Floats  # (q, k)
    slope: float  # of the pair's scaling, to convert CSLS to units of the scaled score
    reverse: bool

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of words on the side of the queries, and on that of the candidates."""
        sizes = len(self.space.source), len(self.space.target)
        return sizes[::-1] if self.reverse else sizes


class WayBack:
    """How near the candidate's own best match is: 1 if the word asked for is that match."""

    name = "way-back"
    signed = True

    def score_retrieved(self, found: Retrieved) -> Floats:
        best = found.space.retriever.best_scores(found.indices.ravel(), reverse=not found.reverse)
        gap = found.csls - best.reshape(found.indices.shape)
        return np.clip(1 + found.slope * gap, 0.0, 1.0)


class Frequency:
    """How frequent the candidate is: 1 for the first word of its vector file, 0 for the last."""

    name = "frequency"
    signed = True

    def score_retrieved(self, found: Retrieved) -> Floats:
        return 1 - np.log1p(found.indices) / np.log1p(found.sizes[1])


class FrequencyMatch:
    """How alike the two words' ranks in their vector files are, on a logarithmic scale."""

    name = "frequency-match"
    signed = True

    def score_retrieved(self, found: Retrieved) -> Floats:
        asked, offered = (np.log1p(rows) for rows in (found.queries[:, None], found.indices))
        return 1 - np.abs(asked - offered) / np.log1p(max(found.sizes))
