"""Writing files and folders: whole or not at all, and never in the place of the user's own."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from blicer.errors import FileError
from blicer.files import (
    atomic_folder,
    atomic_write,
    check_replaceable,
    check_writable,
    write_marker,
)


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


def test_a_link_leads_to_what_is_written(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    with atomic_write(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    folder, to_folder = tmp_path / "folder", tmp_path / "to folder"
    folder.mkdir()
    to_folder.symlink_to(folder)
    with atomic_folder(to_folder) as inside:
        (inside / "a").write_text("b")
    assert to_folder.is_symlink()
    assert (folder / "a").read_text() == "b"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"real.txt", "link.txt", "folder", "to folder"}


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    check_writable(pipe)
    with atomic_write(pipe) as file:
        file.write("through")
    reader.join()
    assert read == ["through"]
    assert pipe.is_fifo()


def test_a_folder_of_ours_may_be_replaced_if_it_holds_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "space"
    with atomic_folder(place) as folder:
        (folder / "vectors").write_text("1")
        write_marker(folder, "space.json", {"format": "x"})
    check_replaceable(place, "space.json", "a space")
    (place / ".DS_Store").write_text("litter")
    check_replaceable(place, "space.json", "a space")
    (place / "notes.txt").write_text("precious")
    with pytest.raises(FileError, match=r"holds 'notes.txt', which is not of a space"):
        check_replaceable(place, "space.json", "a space")
    (place / "notes.txt").unlink()
    for damaged in ('{"format": "x"}', "[]", "{"):  # nobody knows what belongs to it
        (place / "space.json").write_text(damaged)
        with pytest.raises(FileError, match=r"holds 'vectors'|is not JSON"):
            check_replaceable(place, "space.json", "a space")


def test_a_folder_that_cannot_be_replaced_is_found_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for here in (".", tmp_path):
        with pytest.raises(FileError, match="is the folder that this runs in"):
            check_writable(here)
