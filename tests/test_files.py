"""Writing files and folders: whole or not at all, and never in the place of the user's own."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from blicer import files
from blicer.errors import FileError
from blicer.files import (
    atomic_folder,
    atomic_write,
    check_replaceable,
    check_writable,
    file_sha256,
    locked,
    open_descriptor,
    open_output,
    read_json,
    read_marker,
    write_json,
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
    monkeypatch.setattr("blicer.files._exchange", lambda *_: False)  # not every system can
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


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *(("-", 1), ("/dev/stdout", 1), ("/dev/stderr", 2), ("/dev/fd/7", 7)),
        *(("/proc/self/fd/12", 12), ("/dev/null", None), ("a-", None), ("--", None)),
    ],
)
def test_names_of_open_files(name: str, number: int | None) -> None:
    assert open_descriptor(name) == number


def test_what_is_written_to_open_files_comes_out_there(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-", "/dev/stderr"):
        check_writable(name)
        with open_output(name) as file:
            file.write(f"to {name}")
    assert capfd.readouterr() == ("to -", "to /dev/stderr")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["tsv", "tsv.gz", "tsv.zst"])
def test_an_output_is_the_same_bytes_whenever_it_is_written(tmp_path: Path, ending: str) -> None:
    text = "кот\tchat\n" * 1000 + "half \ud83d\r\n"
    for name in ("one", "two"):
        path = tmp_path / f"{name}.{ending}"
        with open_output(path) as file:
            file.write(text)
        os.utime(path, (0, 0))
    content = path.read_bytes()
    assert content == (tmp_path / f"one.{ending}").read_bytes()
    if ending == "tsv.gz":
        content = gzip.decompress(content)
    if ending == "tsv.zst":
        import pyarrow

        with pyarrow.CompressedInputStream(str(path), "zstd") as stream:
            content = stream.read()
    assert content.decode() == text.replace("\ud83d", "?")


def test_an_error_names_the_place_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught, atomic_folder(tmp_path / "out") as folder:
        raise FileError(folder / "inside" / "a.json", "is not well")
    assert caught.value.path == tmp_path / "out" / "inside" / "a.json"
    assert "is not well" in str(caught.value)
    with pytest.raises(FileError) as caught, atomic_folder(tmp_path / "out"):
        raise FileError(tmp_path / "elsewhere", "is not well")
    assert caught.value.path == tmp_path / "elsewhere"
    assert not list(tmp_path.iterdir())


# -- one writer at a time --------------------------------------------------------------------------

HOLDER = """
import sys, time
from blicer.files import locked
with locked(sys.argv[1]):
    print("has it", flush=True)
    time.sleep(60)
"""


def holding(path: Path) -> subprocess.Popen[str]:
    """A process that keeps ``path`` locked."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "has it\n"
    return holder


def test_a_second_writer_is_refused_until_the_first_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "out.tsv"
    holder = holding(path)
    with pytest.raises(FileError, match=rf"out.tsv: is being written .*{holder.pid}"), locked(path):
        pass
    holder.kill()  # leaves the lock file behind, but not the lock
    holder.wait()
    with locked(path), locked(path):
        refused: list[FileError] = []

        def second() -> None:  # another thread of this process is another writer
            try:
                with locked(path):
                    pass
            except FileError as error:
                refused.append(error)

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert len(refused) == 1
    assert not list(tmp_path.iterdir())
    with locked("-"):  # standard output
        assert not list(tmp_path.iterdir())


def test_the_command_line_locks_its_output(tmp_path: Path) -> None:
    holder = holding(tmp_path / "space")
    vectors = tmp_path / "a.vec"
    vectors.write_text("2 2\na 1 0\nb 0 1\n")
    command = ["align", str(vectors), str(vectors), "--space", "files", "-o"]
    program = [sys.executable, "-c", "from blicer.cli import main; main()", *command]
    done = subprocess.run([*program, str(tmp_path / "space")], capture_output=True, text=True)
    holder.kill()
    holder.wait()
    assert done.returncode == 2
    assert "is being written by another blicer" in done.stderr
    assert not (tmp_path / "space").exists()
    assert subprocess.run([*program, str(tmp_path / "space")]).returncode == 0


# -- checksums, modes ------------------------------------------------------------------------------


def sealed(tmp_path: Path) -> Path:
    with atomic_folder(tmp_path / "ours") as folder:
        (folder / "inside").mkdir()
        (folder / "inside" / "small").write_text("small")
        (folder / "large").write_bytes(bytes(3 << 20))
        write_marker(folder, "mark.json", {"format": "f", "version": 1, "weights": [0.5, 0.25]})
    return tmp_path / "ours"


