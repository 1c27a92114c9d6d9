"""Candidates by CSLS, what every scorer says of them, and the weights that mix the scores.

The paper mixes two scores: ``(1-λ)·scaled CSLS + λ·cross-encoder`` (docs/method.md §4). Here
weights lie on the simplex (none negative, sum 1) over CSLS and any number of scorers (§7); λ is the
second weight of the two-scorer case. Weights are chosen on held-out seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.errors import InputError

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.scorers import Scorer
    from blicer.training_pairs import Scaling

CSLS = "csls"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Steps along an edge of the simplex, by the number of scores: λ in steps of 0.01 as in the paper,
# coarser where the number of points grows with a power.
STEPS = {2: 100, 3: 20, 4: 12}
COARSEST = 8


@dataclass(frozen=True)
class CandidateScores:
    """For each query (row) its best candidates by CSLS, with every scorer's score of them."""

    queries: Ints  # (q,)
    indices: Ints  # (q, k), best CSLS first
    parts: Floats  # (q, k, 1 + scorers): scaled CSLS, then the scorers in order


def score_candidates(
    space: Space,
    scaling: Scaling,
    scorers: Sequence[Scorer | None],
    queries: Any,
    n_cand: int,
    *,
    reverse: bool = False,
) -> CandidateScores:
    """Retrieve ``n_cand`` candidates by CSLS and let every scorer score them (None: zeros)."""
    queries = np.asarray(queries, dtype=np.int64)
    found = space.retriever.search(n_cand, queries, reverse=reverse)
    parts = np.zeros((*found.indices.shape, 1 + len(scorers)))
    parts[..., 0] = scaling(found.scores)
    if scorers:
        sources, targets = pair_words(space, queries, found.indices, reverse=reverse)
        for place, scorer in enumerate(scorers, start=1):
            if scorer is not None:
                parts[..., place] = scorer.score(sources, targets).reshape(parts.shape[:2])
    return CandidateScores(queries, found.indices, parts)


def pair_words(
    space: Space, queries: Ints, indices: Ints, *, reverse: bool
) -> tuple[list[str], list[str]]:
    """The words of every (query, candidate), source word first whatever the direction."""
    asked, offered = (space.target, space.source) if reverse else (space.source, space.target)
    left = [asked.words[i] for i in np.repeat(queries, indices.shape[1]).tolist()]
    right = [offered.words[i] for i in indices.ravel().tolist()]
    return (right, left) if reverse else (left, right)


@dataclass(frozen=True)
class HeldOutView:
    """Every scorer's scores of held-out words' candidates, both directions together."""

    parts: Floats  # (words, candidates, 1 + scorers), CSLS first
    is_gold: Bools  # (words, candidates)
    queries: Ints  # (words,): rows of source words, or of target words if backward
    candidates: Ints  # (words, candidates): rows on the other side
    backward: Bools  # (words,)
    golds: Sequence[Ints]  # rows of each word's translations, candidates or not

    @classmethod
    def joined(cls, views: Sequence[HeldOutView]) -> HeldOutView:
        """Stack several views, with as many candidates as all of them have."""
        width = min(view.parts.shape[1] for view in views)
        return cls(
            np.concatenate([view.parts[:, :width] for view in views]),
            np.concatenate([view.is_gold[:, :width] for view in views]),
            np.concatenate([view.queries for view in views]),
            np.concatenate([view.candidates[:, :width] for view in views]),
            np.concatenate([view.backward for view in views]),
            [gold for view in views for gold in view.golds],
        )


def gold_marks(scores: CandidateScores, golds: Sequence[Ints]) -> Bools:
    """Whether each candidate (q, k) is among its query's gold translations."""
    marks = [np.isin(row, gold) for row, gold in zip(scores.indices, golds, strict=True)]
    return np.array(marks, dtype=bool).reshape(scores.indices.shape)


