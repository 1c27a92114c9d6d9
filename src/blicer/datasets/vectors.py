"""The vector files of the folder: which words are there, and writing the first ones of a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from blicer.datasets.part import Part
from blicer.datasets.watch import Lines, UnexpectedData, WordVectors, header_of, is_word
from blicer.errors import FileError
from blicer.files import atomic_write, read_json, write_json

_HEADER_BYTES = 100


@dataclass(frozen=True)
class Source:
    """Where a vector file came from; kept beside it, since its name does not say how much it is."""

    url: str
    words: int
    whole: bool
    size: int
    etag: str | None = None
    modified: str | None = None

    @staticmethod
    def _path(file: Path) -> Path:
        return file.with_name(f"{file.name}.source.json")

    def save(self, file: Path) -> None:
        write_json(self._path(file), asdict(self))

    @classmethod
    def forget(cls, file: Path) -> None:
        cls._path(file).unlink(missing_ok=True)

    @classmethod
    def load(cls, file: Path) -> Source | None:
        """None when there is nothing, or the file is no longer the one that was fetched."""
        try:
            source = cls(**read_json(cls._path(file)))
        except (FileError, TypeError):
            return None
        return source if file.is_file() and file.stat().st_size == source.size else None


def first_name(file: str) -> str:
    """The first words are written unpacked: ``cc.en.300.vec`` of ``cc.en.300.vec.gz``."""
    return file.removesuffix(".gz")


def write_first(part: Part, target: Path, watch: WordVectors) -> int:
    """The first words of what has come, under a header that is true; their number."""
    assert watch.header is not None
    wanted = watch.words if watch.wanted is None else min(watch.words, watch.wanted)
    packed = part.target.suffix == ".gz"
    with atomic_write(target, "wb") as file:
        file.write(b"%d %d\n" % (wanted, watch.header[1]))
        left = wanted
        for lines in _word_lines(part.pieces(), packed):
            file.writelines(line + b"\n" for line in lines[:left])
            left -= len(lines[:left])
            if not left:
                break
    return wanted


def _word_lines(pieces: Iterable[bytes], packed: bool) -> Iterable[list[bytes]]:
    lines = Lines(packed)
    header_is_past = False
    for piece in pieces:
        found = lines.feed(piece)
        if found and not header_is_past:
            found, header_is_past = found[1:], True
        yield [line for line in found if is_word(line)]
    yield [line for line in lines.rest() if is_word(line)]


def said_words(file: Path) -> int | None:
    """The number of words that an unpacked file's first line gives."""
    try:
        with file.open("rb") as opened:
            return header_of(opened.readline(_HEADER_BYTES).rstrip(b"\n"))[0]
    except (UnexpectedData, OSError):
        return None
