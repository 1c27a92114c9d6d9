"""Downloads that survive broken connections, and ``get``, which fetches files of a collection.

Bytes are written to ``NAME.part``; ``NAME.part.json`` has the URL and version of the file. A later
attempt or run requests the rest of the same version (Range with If-Range). A file gets its name
once it is complete and its checksum, if known, is right.
"""

from __future__ import annotations

import errno
import gzip
import http.client
import lzma
import os
import re
import ssl
import struct
import urllib.error
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from rich.filesize import decimal

from blicer import __version__, progress
from blicer.catalogue import Item, find_collection, plan
from blicer.errors import BlicerError, FileError, InputError
from blicer.files import atomic_write, check_writable, file_sha256, read_json, write_json
from blicer.io.vectors import HEADER

try:
    import fcntl
except ImportError:  # not on Windows, where an open file cannot be replaced anyway
    fcntl = None  # type: ignore[assignment]

FETCHED, THERE, FAILED = "fetched", "there already", "failed"
LIMIT_WITHOUT_LENGTH = 20_000_000_000  # bytes, from a server that does not give the length
_LARGEST_MEMBER = 100_000_000  # of an archive; dictionaries have a hundred kilobytes
_LONGEST_WAIT = 60.0  # seconds
_ATTEMPTS_TO_CONNECT = 3
_PIECE, _MEGABYTE = 1 << 16, 1_000_000
_TEMPORARY = {408, 416, 425, 429, 500, 502, 503, 504}
_ABSENT = {403, 404, 410}  # Amazon's storage answers 403 for files that do not exist
_NUMBER = re.compile("[0-9]{1,15}")
_RANGE = re.compile("bytes ([0-9]{1,15})-[0-9]+/([0-9]{1,15})")
_CUT = b"\t"  # ends the first line if ``get`` left words out; ignored by readers of vectors
# Broken, encrypted, of an unknown compression, or with a name that is not UTF-8.
_BAD_ARCHIVE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError),
    *(NotImplementedError, ValueError),
)
_PAGES = (b"<!doctype", b"<html", b"<?xml")


class DownloadError(BlicerError):
    """A file could not be fetched; ``absent``: the server does not have it."""

    def __init__(self, place: str, problem: str, *, absent: bool = False) -> None:
        super().__init__(f"{place}: {problem}")
        self.absent = absent


class _Damaged(Exception):
    """The bytes received are wrong; a new transfer from the start may help."""