@dataclass(frozen=True)
class Mixture:
    """Weights by scorer, CSLS first, and how they were chosen."""

    weights: dict[str, float]
    curve: tuple[tuple[float, float], ...] = ()
    """(λ, P@1 on held-out seeds) where λ was chosen; λ is the total weight of all scorers, which
    keep their chosen proportions along the curve."""
    queries: int = 0
    """Number of held-out words that the curve was measured on."""
    precision: float | None = None
    """P@1 of the chosen weights on the held-out words."""

    def __post_init__(self) -> None:
        values = np.array(list(self.weights.values()))
        if not len(values) or not (np.isfinite(values).all() and (values >= 0).all()):
            raise InputError(f"mixing weights are {self.weights}; expected numbers of at least 0")
        if abs(values.sum() - 1) > 1e-6:
            raise InputError(f"mixing weights are {self.weights}; expected a sum of 1")

    @classmethod
    def fixed(cls, lam: float, scorer: str) -> Mixture:
        """The paper's mixture with a given λ."""
        return cls({CSLS: 1 - lam, scorer: lam})

    def __str__(self) -> str:
        return ", ".join(f"{name} {weight:.2f}" for name, weight in self.weights.items())

    @property
    def names(self) -> list[str]:
        return list(self.weights)

    def combine(self, parts: Floats) -> Floats:
        """(queries, candidates, scorers) to (queries, candidates), scorers in ``names`` order."""
        mixed: Floats = parts @ np.array([self.weights[name] for name in self.names])
        return mixed

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Mixture:
        return cls(**{**values, "curve": tuple(map(tuple, values["curve"]))})


def choose_weights(parts: Floats, is_gold: Bools, names: Sequence[str]) -> Mixture:
    """Choose the weights with the best P@1 on held-out queries.

    ``parts`` is (queries, candidates, scorers), best CSLS first; ``is_gold`` (queries,
    candidates). Where several points are equally good, the one nearest to the middle of them is
    taken: a point on the edge of a plateau would fall off it on other words.
    """
    if len(parts) == 0:
        raise InputError("no held-out word to choose the mixing weights on")
    points = simplex(len(names), STEPS.get(len(names), COARSEST))
    hits = np.array([_hits(parts, is_gold, weights) for weights in points])
    chosen = _middle_of_plateau(points, hits)
    others = points[chosen][1:]
    others = others / others.sum() if others.any() else np.full(len(others), 1 / len(others))
    curve = tuple(
        (float(lam), _hits(parts, is_gold, np.array([1 - lam, *lam * others])) / len(parts))
        for lam in np.linspace(0.0, 1.0, STEPS[2] + 1)
    )
    return Mixture(
        {name: float(weight) for name, weight in zip(names, points[chosen], strict=True)},
        curve,
        len(parts),
        float(hits[chosen]) / len(parts),
    )


def _hits(parts: Floats, is_gold: Bools, weights: Floats) -> int:
    """How many queries have a gold translation on top."""
    best = (parts @ weights).argmax(axis=1)  # ties: the better by CSLS
    return int(is_gold[np.arange(len(parts)), best].sum())


def simplex(scorers: int, steps: int) -> Floats:
    """All points with coordinates in multiples of 1/steps that sum to 1, CSLS's weight falling."""
    rows = [
        [steps - sum(rest), *rest]
        for rest in np.ndindex(*(steps + 1 for _ in range(scorers - 1)))
        if sum(rest) <= steps
    ]
    return np.array(rows, dtype=np.float64) / steps


def _middle_of_plateau(points: Floats, hits: Floats) -> int:
    """The middle of the largest connected group of best points."""
    best = np.flatnonzero(hits == hits.max())
    reach = 1.01 * np.abs(points[0] - points[1]).max()
    near = np.abs(points[best][:, None] - points[best]).max(axis=2) <= reach
    # Every point takes the least number among its neighbours' until nothing changes.
    group, before = np.arange(len(best)), None
    while before is None or (group != before).any():
        group, before = np.where(near, group, len(best)).min(axis=1), group
    names, sizes = np.unique(group, return_counts=True)
    members = best[group == names[sizes.argmax()]]
    distance = ((points[members] - points[members].mean(axis=0)) ** 2).sum(axis=1)
    return int(members[distance.argmin()])
