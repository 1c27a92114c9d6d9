"""A killed alignment goes on and ends with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from blicer.align import RCSLS, Contrastive, TwoView, VecMap
from blicer.align import checkpoint as module
from blicer.align.base import Aligner
from blicer.align.checkpoint import Checkpoint
from blicer.embeddings import Embeddings

WORDS, DIM = 300, 12
SMALL: dict[str, Any] = {"words": 200, "patience": 4}


def sides() -> tuple[Embeddings, Embeddings]:
    rng = np.random.default_rng(0)
    left = rng.normal(size=(WORDS, DIM)) * np.exp(-np.arange(DIM) / 6)
    turn = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    right = (left + 0.1 * rng.normal(size=left.shape)) @ turn
    return (
        Embeddings([f"s{i}" for i in range(WORDS)], left.astype(np.float32)),
        Embeddings([f"t{i}" for i in range(WORDS)], right.astype(np.float32)),
    )


METHODS: dict[str, Aligner] = {
    "vecmap": VecMap.preset("semi_supervised", device="cpu", **SMALL),
    "rcsls": RCSLS(device="cpu", iterations=6),
    "rcsls, given rate": RCSLS(device="cpu", iterations=6, learning_rate=2.0),
    "c1": Contrastive(device="cpu", steps=5, rounds=3, negatives=10, mined_pairs=60),
    "c1, unsupervised": Contrastive.preset(
        "unsupervised", device="cpu", steps=4, rounds=2, negatives=10, mined_pairs=60
    ),
    "two views": TwoView(device="cpu", encoder="none", words=200, rounds=2, descent="always"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("moment", [2, 5])
def test_a_killed_run_goes_on_bit_equal(
    name: str, moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, (source, target) = METHODS[name], sides()
    pairs = None if "unsupervised" in name else np.stack([np.arange(120)] * 2, axis=1)
    whole = method.fit(source, target, pairs)
    monkeypatch.setattr(module, "SECONDS", 0.0)
    keep, calls = Checkpoint.save, 0

    def killed(self: Checkpoint, tensors: Any, values: Any) -> None:
        nonlocal calls
        keep(self, tensors, values)
        calls += 1
        if calls == moment:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        method.fit(source, target, pairs, work=tmp_path)
    calls = 1000  # counts on, and does not kill again
    resumed = method.fit(source, target, pairs, work=tmp_path)
    after, calls = calls - 1000, 1000
    method.fit(source, target, pairs, work=tmp_path / "another")
    assert after < calls - 1000  # some steps were not done again
    for one, other in ((whole.source, resumed.source), (whole.target, resumed.target)):
        assert one.vectors.tobytes() == other.vectors.tobytes()
    assert whole.settings == resumed.settings
    assert not list(tmp_path.glob("*.progress"))


def test_a_damaged_state_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    checkpoint = Checkpoint(tmp_path, "a run")
    checkpoint.save({"x": torch.arange(4)}, {"step": 3})
    found = Checkpoint(tmp_path, "a run").load()
    assert found is not None
    assert found[0]["x"].tolist() == [0, 1, 2, 3]
    assert found[1] == {"step": 3}
    assert Checkpoint(tmp_path, "another run").load() is None
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert Checkpoint(tmp_path, "a run").load() is None
    file.write_bytes(content[:40])
    assert Checkpoint(tmp_path, "a run").load() is None


def test_a_state_is_kept_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    checkpoint = Checkpoint(tmp_path, "a run", torch.zeros(2))
    for now, step in ((100.5, None), (111.0, 1), (112.0, 1), (122.0, 3)):
        checkpoint.save({"x": torch.ones(1)}, {"step": int(now > 120) * 2 + 1})
        found = Checkpoint(tmp_path, "a run", torch.zeros(2)).load()
        assert (found[1]["step"] if found else None) == step
    assert Checkpoint(tmp_path, "a run", torch.ones(2)).load() is None
    checkpoint.delete()
    checkpoint.delete()
    assert not list(tmp_path.iterdir())


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "SECONDS", 0.0)
    nowhere = Checkpoint(None, "a run")
    nowhere.save({"x": torch.ones(1)}, {})
    assert nowhere.load() is None
    nowhere.delete()
    assert not list(tmp_path.iterdir())


def test_values_and_tensors_of_different_moments_are_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    checkpoint = Checkpoint(tmp_path, "a run")
    checkpoint.save({"x": torch.arange(4)}, {"step": 3})
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    assert content.count(b'step\\": 3') == 1
    file.write_bytes(content.replace(b'step\\": 3', b'step\\": 4'))
    assert Checkpoint(tmp_path, "a run").load() is None
    for names in (["x", "y"], ["y", "x"]):  # order tells nothing
        checkpoint.save({name: torch.full((2,), ord(name)) for name in names}, {"step": 5})
        found = Checkpoint(tmp_path, "a run").load()
        assert found is not None
        assert found[0]["y"].tolist() == [ord("y")] * 2


def test_a_state_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, said = 100.0, []
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    monkeypatch.setattr(module, "note", said.append)
    (tmp_path / "work").write_text("in the way")
    checkpoint = Checkpoint(tmp_path / "work", "a run")
    for now in (111.0, 112.0, 122.0):  # noqa: B007
        checkpoint.save({"x": torch.ones(1)}, {})
    assert len(said) == 2
