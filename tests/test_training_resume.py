"""``kill -9`` at any moment, and the same command ends with the same bits."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from blicer.crossencoder import training
from blicer.crossencoder.model import Reranker
from tiny_models import tiny_encoder, toy_pairs

SETTINGS: dict[str, Any] = {
    "device": "cpu", "epochs": 3, "batch_size": 8, "learning_rate": 1e-3, "average_last": 0.5,
}  # fmt: skip

SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
from tiny_models import toy_pairs
from blicer.crossencoder import training
from blicer.crossencoder.model import Reranker
from blicer.encoders import tuning
tuning.SECONDS = tuning.SHARE = 0  # a checkpoint after every step
step = training.Run._step
def slow(run, number):  # leaves the test time to kill it between two steps, or in one
    time.sleep(0.02)
    return step(run, number)
training.Run._step = slow
reranker = Reranker({encoder!r}, **{settings!r})
reranker.fit(*toy_pairs(60), output_dir=sys.argv[1])
"""


@pytest.fixture(autouse=True)
def checkpoint_after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blicer.encoders.tuning.SECONDS", 0)
    monkeypatch.setattr("blicer.encoders.tuning.SHARE", 0)


def checkpoint_of(model: Path) -> Path:
    return model.with_name(f"{model.name}.checkpoint.safetensors")


def steps_in(checkpoint: Path) -> int:
    with safe_open(checkpoint, "pt") as file:
        return len(json.loads(file.metadata()["state"])["report"]["losses"])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder") / "bert")


@pytest.fixture(scope="module")
def whole(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    Reranker(encoder, **SETTINGS).fit(*toy_pairs(60), output_dir=folder)
    return load_file(folder / "model.safetensors")


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def test_killed_run_goes_on_to_the_same_weights(
    encoder: Path, whole: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    place = tmp_path / "model"
    script = SCRIPT.format(
        tests=str(Path(__file__).parent), encoder=str(encoder), settings=SETTINGS
    )
    command = [sys.executable, "-c", script, str(place)]
    state = checkpoint_of(place)
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 100
    while process.poll() is None and not (state.exists() and steps_in(state) >= 7):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it should have been killed in the middle"
    assert not place.exists(), "nothing is there before it is complete"
    assert subprocess.run(command, check=False).returncode == 0
    assert same_bits(load_file(place / "model.safetensors"), whole)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


class Killed(BaseException):
    """Stands for a kill inside one process."""


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    real = training.Run._step

    def stopping(run: training.Run, number: int) -> float:
        if number == step:
            raise Killed
        return real(run, number)

    monkeypatch.setattr(training.Run, "_step", stopping)


@pytest.mark.parametrize(
    ("overrides", "step"),
    [
        ({}, 1),
        ({}, 23),
        ({"average_last": 0.0}, 14),
        ({"freeze_embeddings": 0.4}, 6),
        ({"lora_rank": 2}, 14),
    ],
)
def test_every_kind_of_state_comes_back(
    encoder: Path, tmp_path: Path, overrides: dict[str, Any], step: int
) -> None:
    if "lora_rank" in overrides:
        pytest.importorskip("peft")
    settings = SETTINGS | overrides
    left, right, labels = toy_pairs(60)
    expected = Reranker(encoder, **settings).fit(left, right, labels)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        stop_at(patch, step)
        Reranker(encoder, **settings).fit(left, right, labels, output_dir=tmp_path / "model")
    resumed = Reranker(encoder, **settings).fit(left, right, labels, output_dir=tmp_path / "model")
    assert resumed.report_ is not None
    assert resumed.report_.resumed_from == step
    assert same_bits(resumed.model.state_dict(), expected.model.state_dict())
    assert expected.report_ is not None
    assert resumed.report_.losses == expected.report_.losses


def interrupted(encoder: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        stop_at(patch, 10)
        Reranker(encoder, **SETTINGS).fit(*toy_pairs(60), output_dir=place)


@pytest.mark.parametrize("damage", ["cut", "flip", "no state", "half"])
def test_damaged_checkpoint_is_not_trusted(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    place = tmp_path / "model"
    interrupted(encoder, place, monkeypatch)
    state = checkpoint_of(place)
    assert list(tmp_path.iterdir()) == [state]
    content = bytearray(state.read_bytes())
    if damage == "cut":
        state.write_bytes(content[:-100])
    elif damage == "flip":
        content[-50] ^= 1
        state.write_bytes(content)
    elif damage == "no state":
        save_file(load_file(state), state)
    else:  # what a kill in the middle of writing leaves behind
        state.rename(state.with_suffix(".part"))
    done = Reranker(encoder, **SETTINGS).fit(*toy_pairs(60), output_dir=place)
    assert done.report_ is not None
    assert done.report_.resumed_from == 0
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_changed_command_does_not_go_on_from_the_old_state(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right, labels = toy_pairs(60)
    changes: list[tuple[dict[str, Any], list[float]]] = [
        ({"learning_rate": 2e-3}, labels),
        ({}, [0.5, *labels[1:]]),
    ]
    for i, (overrides, other_labels) in enumerate(changes):
        place = tmp_path / str(i)
        interrupted(encoder, place, monkeypatch)
        changed = Reranker(encoder, **SETTINGS | overrides)
        changed.fit(left, right, other_labels, output_dir=place)
        assert changed.report_ is not None
        assert changed.report_.resumed_from == 0
        fresh = Reranker(encoder, **SETTINGS | overrides).fit(left, right, other_labels)
        assert same_bits(changed.model.state_dict(), fresh.model.state_dict())


def test_finished_run_is_loaded_not_repeated(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "model"
    first = Reranker(encoder, **SETTINGS).fit(*toy_pairs(60), output_dir=place)
    stop_at(monkeypatch, 0)
    second = Reranker(encoder, **SETTINGS).fit(*toy_pairs(60), output_dir=place)
    assert same_bits(first.model.state_dict(), second.model.state_dict())
    with pytest.raises(Killed):
        Reranker(encoder, **SETTINGS, seed=1).fit(*toy_pairs(60), output_dir=place)


def test_full_disk_at_a_checkpoint_does_not_stop_training(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    expected = Reranker(encoder, **SETTINGS).fit(*toy_pairs(60))
    monkeypatch.setattr("blicer.encoders.tuning.save_file", full)
    done = Reranker(encoder, **SETTINGS)
    done.fit(*toy_pairs(60), output_dir=tmp_path / "model")
    assert same_bits(done.model.state_dict(), expected.model.state_dict())
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_interrupted_fit_leaves_no_half_trained_model(
    encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = Reranker(encoder, **SETTINGS)
    before = {name: value.clone() for name, value in reranker.model.state_dict().items()}
    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        stop_at(patch, 10)
        reranker.fit(*toy_pairs(60))
    assert same_bits(reranker.model.state_dict(), before)
