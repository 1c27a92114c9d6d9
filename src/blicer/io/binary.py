"""fastText ``.bin``: a word's vector is the mean of its own row and those of its n-grams."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from blicer import progress
from blicer.errors import FileError
from blicer.io.detect import FASTTEXT_MAGIC
from blicer.io.report import Collector, LoadReport
from blicer.io.streams import Stream

# === formats.word2vec ===
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


# === formats.fasttext ===
NEWEST_VERSION = 12
END_OF_SENTENCE = b"</s>"
_SUPERVISED = 3
_BATCH_FASTTEXT = 1024
_FNV_START, _FNV_PRIME = np.uint32(2166136261), np.uint32(16777619)


@dataclass
class Model:
    dim: int
    bucket: int
    minn: int
    maxn: int
    words: list[bytes]
    # Which n-gram buckets a pruned model kept, sorted, and where; None: all of them.
    pruned: tuple[np.ndarray, np.ndarray] | None
    rows: np.ndarray  # (words + buckets, dim), mapped


def read_fasttext(
    path: Path, report: LoadReport, *, max_words: int | None, lowercase: bool
) -> tuple[list[str], np.ndarray]:
    with Stream(path) as stream:
        if stream.compression is not None:
            raise FileError(
                path, f"is a {stream.compression} archive of a fastText model; unpack it"
            )
    try:
        model = _open(path)
    except FileError:
        raise
    except (struct.error, ValueError, OverflowError) as error:
        raise FileError(path, "is cut off or damaged; expected a fastText model") from error
    collector = Collector(report, max_words=max_words, lowercase=lowercase)
    collector.expect(len(model.words))
    with progress.task(f"Reading {path.name}", total=len(model.words)) as task:
        for start in range(0, len(model.words), _BATCH_FASTTEXT):
            batch = model.words[start : start + _BATCH_FASTTEXT]
            words, rows = [], []
            for row, raw in enumerate(batch, start=start):
                try:
                    words.append(raw.decode("utf-8"))
                    rows.append(row)
                except UnicodeDecodeError:
                    report.count("not_utf8", f"word {row + 1} {raw[:40]!r}")
            vectors = word_vectors(model, np.array(rows, dtype=np.int64))
            collector.add(words, vectors, partial(_place_fasttext, rows))
            task.advance(len(batch))
            if collector.full:
                break
    return collector.words, collector.matrix()


def _place_fasttext(rows: list[int], index: int) -> str:
    return f"word {rows[index] + 1}"


def _open(path: Path) -> Model:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        current = data[:4] == FASTTEXT_MAGIC
        at, version = (8, struct.unpack_from("<i", data, 4)[0]) if current else (0, 0)
        if version > NEWEST_VERSION:
            raise FileError(path, f"is fastText version {version}; known up to {NEWEST_VERSION}")
        settings = struct.unpack_from("<12id", data, at)
        at += struct.calcsize("<12id")
        dim, kind, bucket, minn, maxn = settings[0], *settings[7:11]
        if version == 11 and kind == _SUPERVISED:
            maxn = 0  # these used no character n-grams, whatever they say
        if dim < 1 or bucket < 0 or minn < 0:
            raise ValueError("impossible settings")
        entries, count, _, _ = struct.unpack_from("<3iq", data, at)
        at += struct.calcsize("<3iq")
        prune_size = -1
        if current:
            (prune_size,) = struct.unpack_from("<q", data, at)
            at += 8
        words, at = _dictionary(data, at, entries, count)
        pruned = None
        if prune_size >= 0:
            pairs = np.frombuffer(data[at : at + 8 * prune_size], dtype="<i4").reshape(-1, 2)
            if len(pairs) != prune_size:
                raise ValueError("pruned n-grams cut off")
            at += 8 * prune_size
            pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
            pruned = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
        if current:
            if data[at] != 0:
                raise FileError(
                    path,
                    "is a quantised fastText model, which has no full vectors; use the original "
                    ".bin or .vec file",
                )
            at += 1
        rows, width = struct.unpack_from("<2q", data, at)
        at += 16
        buckets = 0 if maxn <= 0 else bucket if pruned is None else len(pruned[0])
        if width != dim or rows < len(words) + buckets:
            raise ValueError("matrix and settings disagree")
        if (
            pruned is not None
            and len(pruned[1])
            and not 0 <= pruned[1].min() <= pruned[1].max() < (rows - len(words))
        ):
            raise ValueError("n-grams are said to be in rows that are not there")
        if at + 4 * rows * width > len(data):
            raise ValueError("matrix cut off")
    matrix = np.memmap(path, dtype="<f4", mode="r", offset=at, shape=(rows, width))
    return Model(dim, bucket, minn, maxn, words, pruned, matrix)


def _dictionary(data: mmap.mmap, at: int, entries: int, count: int) -> tuple[list[bytes], int]:
    """The words (labels of a classifier come after them and are left out)."""
    if not 0 <= count <= entries:
        raise ValueError("impossible word counts")
    words = []
    for number in range(entries):
        end = data.find(b"\0", at)
        if end < 0 or end + 10 > len(data):
            raise ValueError("dictionary cut off")
        if number < count:
            words.append(data[at:end])
        at = end + 10  # the byte 0, an 8-byte count, a 1-byte type
    return words, at


def word_vectors(model: Model, rows: np.ndarray) -> np.ndarray:
    """The vectors of the words in these rows: (n, dim) float32."""
    sums: np.ndarray = model.rows[rows].astype(np.float32)
    if model.maxn <= 0 or not len(rows):
        return sums
    texts = [model.words[row] for row in rows]
    owner, bucket = subwords(texts, model.minn, model.maxn, model.bucket)
    if model.pruned is not None:
        kept, place = model.pruned
        if not len(kept):
            return sums
        found = np.minimum(np.searchsorted(kept, bucket), len(kept) - 1)
        known = kept[found] == bucket
        owner, bucket = owner[known], place[found[known]]
    if not len(owner):
        return sums
    order = np.argsort(owner, kind="stable")
    owner, bucket = owner[order], bucket[order]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    ngrams = model.rows[len(model.words) + bucket]
    sums[owner[starts]] += np.add.reduceat(ngrams, starts, axis=0)
    sums /= 1 + np.bincount(owner, minlength=len(rows)).astype(np.float32)[:, None]
    return sums


def subwords(
    words: list[bytes], minn: int, maxn: int, bucket: int
) -> tuple[np.ndarray, np.ndarray]:
    """(index of the word, bucket) of every character n-gram of ``<word>``, for all words at once.

    All start positions advance together, one byte a step, each with its own running FNV-1a hash.
    Bytes are hashed as *signed* characters, as fastText's models were trained.
    """
    wrapped = [b"" if word == END_OF_SENTENCE else b"<" + word + b">" for word in words]
    text = np.frombuffer(b"".join(wrapped), dtype=np.uint8)
    lengths = np.array([len(word) for word in wrapped], dtype=np.int64)
    ends = np.cumsum(lengths)
    signed = text.view(np.int8).astype(np.int32).view(np.uint32)
    begins_character = np.append((text & 0xC0) != 0x80, True)

    start = np.flatnonzero(begins_character[:-1])
    owner = np.repeat(np.arange(len(words)), lengths)[start]
    first, limit = (ends - lengths)[owner], ends[owner]
    at, size = start.copy(), np.zeros(len(start), dtype=np.int64)
    hashed = np.full(len(start), _FNV_START, dtype=np.uint32)
    owners, buckets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    while len(at) and bucket > 0:
        hashed = (hashed ^ signed[at]) * _FNV_PRIME
        at = at + 1
        whole = begins_character[at]  # the n-gram ends between two characters
        size = size + whole
        ended = at == limit
        bracket = (size == 1) & ((start == first) | ended)  # "<" and ">" alone are no n-grams
        taken = whole & (size >= minn) & ~bracket
        owners.append(owner[taken])
        buckets.append(hashed[taken].astype(np.int64) % bucket)
        going = ~ended & ~(whole & (size == maxn))
        start, owner, first, limit = start[going], owner[going], first[going], limit[going]
        at, size, hashed = at[going], size[going], hashed[going]
    return np.concatenate(owners), np.concatenate(buckets)
