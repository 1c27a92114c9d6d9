"""How to train, apart from the numbers in ``Config``: space, scorers, what is held out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from blicer.align import METHODS
from blicer.errors import InputError
from blicer.scorers.cross_encoder import NAME as CROSS_ENCODER

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.config import Config

# The mode of a space that differs from the preset's name. Self-learning is hundreds of iterations
# (44 minutes of a core for en-fr), and every fold would need its own.
USUAL_MODE = {
    ("vecmap", "semi_supervised"): "supervised",
    # The seeds of zero-shot are few: C1 and C2 take the settings for that (METHOD.md §3).
    **{(method, "zero_shot"): "semi_supervised" for method in METHODS},
    ("vecmap", "zero_shot"): "supervised",
}
# What makes the space of a pair without seeds in zero-shot, whatever makes those of the others.
WITHOUT_SEEDS = "vecmap"
ENOUGH_FOR_SUPERVISED = 3000
FOLDS_FOR_FEW = 4
DEFAULT_ENCODER = "lite"
# Small encoders, and what stands beside CSLS with them: `lite` knows meanings, not forms.
ENCODER_SCORERS = {"lite": ("endings", CROSS_ENCODER)}


@dataclass(frozen=True)
class Recipe:
    """How to train, apart from the numbers in ``Config``."""

    space: str | Space = "vecmap"
    """A method (vecmap, rcsls, c1, procrustes), or a space that is there already."""
    space_mode: str = ""
    """The method's mode (supervised, semi_supervised, ...); by the preset if not given."""
    space_settings: dict[str, Any] = field(default_factory=dict)
    scorers: tuple[str, ...] = ()
    """What is mixed with CSLS; none: the cross-encoder, and with `lite` endings beside it."""
    holdout: float = 0.15
    """Share of the seed words that λ and the calibration are chosen on; 0 needs a fixed λ."""
    folds: int = 0
    """Above 1: as many cross-validation folds instead of one held-out part (for few seeds).
    0: four where seeds are few and the encoder is small, else one part."""
    split_seed: int = 33
    """Which words are held out; apart from the training's own seed, so that runs compare."""
    refit: bool = True
    """Fit everything again on all seeds after the choice."""
    names: tuple[str | None, str | None] = (None, None)
    """What the languages call themselves, where the tag does not tell."""
    device: str = "auto"
    precision: str = "auto"

    def resolved(self, config: Config, seeds: int) -> Recipe:
        """With what was left open settled, for that encoder and that many seed pairs."""
        usual = ENCODER_SCORERS.get(config.encoder, (CROSS_ENCODER,))
        if config.mixing_weight is not None:  # a given λ mixes two
            usual = (CROSS_ENCODER,)
        few = config.encoder in ENCODER_SCORERS and seeds < ENOUGH_FOR_SUPERVISED
        folds = self.folds or (FOLDS_FOR_FEW if few and self.holdout else 1)
        return replace(self, scorers=self.scorers or usual, folds=folds)


def preset_for(seeds: int) -> str:
    """The paper's setup for that many seed pairs."""
    if seeds == 0:
        return "unsupervised"
    return "supervised" if seeds >= ENOUGH_FOR_SUPERVISED else "semi_supervised"


def defaults_for(seeds: int) -> dict[str, Any]:
    """What `blicer train` uses where nothing else is said: the embedded encoder."""
    return {"preset": preset_for(seeds), "encoder": DEFAULT_ENCODER}


def aligner_class(method: str) -> Any:
    """The class of a method by its name on the command line."""
    if method not in METHODS:
        raise InputError(
            f"there is no space {method!r}; give one of {', '.join(METHODS)} or the folder of a "
            "saved space"
        )
    import blicer.align

    return getattr(blicer.align, METHODS[method])


def usual_mode(method: str, preset: str) -> str:
    """The mode of a method that goes with a preset."""
    return USUAL_MODE.get((method, preset), preset)


def make_aligner(method: str, preset: str, recipe: Recipe) -> Any:
    """The method in the mode that fits the preset."""
    aligner = aligner_class(method)
    mode = recipe.space_mode.replace("-", "_") or usual_mode(method, preset)
    if recipe.space_mode and mode not in aligner.presets:
        modes = ", ".join(aligner.presets) or "none"
        raise InputError(f"{method} has no mode {recipe.space_mode!r}; its modes are {modes}")
    settings = {"device": recipe.device, **recipe.space_settings}
    settings = {key: value for key, value in settings.items() if key in aligner.setting_names()}
    if mode not in aligner.presets:
        return aligner.configured(settings)
    return aligner.preset(mode, **settings)
