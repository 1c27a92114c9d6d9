"""word2vec binary: a header line, then for each word its bytes, a space and float32 numbers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from blicer import progress
from blicer.errors import FileError
from blicer.formats.collect import Collector
from blicer.formats.report import LoadReport
from blicer.formats.streams import Stream

_BATCH = 1024
_READ_BYTES = 1 << 21
_LARGEST_DIMENSION = 100_000
_LONGEST_WORD = 1 << 16

_Batches = Iterator[tuple[list[str], np.ndarray, set[int]]]


def read_word2vec(
    path: Path, report: LoadReport, *, max_words: int | None, lowercase: bool
) -> tuple[list[str], np.ndarray]:
    collector = Collector(report, max_words=max_words, lowercase=lowercase)
    with Stream(path) as stream:
        count, dim = _header(path, stream)
        size = path.stat().st_size
        # The header may lie: never reserve more rows than the file has bytes for.
        room = size // (4 * dim) if stream.compression is None else min(count, 1 << 20)
        collector.expect(min(count, room + 1))
        found, done = 0, 0
        with progress.task(f"Reading {path.name}", total=size) as task:
            for words, vectors, skip in _batches(path, stream, count, dim, report):
                keep = [i for i in range(len(words)) if i not in skip]
                collector.add(
                    [words[i] for i in keep],
                    vectors[keep] if skip else vectors,
                    partial(_place, keep, found + 1),
                )
                found += len(words)
                task.advance(stream.position() - done)
                done = stream.position()
                if collector.full:
                    break
    if not collector.full and found != count:
        report.count("header_count", f"it says {count:,}, the file has {found:,}")
    return collector.words, collector.matrix()


def _place(kept: list[int], first: int, index: int) -> str:
    return f"word {first + kept[index]}"


def _header(path: Path, stream: Stream) -> tuple[int, int]:
    line, end, _ = stream.peek(64).partition(b"\n")
    fields = line.split()
    if not end or len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise FileError(path, f"expected a word2vec header 'words dimension', found {line[:30]!r}")
    stream.read(len(line) + 1)
    count, dim = int(fields[0]), int(fields[1])
    if not count or not dim:
        raise FileError(path, f"its header says {count} words of dimension {dim}")
    if dim > _LARGEST_DIMENSION:
        raise FileError(
            path, f"its header says dimension {dim}; the file is damaged, or no vectors"
        )
    return count, dim


def _batches(path: Path, stream: Stream, count: int, dim: int, report: LoadReport) -> _Batches:
    """Lists of words with their rows, and which of these are not UTF-8 (already counted)."""
    width = 4 * dim
    data, at, ended = b"", 0, False
    number = 0
    while number < count:
        words: list[str] = []
        skip: set[int] = set()
        vectors = np.empty((min(_BATCH, count - number), dim), dtype=np.float32)
        while len(words) < len(vectors):
            space = data.find(b" ", at)
            while (space < 0 or space + 1 + width > len(data)) and not ended:
                more = stream.read(max(_READ_BYTES, width))
                ended = not more
                data, at = data[at:] + more, 0
                space = data.find(b" ", at)
            if space < 0 or space + 1 + width > len(data):
                if data[at:].strip(b"\n"):
                    report.count("truncated", f"word {number + 1}")
                break
            if space - at > _LONGEST_WORD:
                raise FileError(
                    path,
                    f"word {number + 1} is over {_LONGEST_WORD} bytes long; the file is damaged "
                    f"or its dimension is not {dim}",
                )
            number += 1
            # word2vec ends each vector with a line end, gensim does not.
            raw = data[at:space].lstrip(b"\n")
            vectors[len(words)] = np.frombuffer(data, "<f4", dim, space + 1)
            at = space + 1 + width
            try:
                words.append(raw.decode("utf-8"))
            except UnicodeDecodeError:
                report.count("not_utf8", f"word {number} {raw[:40]!r}")
                skip.add(len(words))
                words.append("")
        if words:
            yield words, vectors[: len(words)], skip
        if len(words) < len(vectors):
            return
    if data[at:].strip(b"\n") or stream.read(1).strip(b"\n"):
        report.count("header_count", f"it says {count:,}, and more follows")
