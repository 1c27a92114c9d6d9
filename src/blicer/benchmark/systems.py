"""What a unit compares: the space alone, and the space mixed with other scorers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, Mixture, choose_weights, gold_marks, score_candidates
from blicer.pipeline import Recipe

if TYPE_CHECKING:
    from blicer.config import Config
    from blicer.pipeline import Fitted, HeldOutView

SPACE = "space"
SYSTEMS: dict[str, tuple[str, ...]] = {
    SPACE: (),
    "A": ("use-cosine",),
    "B": ("use-cosine", "spelling"),
    "untuned": ("untuned",),
    "tuned": ("cross-encoder",),
    "tuned+endings": ("endings", "cross-encoder"),
}
"""What each system mixes with CSLS. ``tuned`` is the paper's method; A and B are controls that
learn nothing but their weights."""
NEED_A_PACKAGE = ("use-cosine",)  # scorers from a package that is not always installed

BOOTSTRAP = 10_000
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def check_systems(names: Iterable[str]) -> tuple[str, ...]:
    """The asked systems in the order of ``SYSTEMS``; the space is always among them."""
    asked = {SPACE, *names}
    if unknown := sorted(asked.difference(SYSTEMS)):
        raise InputError(f"there is no system {unknown[0]!r}; there are {', '.join(SYSTEMS)}")
    return tuple(name for name in SYSTEMS if name in asked)


def default_system(config: Config) -> str:
    """The system that ``blicer train`` makes with this configuration."""
    usual = set(Recipe().resolved(config, 0).scorers)
    return next((name for name, parts in SYSTEMS.items() if set(parts) == usual), "tuned")


def usual_systems(config: Config) -> tuple[str, ...]:
    """What is compared unless asked otherwise: the space, the paper's method, our default."""
    return check_systems(("tuned", default_system(config)))


def scorers_for(systems: Iterable[str]) -> tuple[str, ...]:
    """Every scorer that one of the systems mixes, once."""
    return tuple(dict.fromkeys(part for name in systems for part in SYSTEMS[name]))


def missing_systems(names: Iterable[str]) -> dict[str, str]:
    """Systems that need a package which is not installed, with the sentence that says which."""
    from blicer.scorers import ENCODERS, make_scorer

    missing: dict[str, str] = {}
    for scorer in scorers_for(names):
        if scorer in ENCODERS:
            continue
        try:
            make_scorer(scorer)
        except MissingDependency as error:
            missing |= {name: str(error) for name in names if scorer in SYSTEMS[name]}
    return missing


def could_run_now(dropped: Iterable[str]) -> bool:
    """Whether one of these systems was left out for want of a package that is there by now."""
    packaged = tuple(name for name in dropped if set(SYSTEMS[name]) & set(NEED_A_PACKAGE))
    return len(missing_systems(packaged)) < len(packaged)


def choose_mixture(
    view: HeldOutView | None, scorers: Sequence[str], mixed: Sequence[str], config: Config
) -> Mixture:
    """The weights of one system, on held-out words alone.

    ``scorers``: the columns of ``view`` after CSLS. A λ of the configuration is for the systems
    that mix one scorer; the weights of the others are chosen.
    """
    lam = config.mixing_weight
    fixed = Mixture.fixed(lam, mixed[0]) if lam is not None and len(mixed) == 1 else None
    if view is None:
        if not mixed:
            return Mixture({CSLS: 1.0})
        if fixed is None:
            raise InputError(
                "without held-out words there is nothing to choose lambda on: give one"
            )
        return fixed
    parts = view.parts[..., _columns(scorers, mixed)]
    mixture = choose_weights(parts, view.is_gold, [CSLS, *mixed])
    if fixed is not None:
        return Mixture(fixed.weights, mixture.curve, mixture.queries)
    return mixture


def _columns(scorers: Sequence[str], mixed: Sequence[str]) -> list[int]:
    return [0, *(1 + list(scorers).index(part) for part in mixed)]


def gold_ranks(final: Floats, is_gold: NDArray[np.bool_]) -> Integers:
    """Rank from 1 of the best gold of each query by its final scores; 0: not a candidate.

    Candidates come best CSLS first and that order settles ties, as in ``choose_weights``.
    """
    order = np.argsort(-final, axis=1, kind="stable")
    ordered = np.take_along_axis(is_gold, order, axis=1)
    return np.where(ordered.any(axis=1), 1 + ordered.argmax(axis=1), 0).astype(np.int64)


def measure_direction(
    fitted: Fitted,
    scorers: Sequence[str],
    mixtures: dict[str, tuple[tuple[str, ...], Mixture]],
    test: Lexicon,
    n_cand: int,
    *,
    reverse: bool,
) -> tuple[dict[str, dict[str, Any]], int]:
    """Every system's scores on the test dictionary, all from one scoring of the candidates.

    All systems order the same ``n_cand`` candidates: a gold translation that is not among them
    counts as absent for each of them, in P@5 and MRR too, so that the systems compare. (P@1 of the
    space alone is that of its full ranking; its MRR is lower by what lies beyond the candidates.)

    Also returned: how many pairs were scored.
    """
    space = fitted.space
    asked, offered = (space.target, space.source) if reverse else (space.source, space.target)
    lexicon = test.reverse() if reverse else test
    known, queries, golds = answerable_queries(lexicon, asked, offered)
    if not len(queries):
        missing = "; ".join(lexicon.coverage(asked, offered).lines())
        raise InputError(f"no word of the test dictionary can be scored: {missing}")
    scores = score_candidates(
        space, fitted.scaling, fitted.scorers, queries, n_cand, reverse=reverse
    )
    is_gold = gold_marks(scores, golds)
    values = {
        name: per_query(
            gold_ranks(mixture.combine(scores.parts[..., _columns(scorers, mixed)]), is_gold)
        )
        for name, (mixed, mixture) in mixtures.items()
    }
    outcome = {
        name: _figures(found, None if name == SPACE else values[SPACE], len(known))
        for name, found in values.items()
    }
    return outcome, int(scores.indices.size)


def _figures(values: Floats, before: Floats | None, all_queries: int) -> dict[str, Any]:
    """Metrics over the in-vocabulary queries, and the gain in P@1 over ``before``, paired."""
    p1, p5, _, mrr = values.mean(axis=0).tolist()
    return {
        "queries": len(values),
        "all_queries": all_queries,
        "p@1": p1,
        "p@5": p5,
        "mrr": mrr,
        "p@1_all": float(values[:, 0].sum()) / all_queries,
        "gain": None if before is None else paired_gain(values[:, :1] - before[:, :1]),
    }


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
