"""Changes of the code that other tests did not notice, each with the case that tells."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from blicer import calibration, download
from blicer.align import Procrustes, rcsls
from blicer.align.rcsls import RCSLS
from blicer.calibration import Absent, Scored, calibrate
from blicer.crossencoder.scoring import best_first
from blicer.embeddings import Embeddings
from blicer.errors import FileError
from blicer.files import digest


def test_an_unscored_part_may_still_be_one() -> None:
    """Early exit with a bound of 0.9 instead of 1 would leave the winner unscored."""
    parts = np.array([[0.0, 1.0]])
    found = best_first([[0.5, 0.0]], [0.52], lambda rows, columns, _: parts[rows, columns])
    assert found.tolist() == [1]
    one_by_one = best_first(
        [[0.5, 0.0]], [0.52], lambda rows, columns, _: parts[rows, columns], batch_size=1
    )
    assert one_by_one.tolist() == [1]


def test_reliability_is_measured_on_words_that_the_fit_did_not_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    words, candidates = 60, 4
    parts = rng.random((words, candidates, 2))
    scored = Scored(parts.sum(axis=2), parts, np.zeros(words, bool), np.arange(words))
    seen: list[set[int]] = []
    fit = calibration._fit

    def recorded(scored: Any, is_gold: Any, absent: Any) -> Any:
        seen.append(set(scored.rows.tolist()))
        return fit(scored, is_gold, absent)

    monkeypatch.setattr(calibration, "_fit", recorded)
    calibrate(scored, rng.random((words, candidates)) < 0.3, (Absent(), Absent()))
    everything = set(range(words))
    assert seen[0] == everything
    left_out = [everything - one for one in seen[1:]]
    assert sorted(word for part in left_out for word in part) == sorted(everything)
    assert max(map(len, left_out)) <= words // 4


@pytest.mark.parametrize("row", [0, 3, 6])
@pytest.mark.parametrize("side", ["source", "target", "pairs"])
def test_every_row_of_the_data_names_the_stage(tmp_path: Path, row: int, side: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    pairs = np.stack([np.arange(7)] * 2, axis=1)
    words = [f"w{i}" for i in range(7)]

    def folder(**changed: Any) -> Path:
        data = {"source": vectors, "target": vectors, "pairs": pairs} | changed
        sides = [Embeddings(words, data[name]) for name in ("source", "target")]
        return Procrustes().cache_folder(sides[0], sides[1], data["pairs"], tmp_path)

    data = pairs.copy() if side == "pairs" else vectors.copy()
    assert folder(**{side: data}) == folder()
    data[row] += 1
    assert folder(**{side: data}) != folder()


def test_digests_tell_order_kind_and_borders() -> None:
    array = np.arange(6)
    assert digest(array) != digest(array[::-1].copy())
    assert digest(array) != digest(array.reshape(2, 3))
    assert digest(array) != digest(array.astype(np.int32))
    assert digest(["a", "b"]) != digest(["b", "a"])
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a") != digest(b"a")


@pytest.mark.parametrize(("size", "allowed"), [(10, True), (11, False)])
def test_the_largest_member_of_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, allowed: bool
) -> None:
    monkeypatch.setattr(download, "_LARGEST_MEMBER", 10)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("folder/d.tsv", "x" * size)
    if allowed:
        download.extract(tmp_path / "a.zip", tmp_path / "d.tsv")
        assert (tmp_path / "d.tsv").read_text() == "x" * size
        return
    with pytest.raises(FileError, match="too large"):
        download.extract(tmp_path / "a.zip", tmp_path / "d.tsv")
    assert not (tmp_path / "d.tsv").exists()


def test_rcsls_goes_as_far_as_nine_tenths_of_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    held_out = iter([10.0, 5.0, 1.5, 1.0, 1.2])  # nine tenths of 9 are reached at 1.5

    class Losses:
        def __init__(self, x: Any, y: Any, pairs: Any, settings: Any) -> None:
            self.judges, self.value = len(pairs) < 60, 100.0

        def __call__(self, maps: Any) -> tuple[float, Any]:
            self.value -= 1.0
            return (next(held_out) if self.judges else self.value), maps

    monkeypatch.setattr(rcsls, "CSLSLoss", Losses)
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32))
    pairs = np.stack([np.arange(120)] * 2, axis=1)
    chosen = RCSLS(iterations=5, device="cpu")._choose_rate(rows, rows, pairs, None)
    first, second = rcsls.FIRST_STEP, rcsls.FIRST_STEP * rcsls.GROWTH
    assert chosen == pytest.approx((first + second) / 5)
