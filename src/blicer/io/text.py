"""Writing word2vec text, in the shortest digits that read back to the same float32."""

from __future__ import annotations

import gzip
import os
import re
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from blicer import progress
from blicer.errors import FileError, InputError
from blicer.files import atomic_write
from blicer.io.report import Collector, LoadReport
from blicer.io.streams import Stream

# === formats.textlayout ===
SAMPLE_LINES = 200
BLANKS = b" \t\r"
_SPLIT = re.compile(rb"[ \t]+")
_HEADER = re.compile(rb"[ \t]*(\d{1,15})[ \t]+(\d{1,9})[ \t\r]*")
_NUMBER = re.compile(
    rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE
)
_DECIMAL = re.compile(rb"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")


def is_number(token: bytes) -> bool:
    return _NUMBER.fullmatch(token) is not None


def is_decimal(token: bytes) -> bool:
    """A number that is written like a vector's entry, not like a part of a name ("Catch 22")."""
    return _DECIMAL.fullmatch(token) is not None


def without_ends(line: bytes) -> bytes:
    """Without the blanks around it; a return counts as a blank only at the line's end."""
    return line.rstrip(BLANKS).lstrip(b" \t")


def tokens_of(line: bytes) -> list[bytes]:
    """The pieces between spaces and tabs; nothing else separates (U+0085 and U+00A0 do not)."""
    return _SPLIT.split(without_ends(line))


@dataclass(frozen=True)
class Layout:
    dim: int
    header: tuple[int, int] | None  # (words, dimension) as the first line claims
    tail: bytes  # what stands between the last number of a line and the next line


def recognise(path: Path, sample: bytes, complete: bool) -> Layout:
    """``sample`` starts after any byte-order mark; ``complete`` when it is the whole file."""
    lines = sample.split(b"\n")
    if not complete or not lines[-1].strip(BLANKS):
        lines.pop()  # cut off by the sample, or nothing after the last line end
    total, lines = len(lines), lines[: SAMPLE_LINES + 1]
    if not lines:
        raise FileError(path, "has no line end in its first megabytes; expected one word a line")
    found = _HEADER.fullmatch(lines[0])
    header = (int(found[1]), int(found[2])) if found else None
    body = [line for line in (lines[1:] if header else lines) if line.strip(BLANKS)]
    if not body:
        raise FileError(
            path, "has a header but no vectors" if header else "has no vectors, only blank lines"
        )
    dim = _dimension(path, body, header)
    if (
        header is not None
        and dim == 1
        and not _one_dimensional_header(header, total - 1, complete and total <= SAMPLE_LINES)
    ):
        header = None  # the word "7" with the vector [3], not a header
    return Layout(dim, header, _tail(body, dim))


def _dimension(path: Path, body: list[bytes], header: tuple[int, int] | None) -> int:
    """The commonest number of numbers at the end of a line; the header settles a tie."""
    votes: Counter[int] = Counter()
    for line in body:
        tokens = tokens_of(line)
        n = 0
        while n < len(tokens) - 1 and is_number(tokens[-1 - n]):
            n += 1
        if n:
            votes[n] += 1
    if not votes:
        shown = body[0][:60].decode("utf-8", errors="replace").strip()
        raise FileError(
            path, f"is not a vector file: expected a word and its numbers, found {shown!r}"
        )
    most = max(votes.values())
    best = [n for n, count in votes.items() if count == most]
    if header is not None and header[1] in best:
        return header[1]
    return max(best)


def _one_dimensional_header(header: tuple[int, int], others: int, whole: bool) -> bool:
    """In a 1-d file every line looks like a header, so the claim must be borne out."""
    words, dim = header
    return dim == 1 and (words == others if whole else words >= others)


def _tail(body: list[bytes], dim: int) -> bytes:
    """The commonest line ending, among those that the fast path knows: '\\n', ' \\n', '\\r\\n' …"""
    tails: Counter[bytes] = Counter()
    for line in body:
        rest = line[len(line.rstrip(BLANKS)) :]
        if len(rest) <= 2:
            tails[rest + b"\n"] += 1
    return tails.most_common(1)[0][0] if tails else b"\n"


