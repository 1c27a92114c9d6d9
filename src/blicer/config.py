"""The resolved configuration: a preset, then a TOML file, then what the caller says explicitly.

A new setting is one more field of ``Config`` (or of ``Preset``, when the paper fixes it): reading,
checking, saving and the command line's ``--set`` follow from the field.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, get_type_hints

from blicer.errors import FileError, InputError
from blicer.files import read_json, write_json
from blicer.templates import Template


def number(
    *, low: float, high: float | None = None, above: bool = False, **default: Any
) -> Any:  # Any, as dataclasses.field is declared: it stands where a number is declared
    """A dataclass field with its value's range (``above``: ``low`` itself is not in it)."""
    return field(metadata={"low": low, "high": high, "above": above}, **default)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Every number of the reranker. Names are the paper's where it has them."""

    preset: str

    # What differs between the setups
    n_aug: int = number(low=0)  # silver pairs added to the positives
    n_rep: int = number(low=0)  # how many times more often a positive appears than a negative
    delta: float = number(low=0)  # a negative scores at least its positive's score - delta
    alpha: float = number(low=0, high=1)  # labels: a z - a + 1 for positives, a z for negatives
    epochs: int = number(low=1)

    # Training pairs
    n_neg: int = number(low=1, default=28)  # nearest neighbours on each side of a positive
    n_freq: int = number(low=1, default=20_000)  # most frequent words that silver pairs start from
    n_aug_pool: int = number(low=1, default=6_000)  # silver candidates kept in each direction
    k_csls: int = number(low=1, default=10)  # neighbours that make a word's hubness
    template: str = "T15"

    # Cross-encoder
    learning_rate: float = number(low=0, above=True, default=1.2e-5)
    weight_decay: float = number(low=0, default=0.01)
    batch_size: int = number(low=1, default=256)
    max_length: int = number(low=4, default=20)  # tokens of both texts and their separators
    warmup: float = number(low=0, high=1, default=0.1)  # share of the steps
    seed: int = number(low=0, high=2**32 - 1, default=33)

    # Reranking
    n_cand: int = number(low=1, default=28)


SUPERVISED = Preset(preset="supervised", n_aug=0, n_rep=8, delta=0.1, alpha=0.7, epochs=3)
SEMI_SUPERVISED = Preset(
    preset="semi_supervised", n_aug=4_000, n_rep=4, delta=0.2, alpha=1.0, epochs=5
)
# As semi-supervised; the silver pairs are all the positives.
UNSUPERVISED = Preset(preset="unsupervised", n_aug=4_000, n_rep=4, delta=0.2, alpha=1.0, epochs=5)
# As supervised, on the pairs of two spaces that share a pivot language.
ZERO_SHOT = Preset(preset="zero_shot", n_aug=0, n_rep=8, delta=0.1, alpha=0.7, epochs=3)

PRESETS: dict[str, Preset] = {
    preset.preset: preset for preset in (SUPERVISED, SEMI_SUPERVISED, UNSUPERVISED, ZERO_SHOT)
}


