"""Without a seed pair: a space, silver pairs, a reranker, and a λ that asks for no gold.

The space comes from self-learning; where its first dictionary comes from is the start. Which start
works is not known beforehand, so each is tried until the outcome holds up (``align.convergence``).

λ and the confidence are chosen on pairs that nobody has checked. The most confident pairs of the
space, which the cross-encoder learns from, will not do: CSLS is right on them by construction. So
they are neighbours in two views, the space and an encoder's own vectors side by side, drawn at
random whatever their confidence; where one view alone is wrong the other may outvote it. A new map
and a new cross-encoder are fitted without their words, and then both are asked.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from blicer.align import aligner_class
from blicer.align.base import unit_
from blicer.align.space import Space
from blicer.config import Config
from blicer.encoders.words import WordEncoder
from blicer.errors import BlicerError, InputError
from blicer.lexicon import Lexicon
from blicer.neighbours.mining import mutual_neighbours
from blicer.neighbours.retriever import Retriever
from blicer.pipeline import (
    FEWEST_SEEDS,
    Fitted,
    HeldOutView,
    Prepared,
    Recipe,
    Workshop,
    check_choice,
    defaults_for,
    make_aligner,
)
from blicer.progress import note
from blicer.translator import Translator

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings

AUTO = "auto"
VIEW, VIEW_WORDS = "lite", 20_000  # the second view that λ is chosen with
# In this order when the start is not said: the cheapest that work best come first.
STARTS = ("encoder", "identical", "numerals", "distributions")


def train_unsupervised(
    source: Embeddings,
    target: Embeddings,
    config: Config | None = None,
    recipe: Recipe | None = None,
    *,
    init: str = AUTO,
    work_dir: str | Path | None = None,
) -> Translator:
    """A translator from two sets of vectors and nothing else."""
    config = config or Config.resolve(defaults=defaults_for(0))
    recipe = (recipe or Recipe()).resolved(config, config.n_aug)
    check_choice(config, recipe)
    workshop = Workshop(source, target, config, recipe, Path(work_dir) if work_dir else None)
    return prepare_unsupervised(workshop, init=init).translator()


def prepare_unsupervised(workshop: Workshop, *, init: str = AUTO) -> Prepared:
    """Space, silver pairs and scorers, and a view on held-out silver pairs to choose λ on."""
    config, recipe = workshop.config, workshop.recipe
    space, tried = find_space(workshop, init)
    final = Workshop(
        workshop.source, workshop.target, config, replace(recipe, space=space), workshop.folder
    )
    pairs = final.pairs(final.space(Lexicon([])), Lexicon([]))
    silver = _silver(space, pairs)
    held = _pairs_of_two_views(space, recipe, len(silver), workshop.folder)
    view = _view(workshop, silver, held) if len(held) else None
    fitted = Fitted(space, pairs, final.scorers(space, pairs))
    found = {"tried": tried, "silver_pairs": len(silver), "chosen_on": len(held)}
    return Prepared(
        fitted,
        view,
        seeds=0,
        refit=True,
        config=config,
        recipe=recipe,
        notes={"unsupervised": found},
    )


def _silver(space: Space, pairs: Any) -> Lexicon:
    rows = pairs.is_positive.nonzero()[0]
    words = [
        (space.source.words[pairs.source[row]], space.target.words[pairs.target[row]])
        for row in rows
    ]
    if len(words) < FEWEST_SEEDS:
        raise BlicerError(
            f"the space gave {len(words)} silver pairs; training needs at least {FEWEST_SEEDS} "
            "(are the vocabularies large enough, most frequent words first?)"
        )
    return Lexicon(words)


def _pairs_of_two_views(space: Space, recipe: Recipe, silver: int, folder: Path | None) -> Lexicon:
    """Frequent words and their mutual neighbours in space and encoder, at random; no word twice."""
    if recipe.holdout == 0:
        return Lexicon([])
    encoder = WordEncoder(VIEW, device=recipe.device)
    sides = []
    for side in (space.source, space.target):
        own = unit_(torch.from_numpy(encoder.encode(side.words[:VIEW_WORDS], cache=folder)))
        mapped = unit_(torch.tensor(side.vectors[:VIEW_WORDS], dtype=torch.float32))
        sides.append(torch.cat([mapped, own], dim=1))
    pairs = mutual_neighbours(Retriever(*sides, device=recipe.device))
    order = np.random.default_rng(recipe.split_seed).permutation(len(pairs))
    chosen = pairs[order[: max(1, round(recipe.holdout * silver))]]
    return Lexicon((space.source.words[a], space.target.words[b]) for a, b in chosen.tolist())


def _view(workshop: Workshop, silver: Lexicon, held: Lexicon) -> HeldOutView:
    """What a new map and new scorers say of held-out pairs whose words they never saw."""
    left, right = ({pair[side] for pair in held} for side in (0, 1))
    rest = Lexicon(pair for pair in silver if pair[0] not in left and pair[1] not in right)
    note(f"choosing on {len(held)} pairs of two views: fitting on {len(rest)} silver pairs")
    # The others are all the positives there are: none is mined again.
    recipe = replace(
        workshop.recipe, space="vecmap", space_mode="supervised", space_settings={}, folds=1
    )
    config = workshop.config.replace(n_aug=0)
    again = Workshop(workshop.source, workshop.target, config, recipe, workshop.folder)
    return again.view(again.fit(rest, reserved=held), held, held)


def check_start(method: str, init: str) -> None:
    """Whether the method can do without seeds, and the start exists."""
    if init not in (AUTO, *STARTS):
        raise InputError(f"init is {init!r}; expected one of {', '.join((AUTO, *STARTS))}")
    if "unsupervised" not in aligner_class(method).presets:
        raise InputError(f"{method} needs seed pairs; without any take vecmap, c1 or c2")


def find_space(workshop: Workshop, init: str = AUTO) -> tuple[Space, list[dict[str, Any]]]:
    """The first space whose outcome holds up, and how every start that was tried went."""
    given = workshop.recipe.space
    if isinstance(given, Space):
        return given, []
    check_start(given, init)
    starts: Sequence[str] = STARTS if init == AUTO else (init,)
    tried: list[dict[str, Any]] = []
    for start in starts:
        note(f"unsupervised {given}, starting from {start}")
        try:
            space = _space_from(workshop, start)
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
        if start != starts[-1]:  # of the last one the error tells
            note(f"starting from {start} failed: {tried[-1]['verdict']}")
    said = "; ".join(f"{one['start']}: {one['verdict']}" for one in tried)
    raise BlicerError(
        f"no start led to a space that holds up, so none is handed over ({said}); give seed "
        "pairs: some hundreds suffice"
    )


def _space_from(workshop: Workshop, start: str) -> Space:
    """One start, from the work folder if it was run before."""
    recipe = workshop.recipe
    settings = {**recipe.space_settings, "init": start}
    chosen = replace(recipe, space_settings=settings, space_mode="unsupervised")
    aligner = make_aligner(str(recipe.space), "unsupervised", chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a failed run is said by who asked
        return workshop.kept_space(aligner, None)