class Part:
    """``NAME.part``, the first bytes of a file, and the URL, version and length of the file."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f"{target.name}.part")
        self._facts = target.with_name(f"{target.name}.part.json")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.url, self.validator, self.length = "", "", None
        try:
            self.url, self.validator, self.length = read_json(self._facts)
        except (FileError, TypeError, ValueError):
            self.discard()  # bytes of unknown origin

    @property
    def size(self) -> int:
        # Never follow a link that somebody else put there.
        return self.path.stat().st_size if self.path.is_file() and not self.path.is_symlink() else 0

    def begin(self, url: str, validator: str, length: int | None) -> None:
        """Start empty, for this version of this URL."""
        self.discard()
        self.url, self.validator, self.length = url, validator, length
        write_json(self._facts, [url, validator, length])

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)

    def become_target(self) -> None:
        with self.path.open("ab") as file:
            os.fsync(file.fileno())
        os.replace(self.path, self.target)
        self.discard()


Check = Callable[[bool], float]


def fetch(
    url: str, part: Part, check: Check = float, *, attempts: int = 6, timeout: float = 30.0
) -> None:
    """Fill ``part`` with the whole file, or with as much as ``check`` wants.

    ``check(complete)`` examines the part and returns the share of the wanted data that is there (1
    is enough; the default, ``float``, wants the whole file). ``attempts``: give up after so many in
    a row without a new byte. ``timeout``: seconds to wait for a response.
    """
    failures = most = 0
    while True:
        wait, allowed = 0.0, attempts
        try:
            return _attempt(url, part, check, timeout)
        except _Damaged as error:
            part.discard()
            problem = str(error)
        except urllib.error.HTTPError as error:
            problem = f"the server answers {error.code} {error.reason}"
            if error.code in _ABSENT:
                raise DownloadError(url, f"is not there ({problem})", absent=True) from error
            if error.code not in _TEMPORARY:
                raise DownloadError(url, problem) from error
            if error.code == 416:  # no bytes after the part
                part.discard()
            asked = error.headers.get("Retry-After", "")
            wait = float(asked) if _NUMBER.fullmatch(asked) else 0.0
        except urllib.error.URLError as error:
            problem = f"no connection to {urlsplit(url).netloc} ({error.reason})"
            if not part.size:  # there may be no network: give up soon
                allowed = min(attempts, _ATTEMPTS_TO_CONNECT)
        except http.client.InvalidURL as error:
            raise DownloadError(url, f"cannot be asked for ({error})") from error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, BlockingIOError):
                raise FileError(part.path, "is being filled by another process") from error
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise FileError(part.path, "cannot be written (the disk is full)") from error
            problem = f"the connection broke after {decimal(part.size)} ({error})"
        except ValueError as error:  # of the address, or of the one that it leads to
            if isinstance(error, InputError):
                raise
            raise DownloadError(url, f"cannot be asked for ({error})") from error
        if part.size > most:
            most, failures = part.size, 0
        failures += 1
        if failures >= allowed:
            now = f"{decimal(part.size)} are kept: the same command goes on from there"
            if not part.size:
                part.discard()
                now = "try again later"
            raise DownloadError(url, f"{problem}; {now}")
        wait = min(max(2.0 ** (failures - 1), wait), _LONGEST_WAIT)
        progress.note(f"{part.target.name}: {problem}; trying again in {wait:.0f} s")
        sleep(wait)


class _SafeRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, to: str
    ) -> Any:
        if urlsplit(to).scheme not in ("https", req.type):
            raise DownloadError(req.full_url, f"leads to {to}, which is not safe (no https)")
        return super().redirect_request(req, fp, code, msg, headers, to)


def _attempt(url: str, part: Part, check: Check, timeout: float) -> None:
    size = part.size if part.url == url and part.validator else 0
    headers = {"User-Agent": f"blicer/{__version__}", "Accept-Encoding": "identity"}
    if size:
        if check(size == part.length) >= 1 or size == part.length:
            return
        headers |= {"Range": f"bytes={size}-", "If-Range": part.validator}
    opener = build_opener(_SafeRedirects, HTTPSHandler(context=ssl.create_default_context()))
    with opener.open(Request(url, headers=headers), timeout=timeout) as response:
        sent = response.headers
        encoding = sent.get("Content-Encoding", "identity")
        if encoding != "identity" and not url.endswith(".gz"):
            raise DownloadError(url, f"came packed ({encoding}), which was not asked for")
        validator = sent.get("ETag", "")
        if not validator.startswith('"'):  # a weak one cannot be used with If-Range
            validator = sent.get("Last-Modified", "")
        if response.status == 206:
            # Some servers continue at another byte, or in a file that was replaced.
            found = _RANGE.fullmatch(sent.get("Content-Range", ""))
            start, length = (int(found[1]), int(found[2])) if found else (-1, 0)
            same = start == size and validator in ("", part.validator)
            if not same or length != (part.length or length):
                raise _Damaged("the file has changed; starting over")
            part.length = length
        else:
            start = 0
            length = sent.get("Content-Length", "")
            part.begin(url, validator, int(length) if _NUMBER.fullmatch(length) else None)
        _receive(response, part, check, start)


def _receive(response: Any, part: Part, check: Check, start: int) -> None:
    part.path.unlink() if part.path.is_symlink() else None
    size = part.size
    if size != start:
        raise _Damaged("the part was changed meanwhile; starting over")
    total, next_look = part.length and part.length // _MEGABYTE, size + _MEGABYTE
    with part.path.open("ab") as file, progress.task(f"{part.target.name}, MB", total) as bar:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # read1 returns what has arrived, so nothing is lost when a connection breaks.
        while piece := response.read1(_PIECE):
            problem = ""
            if size == 0 and piece.lstrip().lower().startswith(_PAGES):
                problem = "a web page came instead of the file (does this network ask to log in?)"
            elif part.length is None and size > LIMIT_WITHOUT_LENGTH:
                problem = f"has no end: {decimal(size)} came; nothing was kept"
            if problem:
                part.discard()
                raise DownloadError(part.url, problem)
            file.write(piece)
            size += len(piece)
            bar.advance(size // _MEGABYTE - bar.done)
            if size >= next_look:
                file.flush()
                share = check(False)
                if share >= 1:
                    return
                next_look = size + max(_MEGABYTE, int(size / share) - size if share else 0)
    if part.length not in (None, size):
        raise ConnectionError(f"{decimal(part.length)} were expected")
    check(True)


def _lines(file: Path, ended: bool) -> Iterator[bytes]:
    """Lines of a text file or its part (also ``.gz``), without blank and incomplete ones."""
    packed = file.name.removesuffix(".part").endswith(".gz")
    try:
        with gzip.open(file) if packed else file.open("rb") as opened:
            for line in opened:
                if line.strip() and (ended or line.endswith(b"\n")):
                    yield line.rstrip(b"\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if ended or not isinstance(error, EOFError):
            raise _Damaged(f"it is damaged or cut off ({error})") from error


def _words_of(file: Path) -> tuple[int, bool]:
    """The number of words in a vector file's header (0 if none), and whether ``get`` cut it."""
    try:
        line = next(_lines(file, ended=False), b"")
    except (OSError, _Damaged):
        line = b""
    header = HEADER.fullmatch(line)
    return (int(header[1]), line.endswith(_CUT)) if header else (0, False)


