"""Stages of shared work: which of them a block uses."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from blicer import stage_cache
from blicer.encoders.loading import encoder_version
from blicer.errors import FileError
from blicer.files import digest
from blicer.stage_cache import ArrayCache, log_stages, stage, stage_folder, work_folder
from tiny_models import tiny_encoder


def test_the_stages_of_a_block_are_recorded(tmp_path: Path) -> None:
    c1, c2 = tmp_path / "c1", tmp_path / "c2"
    with stage(c1):
        pass  # nobody is watching
    with log_stages() as folders:
        with stage(c2), stage(c1), stage(None):
            pass
        with pytest.raises(KeyError), stage(tmp_path / "fails"):
            raise KeyError
    assert folders == [c1, c2]


def test_an_encoder_is_told_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_encoder(tmp_path / "one")
    version = encoder_version(folder)
    assert version
    assert encoder_version(tiny_encoder(tmp_path / "two")) == version
    (folder / "README.md").write_text("a card")
    assert encoder_version(folder) == version
    (folder / "vocab.txt").write_text("another\n")
    assert encoder_version(folder) != version
    assert encoder_version(tiny_encoder(tmp_path / "three", seed=1)) != version
    assert encoder_version("xlm-roberta-large") == ""
    assert encoder_version("") == ""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert encoder_version("~/two") == version
    assert encoder_version("lite")


# -- the folder of unfinished work ----------------------------------------------------------------


def test_a_work_folder_holds_stages_and_nothing_else(tmp_path: Path) -> None:
    folder = work_folder(tmp_path / "en-fr")
    assert folder == tmp_path / "en-fr.work"
    for kind in ("space", "rounds", "reranker", "c2"):
        made = stage_folder(folder, kind, "some", ["inputs"])
        made.mkdir(parents=True)
        made.with_name(f".{made.name}.12.part").mkdir()
        made.with_suffix(".progress").touch()
        assert made != stage_folder(folder, kind, "some", ["other"])
    assert work_folder(tmp_path / "en-fr") == folder
    for strange in ("thesis.txt", "space", "space-abc", f"mine-{'0' * 16}", "0" * 30):
        (folder / strange).touch()
        with pytest.raises(FileError, match=f"holds '{strange}'"):
            work_folder(tmp_path / "en-fr")
        (folder / strange).unlink()


# -- arrays ---------------------------------------------------------------------------------------


class Table:
    """Rows that can be told apart, and which of them were computed."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def __call__(self, start: int, stop: int) -> dict[str, np.ndarray]:
        self.asked.append((start, stop))
        rows = np.arange(start, stop)
        return {"one": rows * 2.0, "two": np.stack([rows, -rows], axis=1)}


def test_rows_are_computed_once_and_are_the_same_after(own_cache: Path) -> None:
    table, whole = Table(), Table()(0, 9)
    for count in (4, 2, 4, 9, 0, 9, 5):
        cache = ArrayCache("scores", "key")  # as another process would
        for name in ("a", "b"):
            found = cache.rows(name, count, table)
            assert found.keys() == whole.keys()
            for key, rows in found.items():
                assert rows.dtype == whole[key].dtype
                np.testing.assert_array_equal(rows, whole[key][:count])
    assert table.asked == [(0, 4), (0, 4), (4, 9), (4, 9)]
    assert sorted(path.name for path in own_cache.rglob("*") if path.is_file()) == ["a", "b"]


def test_what_another_version_or_damage_left_is_computed_again(own_cache: Path) -> None:
    cache = ArrayCache("scores", "key")
    cache.rows("a", 3, Table())
    file = cache.folder / "a"
    whole, length = file.read_bytes(), stage_cache._CHECK
    other = digest(b"another format", length=length).encode() + b"another format"
    for content in (other, whole[:-1], whole[:length], b""):
        file.write_bytes(content)
        table = Table()
        np.testing.assert_array_equal(cache.rows("a", 3, table)["one"], [0.0, 2.0, 4.0])
        assert table.asked == [(0, 3)]


def test_a_file_that_cannot_be_written_is_said_once(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(stage_cache, "note", said.append)
    (own_cache / "scores").write_text("in the way")
    cache, table = ArrayCache("scores", "key"), Table()
    for _ in range(2):
        assert len(cache.rows("a", 3, table)["one"]) == 3
    assert table.asked == [(0, 3), (0, 3)]
    assert len(said) == 1


def test_the_folders_used_last_are_kept(own_cache: Path) -> None:
    kept = stage_cache.FOLDERS_KEPT
    for number in range(kept):
        ArrayCache("scores", f"{number}").rows("a", 1, Table())
        os.utime(own_cache / "scores" / f"{number}", (number, number))
    ArrayCache("scores", "1").rows("a", 1, Table())  # is used again
    assert len(list((own_cache / "scores").iterdir())) == kept
    ArrayCache("scores", "new").rows("a", 1, Table())
    left = {path.name for path in (own_cache / "scores").iterdir()}
    assert left == {"new", "1", *map(str, range(2, kept))}
    ArrayCache("others", "new").rows("a", 1, Table())
    assert left == {path.name for path in (own_cache / "scores").iterdir()}
