"""From two vector sets and seeds to a ``Translator``: the whole chain, in order.

λ (or the weights of several scorers) and the calibration come from seed pairs that neither the
mapping nor the cross-encoder saw; then everything is fitted again on all seeds, unless told not
to. Every finished stage is kept in ``work_dir``, so that the same call goes on after a kill.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blicer.align.space import Space
from blicer.calibration import Calibration, calibrate
from blicer.config import Config
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, Mixture, choose_weights
from blicer.progress import note
from blicer.recipe import Recipe, defaults_for
from blicer.translator import Translator
from blicer.workshop import Fitted, HeldOutView, Workshop

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings


def train(
    source: Embeddings,
    target: Embeddings,
    seeds: Lexicon,
    config: Config | None = None,
    recipe: Recipe | None = None,
    *,
    work_dir: str | Path | None = None,
) -> Translator:
    """Space, pairs, cross-encoder, mixing, calibration: a translator for both directions."""
    config = config or Config.resolve(defaults=defaults_for(len(seeds)))
    recipe = (recipe or Recipe()).resolved(config, len(seeds))
    check_choice(config, recipe)
    workshop = Workshop(source, target, config, recipe, Path(work_dir) if work_dir else None)
    return prepare(workshop, workshop.usable(seeds)).translator()


def check_choice(config: Config, recipe: Recipe) -> None:
    """Whether λ can be chosen, or used as given: said before anything is fitted."""
    if config.mixing_weight is not None and len(recipe.scorers) != 1:
        raise InputError(
            f"a fixed lambda mixes CSLS with one scorer; there are {len(recipe.scorers)}"
        )
    if config.mixing_weight is None and recipe.holdout == 0 and recipe.folds <= 1:
        raise InputError("without held-out seeds there is nothing to choose lambda on: give one")


@dataclass(frozen=True)
class Prepared:
    """All that was fitted, before the mixing weights are chosen."""

    fitted: Fitted
    held_out: HeldOutView | None
    seeds: int
    refit: bool
    config: Config
    recipe: Recipe
    notes: dict[str, Any] = field(default_factory=dict)
    """What else the translator should say of how it came about."""

    @property
    def scorers(self) -> tuple[str, ...]:
        """What stands beside CSLS in the held-out view, in its order."""
        return self.recipe.scorers

    def choose(self) -> tuple[Mixture, Calibration | None]:
        """Mixing weights and calibration, from held-out words alone."""
        return choose(self.held_out, self.config, self.recipe)

    def translator(self) -> Translator:
        mixture, calibration = self.choose()
        details = {
            "config": self.config.to_dict(),
            "space": self.fitted.space.method,
            "seeds": self.seeds,
            "held_out": len(self.held_out.parts) if self.held_out is not None else 0,
            "refit": self.refit,
            "pairs": self.fitted.pairs.report.to_dict(),
            **self.notes,
        }
        return Translator(
            self.fitted.space,
            self.fitted.scorers,
            mixture,
            self.fitted.scaling,
            calibration=calibration,
            n_cand=self.config.n_cand,
            details=details,
        )


def prepare(workshop: Workshop, seeds: Lexicon) -> Prepared:
    """Fit without the held-out words and score these, then fit on all seeds."""
    recipe = workshop.recipe
    views: list[HeldOutView] = []
    fitted: Fitted | None = None
    splits = held_out_splits(seeds, recipe)
    if splits and isinstance(recipe.space, Space):
        note(
            "the space is taken as it is: if these seeds made it, it knows the held-out words too, "
            "and weights and confidences trust it too much (training from the two vector files "
            "holds them out of the map as well)"
        )
    for number, (rest, held) in enumerate(splits, start=1):
        many = f" (fold {number} of {recipe.folds})" if recipe.folds > 1 else ""
        note(f"fitting on {len(rest)} seed pairs, holding out {len(held)}{many}")
        fitted = workshop.fit(rest, reserved=held)
        views.append(workshop.view(fitted, held, seeds))
    refit = fitted is None or recipe.refit or recipe.folds > 1
    if fitted is None or refit:
        note(f"fitting on all {len(seeds)} seed pairs")
        fitted = workshop.fit(seeds)
    together = HeldOutView.joined(views) if views else None
    return Prepared(fitted, together, len(seeds), refit, workshop.config, recipe)


def held_out_splits(seeds: Lexicon, recipe: Recipe) -> list[tuple[Lexicon, Lexicon]]:
    """(rest, held out) for each fold; no word of either language on both sides of a fold.

    Where too many words hang together by shared translations, target words may be on both sides.
    """
    if not 0 <= recipe.holdout < 1:
        raise InputError(f"holdout is {recipe.holdout}; expected a number from 0 to below 1")
    if recipe.folds < 0:
        raise InputError(f"folds is {recipe.folds}; expected 0 or more")
    if recipe.folds <= 1 and recipe.holdout == 0:
        return []
    share = recipe.holdout if recipe.folds <= 1 else 1 / recipe.folds
    apart = seeds.splits_apart(share)
    if not apart:
        note(
            f"{seeds.largest_group()} seed words hang together by shared translations, too many to "
            "hold out together: a translation of a held-out word may be that of another seed word"
        )
    if recipe.folds <= 1:
        splits = [seeds.split(share, seed=recipe.split_seed, share_targets=not apart)]
    else:
        splits = _folds(seeds, recipe, share_targets=not apart)
    return [(rest, held) for rest, held in splits if len(rest) and len(held)]


def _folds(seeds: Lexicon, recipe: Recipe, *, share_targets: bool) -> list[tuple[Lexicon, Lexicon]]:
    splits, left = [], seeds
    for remaining in range(recipe.folds, 0, -1):
        if remaining == 1:
            held = left
        else:
            left, held = left.split(
                1 / remaining, seed=recipe.split_seed, share_targets=share_targets
            )
        inside = set(held.pairs)
        rest = Lexicon(pair for pair in seeds.listed() if pair not in inside)
        splits.append((rest, held))
    return splits


def choose(
    view: HeldOutView | None, config: Config, recipe: Recipe
) -> tuple[Mixture, Calibration | None]:
    """Mixing weights and calibration, from held-out words alone."""
    check_choice(config, recipe)
    names = [CSLS, *recipe.scorers]
    lam = config.mixing_weight
    if view is None:
        if lam is None:
            raise InputError("there is no held-out word to choose lambda on: give one")
        return Mixture.fixed(lam, names[1]), None
    mixture = choose_weights(view.parts, view.is_gold, names)
    if lam is not None:
        mixture = Mixture(Mixture.fixed(lam, names[1]).weights, mixture.curve, len(view.parts))
    else:
        shown = ", ".join(f"{name} {weight:.2f}" for name, weight in mixture.weights.items())
        note(f"mixing weights chosen on {len(view.parts)} held-out words: {shown}")
    return mixture, calibrate(mixture.combine(view.parts), view.is_gold, seed=config.seed)
