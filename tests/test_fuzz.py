"""A short run of the fuzzing harness (``python tests/fuzz.py`` is the long one)."""

from __future__ import annotations

from pathlib import Path

import fuzz

LIGHT = [name for name in fuzz.READERS if "cross-encoder" not in name]


def test_no_damaged_file_gives_a_traceback(tmp_path: Path) -> None:
    counts, failures = fuzz.run(12.0, LIGHT, seed=1, keep=tmp_path)
    assert not failures
    assert sum(counts.values()) > len(LIGHT)


def test_a_reader_that_fails_is_noticed(tmp_path: Path) -> None:
    def careless(path: Path) -> object:
        return path.read_bytes().decode("ascii")

    reader = fuzz.Reader(lambda path: None, careless, checked=True)
    (tmp_path / "it").write_bytes(b"\xff")
    assert fuzz.attempt(reader, tmp_path / "it", "right")[0] == "traceback"
    (tmp_path / "it").write_bytes(b"left")
    assert fuzz.attempt(reader, tmp_path / "it", "right")[0] == "wrong"
    (tmp_path / "it").write_bytes(b"right")
    assert fuzz.attempt(reader, tmp_path / "it", "right")[0] == "accepted"
