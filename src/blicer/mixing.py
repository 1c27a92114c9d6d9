"""Candidates by CSLS, and what each scorer says of them: the table that mixing works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blicer.errors import InputError
from blicer.lexicon import Lexicon, find_words

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.training_pairs import Scaling


# === mixing ===
CSLS = "csls"
Floats = NDArray[np.float64]

# Steps on an edge of the simplex, by the number of scorers: λ in steps of 0.01 as in the paper,
# coarser where the number of points grows with a power.
STEPS = {1: 1, 2: 100, 3: 20, 4: 12}
COARSEST = 8


class Scorer(Protocol):
    """Whatever says how much two words look like translations, in [0, 1]."""

    @property
    def name(self) -> str: ...

    def score(self, source: Sequence[str], target: Sequence[str], /) -> NDArray[np.float32]:
        """One score for each pair ``(source[i], target[i])``."""
        ...


@dataclass(frozen=True)
class Mixture:
    """Weights by scorer, CSLS first, and how they came about."""

    weights: dict[str, float]
    curve: tuple[tuple[float, float], ...] = field(default=())
    """(λ, P@1 on held-out seeds) where λ was chosen; λ is the share of all that is not CSLS, the
    scorers among themselves in their chosen proportions."""
    queries: int = 0
    """Held-out words that the curve was measured on; 0 when there are none."""
    precision: float | None = None
    """P@1 of the chosen weights on the held-out words, candidates only."""

    def __post_init__(self) -> None:
        values = np.array(list(self.weights.values()))
        if not len(values) or not (np.isfinite(values).all() and (values >= 0).all()):
            raise InputError(f"mixing weights are {self.weights}; expected numbers of at least 0")
        if abs(values.sum() - 1) > 1e-6:
            raise InputError(f"mixing weights are {self.weights}; expected a sum of 1")

    @classmethod
    def fixed(cls, lam: float, scorer: str) -> Mixture:
        """The paper's mixture with a given λ."""
        if not 0 <= lam <= 1:
            raise InputError(f"lambda is {lam}; expected a number from 0 to 1")
        return cls({CSLS: 1 - lam, scorer: lam})

    @property
    def names(self) -> list[str]:
        return list(self.weights)

    @property
    def lam(self) -> float:
        """The share of all that is not CSLS."""
        return 1.0 - self.weights.get(CSLS, 0.0)

    def combine(self, parts: Floats) -> Floats:
        """(queries, candidates, scorers) to (queries, candidates), scorers in ``names`` order."""
        mixed: Floats = parts @ np.array([self.weights[name] for name in self.names])
        return mixed

    def to_dict(self) -> dict[str, Any]:
        return {
            "weights": self.weights,
            "curve": [list(point) for point in self.curve],
            "queries": self.queries,
            "precision": self.precision,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Mixture:
        return cls(
            dict(values["weights"]),
            tuple((float(a), float(b)) for a, b in values.get("curve", ())),
            int(values.get("queries", 0)),
            values.get("precision"),
        )


def choose_weights(parts: Floats, is_gold: NDArray[np.bool_], names: Sequence[str]) -> Mixture:
    """The weights with the best P@1 on held-out queries.

    ``parts`` is (queries, candidates, scorers), best CSLS first; ``is_gold`` (queries,
    candidates). Where several points do equally well, the one nearest to the middle of them is
    taken: the edge of a plateau would fall off it on other words.
    """
    if parts.ndim != 3 or parts.shape[2] != len(names) or parts.shape[:2] != is_gold.shape:
        raise InputError(f"scores of shape {parts.shape} do not fit {len(names)} scorers")
    if len(parts) == 0:
        raise InputError("no held-out word to choose the mixing weights on")
    points = simplex(len(names), STEPS.get(len(names), COARSEST))
    hits = np.array([_hits(parts, is_gold, weights) for weights in points])
    chosen = _middle_of_plateau(points, hits)
    curve: tuple[tuple[float, float], ...] = ()
    if len(names) > 1:
        others = points[chosen][1:]
        others = others / others.sum() if others.any() else np.full(len(others), 1 / len(others))
        line = np.linspace(0.0, 1.0, STEPS[2] + 1)
        curve = tuple(
            (float(lam), _hits(parts, is_gold, np.array([1 - lam, *lam * others])) / len(parts))
            for lam in line
        )
    return Mixture(
        {name: float(weight) for name, weight in zip(names, points[chosen], strict=True)},
        curve,
        len(parts),
        float(hits[chosen]) / len(parts),
    )


def _hits(parts: Floats, is_gold: NDArray[np.bool_], weights: Floats) -> int:
    """How many queries have a gold translation on top."""
    best = (parts @ weights).argmax(axis=1)  # ties: the better by CSLS
    return int(is_gold[np.arange(len(parts)), best].sum())


def simplex(scorers: int, steps: int) -> Floats:
    """All points with coordinates in multiples of 1/steps that sum to 1, CSLS's weight falling."""
    if scorers == 1:
        return np.ones((1, 1))
    rows = [
        [steps - sum(rest), *rest]
        for rest in np.ndindex(*(steps + 1 for _ in range(scorers - 1)))
        if sum(rest) <= steps
    ]
    return np.array(rows, dtype=np.float64) / steps


def _middle_of_plateau(points: Floats, hits: Floats) -> int:
    """Of the best points, those that hang together in the largest plateau; then its middle."""
    best = np.flatnonzero(hits == hits.max())
    step = np.abs(points[0] - points[1]).max() if len(points) > 1 else 1.0
    plateau = max(_connected(points[best], step * 1.01), key=len)
    members = best[plateau]
    centre = points[members].mean(axis=0)
    distance = ((points[members] - centre) ** 2).sum(axis=1)
    return int(members[distance.argmin()])


def _connected(points: Floats, reach: float) -> list[list[int]]:
    """Groups of points that neighbours (no coordinate differing by more than ``reach``) join."""
    left = set(range(len(points)))
    groups = []
    while left:
        group, edge = [], [min(left)]
        left.discard(edge[0])
        while edge:
            here = edge.pop()
            group.append(here)
            near = [i for i in left if np.abs(points[i] - points[here]).max() <= reach]
            left.difference_update(near)
            edge.extend(near)
        groups.append(sorted(group))
    return groups


# === candidates ===
@dataclass(frozen=True)
class CandidateScores:
    """For each query (row) its n_cand best candidates by CSLS, and every scorer's view of them."""

    queries: NDArray[np.int64]  # (q,)
    indices: NDArray[np.int64]  # (q, k), best CSLS first
    parts: NDArray[np.float64]  # (q, k, 1 + scorers): scaled CSLS, then the scorers in order


def score_candidates(
    space: Space,
    scaling: Scaling,
    scorers: Sequence[Scorer],
    queries: Any,
    n_cand: int,
    *,
    reverse: bool = False,
) -> CandidateScores:
    """Retrieve by CSLS and let every scorer score; a pair is given as (source, target) always."""
    queries = np.asarray(queries, dtype=np.int64)
    found = space.retriever.search(n_cand, queries, reverse=reverse)
    shape = found.indices.shape
    parts = np.empty((*shape, 1 + len(scorers)))
    parts[..., 0] = scaling(found.scores)
    if scorers:
        sources, targets = pair_words(space, queries, found.indices, reverse=reverse)
        for place, scorer in enumerate(scorers, start=1):
            parts[..., place] = scorer.score(sources, targets).reshape(shape)
    return CandidateScores(queries, found.indices, parts)


def pair_words(
    space: Space, queries: NDArray[np.int64], indices: NDArray[np.int64], *, reverse: bool
) -> tuple[list[str], list[str]]:
    """The words of every (query, candidate), source word first whatever the direction."""
    asked, offered = (space.target, space.source) if reverse else (space.source, space.target)
    left = [asked.words[i] for i in np.repeat(queries, indices.shape[1]).tolist()]
    right = [offered.words[i] for i in indices.ravel().tolist()]
    return (right, left) if reverse else (left, right)


def gold_marks(scores: CandidateScores, golds: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """(q, k): whether each candidate is among its query's gold translations."""
    marks = np.zeros(scores.indices.shape, dtype=bool)
    for row, (candidates, gold) in enumerate(zip(scores.indices, golds, strict=True)):
        marks[row] = np.isin(candidates, gold)
    return marks


def queries_with_gold(
    lexicon: Lexicon, everything: Lexicon, space: Space, *, reverse: bool = False
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Query words of a held-out ``lexicon`` in vocabulary, with all their in-vocabulary golds.

    A word that ``everything`` has other translations of is left out: those were trained on.
    """
    if reverse:
        lexicon, everything = lexicon.reverse(), everything.reverse()
    asked, offered = (space.target, space.source) if reverse else (space.source, space.target)
    rows, _ = find_words(lexicon.targets, asked)
    queries, golds = [], []
    for word, row in rows.items():
        translations = lexicon.targets[word]
        if set(everything.targets.get(word, ())) - set(translations):
            continue
        found, _ = find_words(translations, offered)
        if found:
            queries.append(row)
            golds.append(np.array(sorted(set(found.values())), dtype=np.int64))
    return np.array(queries, dtype=np.int64), golds
