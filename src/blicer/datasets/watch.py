"""Looking at bytes as they come: is this the file that was expected, and is it enough yet?"""

from __future__ import annotations

import re
import zlib
from typing import Protocol

_HEADER = re.compile(rb"[ \t]*(\d{1,15})[ \t]+(\d{1,9})[ \t\r]*")
_GZIP = b"\x1f\x8b"
_LONGEST_LINE = 1 << 24
_START = 256
_PAGES = (b"<!doctype", b"<html", b"<?xml")


class UnexpectedData(Exception):
    """The bytes cannot be right; ``again`` when another transfer may well mend it."""

    def __init__(self, problem: str, *, again: bool) -> None:
        super().__init__(problem)
        self.again = again


class Watch(Protocol):
    """Sees every byte once, in order, from the first."""

    wanted: int | None  # words after which it is enough; None: the whole file
    words: int

    def reset(self) -> None: ...

    def feed(self, data: bytes) -> bool:
        """True when enough was seen; raises ``UnexpectedData``."""

    def finish(self, *, length_known: bool = True) -> bool:
        """At the end of the stream: False when it cannot have been the whole file."""


class PlainFile:
    """Any file, only not the log-in page that some networks answer with."""

    wanted: int | None = None
    words = 0

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._start = b""

    def feed(self, data: bytes) -> bool:
        if len(self._start) < _START:
            self._start += data[: _START - len(self._start)]
            _refuse_page(self._start)
        return False

    def finish(self, *, length_known: bool = True) -> bool:
        return True


class Lines:
    """Cuts a stream, gzipped or not, into lines."""

    def __init__(self, packed: bool) -> None:
        self._packed = packed
        self._member = self._new_member()
        self._between = True  # members of a gzip file, or before the first
        self._tail = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their ends."""
        text = self._unpack(data) if self._packed else data
        *lines, tail = text.split(b"\n")
        if lines:
            lines[0] = self._tail + lines[0]
            self._tail = tail
        else:
            self._tail += tail
        if len(self._tail) > _LONGEST_LINE:
            raise UnexpectedData("is not text: it has no line ends", again=False)
        return lines

    def rest(self) -> list[bytes]:
        """At the end of the stream: a last line without an end."""
        return [self._tail] if self._tail else []

    @property
    def whole(self) -> bool:
        """A gzip file says where it ends; of a plain one nobody knows."""
        return not self._packed or self._between

    def _new_member(self) -> zlib._Decompress:
        return zlib.decompressobj(wbits=31)

    def _unpack(self, data: bytes) -> bytes:
        parts = []
        while data:
            if self._between:
                data = data.lstrip(b"\0")  # padding after a member, which gzip allows
                if not data:
                    break
                self._member, self._between = self._new_member(), False
            try:
                parts.append(self._member.decompress(data))
            except zlib.error as error:
                raise UnexpectedData(f"is damaged ({error})", again=True) from error
            data = self._member.unused_data
            self._between = self._member.eof
        return b"".join(parts)


class WordVectors:
    """A word2vec text file: counts its words, and stops once there are as many as wanted."""

    def __init__(self, packed: bool, wanted: int | None = None) -> None:
        self._packed, self.wanted = packed, wanted
        self.reset()

    def reset(self) -> None:
        self._lines = Lines(self._packed)
        self._start = b""
        self.header: tuple[int, int] | None = None  # words and dimension, as the file says
        self.words = 0
        self.ended = False

    def feed(self, data: bytes) -> bool:
        if len(self._start) < _START:
            self._start += data[: _START - len(self._start)]
            _refuse_page(self._start)
            if self._packed and not _GZIP.startswith(self._start[: len(_GZIP)]):
                raise UnexpectedData(f"is not gzip: it starts with {_shown(data)}", again=False)
        self._count(self._lines.feed(data))
        return self.wanted is not None and self.words >= self.wanted

    def finish(self, *, length_known: bool = True) -> bool:
        if not self._lines.whole:
            return False
        if not self.ended:
            self._count(self._lines.rest())
            self.ended = True
        if self.header is None:
            raise UnexpectedData("is empty", again=True)
        # Some headers are wrong; believed only where nothing else says how long the file is.
        return length_known or self.words >= self.header[0]

    def _count(self, lines: list[bytes]) -> None:
        if lines and self.header is None:
            self.header = header_of(lines[0])
            lines = lines[1:]
        self.words += sum(1 for line in lines if is_word(line))


def header_of(line: bytes) -> tuple[int, int]:
    found = _HEADER.fullmatch(line)
    if found is None:
        raise UnexpectedData(
            "is not a word2vec text file: expected the number of words and the dimension on its "
            f"first line, found {_shown(line)}",
            again=False,
        )
    return int(found[1]), int(found[2])


def is_word(line: bytes) -> bool:
    """Blank lines are no words; U+00A0 and U+3000 are, and bytes.strip leaves them alone."""
    return bool(line.strip())


def _refuse_page(start: bytes) -> None:
    if start.lstrip().lower().startswith(_PAGES):
        raise UnexpectedData(
            "a web page came instead of the file (does this network ask you to log in?)",
            again=False,
        )


def _shown(data: bytes) -> str:
    return repr(data[:40].decode("utf-8", errors="replace"))