class _WordCount:
    """The ``Check`` of a word2vec text file of which ``first`` words are wanted (None: all)."""

    def __init__(self, part: Part, first: int | None) -> None:
        self.part, self.first = part, first

    def __call__(self, ended: bool) -> float:
        lines = _lines(self.part.path, ended)
        line = next(lines, b"" if ended else b"0 0")
        header = HEADER.fullmatch(line)
        if header is None:
            self.part.discard()
            start = line[:40].decode("utf-8", "replace")
            expected = "expected the number of words and the dimension on its first line"
            problem = f"is not a word2vec text file: {expected}, found {start!r}"
            raise DownloadError(self.part.url, problem)
        self.said, self.dim, self.ended = int(header[1]), int(header[2]), ended
        self.words = sum(1 for _ in islice(lines, self.first if self.first or ended else 0))
        self.whole = ended and (self.first is None or self.words < self.first)
        if self.whole and self.part.length is None and self.words < self.said:
            raise _Damaged(f"it ended after {self.words} of {self.said} words")
        return self.words / self.first if self.first else 0.0

    def write(self, target: Path) -> None:
        """Write the counted words, with a header of their number."""
        with atomic_write(target, "wb") as file:
            file.write(b"%d %d" % (self.words, self.dim) + (b"" if self.whole else _CUT) + b"\n")
            lines = islice(_lines(self.part.path, self.ended), 1, self.words + 1)
            file.writelines(line + b"\n" for line in lines)


