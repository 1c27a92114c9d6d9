"""Reading the lines of a block of text vectors: the regular ones in bulk, the others with care.

The bulk path finds all separators with NumPy and gives the pieces between them to Arrow's number
parser without copying them: the pieces of a block are one string array in which words and
separators are marked missing. Both run without the interpreter lock, so blocks go in parallel.
Numbers are parsed as float64 and then rounded, which is what ``np.float32(float(text))`` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from blicer.formats.report import LoadReport
from blicer.formats.textlayout import Layout, is_decimal, is_number, tokens_of, without_ends

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
