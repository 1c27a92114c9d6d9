"""Every setting of a training run: declared, described and checked in one place.

A setting is one field of ``Config``. Reading it from TOML, ``--set`` on the command line, range
checks, saving, and the list that ``blicer config`` prints all follow from that field. ``PRESETS``
has the paper's numbers for each setup, ``ENCODERS`` the defaults that an encoder needs instead.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from numbers import Integral, Real
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

from blicer.errors import FileError, InputError
from blicer.files import read_text_as
from blicer.templates import Template

AUTO = "auto"
SPACE, PAIRS, TRAINING = "space", "training pairs", "cross-encoder"
CHOICE, RUN = "reranking", "run"
_ALIASES = {"lambda": "mixing_weight"}
_GUESSES = {"lr": "learning_rate", "model": "encoder"}  # too different to be found by spelling

# The paper's setups (docs/method.md §3).
_MANY_SEEDS = {"n_aug": 0, "n_rep": 8, "delta": 0.1, "alpha": 0.7, "epochs": 3}
_FEW_SEEDS = {"n_aug": 4000, "n_rep": 4, "delta": 0.2, "alpha": 1.0, "epochs": 5}
PRESETS: dict[str, dict[str, Any]] = {
    "supervised": _MANY_SEEDS,
    "semi_supervised": _FEW_SEEDS,
    "unsupervised": _FEW_SEEDS,
    "zero_shot": _MANY_SEEDS,
}
ENOUGH_FOR_SUPERVISED = 3000
DEFAULT_ENCODER = "lite"
MOST = 5  # translations a word, by default


@dataclass(frozen=True)
class EncoderDefaults:
    """Defaults of an encoder that differ from the paper's; chosen on held-out training seeds."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of ``Config`` that override the preset and are overridden by the user."""
    scorers: tuple[str, ...] = ("cross-encoder",)
    """The default scorers."""
    folds_for_few: int = 1
    """Cross-validation folds if seeds are few; 1 holds out one part."""
    c2: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the C2 space: the tuning of the encoder, and its weight."""


ENCODERS: dict[str, EncoderDefaults] = {
    "lite": EncoderDefaults(
        settings={
            "template": "T1",
            "alpha": 0.0,
            "n_neg": 4,
            "epochs": 1,
            "n_rep": 1,
            "learning_rate": 1e-4,
            "batch_size": 512,
            "micro_batch_size": 512,
            "freeze_embeddings": 1.0,
            "average_last": 0.3,
            "weigh_positives": 1,
        },
        # `lite` knows meanings but not word forms; `endings` does.
        scorers=("endings", "way-back", "cross-encoder"),
        folds_for_few=3,
        c2={"epochs": 1, "learning_rate": 1e-4, "train_table": False, "weight": 0.5},
    ),
}

# -- declaring and checking a setting --------------------------------------------------------------

_LIMITS = {
    "low": (ge, "of at least"),
    "above": (gt, "above"),
    "high": (le, "at most"),
    "below": (lt, "below"),
}
# By annotation: the type to convert to, the accepted types, and their name in messages.
_KINDS: dict[str, tuple[Any, Any, str]] = {
    "str": (str, str, "a text"),
    "bool": (bool, bool, "true or false"),
    "int": (int, Integral, "a whole number"),
    "float": (float, Real, "a number"),
    "tuple[str, ...]": (tuple, (list, tuple), "a list of names"),
    "Mapping[str, Any]": (dict, Mapping, "a table of settings"),
}


def setting(
    default: Any, help: str, group: str = "", *, choices: Iterable[str] = (), **limits: float
) -> Any:
    """Declare a field: default, meaning, the group that uses it, and the values allowed.

    ``choices``: the texts allowed. ``low`` and ``high``: inclusive bounds of numbers; ``above`` and
    ``below``: exclusive ones.
    """
    metadata = {"help": help, "group": group, "choices": [*choices], "limits": limits}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def check_value(declared: Field[Any], value: Any) -> Any:
    """Return the value converted to the setting's type; wrong values raise ``InputError``."""
    for kind in str(declared.type).split(" | "):
        if kind == "None":
            if value is None:
                return None
        elif _fits(value, kind, declared):
            return _KINDS[kind][0](value)
    try:
        shown = repr(value)
    except ValueError:  # Python does not write out integers of thousands of digits
        shown = "a number of thousands of digits"
    raise InputError(f"{declared.name} is {shown}; expected {expectation(declared)}")