def extract(archive: Path, target: Path) -> None:
    """Write the archive's file of the same name, in any of its folders, to ``target``.

    Names in the archive cannot lead to any other path.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            names = {info: re.split(r"[/\\]", info.filename)[-1] for info in opened.infolist()}
            same = [info for info, name in names.items() if name == target.name]
            if not same:
                pairs = ", ".join(sorted({name.split(".")[0] for name in names.values()} - {""}))
                raise FileError(archive, f"has no {target.name}; what it has: {pairs}")
            if len({(info.CRC, info.file_size) for info in same}) > 1:
                raise FileError(archive, f"has {len(same)} different files {target.name}")
            if same[0].file_size > _LARGEST_MEMBER:
                raise FileError(archive, f"{target.name} in it is too large; not unpacked")
            content = opened.read(same[0])
    except FileError:
        raise
    except _BAD_ARCHIVE as error:
        raise FileError(archive, f"cannot be unpacked ({error}); delete it") from error
    with atomic_write(target, "wb") as file:
        file.write(content)


@dataclass(frozen=True)
class Outcome:
    """The outcome for one file."""

    file: Path
    status: str  # FETCHED, THERE or FAILED
    size: int = 0
    words: int | None = None  # of a vector file
    verified: bool = False  # against a known SHA-256
    problem: str | None = None


def get(
    collection: str,
    wanted: Iterable[str],
    folder: str | Path,
    *,
    first: int | None = None,
    **patience: Any,
) -> Iterator[Outcome]:
    """Fetch the missing files one by one; a failure does not stop the others.

    ``first``: number of words of each vector file (default: all). ``patience``: ``attempts`` and
    ``timeout`` of ``fetch``.
    """
    found = find_collection(collection)
    if first is not None and (first < 1 or not found.vectors):
        raise InputError(f"--first {first} is for vectors, and must be 1 or more")
    items, notes = plan(collection, wanted)
    for note in notes:
        progress.note(note)
    folder = Path(folder)
    check_writable(folder / collection)

    def download(item: Item, target: Path) -> Outcome:
        if found.vectors:
            return _get_vectors(item, target, first, patience)
        return _get_dictionary(item, target, patience)

    def member(item: Item, target: Path) -> Outcome:
        extract(folder / item.file, target)
        return _outcome(item, target, FETCHED)

    def guarded(work: Callable[[Item, Path], Outcome], item: Item, target: Path) -> Outcome:
        try:
            return work(item, target)
        except BlicerError as error:
            absent = isinstance(error, DownloadError) and error.absent
            problem = f"{error}; what is published: {found.page}" if absent else str(error)
        except OSError as error:
            problem = f"{error.filename or target}: {error.strerror or error}"
        return Outcome(target, FAILED, problem=problem)

    def each() -> Iterator[Outcome]:
        for item in items:
            # Archives are kept, for the other pairs in them.
            members = [folder / file for file in item.members]
            missing = [file for file in members if not file.exists()]
            for file in members:
                if file not in missing:
                    yield Outcome(file, THERE, file.stat().st_size)
            if missing or not members:
                fetched = guarded(download, item, folder / item.file)
                yield fetched
                if fetched.status != FAILED:
                    yield from (guarded(member, item, file) for file in missing)

    return each()


def _get_dictionary(item: Item, target: Path, patience: dict[str, Any]) -> Outcome:
    """Fetch a dictionary, or an archive of them, and compare its checksum if known."""
    if target.is_file():
        if item.sha256 and file_sha256(target) != item.sha256:
            problem = "is there, but is not the published file (its SHA-256 differs); move it away"
            raise FileError(target, problem)
        return _outcome(item, target, THERE)
    part = Part(target)
    fetch(item.url, part, **patience)
    if item.sha256 and (found := file_sha256(part.path)) != item.sha256:
        part.discard()
        problem = f"its SHA-256 is {found}, expected {item.sha256}; nothing was kept; try again"
        raise DownloadError(part.url, f"is not the published file: {problem}")
    part.become_target()
    return _outcome(item, target, FETCHED)


def _get_vectors(item: Item, whole: Path, first: int | None, patience: dict[str, Any]) -> Outcome:
    """Fetch a vector file, or its first words as plain text."""
    short = whole.with_name(whole.name.removesuffix(".gz"))
    target = whole if first is None else short
    for file in dict.fromkeys((target, whole)):
        words, cut = _words_of(file)
        if file.exists() and (not cut or (first is not None and words >= first)):
            return _outcome(item, file, THERE, words or None)
    part = Part(whole)
    count = _WordCount(part, first)
    fetch(item.url, part, count, **patience)
    if first is not None:
        count.write(short)
        part.discard()
        some = f"{'all' if count.whole else 'the first'} {count.words} of {count.said} words"
        progress.note(f"{short.name}: {some}; its first line was changed to say so")
    else:
        part.become_target()
        if _words_of(short)[1]:  # it could be mistaken for the whole file
            short.unlink()
    return _outcome(item, target, FETCHED, count.words)


def _outcome(item: Item, file: Path, status: str, words: int | None = None) -> Outcome:
    return Outcome(file, status, file.stat().st_size, words, item.sha256 is not None)
