"""Every setting of a training run: declared, described and checked in one place.

A setting is one field of ``Config``. Reading it from TOML, ``--set`` on the command line, range
checks, saving, and the list that ``blicer config`` prints all follow from that field. The numbers
that the paper fixes for each setup are in ``PRESETS``; what an encoder needs beyond that is in
``ENCODERS``.
"""

from __future__ import annotations

import dataclasses
import numbers
import sys
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from blicer.errors import FileError, InputError
from blicer.templates import Template

AUTO = "auto"
SPACE, PAIRS, CROSS_ENCODER = "space", "training pairs", "cross-encoder"
CHOICE, RUN = "reranking", "run"
_ALIASES = {"lambda": "mixing_weight"}
_SUGGESTIONS = {"lr": "learning_rate", "model": "encoder"}  # guesses that are spelt too differently

# The paper's setups (docs/method.md §3).
PRESETS: dict[str, dict[str, Any]] = {
    "supervised": {"n_aug": 0, "n_rep": 8, "delta": 0.1, "alpha": 0.7, "epochs": 3},
    "semi_supervised": {"n_aug": 4000, "n_rep": 4, "delta": 0.2, "alpha": 1.0, "epochs": 5},
    "unsupervised": {"n_aug": 4000, "n_rep": 4, "delta": 0.2, "alpha": 1.0, "epochs": 5},
    "zero_shot": {"n_aug": 0, "n_rep": 8, "delta": 0.1, "alpha": 0.7, "epochs": 3},
}
ENOUGH_FOR_SUPERVISED = 3000
DEFAULT_ENCODER = "lite"


