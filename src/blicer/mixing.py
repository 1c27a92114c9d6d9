"""Candidates by CSLS, their scores by every scorer, and the weights that mix the scores.

The paper mixes two scores: ``(1-λ)·scaled CSLS + λ·cross-encoder`` (docs/method.md §4). Here
weights are over CSLS and any number of scorers (§7), and their absolute values sum to 1; λ is the
second weight of the two-scorer case. Weights are chosen on held-out seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.calibration import Scored
from blicer.errors import InputError
from blicer.scorers import is_signed
from blicer.scorers.retrieval import Retrieved

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.neighbours.retriever import Neighbours
    from blicer.scorers import Scorer
    from blicer.training_pairs import Scaling

CSLS = "csls"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

STEPS = 100  # of λ, as in the paper
RIDGE = 50.0  # strong, because seeds are frequent words and weights must suit rare ones too
UNUSED = 0.02  # smaller weights, relative to the largest of the standardised scores, become 0
# Typical weights of standardised scores on pairs with seeds (training seeds only); used where no
# checked pairs can choose weights.
USUAL = {
    "csls": 1.3,
    "endings": 0.6,
    "transducer": 0.0,
    "static": 0.0,
    "way-back": 0.2,
    "frequency": 0.0,
    "frequency-match": 0.3,
    "cross-encoder": 0.3,
}


@dataclass(frozen=True)
class CandidateScores:
    """The best candidates of each query by CSLS, with the scores of every scorer."""

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
    return score_found(space, scaling, scorers, queries, found, reverse=reverse)


def score_found(
    space: Space,
    scaling: Scaling,
    scorers: Sequence[Scorer | None],
    queries: Ints,
    found: Neighbours,
    *,
    reverse: bool = False,
) -> CandidateScores:
    """Let every scorer score given candidates (None: zeros)."""
    parts = np.zeros((*found.indices.shape, 1 + len(scorers)))
    parts[..., 0] = scaling(found.scores)
    if scorers:
        sources, targets = pair_words(space, queries, found.indices, reverse=reverse)
        csls = found.scores.astype(np.float64)
        retrieved = Retrieved(space, queries, found.indices, csls, scaling.slope, reverse)
        for place, scorer in enumerate(scorers, start=1):
            if (ask := getattr(scorer, "score_retrieved", None)) is not None:
                parts[..., place] = ask(retrieved)
            elif scorer is not None:
                parts[..., place] = scorer.score(sources, targets).reshape(parts.shape[:2])
    return CandidateScores(queries, found.indices, parts)


def pair_words(
    space: Space, queries: Ints, indices: Ints, *, reverse: bool
) -> tuple[list[str], list[str]]:
    """The words of every (query, candidate): source words, then target words."""
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
        """Concatenate views, with as many candidates as every one of them has."""
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
    """(λ, P@1 on held-out seeds), if λ was chosen. λ is the total weight of all scorers, in their
    chosen proportions."""
    queries: int = 0
    """Number of held-out words of the curve."""
    precision: float | None = None
    """P@1 of the chosen weights on the held-out words."""

    def __post_init__(self) -> None:
        values = np.array(list(self.weights.values()))
        if not len(values) or not np.isfinite(values).all():
            raise InputError(f"mixing weights are {self.weights}; expected numbers")
        if wrong := [name for name, one in self.weights.items() if one < 0 and not is_signed(name)]:
            raise InputError(f"the mixing weight of {wrong[0]} is negative; expected 0 or more")
        if abs(np.abs(values).sum() - 1) > 1e-6:
            raise InputError(
                f"mixing weights are {self.weights}; expected absolute values that sum to 1"
            )

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
        return parts @ np.array([self.weights[name] for name in self.names])

    def scored(self, view: HeldOutView | CandidateScores, *, reverse: bool = False) -> Scored:
        """The input of a calibration; scores of weight 0, which may not be computed, become 0."""
        used = np.array([self.weights[name] != 0 for name in self.names])
        backward = getattr(view, "backward", np.full(len(view.queries), reverse))
        return Scored(self.combine(view.parts), view.parts * used, backward, view.queries)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Mixture:
        return cls(**{**values, "curve": tuple(map(tuple, values["curve"]))})


def choose_weights(
    parts: Floats,
    is_gold: Bools,
    names: Sequence[str],
    *,
    backward: Bools | None = None,
    checked: bool = True,
) -> Mixture:
    """Choose the weights on held-out queries: by P@1 for two scores, by likelihood for more.

    ``parts`` is (queries, candidates, scorers), best CSLS first; ``is_gold`` (queries,
    candidates). λ is the paper's: that of the best P@1 and, of equally good ones, the one nearest
    to the middle, because a point on the edge of a plateau would fall off it on other words. With
    more scores the best P@1 of a few hundred words is too random, so the likelihood decides
    (``listwise_weights``). If one direction (``backward`` marks its queries) then does worse than
    CSLS alone, λ is lowered until it does not. Pairs that nobody has checked (``checked=False``)
    come from the space itself and favour CSLS; then weights of more than two scores are the typical
    ones.
    """
    if len(parts) == 0:
        raise InputError("no held-out word to choose the mixing weights on")
    if len(names) <= 2:
        shares = np.linspace(0.0, 1.0, STEPS + 1)
        points = np.column_stack([1 - shares, shares])[:, : len(names)]
        hits = np.array([_hits(parts, is_gold, weights) for weights in points])
        chosen = points[_middle_of_plateau(hits)]
    elif not checked and set(names) <= set(USUAL):
        chosen = usual_weights(parts, names)
    else:
        chosen = listwise_weights(parts, is_gold, [is_signed(name) for name in names])
    others = chosen[1:] if chosen[1:].any() else np.full(len(chosen) - 1, 1.0)
    others = others / max(1e-12, np.abs(others).sum())
    along = {
        float(lam): np.array([1 - lam, *lam * others]) for lam in np.linspace(0.0, 1.0, STEPS + 1)
    }
    if checked:
        way = np.zeros(len(parts), bool) if backward is None else backward
        lower = [along[lam] for lam in along if 1 - lam > chosen[0]][::-1]
        fine = (one for one in (chosen, *lower) if not _loses(parts, is_gold, one, way))
        chosen = next(fine, along[0.0])
    curve = tuple(
        (lam, _hits(parts, is_gold, weights) / len(parts)) for lam, weights in along.items()
    )
    return Mixture(
        {name: float(weight) for name, weight in zip(names, chosen, strict=True)},
        curve,
        len(parts),
        float(_hits(parts, is_gold, chosen)) / len(parts),
    )


def usual_weights(parts: Floats, names: Sequence[str]) -> Floats:
    """The weights ``USUAL``, divided by the spread of the scores."""
    spread = parts.reshape(-1, parts.shape[2]).std(axis=0)
    weights = np.array([USUAL[name] for name in names])
    weights /= np.where(spread > 0, spread, np.inf)
    if not weights.any():
        weights[0] = 1.0
    weights /= np.abs(weights).sum()
    return weights


def listwise_weights(parts: Floats, is_gold: Bools, signed: Sequence[bool]) -> Floats:
    """Weights that maximise the likelihood of the gold in a softmax over each query's candidates.

    Non-negative except for ``signed`` scorers, with a ridge on standardised scores, and scaled so
    that absolute values sum to 1. Queries without a gold candidate are left out; if there are no
    others, only CSLS has a weight.
    """
    import torch  # late: the command line imports this module for its help

    asked = is_gold.any(axis=1)
    spread = parts.reshape(-1, parts.shape[2]).std(axis=0)
    alone = np.eye(parts.shape[2])[0]
    if not asked.any() or not (spread > 0).any():
        return alone
    scale = np.where(spread > 0, spread, np.inf)
    scores, gold = torch.from_numpy(parts[asked] / scale), torch.from_numpy(is_gold[asked])
    either = torch.tensor(list(signed))
    root = torch.full((parts.shape[2],), 0.5, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([root], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        solver.zero_grad()
        weights = torch.where(either, root, root**2)  # a square is never negative
        logits = scores @ weights
        right = logits.masked_fill(~gold, -torch.inf).logsumexp(dim=1)
        value = (logits.logsumexp(dim=1) - right).sum() + RIDGE * (weights**2).sum()
        value.backward()
        return value

    solver.step(loss)
    found = torch.where(either, root, root**2).detach()
    weights = found.numpy() / scale
    if not np.isfinite(weights).all() or not weights.any():
        return alone
    weights[np.abs(found.numpy()) < UNUSED * np.abs(found.numpy()).max()] = 0.0  # not worth running
    weights /= np.abs(weights).sum()
    return weights


def _right(parts: Floats, is_gold: Bools, weights: Floats) -> Bools:
    """Whether each query has a gold translation on top."""
    best = (parts @ weights).argmax(axis=1)  # ties: the better by CSLS
    return is_gold[np.arange(len(parts)), best]


def _hits(parts: Floats, is_gold: Bools, weights: Floats) -> int:
    return int(_right(parts, is_gold, weights).sum())


def _loses(parts: Floats, is_gold: Bools, weights: Floats, backward: Bools) -> bool:
    """Whether some direction has fewer right answers than CSLS alone, by a standard error."""
    alone = _right(parts[..., :1], is_gold, np.ones(1))
    change = _right(parts, is_gold, weights).astype(int) - alone
    return any(
        change[way].sum() < -np.sqrt(np.abs(change[way]).sum()) for way in (backward, ~backward)
    )


def _middle_of_plateau(hits: Floats) -> int:
    """The middle of the longest run of best points."""
    best = np.flatnonzero(hits == hits.max())
    longest = max(np.split(best, np.flatnonzero(np.diff(best) > 1) + 1), key=len)
    return int(longest[(len(longest) - 1) // 2])