# What an encoder needs other than the paper's; chosen on held-out training seeds.
# It stands between the preset and what the user says.
ENCODER_SETTINGS: dict[str, dict[str, Any]] = {
    "lite": {
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
}


def get_preset(name: str) -> Preset:
    """A preset by name; ``semi-supervised`` and ``Semi_Supervised`` are the same one."""
    key = "_".join(str(name).lower().replace("-", " ").replace("_", " ").split())
    if key not in PRESETS:
        near = get_close_matches(key, PRESETS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(f"preset = {name!r}: expected one of {', '.join(PRESETS)}{hint}")
    return PRESETS[key]


AUTO = "auto"
# What people write for a setting that has another name here.
_ALIASES = {"lambda": "mixing_weight"}
_SUGGESTIONS = {
    "lr": "learning_rate",
    "batch": "batch_size",
    "max_len": "max_length",
    "warm_up": "warmup",
    "model": "encoder",
}


@dataclass(frozen=True, kw_only=True)
class Config(Preset):
    """All settings of a training run, checked. Saved with the model."""

    encoder: str = "xlm-roberta-large"
    # The paper's lambda; None (written "auto") chooses it on held-out seeds.
    mixing_weight: float | None = number(low=0, high=1, default=None)

    # 1: each order of a positive is shown once an epoch and counts 1 + n_rep times (faster);
    # 0: it is shown that often, as in the paper.
    weigh_positives: int = number(low=0, high=1, default=0)

    # Training beyond the paper; what they do is said in crossencoder.training_settings.
    max_grad_norm: float = number(low=0, above=True, default=1.0)
    micro_batch_size: int = number(low=0, default=0)
    freeze_embeddings: float = number(low=0, high=1, default=0.0)
    embedding_lr: float = number(low=0, default=1.0)
    layer_decay: float = number(low=0, high=1, above=True, default=1.0)
    average_last: float = number(low=0, high=1, default=0.0)
    lora_rank: int = number(low=0, default=0)
    early_stopping: int = number(low=0, default=0)
    looks_per_epoch: int = number(low=1, default=2)

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = check_value(setting.name, getattr(self, setting.name))
            object.__setattr__(self, setting.name, value)

    @classmethod
    def resolve(
        cls,
        preset: str | None = None,
        *,
        file: str | Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Config:
        """Preset, what the encoder needs, ``defaults``, the TOML ``file``, ``overrides``.

        The later one wins. The preset itself and the encoder may be named by any of them
        (otherwise: supervised, and the paper's encoder).
        """
        values = dict(_checked(defaults or {}))
        values.update(read_toml(file) if file is not None else {})
        values.update(_checked(overrides or {}))
        if preset is not None:
            values["preset"] = get_preset(preset).preset
        base = asdict(get_preset(values.get("preset", "supervised")))
        encoder = ENCODER_SETTINGS.get(values.get("encoder", ""), {})
        return cls(**{**base, **encoder, **values})

    def replace(self, **overrides: Any) -> Config:
        """This configuration with some settings changed."""
        return Config(**{**asdict(self), **_checked(overrides)})

    def only(self, names: Iterable[str]) -> dict[str, Any]:
        """The settings of these names, to hand to the part that they are for."""
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they are saved."""
        return {key: AUTO if value is None else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """The inverse of ``to_dict``; what is missing comes from the preset."""
        return cls.resolve(overrides=values)

    def save(self, path: str | Path) -> None:
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Config:
        values = read_json(path)
        if not isinstance(values, dict):
            raise FileError(path, "is not a configuration: expected a JSON object of settings")
        try:
            return cls.from_dict(values)
        except FileError:
            raise
        except InputError as error:
            raise FileError(path, str(error)) from error


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, one ``key = value`` a line, checked."""
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
    """``["alpha=0.5", "n_rep=4"]``, as the command line gives them, to checked values."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"--set {assignment}: expected NAME=VALUE, for instance alpha=0.5")
        name = _known(key)
        values[name] = check_value(name, _from_text(name, text.strip()))
    return values


def check_value(name: str, value: Any) -> Any:
    """The value in the setting's own type, or a sentence that says what was expected."""
    setting, kind = _settings()[name]
    if name == "preset":
        return get_preset(value).preset
    if name == "template":
        return Template.parse(value).name
    if kind is str:
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{name} = {value!r}: expected a text")
        return value
    if "None" in str(kind) and (value is None or value == AUTO):
        return None
    if not _in_range(value, setting, kind):
        raise InputError(f"{name} = {value!r}: expected {_expectation(setting, kind)}")
    return int(value) if kind is int else float(value)


def _in_range(value: Any, setting: Field[Any], kind: Any) -> bool:
    if isinstance(value, bool) or not isinstance(
        value, numbers.Integral if kind is int else numbers.Real
    ):
        return False
    low, high, above = (setting.metadata[key] for key in ("low", "high", "above"))
    # An infinite number, or NaN, fails one of the comparisons.
    least = value > low if above else value >= low
    return bool(least and value <= (sys.float_info.max if high is None else high))


def _expectation(setting: Field[Any], kind: Any) -> str:
    low, high, above = (setting.metadata[key] for key in ("low", "high", "above"))
    what = "a whole number" if kind is int else "a number"
    if high is not None:
        what += f" above {low} and up to {high}" if above else f" from {low} to {high}"
    else:
        what += f" greater than {low}" if above else f" of at least {low}"
    return f"{what}, or {AUTO!r}" if "None" in str(kind) else what


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    return {(name := _known(key)): check_value(name, value) for key, value in values.items()}


def _known(key: str) -> str:
    """The setting's name, however it is spelt (``N-aug``); unknown ones with a near spelling."""
    name = str(key).strip().lower().replace("-", "_")
    name = _ALIASES.get(name, name)
    if name in _settings():
        return name
    near = [_SUGGESTIONS[name]] if name in _SUGGESTIONS else get_close_matches(name, _settings())
    hint = f"did you mean {near[0]!r}?" if near else f"the settings are {', '.join(_settings())}"
    raise InputError(f"there is no setting {key!r}: {hint}")


def _from_text(name: str, text: str) -> Any:
    """A number if the setting is one and the text looks like one; checking comes after."""
    kind = _settings()[name][1]
    if kind is str:
        return text
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        return text


@lru_cache(maxsize=1)
def _settings() -> dict[str, tuple[Field[Any], Any]]:
    """Every setting by name, with its field and its type."""
    kinds = get_type_hints(Config)
    return {setting.name: (setting, kinds[setting.name]) for setting in fields(Config)}