def expectation(declared: Field[Any]) -> str:
    """The values that a setting may have, in words."""
    choices, limits = declared.metadata["choices"], declared.metadata["limits"]
    words = [f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]] if choices else []
    within = " and ".join(f"{_LIMITS[name][1]} {bound}" for name, bound in limits.items())
    for kind in str(declared.type).split(" | "):
        if kind != "None" and not (kind == "str" and choices):
            words.append(f"{_KINDS[kind][2]} {within}".strip())
    return " or ".join(words)


def _fits(value: Any, kind: str, declared: Field[Any]) -> bool:
    if not isinstance(value, _KINDS[kind][1]) or isinstance(value, bool) != (kind == "bool"):
        return False
    choices, limits = declared.metadata["choices"], declared.metadata["limits"]
    if kind == "str":
        return value in choices if choices else bool(value.strip() or declared.default == "")
    if kind in ("int", "float"):
        bounds = (_LIMITS[name][0](value, bound) for name, bound in limits.items())
        # Unlike ``math.isfinite``, a comparison takes integers of any size.
        return abs(value) <= sys.float_info.max and all(bounds)
    return kind != "tuple[str, ...]" or all(isinstance(one, str) for one in value)


# -- the settings ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a training run, checked. Saved with the translator.

    Names are the paper's where it has one. ``Config.resolve`` applies a preset, the encoder's
    defaults, a TOML file and explicit values, in that order.
    """

    preset: str = setting("supervised", f"setup of the paper: {', '.join(PRESETS)}", RUN)
    encoder: str = setting("xlm-roberta-large", "lite, a Hugging Face name, or a folder", TRAINING)

    space: str = setting("twoview", "method that aligns the two vector sets", SPACE)
    space_mode: str = setting("", "mode of the method; empty: the one that fits the preset", SPACE)
    space_settings: Mapping[str, Any] = setting({}, "settings of the method", SPACE)
    k_csls: int = setting(10, "neighbours that make up a word's hubness", SPACE, low=1)

    n_aug: int = setting(0, "silver pairs added to the positives", PAIRS, low=0)
    n_freq: int = setting(20_000, "most frequent words that silver pairs start from", PAIRS, low=1)
    n_aug_pool: int = setting(6_000, "silver candidates kept in each direction", PAIRS, low=1)
    n_neg: int = setting(28, "nearest neighbours on each side of a positive", PAIRS, low=1)
    n_rep: int = setting(8, "how many times more a positive appears than a negative", PAIRS, low=0)
    delta: float = setting(0.1, "a negative scores at least its positive - delta", PAIRS, low=0)
    alpha: float = setting(0.7, "how far labels follow CSLS (0: not at all)", PAIRS, low=0, high=1)
    weigh_positives: int = setting(
        0, "1: weigh a positive 1 + n_rep (faster); 0: repeat it (paper)", PAIRS, low=0, high=1
    )
    template: str = setting("T15", "text around a word: T1 to T16, or a text with [w]", PAIRS)

    epochs: int = setting(3, "passes over the training pairs", TRAINING, low=1)
    learning_rate: float = setting(1.2e-5, "of AdamW", TRAINING, above=0)
    weight_decay: float = setting(0.01, "of AdamW", TRAINING, low=0)
    batch_size: int = setting(256, "pairs a step", TRAINING, low=1)
    max_length: int = setting(20, "tokens of both texts and separators", TRAINING, low=4)
    warmup: float = setting(0.1, "share of steps with a rising rate", TRAINING, low=0, high=1)
    seed: int = setting(33, "of all random draws in training", TRAINING, low=0, high=2**32 - 1)
    max_grad_norm: float = setting(1.0, "gradients are clipped", TRAINING, above=0)
    micro_batch_size: int = setting(
        0, "pairs in one forward pass; 0: a whole batch on a GPU, 64 on a CPU", TRAINING, low=0
    )
    freeze_embeddings: float = setting(
        0.0, "share of the first steps with frozen word pieces", TRAINING, low=0, high=1
    )
    average_last: float = setting(
        0.0, "share of the last steps whose weights are averaged", TRAINING, low=0, high=1
    )
    lora_rank: int = setting(0, "rank of LoRA updates (needs peft); 0: off", TRAINING, low=0)

    scorers: tuple[str, ...] = setting((), "mixed with CSLS; empty: what the encoder needs", CHOICE)
    n_cand: int = setting(28, "candidates a word that are reranked", CHOICE, low=1)
    mixing_weight: float | None = setting(
        None, "the paper's λ; auto: by held-out seeds", CHOICE, choices=[AUTO], low=0, high=1
    )
    holdout: float = setting(0.15, "held-out share of seeds; 0 needs a λ", CHOICE, low=0, high=0.99)
    folds: int = setting(0, "cross-validation folds; 0: by encoder and seeds", CHOICE, low=0)
    split_seed: int = setting(33, "of the draw of held-out words", CHOICE, low=0)
    refit: bool = setting(True, "fit everything again on all seeds after the choice", CHOICE)

    device: str = setting(AUTO, "auto, cpu, cuda, cuda:1 or mps", RUN)
    precision: str = setting(
        AUTO, "of the encoder's passes", RUN, choices=(AUTO, "fp32", "bf16", "fp16")
    )

    def __post_init__(self) -> None:
        for name in _settings():
            object.__setattr__(self, name, _checked_value(name, getattr(self, name)))

    @classmethod
    def resolve(
        cls,
        preset: str | None = None,
        *,
        file: str | Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Config:
        """Combine preset, encoder defaults, ``defaults``, the TOML ``file`` and ``overrides``.

        Later ones win. Any of them may name the preset and the encoder (by default supervised, and
        the paper's encoder).
        """
        values = {
            **_checked(defaults or {}),
            **(read_toml(file) if file is not None else {}),
            **_checked(overrides or {}),
            **({"preset": preset_name(preset)} if preset is not None else {}),
        }
        base = PRESETS[values.get("preset", "supervised")]
        needs = encoder_defaults(values.get("encoder", "")).settings
        return cls(**{**base, **needs, **values})

    @classmethod
    def for_seeds(cls, seeds: int, **overrides: Any) -> Config:
        """The defaults of ``blicer train`` for this number of seed pairs."""
        return cls.resolve(defaults=defaults_for(seeds), overrides=overrides)

    def for_training(self, seeds: int) -> Config:
        """Fill in scorers and folds, if not set, for this number of seed pairs."""
        needs = encoder_defaults(self.encoder)
        usual = needs.scorers if self.mixing_weight is None else ("cross-encoder",)
        few = seeds < ENOUGH_FOR_SUPERVISED and self.holdout > 0
        folds = self.folds or (needs.folds_for_few if few else 1)
        return self.replace(scorers=self.scorers or usual, folds=folds)

    def replace(self, **overrides: Any) -> Config:
        """Return this configuration with some settings changed."""
        return dataclasses.replace(self, **_checked(overrides))

    def seedless(self, init: str = AUTO) -> Config:
        """The same for a space without seeds that starts from ``init`` (auto: its default)."""
        start = {} if init == AUTO else {"init": init}
        settings = {**self.space_settings, **start}
        return self.replace(space_mode="unsupervised", space_settings=settings)

    def only(self, *groups: str) -> dict[str, Any]:
        """The settings of these groups as plain values, for the key of a cached stage."""
        names = [n for n, declared in _settings().items() if declared.metadata["group"] in groups]
        values = self.to_dict()
        return {name: values[name] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values, for JSON."""
        values = dataclasses.asdict(self) | {"scorers": list(self.scorers)}
        return {key: AUTO if value is None else value for key, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Inverse of ``to_dict``; missing values come from the preset."""
        return cls.resolve(overrides=values)


def encoder_defaults(encoder: str) -> EncoderDefaults:
    return ENCODERS.get(encoder, EncoderDefaults())


def preset_name(name: str) -> str:
    """The canonical name (``Semi-Supervised`` is ``semi_supervised``); unknown ones raise."""
    key = "_".join(str(name).lower().replace("-", " ").replace("_", " ").split())
    if key not in PRESETS:
        raise InputError(f"preset is {name!r}; expected one of {', '.join(PRESETS)}")
    return key


def preset_for(seeds: int) -> str:
    """The paper's setup for this number of seed pairs."""
    if seeds == 0:
        return "unsupervised"
    return "supervised" if seeds >= ENOUGH_FOR_SUPERVISED else "semi_supervised"


def defaults_for(seeds: int) -> dict[str, Any]:
    """The preset and encoder that ``blicer train`` uses by default."""
    return {"preset": preset_for(seeds), "encoder": DEFAULT_ENCODER}


def describe(kind: Any = Config) -> list[dict[str, Any]]:
    """One row for each setting: name, default, other defaults, expected values, group, help.

    ``kind``: ``Config``, or the class of an aligner. Other defaults: of presets (an aligner: of
    modes) and encoders.
    """
    defaults = Config().to_dict() if kind is Config else dataclasses.asdict(kind())
    sets: dict[str, Mapping[str, Any]] = {**(PRESETS if kind is Config else kind.presets)}
    if kind is Config:
        sets |= {name: needs.settings for name, needs in ENCODERS.items()}
    return [
        {
            "name": declared.name,
            "default": defaults[declared.name],
            "others": ", ".join(
                f"{label}: {values[declared.name]}"
                for label, values in sets.items()
                if values.get(declared.name, defaults[declared.name]) != defaults[declared.name]
            ),
            "expected": expectation(declared),
            "group": declared.metadata["group"],
            "help": declared.metadata["help"],
        }
        for declared in dataclasses.fields(kind)
    ]


# -- reading settings ------------------------------------------------------------------------------


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read settings from a TOML file, one ``key = value`` a line, and check them."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found]

    values = read_text_as("TOML", tomllib.loads, path)
    try:
        return _checked(values)
    except InputError as error:
        raise FileError(path, str(error)) from error


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Turn ``["alpha=0.5", "n_rep=4"]``, as the command line gives them, into checked values."""
    values = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"--set {assignment}: expected NAME=VALUE, for instance alpha=0.5")
        values[key] = _from_text(_known(key), text.strip())
    return _checked(values)


def part_of(count: int, shard: str) -> slice:
    """The slice of ``count`` items that is part I of N, from ``I/N``; sizes differ by at most one.

    The same count gives the same parts on every machine.
    """
    match = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", shard)
    number, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= parts:
        raise InputError(f"--shard is {shard!r}; expected I/N such as 1/4, 2/4, 3/4 or 4/4")
    return slice(count * (number - 1) // parts, count * number // parts)


def _from_text(name: str, text: str) -> Any:
    """Parse the text as the setting's type if possible; the caller checks the value."""
    kind = _KINDS[str(_settings()[name].type).split(" | ")[0]][0]
    if kind is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    return {(name := _known(key)): _checked_value(name, value) for key, value in values.items()}


def _checked_value(name: str, value: Any) -> Any:
    if name == "preset":
        return preset_name(value)
    if name == "template":
        return Template.parse(value).name
    declared = _settings()[name]
    return check_value(declared, None if declared.default is None and value == AUTO else value)


def _known(key: str) -> str:
    """The setting's name, however it is spelt (``N-aug``); unknown ones raise with a suggestion."""
    name = str(key).strip().lower().replace("-", "_")
    name = _ALIASES.get(name, name)
    if name in _settings():
        return name
    near = get_close_matches(_GUESSES.get(name, name), _settings())
    hint = f"did you mean {near[0]!r}?" if near else f"the settings are {', '.join(_settings())}"
    raise InputError(f"there is no setting {key!r}: {hint}")


@lru_cache(maxsize=1)
def _settings() -> dict[str, Field[Any]]:
    return {declared.name: declared for declared in dataclasses.fields(Config)}