def test_every_changed_bit_is_found(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    values = read_marker(folder, "mark.json", "f", 1, "ours")
    assert values["verified"]
    assert values["weights"] == [0.5, 0.25]
    for name in ("inside/small", "large"):
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 4
        (folder / name).write_bytes(content)
        with pytest.raises(FileError, match=f"{name}: is damaged"):
            read_marker(folder, "mark.json", "f", 1, "ours")
        content[len(content) // 2] ^= 4
        (folder / name).write_bytes(content)
    read_marker(folder, "mark.json", "f", 1, "ours")
    text = (folder / "mark.json").read_text()
    (folder / "mark.json").write_text(text.replace("0.25", "0.35"))
    with pytest.raises(FileError, match=r"mark.json: is damaged"):
        read_marker(folder, "mark.json", "f", 1, "ours")
    (folder / "mark.json").write_text(text)
    (folder / "large").unlink()
    with pytest.raises(FileError, match="large: is missing"):
        read_marker(folder, "mark.json", "f", 1, "ours")


def test_a_folder_that_is_not_what_was_asked_for(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    for place, format, version, said in (
        (tmp_path / "none", "f", 1, "does not exist"),
        (tmp_path, "f", 1, "there is no mark.json"),
        (folder, "g", 1, "expected format 'g'"),
        (folder, "f", 2, "has version 1; this blicer reads version 2: make "),
    ):
        with pytest.raises(FileError, match=said):
            read_marker(place, "mark.json", format, version, "ours")
    listed = json.loads((folder / "mark.json").read_text())
    assert listed["files"] == ["inside", "large"]
    assert listed["sha256"] == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("inside/small", "large")
    }
    for left_out in ({"seal"}, {"sha256"}):  # cut out by hand
        write_json(folder / "mark.json", {k: v for k, v in listed.items() if k not in left_out})
        with pytest.raises(FileError, match=r"mark.json: is damaged"):
            read_marker(folder, "mark.json", "f", 1, "ours")
    write_json(folder / "mark.json", {"format": "f", "version": 1})  # of an older blicer
    assert not read_marker(folder, "mark.json", "f", 1, "ours")["verified"]


def test_only_the_last_states_are_remembered(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_REMEMBERED", 3)
    monkeypatch.setattr(files, "LARGE", 10)
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(bytes(10 + number))
        (tmp_path / f"small {number}").write_bytes(bytes(9))
    write_marker(tmp_path, "mark.json", {"format": "f", "version": 1})
    assert len(list((own_cache / "verified").iterdir())) == 3
    assert read_marker(tmp_path, "mark.json", "f", 1, "ours")["verified"]


def test_a_large_file_is_hashed_once_for_each_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sealed(tmp_path)
    hashed: list[str] = []

    def counted(path: Path) -> str:
        hashed.append(Path(path).name)
        return file_sha256(path)

    monkeypatch.setattr("blicer.files.file_sha256", counted)
    read_marker(folder, "mark.json", "f", 1, "ours")
    assert hashed == ["small"]  # the large one was hashed when it was written
    os.utime(folder / "large")
    read_marker(folder, "mark.json", "f", 1, "ours")
    read_marker(folder, "mark.json", "f", 1, "ours")
    assert hashed.count("large") == 1


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o002])
def test_modes_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = sealed(tmp_path)
        with atomic_write(tmp_path / "file") as file:
            file.write("x")
    finally:
        os.umask(before)
    for path in (*folder.rglob("*"), tmp_path / "file", folder):
        expected = (0o777 if path.is_dir() else 0o666) & ~mask
        assert path.stat().st_mode & 0o777 == expected, path


def test_a_write_is_a_new_file_not_a_copy_over_the_old(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with path.open() as reader:
        with atomic_write(path) as file:
            file.write("new, and longer")
        assert reader.read() == "old"
    with suppress(ZeroDivisionError), atomic_write(path) as file:
        file.write(f"half {1 / 0}")
    assert path.read_text() == "new, and longer"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    program = """
import os, sys
from blicer.files import atomic_folder, atomic_write
with atomic_folder(sys.argv[1] + "/folder") as folder, atomic_write(sys.argv[1] + "/file") as file:
    (folder / "x").write_text("x")
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)])
    assert len(list(tmp_path.iterdir())) == 2
    with atomic_write(tmp_path / "file") as outer, atomic_write(tmp_path / "file") as inner:
        outer.write("outer")  # another writer's temporary file stays while that writer lives
        inner.write("inner")
    with atomic_folder(tmp_path / "folder"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "outer"


@pytest.mark.parametrize("swaps", [True, False])
def test_a_kill_at_any_moment_of_a_replacement_loses_nothing(tmp_path: Path, swaps: bool) -> None:
    place = tmp_path / "out"
    with atomic_folder(place) as folder:
        (folder / "x").write_text("old")
    program = f"""
import os, sys, blicer.files as files
if not {swaps}:
    files._exchange = lambda *_: False
moment, replace, remove = int(sys.argv[1]), os.replace, files.shutil.rmtree
def step(work):
    def counted(*arguments, **more):
        global moment
        moment -= 1
        if moment < 0:
            os._exit(9)
        return work(*arguments, **more)
    return counted
os.replace, files.shutil.rmtree = step(replace), step(remove)
with files.atomic_folder({str(place)!r}) as folder:
    (folder / "x").write_text("new")
"""
    for moment in range(5):
        subprocess.run([sys.executable, "-c", program, str(moment)])
        with suppress(FileError), atomic_folder(place) as folder:
            found = (place / "x").read_text()  # put back at the latest by the next writer
            assert found in ("old", "new")
            (folder / "x").write_text("old")
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "9" * 6000])
def test_json_that_no_reader_can_bear_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(FileError, match=r"a.json: is not JSON"):
        read_json(tmp_path / "a.json")


def test_json_of_any_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_TEXT", 10)
    for text, fine in (("[1, 2, 3]\n", True), ("[1, 2, 3]\n ", False)):
        (tmp_path / "a.json").write_text(text)
        if fine:
            assert read_json(tmp_path / "a.json") == [1, 2, 3]
        else:
            with pytest.raises(FileError, match="larger than"):
                read_json(tmp_path / "a.json")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="expected a regular file"):
        read_json(tmp_path / "pipe")