# === formats.textlines ===
_SPACE, _TAB, _NEWLINE, _RETURN = 32, 9, 10, 13


@dataclass
class Block:
    """What a block of lines holds; ``lines`` are line numbers counted from the block's first."""

    words: list[str]
    vectors: np.ndarray  # (n, d) float32
    lines: np.ndarray  # (n,) int64
    line_count: int
    problems: list[tuple[str, int, str]] = field(default_factory=list)  # kind, line, detail
    returns: int = 0  # lines that end with CR LF


def read_block(data: bytes, layout: Layout) -> Block:
    """``data`` is whole lines, each with its line end."""
    text = np.frombuffer(data, dtype=np.uint8)
    separators = np.flatnonzero(text <= _SPACE)
    kinds = text[separators]
    ends = np.flatnonzero(kinds == _NEWLINE)  # positions in ``separators``
    line_ends = separators[ends]
    line_starts = np.empty_like(line_ends)
    line_starts[0], line_starts[1:] = 0, line_ends[:-1] + 1
    block = Block([], np.empty((0, layout.dim), dtype=np.float32), np.empty(0, np.int64), len(ends))
    if len(data) > len(line_ends):
        block.returns = int(np.count_nonzero(text[np.maximum(line_ends - 1, 0)] == _RETURN))

    regular, grid = _regular_lines(separators, kinds, ends, line_starts, layout)
    numbers, parsed = _parse_grid(data, grid, layout.dim)
    lines = np.flatnonzero(regular)[parsed]
    words: list[str] = []
    careful = set(np.flatnonzero(~regular).tolist()) | set(
        np.flatnonzero(regular)[~parsed].tolist()
    )
    undecoded = []
    starts, word_ends = line_starts[lines].tolist(), grid[parsed, 0].tolist()
    for i, (start, end) in enumerate(zip(starts, word_ends, strict=True)):
        try:
            words.append(data[start:end].decode("utf-8"))
        except UnicodeDecodeError:
            undecoded.append(i)
            careful.add(int(lines[i]))
    if undecoded:
        keep = np.ones(len(lines), dtype=bool)
        keep[undecoded] = False
        lines, numbers = lines[keep], numbers[keep]
    block.words, block.vectors, block.lines = words, numbers, lines
    if careful:
        bounds = [(i, int(line_starts[i]), int(line_ends[i])) for i in sorted(careful)]
        _read_carefully(block, data, bounds, layout.dim)
    return block


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
    block: Block, data: bytes, bounds: list[tuple[int, int, int]], dim: int
) -> None:
    """The irregular lines one by one, put back among the others in file order."""
    words, rows, lines = [], [], []
    for line, start, end in bounds:
        result = read_line(data[start:end], dim)
        if isinstance(result[1], str):
            block.problems.append((result[0], line, result[1]))
        else:
            words.append(result[0])
            rows.append(result[1])
            lines.append(line)
    if not words:
        return
    all_lines = np.concatenate([block.lines, np.array(lines, dtype=np.int64)])
    order = np.argsort(all_lines, kind="stable")
    all_words = block.words + words
    block.words = [all_words[i] for i in order]
    block.vectors = np.concatenate([block.vectors, np.stack(rows)])[order]
    block.lines = all_lines[order]


def read_line(line: bytes, dim: int) -> tuple[str, np.ndarray] | tuple[str, str]:
    """(word, vector), or (kind of problem, what was found). Numbers are taken from the right."""
    tokens = tokens_of(line)
    if tokens == [b""]:
        return "blank", ""
    if len(tokens) <= dim:
        # A line of numbers alone has lost its word; any other has lost numbers.
        lost_word = len(tokens) == dim and all(is_decimal(token) for token in tokens)
        if lost_word:
            return "no_word", ""
        return "wrong_length", _found(len(tokens) - 1, dim)
    for token in tokens[-dim:]:
        if not is_number(token):
            return _not_numbers(tokens, token, dim)
    if len(tokens) > dim + 1 and _is_entry(tokens[-dim - 1], tokens[-dim:]):
        extra = dim
        while extra < len(tokens) - 1 and is_number(tokens[-1 - extra]):
            extra += 1
        return "wrong_length", _found(extra, dim)
    raw = _text_before(line, dim)
    try:
        word = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "not_utf8", repr(raw[:40])[1:]
    with np.errstate(over="ignore"):
        return word, np.array([float(t) for t in tokens[-dim:]]).astype(np.float32)


