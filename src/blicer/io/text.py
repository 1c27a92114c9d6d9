"""Word vectors as text: a word and its numbers on each line, with or without word2vec's header.

Regular lines are parsed as whole blocks, in threads; every other line is read by ``read_line``.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from blicer.errors import FileError, InputError
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
# A number that is written like a vector's entry, not like a part of a name ("Catch 22").
_DECIMAL = re.compile(rb"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")


def read_text(path: Path, report: LoadReport, _: Path | None = None) -> Iterator[Batch]:
    with Stream(path) as stream:
        sample = stream.peek(_SAMPLE_BYTES)
        complete = len(sample) < _SAMPLE_BYTES
        if sample.startswith(BOM):
            sample = sample.removeprefix(stream.read(len(BOM)))
        layout = recognise_layout(path, sample, complete=complete)
        # From the length of the first lines; the header is no basis for reserving memory.
        lines = path.stat().st_size * max(1, sample.count(b"\n")) / len(sample)
        expected = (int(1.03 * lines) + 16) * (1 if stream.compression is None else 3)
        if layout.header is not None and layout.header[1] != layout.dim:
            found = f"it says {layout.header[1]:,}, the lines have {layout.dim:,}"
            report.count("header_dimension", found)
        first = line = 1 if layout.header is None else 2
        for batch in _batches(stream, layout):
            batch.first, batch.expected, batch.position = line, expected, stream.position()
            yield batch
            line += batch.size
    lines = line - first - report["blank"]
    if layout.header is not None and layout.header[0] != lines:
        found = f"it says {layout.header[0]:,}, the file has {lines:,} lines"
        report.count("header_count", found)


def _batches(stream: Stream, layout: Layout) -> Iterator[Batch]:
    """Parsed blocks of lines in file order; a few are parsed ahead in threads."""
    threads = min(8, getattr(os, "process_cpu_count", os.cpu_count)() or 1)
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="blicer-text") as pool:
        try:
            for chunk in _chunks(stream, skip_header=layout.header is not None):
                waiting.append(pool.submit(read_block, chunk, layout))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _chunks(stream: Stream, *, skip_header: bool) -> Iterator[bytes]:
    """Whole lines, about ``BLOCK_BYTES`` at a time, then what follows the last line end."""
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


@dataclass(frozen=True)
class Layout:
    dim: int
    header: tuple[int, int] | None  # (words, dimension) as the first line claims
    tail: bytes  # what stands between the last number of a line and the next line


def recognise_layout(path: Path, sample: bytes, *, complete: bool) -> Layout:
    """``sample`` starts after any byte-order mark; ``complete`` when it is the whole file."""
    _refuse_other_text(path, sample)
    lines = sample.split(b"\n")
    if not complete or not lines[-1].strip(_BLANKS):
        lines.pop()  # cut off by the sample, or nothing after the last line end
    if not lines:
        raise FileError(path, "has no line end in its first megabytes; expected one word a line")
    found = HEADER.fullmatch(lines[0])
    header = (int(found[1]), int(found[2])) if found else None
    lines = lines[1 if header else 0 : _SAMPLE_LINES]
    body = [line for line in lines if line.strip(_BLANKS)]
    if not body:
        raise FileError(path, "has a header but no vectors")
    # The commonest number of numbers at the end of a line; the header settles a tie.
    votes = Counter(n for line in body if (n := _numbers_at_end(_tokens(line))))
    if not votes:
        shown = body[0][:60].decode("utf-8", errors="replace").strip()
        raise FileError(path, f"expected a word and its numbers, found {shown!r}")
    most = max(votes.values())
    dim = max((n for n in votes if votes[n] == most), key=lambda n: (n == (header or (0, 0))[1], n))
    tails = Counter(line[len(line.rstrip(_BLANKS)) :] + b"\n" for line in body)
    return Layout(dim, header, tails.most_common(1)[0][0])


def _refuse_other_text(path: Path, sample: bytes) -> None:
    if not sample.strip():
        raise FileError(path, "is empty" if not sample else "has no vectors, only blank lines")
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise FileError(path, "is UTF-16; expected UTF-8: convert it with iconv -f utf-16 -t utf-8")
    if b"\n" not in sample and sample.count(b"\r") > 1:
        raise FileError(path, "has CR line ends alone (old Mac); convert it: tr '\\r' '\\n'")
    if sample.count(b"\0", 0, 4096) > 4:
        raise FileError(path, "is a binary file of an unknown kind; expected word vectors")


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
    """The pieces between spaces and tabs; nothing else separates (U+0085 and U+00A0 do not)."""
    return _SPLIT.split(line.rstrip(_BLANKS).lstrip(b" \t"))


def _numbers_at_end(tokens: list[bytes]) -> int:
    """How many of the tokens after the first are numbers, counted from the right."""
    n = 0
    while n < len(tokens) - 1 and is_number(tokens[-1 - n]):
        n += 1
    return n


# Blocks of lines

_SPACE, _TAB, _NEWLINE = 32, 9, 10


def read_block(data: bytes, layout: Layout) -> Batch:
    """``data`` is whole lines, each with its line end, or the last line without."""
    cut_off = not data.endswith(b"\n")
    if cut_off:
        data += b"\n"
    text = np.frombuffer(data, dtype=np.uint8)
    separators = np.flatnonzero(text <= _SPACE)
    kinds = text[separators]
    ends = np.flatnonzero(kinds == _NEWLINE)  # positions in ``separators``
    line_ends = separators[ends]
    line_starts = np.empty_like(line_ends)
    line_starts[0], line_starts[1:] = 0, line_ends[:-1] + 1

    regular, grid = _regular_lines(separators, kinds, ends, line_starts, layout)
    numbers, parsed = _parse_grid(data, grid, layout.dim)
    lines = np.flatnonzero(regular)[parsed]
    words: list[str] = []
    decoded = np.ones(len(lines), dtype=bool)
    starts, word_ends = line_starts[lines].tolist(), grid[parsed, 0].tolist()
    for i, (start, end) in enumerate(zip(starts, word_ends, strict=True)):
        try:
            words.append(data[start:end].decode("utf-8"))
        except UnicodeDecodeError:
            decoded[i] = False
    if not decoded.all():
        lines, numbers = lines[decoded], numbers[decoded]
    batch = Batch(words, numbers, lines, "line", size=len(ends))
    if len(lines) < len(ends):
        others = np.setdiff1d(np.arange(len(ends)), lines).tolist()
        bounds = [(line, line_starts[line], line_ends[line]) for line in others]
        _read_carefully(batch, data, bounds, layout.dim)
    if cut_off and batch.problems and batch.problems[0][0] == "wrong_length":
        batch.problems = [("truncated", 0, batch.problems[0][2])]
    return batch


def _regular_lines(
    separators: np.ndarray,
    kinds: np.ndarray,
    ends: np.ndarray,
    line_starts: np.ndarray,
    layout: Layout,
) -> tuple[np.ndarray, np.ndarray]:
    """Which lines have one word and ``dim`` numbers; and the separators of these as a grid."""
    dim, tail = layout.dim, layout.tail
    per_line = dim + len(tail)
    counts = np.diff(ends, prepend=-1)
    regular = counts == per_line
    if regular.all():
        grid, grid_kinds = separators.reshape(-1, per_line), kinds.reshape(-1, per_line)
    else:
        chosen = np.repeat(regular, counts)
        grid = separators[: len(chosen)][chosen].reshape(-1, per_line)
        grid_kinds = kinds[: len(chosen)][chosen].reshape(-1, per_line)
    inner = grid_kinds[:, :dim]
    sound = ((inner == _SPACE) | (inner == _TAB)).all(axis=1)
    sound &= (grid_kinds[:, dim:] == np.frombuffer(tail, dtype=np.uint8)).all(axis=1)
    # Nothing may stand between the separators of the tail, and a word may not be empty.
    sound &= (np.diff(grid[:, dim:], axis=1) == 1).all(axis=1)
    sound &= grid[:, 0] > line_starts[regular]
    if not sound.all():
        regular[np.flatnonzero(regular)[~sound]] = False
        grid = grid[sound]
    return regular, grid


def _parse_grid(data: bytes, grid: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers between the separators: float32 rows, and which rows could be parsed."""
    import pyarrow as pa

    rows, per_line = grid.shape
    if not rows:
        return np.empty((0, dim), dtype=np.float32), np.ones(0, dtype=bool)
    # Pieces in turn: text before a separator, the separator; 2 · per_line pieces a row. Only the
    # texts 1 … dim are numbers. Lines left out lie inside a first piece, which is not looked at.
    pieces = 2 * grid.size
    offsets = np.empty(pieces + 1, dtype=np.int32)
    offsets[0] = 0
    offsets[1::2] = grid.reshape(-1)
    np.add(grid.reshape(-1), 1, out=offsets[2::2], casting="unsafe")
    valid = np.zeros((rows, 2 * per_line), dtype=bool)
    valid[:, 2 : 2 * dim + 1 : 2] = True
    strings = pa.StringArray.from_buffers(
        pieces,
        pa.py_buffer(offsets),
        pa.py_buffer(data),
        pa.py_buffer(np.packbits(valid, bitorder="little")),
    )
    numbers = np.empty((rows, dim), dtype=np.float32)
    parsed = np.ones(rows, dtype=bool)
    # A row that is not all numbers fails the whole cast: halve until it stands alone.
    todo = [(0, rows)]
    while todo:
        start, stop = todo.pop()
        part = strings.slice(start * 2 * per_line, (stop - start) * 2 * per_line)
        try:
            values = part.cast(pa.float64())
        except pa.ArrowInvalid:
            if stop - start == 1:
                parsed[start] = False
            else:
                middle = (start + stop) // 2
                todo += [(start, middle), (middle, stop)]
            continue
        flat = np.frombuffer(values.buffers()[1], dtype=np.float64)[values.offset :]
        flat = flat[: len(values)].reshape(stop - start, 2 * per_line)
        with np.errstate(over="ignore"):
            numbers[start:stop] = flat[:, 2 : 2 * dim + 1 : 2]
    return (numbers, parsed) if parsed.all() else (numbers[parsed], parsed)


