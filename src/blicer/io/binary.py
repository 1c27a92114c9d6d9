"""Binary word vectors: word2vec's ``.bin`` and fastText's ``.bin``."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blicer.errors import FileError
from blicer.io.streams import Stream
from blicer.io.vectors import FASTTEXT_MAGIC, HEADER, Batch, LoadReport

_BATCH = 1024
_READ_BYTES = 1 << 21
_LARGEST_DIMENSION = 100_000
_LONGEST_WORD = 1 << 16


def read_word2vec(path: Path, report: LoadReport, _: Path | None = None) -> Iterator[Batch]:
    with Stream(path) as stream:
        line, end, _rest = stream.peek(64).partition(b"\n")
        header = HEADER.fullmatch(line)
        if header is None or not end:
            raise FileError(path, f"expected a header 'words dimension', found {line[:30]!r}")
        stream.read(len(line) + 1)
        count, dim = int(header[1]), int(header[2])
        if not count or not 0 < dim <= _LARGEST_DIMENSION:
            problem = f"its header says dimension {dim}, {count} words; it is damaged"
            raise FileError(path, f"{problem}, or no vectors")
        # The header may be wrong: never reserve more rows than the file has bytes for.
        width = 4 * dim
        room = 1 << 20 if stream.compression else path.stat().st_size // width + 1
        data, at, found, ended = b"", 0, 0, False
        while found < count and not ended:
            words: list[bytes] = []
            vectors = np.empty((min(_BATCH, count - found), dim), dtype=np.float32)
            while len(words) < len(vectors):
                space = data.find(b" ", at)
                if space < 0 or space + 1 + width > len(data):
                    if more := stream.read(max(_READ_BYTES, width)):
                        data, at = data[at:] + more, 0
                        continue
                    ended = True
                    break
                if space - at > _LONGEST_WORD:
                    where = f"word {found + len(words) + 1}"
                    raise FileError(path, f"is damaged: {where} has over {_LONGEST_WORD} bytes")
                vectors[len(words)] = np.frombuffer(data, "<f4", dim, space + 1)
                # word2vec writes a line end after each vector, gensim does not.
                words.append(data[at:space].lstrip(b"\n"))
                at = space + 1 + width
            numbers = {"first": found + 1, "expected": min(count, room)}
            rows = vectors[: len(words)]
            yield Batch.decoded(words, rows, "word", position=stream.position(), **numbers)
            found += len(words)
        more_follows = (data[at:] + stream.read(1)).strip(b"\n")
    if ended and more_follows:
        report.count("truncated", f"word {found + 1}")
    if found != count:
        report.count("header_count", f"it says {count:,}, the file has {found:,}")
    elif more_follows:
        report.count("header_count", f"it says {count:,}, and more follows")


# fastText: a word's vector is the mean of its own row and those of its character n-grams

_NEWEST_VERSION = 12
_END_OF_SENTENCE = b"</s>"
_FNV_START, _FNV_PRIME = np.uint32(2166136261), np.uint32(16777619)


@dataclass
class FastText:
    bucket: int  # rows of n-grams, which follow those of the words
    minn: int
    maxn: int
    words: list[bytes]
    rows: np.ndarray  # (words + buckets, dim), mapped

    def vectors(self, start: int, stop: int) -> np.ndarray:
        """The vectors of words ``start`` to ``stop``: (n, dim) float32."""
        sums: np.ndarray = self.rows[start:stop].astype(np.float32)
        if self.maxn <= 0:
            return sums
        owner, bucket = subwords(self.words[start:stop], self.minn, self.maxn, self.bucket)
        if not len(owner):
            return sums
        order = np.argsort(owner, kind="stable")
        owner, bucket = owner[order], bucket[order]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        ngrams = self.rows[len(self.words) + bucket]
        sums[owner[starts]] += np.add.reduceat(ngrams, starts, axis=0)
        sums /= 1 + np.bincount(owner, minlength=len(sums)).astype(np.float32)[:, None]
        return sums


def read_fasttext(path: Path, report: LoadReport, _: Path | None = None) -> Iterator[Batch]:
    with Stream(path) as stream:
        if stream.compression is not None:
            raise FileError(path, f"is a {stream.compression} archive of a model; unpack it")
    try:
        model = _open_fasttext(path)
    except (struct.error, ValueError, OverflowError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, f"is cut off or damaged ({error}); expected fastText") from error
    total, size = len(model.words), path.stat().st_size
    for start in range(0, total, _BATCH):
        stop = min(start + _BATCH, total)
        raw, vectors = model.words[start:stop], model.vectors(start, stop)
        more = {"expected": total, "position": size * stop // total}
        yield Batch.decoded(raw, vectors, "word", first=start + 1, **more)


def _open_fasttext(path: Path) -> FastText:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = 0

        def unpack(form: str) -> tuple[Any, ...]:
            nonlocal at
            values = struct.unpack_from(form, data, at)
            at += struct.calcsize(form)
            return values

        magic, version = unpack("<4si")
        if magic != FASTTEXT_MAGIC:
            raise ValueError("no fastText magic number")
        if version > _NEWEST_VERSION:
            raise FileError(path, f"is fastText version {version}; known up to {_NEWEST_VERSION}")
        dim, *_, bucket, minn, maxn, _, _ = unpack("<12id")
        entries, count, _, _, pruned = unpack("<3i2q")
        if dim < 1 or bucket < 0 or minn < 0 or not 0 <= count <= entries:
            raise ValueError("impossible settings")
        words = []
        for _ in range(entries):  # labels of a classifier come after the words
            end = data.find(b"\0", at)
            if end < 0 or end + 10 > len(data):
                raise ValueError("dictionary cut off")
            words.append(data[at:end])
            at = end + 10  # the byte 0, an 8-byte count, a 1-byte type
        if pruned >= 0 or unpack("<?")[0]:  # only quantised models are pruned
            raise FileError(path, "is a quantised fastText model; use the original .bin or .vec")
        rows, width = unpack("<2q")
        if width != dim or rows < count + (bucket if maxn > 0 else 0):
            raise ValueError("matrix and settings disagree")
        if at + 4 * rows * width > len(data):
            raise ValueError("matrix cut off")
    matrix = np.memmap(path, dtype="<f4", mode="r", offset=at, shape=(rows, width))
    return FastText(bucket, minn, maxn, words[:count], matrix)


def subwords(
    words: list[bytes], minn: int, maxn: int, bucket: int
) -> tuple[np.ndarray, np.ndarray]:
    """Word index and bucket of every character n-gram of ``<word>``, for all words at once.

    All start positions advance together, one byte a step, each with its own running FNV-1a hash.
    Bytes are hashed as *signed* characters, as fastText's models were trained.
    """
    wrapped = [b"" if word == _END_OF_SENTENCE else b"<" + word + b">" for word in words]
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