def _found(numbers: int, dim: int) -> str:
    return f"{numbers} number{'' if numbers == 1 else 's'}, expected {dim}"


def _is_entry(token: bytes, numbers: list[bytes]) -> bool:
    """One number too many ("b 1 2 3 4"), rather than the end of a name ("Catch 22 0.1 0.2")."""
    if is_decimal(token):
        return True
    whole = token.lstrip(b"+-").isdigit()
    return whole and not all(is_decimal(number) for number in numbers)


def _not_numbers(tokens: list[bytes], token: bytes, dim: int) -> tuple[str, str]:
    numbers = 0
    while numbers < len(tokens) - 1 and is_number(tokens[-1 - numbers]):
        numbers += 1
    if (
        len(tokens) > dim + 1
        and 0 < numbers < dim
        and all(not is_number(t) for t in tokens[: len(tokens) - numbers])
    ):
        return "wrong_length", _found(numbers, dim)
    return "not_numbers", f"found {token[:30].decode('utf-8', errors='replace')!r}"


def _text_before(line: bytes, dim: int) -> bytes:
    """The word as it was written: what is left of the last ``dim`` pieces."""
    rest = without_ends(line)
    for _ in range(dim):
        rest = rest[: max(rest.rfind(b" "), rest.rfind(b"\t"))].rstrip(b" \t")
    return rest


def count_problems(
    block: Block, first_line: int, report: LoadReport, *, consumed: int | None = None
) -> None:
    """``consumed``: only so many of the block's vectors were wanted; nothing after them counts."""
    last = block.line_count if consumed is None else int(block.lines[consumed - 1]) + 1
    for kind, line, detail in block.problems:
        if line >= last:
            continue
        place = f"line {first_line + line}"
        report.count(kind, f"{place} ({detail})" if detail else place)
    report.count("crlf", n=min(block.returns, last))


# === formats.text ===
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


# === formats.textwriter ===
_SUFFIXES = (".vec", ".txt")
_ROWS_AT_ONCE = 2048
_UNCLEAR_SPACE = re.compile(r"^ | $|  |\t|\n")


def is_text_path(path: Path) -> bool:
    """``x.vec``, ``x.txt`` and these with ``.gz``."""
    return path.name.removesuffix(".gz").endswith(_SUFFIXES)


def write(path: Path, words: list[str], vectors: np.ndarray) -> None:
    for row, word in enumerate(words):
        _check_word(row, word)
    with atomic_write(path, "wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
                _write_to(packed, words, vectors)
        else:
            _write_to(file, words, vectors)


def _check_word(row: int, word: str) -> None:
    """Refuse what would not read back as the same word."""
    if _UNCLEAR_SPACE.search(word) or (" " in word and is_decimal(word.split(" ")[-1].encode())):
        raise InputError(
            f"the word {word!r} (row {row}) cannot be written as text, where a space or a line "
            "end ends a word; save to a folder instead (a path without .vec or .txt)"
        )
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"the word {word!r} (row {row}) is not valid Unicode") from None


def _write_to(file: IO[bytes] | gzip.GzipFile, words: list[str], vectors: np.ndarray) -> None:
    file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
    for start in range(0, len(words), _ROWS_AT_ONCE):
        rows = vectors[start : start + _ROWS_AT_ONCE]
        lines = (
            f"{word} {numbers}\n"
            for word, numbers in zip(words[start : start + len(rows)], _numbers(rows), strict=True)
        )
        file.write("".join(lines).encode("utf-8"))


def _numbers(rows: np.ndarray) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    n, dim = rows.shape
    flat = pa.array(np.asarray(rows, dtype=np.float32).reshape(-1)).cast(pa.string())
    lists = pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * dim), flat)
    for text in pc.binary_join(lists, " "):
        yield text.as_py()
