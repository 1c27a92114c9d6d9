"""Word vectors as text: a word and its numbers on each line, with or without word2vec's header.

Blocks of regular lines are parsed together, in threads; ``read_line`` parses irregular lines.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np

from blicer.errors import FileError, InputError, needed
from blicer.files import atomic_write
from blicer.io.streams import Stream
from blicer.io.vectors import HEADER, Batch, LoadReport, check_unicode, is_number

BLOCK_BYTES = 1 << 21
BOM = b"\xef\xbb\xbf"
_SAMPLE_BYTES = 1 << 21
_SAMPLE_LINES = 200
_LONGEST_LINE = 1 << 26
_BLANKS = b" \t\r"
_SPLIT = re.compile(rb"[ \t]+")
# A number written as vector entries are, unlike the end of a name ("Catch 22").
_DECIMAL = re.compile(rb"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")


def read_text(path: Path, report: LoadReport, _: Path | None = None) -> Iterator[Batch]:
    with Stream(path) as stream:
        sample = stream.peek(_SAMPLE_BYTES)
        complete = len(sample) < _SAMPLE_BYTES
        if sample.startswith(BOM):
            sample = sample.removeprefix(stream.read(len(BOM)))
        dim, header = recognise_layout(path, sample, complete=complete)
        # Estimated from the first lines: memory is never reserved by what the header says.
        lines = path.stat().st_size * max(1, sample.count(b"\n")) / len(sample)
        expected = (int(1.03 * lines) + 16) * (1 if stream.compression is None else 3)
        if header is not None and header[1] != dim:
            report.count("header_dimension", f"it says {header[1]:,}, the lines have {dim:,}")
        first = line = 1 if header is None else 2
        for batch in _batches(stream, dim, skip_header=header is not None):
            batch.first, batch.expected, batch.position = line, expected, stream.position()
            yield batch
            line += batch.size
    lines = line - first - report["blank"]
    if header is not None and header[0] != lines:
        report.count("header_count", f"it says {header[0]:,}, the file has {lines:,} lines")


def _batches(stream: Stream, dim: int, *, skip_header: bool) -> Iterator[Batch]:
    """Parsed blocks of lines in file order, some parsed ahead in threads."""
    threads = min(8, getattr(os, "process_cpu_count", os.cpu_count)() or 1)
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="blicer-text") as pool:
        try:
            for chunk in _chunks(stream, skip_header=skip_header):
                waiting.append(pool.submit(read_block, chunk, dim))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _chunks(stream: Stream, *, skip_header: bool) -> Iterator[bytes]:
    """Blocks of whole lines, about ``BLOCK_BYTES`` each; the last line may lack a line end."""
    rest = b""
    while data := stream.read(BLOCK_BYTES):
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest += data
            if len(rest) > _LONGEST_LINE:
                raise FileError(stream.path, "has a line of over 64 MB; not text vectors")
            continue
        chunk = b"".join((rest, memoryview(data)[:cut]))
        rest = data[cut:]
        if skip_header:
            chunk, skip_header = chunk[chunk.index(b"\n") + 1 :], False
        if chunk:
            yield chunk
    if rest.strip(_BLANKS):
        yield rest


# The layout of a file, from its first lines


def recognise_layout(
    path: Path, sample: bytes, *, complete: bool
) -> tuple[int, tuple[int, int] | None]:
    """The dimension, and the header (words, dimension) if the first line is one.

    ``sample`` starts after any byte-order mark; ``complete`` when it is the whole file.
    """
    if not sample.strip():
        raise FileError(path, "is empty" if not sample else "has no vectors, only blank lines")
    if sample.count(b"\0", 0, 4096) > 4:
        raise FileError(path, "is neither UTF-8 text nor a known binary format of word vectors")
    lines = sample.split(b"\n")
    if not complete or not lines[-1].strip(_BLANKS):
        lines.pop()  # cut off by the sample, or nothing after the last line end
    if not lines:
        raise FileError(path, "has no line end in its first megabytes; expected one word a line")
    found = HEADER.fullmatch(lines[0])
    header = (int(found[1]), int(found[2])) if found else None
    body = [line for line in lines[1 if header else 0 : _SAMPLE_LINES] if line.strip(_BLANKS)]
    if not body:
        raise FileError(path, "has a header but no vectors")
    # The most common count of numbers at the end of a line; the header decides a tie.
    votes = Counter(n for line in body if (n := _numbers_at_end(_tokens(line))))
    if not votes:
        shown = body[0][:60].decode("utf-8", errors="replace").strip()
        raise FileError(path, f"expected a word and its numbers, found {shown!r}")
    said = header[1] if header else 0
    return max(votes, key=lambda n: (votes[n], n == said, n)), header


def vector_columns(head: bytes, fewest: int) -> int:
    """The dimension if most of the first lines end in ``fewest`` numbers or more, else 0.

    For telling vectors from dictionaries; the last line of ``head`` may be cut off.
    """
    lines = [line for line in head.split(b"\n")[:20] if line.strip()]
    if len(lines) > 1 and HEADER.fullmatch(lines[0]):
        del lines[0]
    if len(lines) > 1 and not head.endswith(b"\n"):
        lines.pop()
    widths = [_numbers_at_end(_tokens(line)) for line in lines]
    vectors = [width for width in widths if width >= fewest]
    return max(vectors) if 2 * len(vectors) > len(lines) else 0


def _tokens(line: bytes) -> list[bytes]:
    """The parts between spaces and tabs (not U+0085 or U+00A0, as ``split`` would)."""
    return _SPLIT.split(line.rstrip(_BLANKS).lstrip(b" \t"))


def _numbers_at_end(tokens: list[bytes]) -> int:
    """How many of the tokens after the first are numbers, counted from the right."""
    n = 0
    while n < len(tokens) - 1 and is_number(tokens[-1 - n]):
        n += 1
    return n


# Blocks of lines


def read_block(data: bytes, dim: int) -> Batch:
    """Parse whole lines; the last line of the file may lack its line end."""
    lines = [line.rstrip(_BLANKS) for line in data.removesuffix(b"\n").split(b"\n")]
    words: list[str] = []
    vectors = [np.empty((0, dim), dtype=np.float32)]
    numbers: list[int] = []
    problems = []
    # An irregular line fails its whole block: halve the block until it is alone.
    todo = [(0, len(lines))]
    while todo:
        start, stop = todo.pop()
        try:
            some, rows = _parse_regular(lines[start:stop], dim)
        except ValueError:
            if stop - start > 1:
                middle = (start + stop) // 2
                todo += [(middle, stop), (start, middle)]
                continue
            word, found = read_line(lines[start], dim)
            if isinstance(found, str):
                problems.append((word, start, found))
                continue
            some, rows = [word], found[None]
        words += some
        vectors.append(rows)
        numbers += range(start, stop)
    if problems and not data.endswith(b"\n") and problems[0][0] == "wrong_length":
        problems = [("truncated", 0, problems[0][2])]
    matrix = vectors[1] if len(vectors) == 2 else np.concatenate(vectors)
    return Batch(words, matrix, numbers, "line", problems=problems, size=len(lines))


def _parse_regular(lines: list[bytes], dim: int) -> tuple[list[str], np.ndarray]:
    """Words and float32 rows; raises ``ValueError`` unless all lines are a word, ``dim`` numbers
    and single spaces or tabs between them."""
    with needed("pyarrow", "reading vectors from text", "train"):
        import pyarrow as pa

    pieces = [line.replace(b"\t", b" ").partition(b" ") for line in lines]
    words = [word.decode("utf-8") for word, _, _ in pieces]
    rests = [rest for _, _, rest in pieces]
    text = b" ".join([*rests, b""])
    gaps = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord(" "))  # after each number
    line_ends = np.cumsum([len(rest) + 1 for rest in rests]) - 1
    if not all(words) or not np.array_equal(gaps[dim - 1 :: dim], line_ends):
        raise ValueError("an irregular line")
    # An Arrow array of numbers and gaps in turn, where the gaps are null (the bits 10101010…).
    offsets = np.zeros(2 * len(gaps) + 1, dtype=np.int32)
    offsets[1::2], offsets[2::2] = gaps, gaps + 1
    is_number = np.full(len(gaps) // 4 + 1, 0b01010101, dtype=np.uint8)
    buffers = map(pa.py_buffer, (is_number, offsets, text))
    values = pa.Array.from_buffers(pa.string(), 2 * len(gaps), list(buffers)).cast(pa.float64())
    numbers = np.frombuffer(values.buffers()[1], dtype=np.float64)[: 2 * len(gaps) : 2]
    with np.errstate(over="ignore"):
        return words, numbers.reshape(-1, dim).astype(np.float32)


def read_line(line: bytes, dim: int) -> tuple[str, np.ndarray | str]:
    """(word, vector), or (kind of problem, detail). Numbers are taken from the right."""
    raw = line.rstrip(_BLANKS).lstrip(b" \t")
    if not raw:
        return "blank", ""
    tokens = _SPLIT.split(raw)
    n, numbers = _numbers_at_end(tokens), tokens[-dim:]
    # "b 1 2 3 4" has one number too many, in "Catch 22 0.1 0.2" it is the end of a name.
    extra = tokens[-dim - 1] if n > dim else b""
    whole = extra.lstrip(b"+-").isdigit() and not all(map(_DECIMAL.fullmatch, numbers))
    if n < dim or whole or _DECIMAL.fullmatch(extra):
        return "wrong_length", f"{n} number{'' if n == 1 else 's'}, expected {dim}"
    for _ in range(dim):  # strip the numbers; the rest is the word as written
        raw = raw[: max(raw.rfind(b" "), raw.rfind(b"\t"))].rstrip(b" \t")
    try:
        word = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "not_utf8", repr(raw[:40])[1:]
    with np.errstate(over="ignore"):
        return word, np.array([float(number) for number in numbers]).astype(np.float32)


# Writing, with the fewest digits that read back as the same float32

_ROWS_AT_ONCE = 2048
_UNCLEAR_SPACE = re.compile(r"^ | $|  |\t|\n")


def write_text(path: Path, words: list[str], vectors: np.ndarray) -> None:
    for row, word in enumerate(words):
        check_unicode(word)
        number_last = " " in word and _DECIMAL.fullmatch(word.split(" ")[-1].encode())
        if number_last or _UNCLEAR_SPACE.search(word):  # would not read back as the same word
            raise InputError(
                f"the word {word!r} (row {row}) cannot be written as text, where a space or a "
                "line end ends a word; save it as .safetensors"
            )
    with atomic_write(path, "wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
                _write_rows(packed, words, vectors)
        else:
            _write_rows(file, words, vectors)


def _write_rows(file: IO[bytes] | gzip.GzipFile, words: list[str], vectors: np.ndarray) -> None:
    with needed("pyarrow", "writing vectors as text", "train"):
        import pyarrow as pa
        import pyarrow.compute as pc

    dim = vectors.shape[1]
    file.write(f"{len(words)} {dim}\n".encode())
    for start in range(0, len(words), _ROWS_AT_ONCE):
        rows = np.asarray(vectors[start : start + _ROWS_AT_ONCE], dtype=np.float32)
        ends = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * dim)
        texts = pa.ListArray.from_arrays(ends, pa.array(rows.reshape(-1)).cast(pa.string()))
        numbers = pc.binary_join(texts, " ").to_pylist()
        lines = zip(words[start : start + len(rows)], numbers, strict=True)
        file.write("".join(f"{word} {row}\n" for word, row in lines).encode("utf-8"))
