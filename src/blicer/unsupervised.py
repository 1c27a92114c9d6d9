"""Training without a seed pair (docs/method.md §8).

The space comes from self-learning; where its first dictionary comes from is the start. Which start
works is not known beforehand, so each is tried until the outcome converges.

λ and the confidence are chosen on pairs that nobody has checked. The most confident pairs of the
space, which the cross-encoder learns from, will not do: CSLS is right on them by construction. So
they are neighbours in two views, the space and an encoder's own vectors side by side, drawn at
random whatever their confidence; where one view alone is wrong the other may outvote it. A new map
and a new cross-encoder are fitted without their words, and then both are asked.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from blicer.align import aligner_class
from blicer.align.base import unit_
from blicer.config import AUTO, Config
from blicer.encoders.words import WordEncoder
from blicer.errors import BlicerError, InputError
from blicer.neighbours.mining import mutual_neighbours
from blicer.neighbours.retriever import Retriever
from blicer.pipeline import (
    FEWEST_SEEDS,
    NO_PAIRS,
    LanguagePair,
    Names,
    Pairs,
    Prepared,
    check_config,
    count,
    fit,
    fit_space,
    held_out_view,
)
from blicer.progress import note
from blicer.translator import Translator

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.embeddings import Embeddings

SECOND_VIEW, VIEW_WORDS = "lite", 20_000
# In this order unless the user names one: the cheapest that work best come first.
STARTS = ("encoder", "identical", "numerals", "distributions")


def train_unsupervised(
    source: Embeddings,
    target: Embeddings,
    config: Config | None = None,
    *,
    space: Space | None = None,
    names: Names = (None, None),
    init: str = AUTO,
    work_dir: str | Path | None = None,
) -> Translator:
    """Make a translator from two sets of vectors and nothing else.

    ``init`` names the start of the space (one of ``STARTS``); by default each is tried in turn.
    The other arguments are those of ``blicer.train``.
    """
    config = config or Config.for_seeds(0)
    prepared = prepare_unsupervised(
        source, target, config, space=space, names=names, init=init, work_dir=work_dir
    )
    return prepared.translator()


def prepare_unsupervised(
    source: Embeddings,
    target: Embeddings,
    config: Config,
    *,
    space: Space | None = None,
    names: Names = (None, None),
    init: str = AUTO,
    work_dir: str | Path | None = None,
) -> Prepared:
    """Fit space, silver pairs and scorers, and score held-out silver pairs to choose λ on."""
    config = config.for_training(config.n_aug)
    check_config(config, needs_space=space is None)
    pair = LanguagePair(source, target, names, Path(work_dir) if work_dir else None)
    tried: list[dict[str, Any]] = []
    if space is None:
        space, tried = find_space(pair, config, init)
    (fitted,) = fit([pair], [NO_PAIRS], config, space=space)
    pairs = fitted.pairs
    silver = np.stack([pairs.source, pairs.target], axis=1)[pairs.is_positive]
    if len(silver) < FEWEST_SEEDS:
        raise BlicerError(
            f"the space gave {len(silver)} silver pairs; training needs at least {FEWEST_SEEDS} "
            "(are the vocabularies large enough, most frequent words first?)"
        )
    held = two_view_pairs(pair, space, config, len(silver))
    view = None
    if len(held):  # scored by a new map and new scorers that never see their words
        apart = ~np.isin(silver[:, 0], held[:, 0]) & ~np.isin(silver[:, 1], held[:, 1])
        rest = silver[apart]
        note(f"choosing on {count(held)} pairs of two views: fitting on {len(rest)} silver pairs")
        # The rest are all the positives there are: no more are mined.
        again = config.replace(
            n_aug=0, space="vecmap", space_mode="supervised", space_settings={}, folds=1
        )
        (without,) = fit([pair], [rest], again, reserved=[held])
        view = held_out_view(without, held, held, again)
    found = {"tried": tried, "silver_pairs": len(silver), "chosen_on": len(held)}
    return Prepared(fitted, view, 0, True, config, notes={"unsupervised": found})


def two_view_pairs(pair: LanguagePair, space: Space, config: Config, silver: int) -> Pairs:
    """Mutual neighbours of frequent words in space and encoder together, drawn at random."""
    if config.holdout == 0:
        return NO_PAIRS
    encoder = WordEncoder(SECOND_VIEW, device=config.device)
    sides = []
    for side in (space.source, space.target):
        own = unit_(torch.from_numpy(encoder.encode(side.words[:VIEW_WORDS], cache=pair.work)))
        mapped = unit_(torch.tensor(side.vectors[:VIEW_WORDS], dtype=torch.float32))
        sides.append(torch.cat([mapped, own], dim=1))
    pairs = mutual_neighbours(Retriever(*sides, device=config.device))
    order = np.random.default_rng(config.split_seed).permutation(len(pairs))
    return pairs[order[: max(1, round(config.holdout * silver))]]


def check_start(method: str, init: str) -> None:
    """Unknown starts, and methods that need seeds, raise ``InputError``."""
    if init not in (AUTO, *STARTS):
        raise InputError(f"init is {init!r}; expected one of {', '.join((AUTO, *STARTS))}")
    if "unsupervised" not in aligner_class(method).presets:
        raise InputError(f"{method} needs seed pairs; without any take vecmap, c1 or c2")


def find_space(
    pair: LanguagePair, config: Config, init: str = AUTO
) -> tuple[Space, list[dict[str, Any]]]:
    """The first space that converges, and how every start that was tried went."""
    check_start(config.space, init)
    starts: Sequence[str] = STARTS if init == AUTO else (init,)
    tried: list[dict[str, Any]] = []
    for start in starts:
        note(f"unsupervised {config.space}, starting from {start}")
        settings = {**config.space_settings, "init": start}
        chosen = config.replace(space_settings=settings, space_mode="unsupervised")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # failures are reported below
                space = fit_space(pair, None, chosen)
        except InputError as error:
            # No numeral, no word spelled alike: this start does not exist for this pair.
            tried.append({"start": start, "converged": False, "verdict": str(error)})
        else:
            reached = {
                key: space.settings.get(key) for key in ("objective", "convergence", "verdict")
            }
            good = bool(space.settings.get("converged", True))
            tried.append({"start": start, "converged": good, **reached})
            if good:
                return space, tried
        if start != starts[-1]:  # the error below reports the last one
            note(f"starting from {start} failed: {tried[-1]['verdict']}")
    said = "; ".join(f"{one['start']}: {one['verdict']}" for one in tried)
    raise BlicerError(
        f"no start led to a space that holds up, so none is handed over ({said}); give seed "
        "pairs: some hundreds suffice"
    )
