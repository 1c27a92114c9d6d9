"""The paper's numbers, how they are overridden, and what is said about wrong ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blicer.config import (
    PAIRS,
    PRESETS,
    TRAINING,
    Config,
    describe,
    parse_assignments,
    preset_for,
    preset_name,
)
from blicer.errors import FileError, InputError

# docs/method.md §3: n_aug, n_rep, delta, alpha, epochs
TABLE = {
    "supervised": (0, 8, 0.1, 0.7, 3),
    "semi_supervised": (4000, 4, 0.2, 1.0, 5),
    "unsupervised": (4000, 4, 0.2, 1.0, 5),
    "zero_shot": (0, 8, 0.1, 0.7, 3),
}
COMMON = {
    "n_neg": 28,
    "n_cand": 28,
    "n_freq": 20000,
    "n_aug_pool": 6000,
    "k_csls": 10,
    "learning_rate": 1.2e-5,
    "weight_decay": 0.01,
    "batch_size": 256,
    "max_length": 20,
    "warmup": 0.1,
    "seed": 33,
    "template": "T15",
}


@pytest.mark.parametrize("name", TABLE)
def test_the_numbers_of_the_paper(name: str) -> None:
    config = Config.resolve(name)
    varying = (config.n_aug, config.n_rep, config.delta, config.alpha, config.epochs)
    assert varying == TABLE[name]
    assert {key: getattr(config, key) for key in COMMON} == COMMON
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.alpha = 0.5  # type: ignore[misc]


@pytest.mark.parametrize("spelling", ["semi-supervised", "Semi_Supervised", "semi supervised"])
def test_spellings_of_a_preset(spelling: str) -> None:
    assert preset_name(spelling) == "semi_supervised"
    assert Config.resolve(spelling) == Config.resolve(overrides={"preset": spelling})


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'zeroshot'; expected one of .*zero_shot"):
        Config.resolve("zeroshot")


def test_preset_then_file_then_overrides(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('preset = "semi-supervised"\nalpha = 0.5\nn-rep = 2\ntemplate = "t4"\n')
    config = Config.resolve(file=file, overrides={"alpha": 0.25, "lambda": 0.1})
    assert config.preset == "semi_supervised"
    assert (config.n_aug, config.n_rep, config.alpha) == (4000, 2, 0.25)
    assert (config.template, config.mixing_weight) == ("T4", 0.1)
    # A preset that is named explicitly wins over the file's, whose numbers stay.
    other = Config.resolve("supervised", file=file)
    assert (other.preset, other.n_aug, other.alpha, other.n_rep) == ("supervised", 0, 0.5, 2)


def test_defaults_give_way_to_everything_else(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('encoder = "some/model"\n')
    defaults = {"preset": "semi_supervised", "encoder": "lite"}
    config = Config.resolve(defaults=defaults)
    assert (config.preset, config.encoder, config.template) == ("semi_supervised", "lite", "T1")
    config = Config.resolve("supervised", file=file, defaults=defaults)
    assert (config.preset, config.encoder, config.template) == ("supervised", "some/model", "T15")


def test_defaults() -> None:
    config = Config.resolve()
    assert (config.preset, config.encoder) == ("supervised", "xlm-roberta-large")
    assert config.mixing_weight is None
    assert config.replace(alpha=1).alpha == 1.0
    assert isinstance(Config.resolve(overrides={"epochs": np.int64(2)}).epochs, int)
    assert isinstance(Config.resolve(overrides={"alpha": np.float32(0.5)}).alpha, float)


def test_settings_by_group() -> None:
    config = Config.resolve("supervised", overrides={"warmup": 0.2, "alpha": 0.4})
    training, pairs = config.only(TRAINING), config.only(PAIRS)
    assert (training["warmup"], pairs["alpha"], pairs["template"]) == (0.2, 0.4, "T15")
    assert not training.keys() & pairs.keys()
    assert config.only(TRAINING, PAIRS) == training | pairs


def test_every_setting_is_described() -> None:
    rows = {row["name"]: row for row in describe()}
    assert list(rows) == [field.name for field in dataclasses.fields(Config)]
    assert all(row["help"] and row["group"] and row["expected"] for row in rows.values())
    assert rows["mixing_weight"]["default"] == "auto"
    assert rows["epochs"]["expected"] == "a whole number of at least 1"
    assert rows["precision"]["expected"] == "one of auto, fp32, bf16, fp16"
    assert rows["epochs"]["others"] == "semi_supervised: 5, unsupervised: 5, lite: 1"
    assert rows["template"]["others"] == "lite: T1"
    assert rows["warmup"]["others"] == ""


@pytest.mark.parametrize(
    ("seeds", "preset"),
    [(0, "unsupervised"), (1, "semi_supervised"), (2999, "semi_supervised"), (3000, "supervised")],
)
def test_the_preset_for_so_many_seeds(seeds: int, preset: str) -> None:
    config = Config.for_seeds(seeds, n_rep=3)
    assert (config.preset, config.encoder, config.n_rep) == (preset, "lite", 3)
    assert preset_for(seeds) == preset


LITE_SCORERS = ("endings", "way-back", "cross-encoder")


@pytest.mark.parametrize(
    ("given", "seeds", "scorers", "folds"),
    [
        ({}, 900, ("cross-encoder",), 1),
        ({"encoder": "lite"}, 900, LITE_SCORERS, 3),
        ({"encoder": "lite"}, 5000, LITE_SCORERS, 1),
        ({"encoder": "lite", "scorers": ["spelling"], "folds": 2}, 900, ("spelling",), 2),
        ({"encoder": "lite", "holdout": 0.0}, 900, LITE_SCORERS, 1),
        ({"encoder": "lite", "lambda": 0.2}, 900, ("cross-encoder",), 3),
    ],
)
def test_what_is_left_open_is_settled_for_training(
    given: dict[str, Any], seeds: int, scorers: tuple[str, ...], folds: int
) -> None:
    config = Config.resolve(overrides=given).for_training(seeds)
    assert (config.scorers, config.folds) == (scorers, folds)
    assert config.for_training(seeds) == config


def test_assignments_from_the_command_line() -> None:
    values = parse_assignments(
        [
            *("alpha=0.5", "n_freq=10_000", "template=a=[w]", "lambda=auto", "learning_rate=1e-4"),
            *("refit=false", "scorers=spelling, endings", "space-mode="),
        ]
    )
    assert values == {
        "alpha": 0.5,
        "n_freq": 10000,
        "template": "a=[w]",
        "mixing_weight": None,
        "learning_rate": 1e-4,
        "refit": False,
        "scorers": ("spelling", "endings"),
        "space_mode": "",
    }


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("alpha", "--set alpha: expected NAME=VALUE"),
        ("alpa=1", "no setting 'alpa': did you mean 'alpha'"),
        ("lr=1", "no setting 'lr': did you mean 'learning_rate'"),
        ("qqqq=1", "no setting 'qqqq': the settings are preset, encoder"),
        ("alpha=2", "alpha is 2.0; expected a number of at least 0 and at most 1"),
        ("alpha=much", "alpha is 'much'; expected a number of at least 0"),
        ("alpha=nan", "alpha is nan; expected"),
        ("delta=inf", "delta is inf; expected a number of at least 0"),
        ("epochs=2.5", "epochs is '2.5'; expected a whole number of at least 1"),
        ("n_aug=-1", "n_aug is -1; expected a whole number of at least 0"),
        ("learning_rate=0", "learning_rate is 0.0; expected a number above 0"),
        ("lambda=1.5", "mixing_weight is 1.5; expected auto or a number .* at most 1"),
        ("template=word", "'word' has no slot"),
        ("encoder=", "encoder is ''; expected a text"),
        ("batch=2", "did you mean 'batch_size'"),
        ("refit=maybe", "refit is 'maybe'; expected true or false"),
        ("precision=int8", "precision is 'int8'; expected one of auto, fp32"),
    ],
)
def test_wrong_assignments(assignment: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_assignments([assignment])


@pytest.mark.parametrize(
    "values",
    [
        *({"epochs": True}, {"epochs": 2.0}, {"alpha": "0.5"}, {"encoder": 3}, {"seed": 2**32}),
        *({"scorers": "spelling"}, {"scorers": [1]}, {"space_settings": 3}, {"refit": 1}),
    ],
)
def test_wrong_types_from_python(values: dict[str, Any]) -> None:
    (name,) = values
    with pytest.raises(InputError, match=f"{name} is .*; expected"):
        Config.resolve(overrides=values)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("alpha = \n", "is not TOML .*line 1"),
        ('alpha = "a"\n', "alpha is 'a'; expected a number"),
        ("[pairs]\nalpha = 1\n", "no setting 'pairs'"),
        ("epocs = 3\n", "did you mean 'epochs'"),
        (f"epochs = {'9' * 400}\n", "epochs is 9+; expected"),  # more than a float holds
        (f"alpha = 0x{'f' * 5000}\n", "alpha is .*; expected"),  # more than Python writes out
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(FileError, match=f"bad.toml: .*{sentence}"):
        Config.resolve(file=file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        Config.resolve(file=tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'encoder = "\xe9"\n')
    with pytest.raises(FileError, match="is not TOML"):
        Config.resolve(file=tmp_path / "latin.toml")


@given(
    preset=st.sampled_from(sorted(PRESETS)),
    alpha=st.floats(0, 1),
    n_rep=st.integers(0, 100),
    mixing=st.none() | st.floats(0, 1),
)
def test_round_trip(preset: str, alpha: float, n_rep: int, mixing: float | None) -> None:
    config = Config.resolve(
        preset, overrides={"alpha": alpha, "n_rep": n_rep, "mixing_weight": mixing}
    )
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_what_an_encoder_needs_stands_between_the_preset_and_the_user() -> None:
    paper = Config.resolve("supervised")
    lite = Config.resolve("supervised", overrides={"encoder": "lite"})
    assert lite.learning_rate > paper.learning_rate
    assert lite.delta == paper.delta
    own = Config.resolve("supervised", overrides={"encoder": "lite", "learning_rate": 1e-5})
    assert own.learning_rate == 1e-5
    assert Config.from_dict(own.to_dict()) == own
