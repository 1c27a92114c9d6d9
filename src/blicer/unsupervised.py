"""Without a seed pair: a space, silver pairs, a reranker, and a λ that asks for no gold.

The space comes from self-learning; where its first dictionary comes from is the start. Which start
works is not known beforehand, so each is tried until the outcome holds up (``align.trust``).

λ and the confidence are chosen on silver pairs, the most confident pairs of the space. In the space
itself these are right by construction, so a share of them is held out from everything: a new map is
fitted on the others, a cross-encoder is trained on the others, and then both are asked.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blicer.align.space import Space
from blicer.config import Config
from blicer.errors import BlicerError, InputError
from blicer.lexicon import Lexicon
from blicer.progress import note
from blicer.recipe import Recipe, aligner_class, defaults_for, make_aligner
from blicer.train import Prepared, held_out_splits
from blicer.translator import Translator
from blicer.workshop import FEWEST_SEEDS, Fitted, HeldOutView, Workshop

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings

AUTO = "auto"
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
    views = _views(workshop, silver)
    fitted = Fitted(space, pairs, final.scorers(space, pairs))
    found = {"tried": tried, "silver_pairs": len(silver), "chosen_on": "held-out silver pairs"}
    return Prepared(
        fitted,
        HeldOutView.joined(views) if views else None,
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


def _views(workshop: Workshop, silver: Lexicon) -> list[HeldOutView]:
    """What new scorers say of silver pairs that neither they nor their map saw."""
    # The others are all the positives there are: none is mined again. One part is enough of
    # thousands of pairs.
    recipe = replace(
        workshop.recipe, space="vecmap", space_mode="supervised", space_settings={}, folds=1
    )
    config = workshop.config.replace(n_aug=0)
    again = Workshop(workshop.source, workshop.target, config, recipe, workshop.folder)
    views = []
    for rest, held in held_out_splits(silver, recipe):
        note(f"choosing on silver pairs: fitting on {len(rest)}, holding out {len(held)}")
        views.append(again.view(again.fit(rest, reserved=held), held, silver))
    return views


def find_space(workshop: Workshop, init: str = AUTO) -> tuple[Space, list[dict[str, Any]]]:
    """The first space whose outcome holds up, and how every start that was tried went."""
    given = workshop.recipe.space
    if isinstance(given, Space):
        return given, []
    starts: Sequence[str] = STARTS if init == AUTO else (init,)
    if init not in (AUTO, *STARTS):
        raise InputError(f"init is {init!r}; expected one of {', '.join((AUTO, *STARTS))}")
    if "unsupervised" not in aligner_class(given).presets:
        raise InputError(f"{given} needs seed pairs; without any take vecmap, c1 or c2")
    tried: list[dict[str, Any]] = []
    for start in starts:
        note(f"unsupervised {given}, starting from {start}")
        try:
            space = _space_from(workshop, start)
        except InputError as error:
            # No numeral, no word spelled alike: this start does not exist for this pair.
            tried.append({"start": start, "converged": False, "verdict": str(error)})
        else:
            reached = {key: space.settings.get(key) for key in ("objective", "trust", "verdict")}
            good = bool(space.settings.get("converged", True))
            tried.append({"start": start, "converged": good, **reached})
            if good:
                return space, tried
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
    folder = workshop.stage("space", recipe.space, settings, "unsupervised")
    if folder is not None and (folder / "space.json").is_file():
        note(f"{recipe.space} from {start}: taken from {folder}")
        return Space.load(folder)
    aligner = make_aligner(str(recipe.space), "unsupervised", chosen)
    aligner.work = workshop.folder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a failed run is said by who asked
        space: Space = aligner.align(workshop.source, workshop.target)
    if folder is not None:
        space.save(folder)
    return space
