"""The systems that a unit compares: the space alone, and the space mixed with other scorers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.errors import InputError, MissingDependency
from blicer.evaluation import (
    answerable_queries,
    interval,
    paired_p_values,
    per_query,
    resampled_means,
)
from blicer.mixing import CSLS, HeldOutView, Mixture, gold_marks, score_candidates
from blicer.pipeline import choose
from blicer.scorers import NEED_ENCODER, make_scorer

if TYPE_CHECKING:
    from blicer.config import Config
    from blicer.lexicon import Lexicon
    from blicer.pipeline import Prepared

SPACE = "space"
SYSTEMS: dict[str, tuple[str, ...]] = {
    SPACE: (),
    "A": ("use-cosine",),
    "B": ("use-cosine", "spelling"),
    "untuned": ("untuned",),
    "tuned": ("cross-encoder",),
    "tuned+endings": ("endings", "cross-encoder"),
}
"""The scorers that each system mixes with CSLS. ``tuned`` is the paper's method; A and B are
controls that learn nothing but their weights."""
DIRECTIONS = ("forward", "backward")
BOOTSTRAP = 10_000  # draws of the paired test
Floats = NDArray[np.float64]


def check_systems(names: Iterable[str]) -> tuple[str, ...]:
    """The systems in the order of ``SYSTEMS``, always with the space; unknown ones raise."""
    asked = {SPACE, *names}
    if unknown := sorted(asked.difference(SYSTEMS)):
        raise InputError(f"there is no system {unknown[0]!r}; there are {', '.join(SYSTEMS)}")
    return tuple(name for name in SYSTEMS if name in asked)


def default_system(config: Config) -> str:
    """The system that ``blicer train`` builds with this configuration."""
    scorers = set(config.for_training(0).scorers)
    return next((name for name, parts in SYSTEMS.items() if set(parts) == scorers), "tuned")


def scorers_for(systems: Iterable[str]) -> tuple[str, ...]:
    """Every scorer that one of the systems mixes, once."""
    return tuple(dict.fromkeys(part for name in systems for part in SYSTEMS[name]))


def missing_packages(systems: Iterable[str]) -> dict[str, str]:
    """The systems that need a package which is not installed, and the sentence that says which."""
    missing: dict[str, str] = {}
    for name in systems:
        try:
            for scorer in set(SYSTEMS[name]).difference(NEED_ENCODER):
                make_scorer(scorer)
        except MissingDependency as error:
            missing[name] = str(error)
    return missing


def choose_mixture(prepared: Prepared, scorers: Sequence[str], lam: float | None) -> Mixture:
    """The weights of CSLS and some of the scorers, chosen on held-out words alone.

    A fixed ``lam`` applies to systems with one scorer; the weights of the others are chosen.
    """
    if not scorers:
        return Mixture({CSLS: 1.0})
    view = prepared.held_out
    if view is not None:
        view = HeldOutView(view.parts[..., columns(prepared, scorers)], view.is_gold)
    lam = lam if len(scorers) == 1 else None
    return choose(view, prepared.config.replace(scorers=scorers, mixing_weight=lam))[0]


def columns(prepared: Prepared, scorers: Sequence[str]) -> list[int]:
    """Where CSLS and these scorers are among all that were fitted."""
    return [0, *(1 + prepared.config.scorers.index(name) for name in scorers)]


def measure(
    prepared: Prepared, systems: Mapping[str, tuple[Sequence[str], Mixture]], test: Lexicon
) -> tuple[dict[str, dict[str, Any]], int]:
    """Every system's figures in both directions, and how many pairs were scored for them.

    All systems order the same ``n_cand`` candidates: a gold translation that is not among them
    counts as absent for each, in P@5 and MRR too, so that the systems compare.
    """
    fitted, n_cand = prepared.fitted, prepared.config.n_cand
    sides, pairs_scored = (fitted.space.source, fitted.space.target), 0
    figures: dict[str, dict[str, Any]] = {name: {} for name in systems}
    for direction in DIRECTIONS:
        known, queries, golds = answerable_queries(test, *sides)
        if not len(queries):
            missing = "; ".join(test.coverage(*sides).lines())
            raise InputError(f"no word of the test dictionary can be scored: {missing}")
        scores = score_candidates(
            *(fitted.space, fitted.scaling, fitted.scorers, queries, n_cand),
            reverse=direction == "backward",
        )
        pairs_scored += int(scores.indices.size)
        is_gold = gold_marks(scores, golds)
        space: Floats | None = None  # the first system
        for name, (scorers, mixture) in systems.items():
            final = mixture.combine(scores.parts[..., columns(prepared, scorers)])
            values = per_query(gold_ranks(final, is_gold))
            p1, p5, _, mrr = values.mean(axis=0).tolist()
            figures[name][direction] = {
                "queries": len(values),
                "all_queries": len(known),
                "p@1": p1,
                "p@5": p5,
                "mrr": mrr,
                "p@1_all": float(values[:, 0].sum()) / len(known),
                "gain": None if space is None else paired_gain(values[:, :1] - space[:, :1]),
            }
            space = values if space is None else space
        test, sides = test.reverse(), sides[::-1]
    return figures, pairs_scored


def gold_ranks(final: Floats, is_gold: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rank from 1 of the best gold of each query; 0: not a candidate.

    Candidates come best CSLS first, and that order settles ties, as in ``choose_weights``.
    """
    order = np.argsort(-final, axis=1, kind="stable")
    ordered = np.take_along_axis(is_gold, order, axis=1)
    return np.where(ordered.any(axis=1), 1 + ordered.argmax(axis=1), 0).astype(np.int64)


def paired_gain(differences: Floats) -> dict[str, float]:
    """Mean of (queries, 1) differences, its 95 % interval, and p for "there is none"."""
    means = resampled_means(differences, BOOTSTRAP, seed=0)
    ((low, high),) = interval(means).tolist()
    return {
        "difference": float(differences.mean()),
        "low": low,
        "high": high,
        "p_value": float(paired_p_values(differences, means)[0]),
    }