def _read_carefully(
    batch: Batch, data: bytes, bounds: list[tuple[int, int, int]], dim: int
) -> None:
    """The irregular lines one by one, put back among the others in file order."""
    words, rows, lines = list(batch.words), [batch.vectors], list(batch.numbers)
    for line, start, end in bounds:
        word, found = read_line(data[start:end], dim)
        if isinstance(found, str):
            batch.problems.append((word, line, found))
        else:
            words.append(word)
            rows.append(found[None])
            lines.append(line)
    order = np.argsort(lines, kind="stable")
    batch.words = [words[i] for i in order]
    batch.vectors = np.concatenate(rows)[order]
    batch.numbers = np.array(lines, dtype=np.int64)[order]


def read_line(line: bytes, dim: int) -> tuple[str, np.ndarray | str]:
    """(word, vector), or (kind of problem, what was found). Numbers are taken from the right."""
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
    for _ in range(dim):  # the word as it was written is what is left of the numbers
        raw = raw[: max(raw.rfind(b" "), raw.rfind(b"\t"))].rstrip(b" \t")
    try:
        word = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "not_utf8", repr(raw[:40])[1:]
    with np.errstate(over="ignore"):
        return word, np.array([float(number) for number in numbers]).astype(np.float32)


# Writing, in the shortest digits that read back to the same float32

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
