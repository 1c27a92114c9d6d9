"""word2vec / fastText / GloVe text: a word and its numbers on each line, with or without header."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from blicer import progress
from blicer.errors import FileError
from blicer.formats.collect import Collector
from blicer.formats.report import LoadReport
from blicer.formats.streams import Stream
from blicer.formats.textlayout import BLANKS, Layout, recognise
from blicer.formats.textlines import Block, count_problems, read_block, read_line

BLOCK_BYTES = 1 << 21
SAMPLE_BYTES = 1 << 21
LONGEST_LINE = 1 << 26
BOM = b"\xef\xbb\xbf"
_MOST_BAD_ENCODING = 0.05  # share of words from which the whole file must be in another encoding
_FEWEST_BAD_ENCODING = 20


def read_text(
    path: Path, report: LoadReport, *, max_words: int | None, lowercase: bool
) -> tuple[list[str], np.ndarray]:
    collector = Collector(report, max_words=max_words, lowercase=lowercase)
    with Stream(path) as stream:
        sample = stream.peek(SAMPLE_BYTES)
        if sample.startswith(BOM):
            stream.read(len(BOM))
            sample = sample.removeprefix(BOM)
            report.count("bom")
        _refuse_other_text(path, sample)
        layout = recognise(path, sample, complete=len(sample) < SAMPLE_BYTES - len(BOM))
        size = path.stat().st_size
        collector.expect(_expected_rows(sample, size, stream.compression is not None))
        seen = _Seen()
        with progress.task(f"Reading {path.name}", total=size) as task:
            done = 0
            for block, first_line in _blocks(stream, layout, report, seen):
                numbers = block.lines + first_line
                collector.add(block.words, block.vectors, partial(_place, numbers))
                seen.vectors += len(block.words)
                consumed = collector.consumed if collector.full else None
                count_problems(block, first_line, report, consumed=consumed)
                task.advance(stream.position() - done)
                done = stream.position()
                if collector.full:
                    break
    _check_whole(path, report, seen, layout, collector)
    if layout.header is not None:
        _check_header(layout, seen, report, complete=not collector.full)
    return collector.words, collector.matrix()


def _place(numbers: np.ndarray, index: int) -> str:
    return f"line {numbers[index]}"


class _Seen:
    """How much of the file went by, whatever became of it."""

    vectors = 0
    lines = 0


def _expected_rows(sample: bytes, size: int, compressed: bool) -> int:
    """From the length of the first lines; the header is no basis for reserving memory."""
    lines = max(1, sample.count(b"\n"))
    rows = int(size / (len(sample) / lines) * 1.03) + 16
    return rows * 3 if compressed else rows


def _blocks(
    stream: Stream, layout: Layout, report: LoadReport, seen: _Seen
) -> Iterator[tuple[Block, int]]:
    """Parsed blocks in file order with the number of their first line; parsed in threads."""
    threads = min(8, _cores())
    chunks = _Chunks(stream, skip_header=layout.header is not None)
    waiting: deque[Future[Block]] = deque()
    line = 2 if layout.header is not None else 1
    with ThreadPoolExecutor(threads, thread_name_prefix="blicer-text") as pool:
        try:
            more = True
            while more or waiting:
                while more and len(waiting) <= threads:
                    chunk = chunks.next()
                    if chunk:
                        waiting.append(pool.submit(read_block, chunk, layout))
                    else:
                        more = False
                if waiting:
                    block = waiting.popleft().result()
                    seen.lines += block.line_count
                    yield block, line
                    line += block.line_count
        finally:
            for future in waiting:
                future.cancel()
    if chunks.rest.strip(BLANKS):
        seen.lines += 1
        kind, value = read_line(chunks.rest, layout.dim)
        if kind in ("wrong_length", "not_numbers") and isinstance(value, str):
            report.count("truncated", f"line {line} ({value})")
        else:
            report.count("no_final_newline")
            yield read_block(chunks.rest + b"\n", layout), line


class _Chunks:
    """Whole lines, about ``BLOCK_BYTES`` at a time; ``rest`` is what follows the last line end."""

    def __init__(self, stream: Stream, *, skip_header: bool) -> None:
        self.stream, self.rest = stream, b""
        self._skip_header = skip_header

    def next(self) -> bytes:
        """b"" at the end."""
        while data := self.stream.read(BLOCK_BYTES):
            cut = data.rfind(b"\n") + 1
            if not cut:
                self.rest += data
                if len(self.rest) > LONGEST_LINE:
                    raise FileError(self.stream.path, "has a line of over 64 MB; not text vectors")
                continue
            chunk = b"".join((self.rest, memoryview(data)[:cut]))
            self.rest = data[cut:]
            if self._skip_header:
                chunk, self._skip_header = chunk[chunk.index(b"\n") + 1 :], False
            if chunk:
                return chunk
        return b""


def _refuse_other_text(path: Path, sample: bytes) -> None:
    if not sample.strip():
        raise FileError(path, "is empty" if not sample else "has no vectors, only blank lines")
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise FileError(path, "is UTF-16; expected UTF-8: convert it with iconv -f utf-16 -t utf-8")
    if b"\n" not in sample and sample.count(b"\r") > 1:
        raise FileError(path, "has CR line ends alone (old Mac); convert it: tr '\\r' '\\n'")
    if sample.count(b"\0", 0, 4096) > 4:
        raise FileError(path, "is a binary file of an unknown kind; expected word vectors")


def _check_whole(
    path: Path, report: LoadReport, seen: _Seen, layout: Layout, collector: Collector
) -> None:
    """A file of which most is unreadable is refused, not reduced to what happens to parse."""
    unreadable = report["wrong_length"] + report["not_numbers"] + report["truncated"]
    if not collector.words or unreadable > seen.vectors:
        why = "; ".join(line.removeprefix(f"{report.source}: ") for line in report.lines())
        raise FileError(
            path,
            f"only {len(collector.words):,} of {seen.lines - report['blank']:,} lines are a word "
            f"and {layout.dim} usable numbers: {why}",
        )
    bad = report["not_utf8"]
    if bad >= _FEWEST_BAD_ENCODING and bad > _MOST_BAD_ENCODING * (bad + seen.vectors):
        first = report.examples["not_utf8"][0]
        raise FileError(
            path,
            f"{bad:,} of {bad + seen.vectors:,} words are not UTF-8, the first on {first}; "
            "convert the file first, for instance: iconv -f latin1 -t utf-8",
        )


def _check_header(layout: Layout, seen: _Seen, report: LoadReport, *, complete: bool) -> None:
    words, dim = layout.header or (0, 0)
    if dim != layout.dim:
        report.count("header_dimension", f"it says {dim:,}, the lines have {layout.dim:,}")
    lines = seen.lines - report["blank"]
    if complete and words != lines:
        report.count("header_count", f"it says {words:,}, the file has {lines:,} lines")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
