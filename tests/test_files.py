"""Writing files and folders: whole or not at all, and never in the place of the user's own."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from blicer.errors import FileError
from blicer.files import atomic_folder


def test_what_stood_there_is_put_back_if_the_new_folder_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "old.txt").write_text("old")
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if Path(source).suffix == ".part":
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError, match="No space left"), atomic_folder(place) as folder:
        (folder / "new.txt").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (place / "old.txt").read_text() == "old"