@dataclass(frozen=True)
class EncoderDefaults:
    """What an encoder needs other than the paper's numbers; chosen on held-out training seeds."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of ``Config`` that stand between the preset and what the user says."""
    scorers: tuple[str, ...] = ("cross-encoder",)
    """What is mixed with CSLS unless the user names scorers."""
    folds_for_few: int = 1
    """Cross-validation folds where seeds are few; 1 holds out one part."""
    c2: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the C2 space: how the encoder is tuned, and its weight."""


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
        # `lite` knows meanings but not forms, so `endings` stands beside it.
        scorers=("endings", "cross-encoder"),
        folds_for_few=4,
        c2={"epochs": 1, "learning_rate": 1e-4, "train_table": False, "weight": 0.5},
    ),
}
_PAPER_ENCODER = EncoderDefaults()


def setting(
    default: Any,
    group: str,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: bool = False,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare a field: default, who uses it, what it means, its range (``above`` excludes low)."""
    limits = {"low": low, "high": high, "above": above, "choices": choices}
    metadata = {"group": group, "help": help, **limits}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a training run, checked. Saved with the translator.

    Names are the paper's where it has one. ``Config.resolve`` applies a preset, the encoder's
    needs, a TOML file and explicit values, in that order.
    """

    preset: str = setting("supervised", RUN, f"setup of the paper: {', '.join(PRESETS)}")
    encoder: str = setting(
        "xlm-roberta-large", CROSS_ENCODER, "lite (embedded), a Hugging Face name, or a folder"
    )

    space: str = setting("vecmap", SPACE, "method that aligns the two vector sets")
    space_mode: str = setting("", SPACE, "mode of the method; empty: the one that fits the preset")
    space_settings: dict[str, Any] = setting({}, SPACE, "settings of the method")
    k_csls: int = setting(10, SPACE, "neighbours that make up a word's hubness", low=1)

    n_aug: int = setting(0, PAIRS, "silver pairs added to the positives", low=0)
    n_freq: int = setting(20_000, PAIRS, "most frequent words that silver pairs start from", low=1)
    n_aug_pool: int = setting(6_000, PAIRS, "silver candidates kept in each direction", low=1)
    n_neg: int = setting(28, PAIRS, "nearest neighbours on each side of a positive", low=1)
    n_rep: int = setting(8, PAIRS, "how many times more a positive appears than a negative", low=0)
    delta: float = setting(0.1, PAIRS, "a negative scores at least its positive - delta", low=0)
    alpha: float = setting(0.7, PAIRS, "how far labels follow CSLS (0: not at all)", low=0, high=1)
    weigh_positives: int = setting(
        0, PAIRS, "1: weigh a positive 1 + n_rep (faster); 0: repeat it (paper)", low=0, high=1
    )
    template: str = setting("T15", PAIRS, "text around a word: T1 to T16, or a text with [w]")

    epochs: int = setting(3, CROSS_ENCODER, "passes over the training pairs", low=1)
    learning_rate: float = setting(1.2e-5, CROSS_ENCODER, "of AdamW", low=0, above=True)
    weight_decay: float = setting(0.01, CROSS_ENCODER, "of AdamW", low=0)
    batch_size: int = setting(256, CROSS_ENCODER, "pairs a step", low=1)
    max_length: int = setting(20, CROSS_ENCODER, "tokens of both texts and separators", low=4)
    warmup: float = setting(0.1, CROSS_ENCODER, "share of steps with a rising rate", low=0, high=1)
    seed: int = setting(33, CROSS_ENCODER, "of all random draws in training", low=0, high=2**32 - 1)
    max_grad_norm: float = setting(1.0, CROSS_ENCODER, "gradients are clipped", low=0, above=True)
    micro_batch_size: int = setting(
        0, CROSS_ENCODER, "pairs in one forward pass; 0: a whole batch on a GPU, 64 on a CPU", low=0
    )
    freeze_embeddings: float = setting(
        0.0, CROSS_ENCODER, "share of the first steps with frozen word pieces", low=0, high=1
    )
    embedding_lr: float = setting(
        1.0, CROSS_ENCODER, "learning rate of the word pieces, as a multiple of the others'", low=0
    )
    layer_decay: float = setting(
        1.0, CROSS_ENCODER, "learning rate of a layer / of the one above", low=0, high=1, above=True
    )
    average_last: float = setting(
        0.0, CROSS_ENCODER, "share of the last steps whose weights are averaged", low=0, high=1
    )
    lora_rank: int = setting(0, CROSS_ENCODER, "rank of LoRA updates (needs peft); 0: off", low=0)
    early_stopping: int = setting(
        0, CROSS_ENCODER, "stop after so many looks without a better held-out loss; 0: off", low=0
    )
    looks_per_epoch: int = setting(
        2, CROSS_ENCODER, "how often an epoch the held-out loss is measured", low=1
    )

    scorers: tuple[str, ...] = setting((), CHOICE, "mixed with CSLS; empty: what the encoder needs")
    n_cand: int = setting(28, CHOICE, "candidates a word that are reranked", low=1)
    mixing_weight: float | None = setting(
        None, CHOICE, "the paper's lambda; auto: chosen on held-out seeds", low=0, high=1
    )
    holdout: float = setting(
        0.15, CHOICE, "held-out share of seeds; 0 needs a lambda", low=0, high=0.99
    )
    folds: int = setting(
        0, CHOICE, "cross-validation folds instead of one part; 0: by encoder and seeds", low=0
    )
    split_seed: int = setting(
        33, CHOICE, "of the draw of held-out words; apart from `seed`, so that runs compare", low=0
    )
    refit: bool = setting(True, CHOICE, "fit everything again on all seeds after the choice")

    device: str = setting(AUTO, RUN, "auto, cpu, cuda, cuda:1 or mps")
    precision: str = setting(
        AUTO, RUN, "of the encoder's passes", choices=(AUTO, "fp32", "bf16", "fp16")
    )

    def __post_init__(self) -> None:
        for name in _settings():
            object.__setattr__(self, name, check_value(name, getattr(self, name)))
        if self.early_stopping and self.average_last:
            raise InputError("early_stopping and average_last both choose the weights; give one")

    @classmethod
    def resolve(
        cls,
        preset: str | None = None,
        *,
        file: str | Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Config:
        """Combine preset, the encoder's needs, ``defaults``, the TOML ``file``, ``overrides``.

        The later one wins. The preset itself and the encoder may be named by any of them
        (otherwise: supervised, and the paper's encoder).
        """
        values = dict(_checked(defaults or {}))
        values.update(read_toml(file) if file is not None else {})
        values.update(_checked(overrides or {}))
        if preset is not None:
            values["preset"] = preset_name(preset)
        base = PRESETS[values.get("preset", "supervised")]
        needs = encoder_defaults(values.get("encoder", "")).settings
        return cls(**{**base, **needs, **values})

    @classmethod
    def for_seeds(cls, seeds: int, **overrides: Any) -> Config:
        """The defaults of ``blicer train`` for so many seed pairs: the embedded encoder."""
        return cls.resolve(defaults=defaults_for(seeds), overrides=overrides)

    def for_training(self, seeds: int) -> Config:
        """Settle what was left open (scorers, folds) for so many seed pairs."""
        needs = encoder_defaults(self.encoder)
        usual = needs.scorers if self.mixing_weight is None else ("cross-encoder",)
        few = seeds < ENOUGH_FOR_SUPERVISED and self.holdout > 0
        folds = self.folds or (needs.folds_for_few if few else 1)
        return self.replace(scorers=self.scorers or usual, folds=folds)

    def replace(self, **overrides: Any) -> Config:
        """Return this configuration with some settings changed."""
        return dataclasses.replace(self, **_checked(overrides))

    def only(self, *groups: str) -> dict[str, Any]:
        """The settings of these groups, as plain values: what a cached stage depends on."""
        settings = _settings()
        return {
            name: value
            for name, value in self.to_dict().items()
            if settings[name][0].metadata["group"] in groups
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they are saved."""
        values = dataclasses.asdict(self) | {"scorers": list(self.scorers)}
        return {key: AUTO if value is None else value for key, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Inverse of ``to_dict``; missing values come from the preset."""
        return cls.resolve(overrides=values)


def encoder_defaults(encoder: str) -> EncoderDefaults:
    return ENCODERS.get(encoder, _PAPER_ENCODER)


def preset_name(name: str) -> str:
    """``semi-supervised`` and ``Semi Supervised`` are the same preset; unknown ones raise."""
    key = "_".join(str(name).lower().replace("-", " ").replace("_", " ").split())
    if key not in PRESETS:
        near = get_close_matches(key, PRESETS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(f"preset = {name!r}: expected one of {', '.join(PRESETS)}{hint}")
    return key


def preset_for(seeds: int) -> str:
    """The paper's setup for so many seed pairs."""
    if seeds == 0:
        return "unsupervised"
    return "supervised" if seeds >= ENOUGH_FOR_SUPERVISED else "semi_supervised"


def defaults_for(seeds: int) -> dict[str, Any]:
    """What ``blicer train`` uses unless told otherwise: the embedded encoder."""
    return {"preset": preset_for(seeds), "encoder": DEFAULT_ENCODER}


def describe() -> list[dict[str, Any]]:
    """One row for each setting: name, default, expected values, who uses it, what it means."""
    defaults = Config().to_dict()
    return [
        {
            "name": name,
            "default": defaults[name],
            "expected": _expectation(declared, kind),
            "group": declared.metadata["group"],
            "help": declared.metadata["help"],
        }
        for name, (declared, kind) in _settings().items()
    ]


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read settings from a TOML file, one ``key = value`` a line, and check them."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found]

    path = Path(path)
    try:
        with path.open("rb") as file:
            return _checked(tomllib.load(file))
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(path, f"is not TOML ({error})") from error
    except InputError as error:
        raise FileError(path, str(error)) from error


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Turn ``["alpha=0.5", "n_rep=4"]``, as the command line gives them, into checked values."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"--set {assignment}: expected NAME=VALUE, for instance alpha=0.5")
        name = _known(key)
        values[name] = check_value(name, _from_text(name, text.strip()))
    return values


def check_value(name: str, value: Any) -> Any:
    """Return the value in the setting's own type; a wrong one raises ``InputError``."""
    declared, kind = _settings()[name]
    if name == "preset":
        return preset_name(value)
    if name == "template":
        return Template.parse(value).name
    if declared.default is None and (value is None or value == AUTO):
        return None
    if not _fits(value, declared, kind):
        raise InputError(f"{name} = {value!r}: expected {_expectation(declared, kind)}")
    return kind(value)


def _fits(value: Any, declared: Field[Any], kind: type) -> bool:
    low, high, above = (declared.metadata[key] for key in ("low", "high", "above"))
    if kind is str:
        choices = declared.metadata["choices"] or [value]
        filled = isinstance(value, str) and (value.strip() or declared.default == "")
        return bool(filled and value in choices)
    if kind is tuple:
        return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    if kind in (bool, dict):
        return isinstance(value, kind)
    number = numbers.Integral if kind is int else numbers.Real
    if isinstance(value, bool) or not isinstance(value, number):
        return False
    # An infinite number, or NaN, fails one of the comparisons.
    least = value > low if above else value >= low
    return bool(least and value <= (sys.float_info.max if high is None else high))


def _expectation(declared: Field[Any], kind: type) -> str:
    if declared.metadata["choices"]:
        return f"one of {', '.join(declared.metadata['choices'])}"
    if kind not in (int, float):
        return _KINDS[kind]
    low, high, above = (declared.metadata[key] for key in ("low", "high", "above"))
    if high is not None:
        span = f"above {low} and up to {high}" if above else f"from {low} to {high}"
    else:
        span = f"greater than {low}" if above else f"of at least {low}"
    return f"{_KINDS[kind]} {span}" + (f", or {AUTO!r}" if declared.default is None else "")


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    return {(name := _known(key)): check_value(name, value) for key, value in values.items()}


def _known(key: str) -> str:
    """The setting's name, however it is spelt (``N-aug``); unknown ones raise with a suggestion."""
    name = str(key).strip().lower().replace("-", "_")
    name = _ALIASES.get(name, name)
    if name in _settings():
        return name
    near = [_SUGGESTIONS[name]] if name in _SUGGESTIONS else get_close_matches(name, _settings())
    hint = f"did you mean {near[0]!r}?" if near else f"the settings are {', '.join(_settings())}"
    raise InputError(f"there is no setting {key!r}: {hint}")


def _from_text(name: str, text: str) -> Any:
    """Parse the text as the setting's type where it looks like one; checking comes after."""
    kind = _settings()[name][1]
    if kind is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


_KINDS = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple: "a list of names",
    dict: "a table of settings",
}


@lru_cache(maxsize=1)
def _settings() -> dict[str, tuple[Field[Any], type]]:
    """Every setting by name, with its field and its type (one that may be None is a number)."""
    hints = get_type_hints(Config)
    kinds = {name: get_origin(hint) or hint for name, hint in hints.items()}
    return {
        declared.name: (declared, kinds[declared.name] if kinds[declared.name] in _KINDS else float)
        for declared in dataclasses.fields(Config)
    }
