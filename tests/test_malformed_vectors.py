"""A corpus of broken vector files, each with the words that survive and what the report counts,
or with the one sentence that refuses it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from blicer.embeddings import Embeddings
from blicer.errors import FileError
from blicer.inspection import inspect


@dataclass
class Case:
    name: str
    content: bytes
    words: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    error: str = ""
    mentions: str = ""  # must stand in the report
    first: tuple[float, ...] = (0.5, -1.5)


GOOD = b"cat 0.5 -1.5\ndog 1.0 2.0\n"


def w2v(*entries: tuple[bytes, list[float]], header: bytes) -> bytes:
    return header + b"".join(
        word + b" " + struct.pack(f"<{len(vector)}f", *vector) + b"\n" for word, vector in entries
    )


def locked_zip() -> bytes:
    """An archive that says of its only file that it is encrypted."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("cat.vec", GOOD)
    content = bytearray(file.getvalue())
    content[6] |= 1  # the flags of the file itself, and of its entry in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def changed_zip(mark: bytes, place: int) -> bytes:
    """An archive of one file with one byte changed, so far behind the mark."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("cat.vec", GOOD)
    content = bytearray(file.getvalue())
    content[content.index(mark) + place] = 0xFF
    return bytes(content)


def npy(array: np.ndarray, *, pickled: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=pickled)
    return file.getvalue()


READABLE = [
    Case("clean.vec", b"2 2\n" + GOOD, ["cat", "dog"]),
    Case("no_header.txt", GOOD, ["cat", "dog"]),
    Case("bom.vec", b"\xef\xbb\xbf2 2\n" + GOOD, ["cat", "dog"]),
    Case("bom_no_header.vec", b"\xef\xbb\xbf" + GOOD, ["cat", "dog"]),
    Case("crlf.vec", GOOD.replace(b"\n", b"\r\n"), ["cat", "dog"]),
    Case("trailing_space.vec", GOOD.replace(b"\n", b" \n"), ["cat", "dog"]),
    Case("space_crlf.vec", GOOD.replace(b"\n", b" \r\n"), ["cat", "dog"]),
    Case("tabs.vec", GOOD.replace(b" ", b"\t"), ["cat", "dog"]),
    Case("double_spaces.vec", GOOD + b"eel  1  2\n", ["cat", "dog", "eel"]),
    Case("no_final_newline.vec", GOOD + b"eel 1 2", ["cat", "dog", "eel"]),
    Case(
        "truncated.vec",
        b"3 2\n" + GOOD + b"eel 0.2",
        ["cat", "dog"],
        {"truncated": 1},
        mentions="line 4 (1 number, expected 2)",
    ),
    Case("truncated_in_word.vec", b"3 2\n" + GOOD + b"ee", ["cat", "dog"], {"truncated": 1}),
    Case(
        "short_line.vec",
        b"cat 0.5 -1.5\neel 1.5\ndog 1.0 2.0\n",
        ["cat", "dog"],
        {"wrong_length": 1},
        mentions="line 2 (1 number, expected 2)",
    ),
    Case(
        "long_line.vec",
        GOOD + b"eel 1.5 2.5 3.5\n",
        ["cat", "dog"],
        {"wrong_length": 1},
        mentions="line 3 (3 numbers, expected 2)",
    ),
    Case("long_integers.vec", GOOD + b"eel 1 2 3\n", ["cat", "dog"], {"wrong_length": 1}),
    Case("word_only.vec", GOOD + b"eel\n", ["cat", "dog"], {"wrong_length": 1}),
    Case(
        "no_word.vec", b"cat 0.5 -1.5\n 0.1 0.2\ndog 1.0 2.0\n", ["cat", "dog"], {"wrong_length": 1}
    ),
    Case(
        "not_a_number.vec",
        GOOD + b"eel 1.0 two\n",
        ["cat", "dog"],
        {"wrong_length": 1},
        mentions="line 3 (0 numbers, expected 2)",
    ),
    Case("decimal_comma.vec", GOOD + b"eel 0,1 0,2\n", ["cat", "dog"], {"wrong_length": 1}),
    Case("underscore.vec", GOOD + b"eel 1_0 2.0\n", ["cat", "dog"], {"wrong_length": 1}),
    Case("plus_sign.vec", GOOD + b"eel +1.0 2.0\n", ["cat", "dog", "eel"]),
    Case("nan.vec", GOOD + b"eel nan 2.0\n", ["cat", "dog"], {"not_finite": 1}, mentions="line 3"),
    Case("infinity.vec", GOOD + b"eel 1 -inf\n", ["cat", "dog"], {"not_finite": 1}),
    Case("too_large.vec", GOOD + b"eel 1e39 1.0\n", ["cat", "dog"], {"not_finite": 1}),
    Case("zero.vec", GOOD + b"eel 0.0 0\n", ["cat", "dog", "eel"], {"zero": 1}),
    Case(
        "duplicate.vec",
        GOOD + b"cat 9.0 9.0\n",
        ["cat", "dog"],
        {"duplicate": 1},
        mentions="line 3 'cat'",
    ),
    Case("case.vec", GOOD + b"CAT 9.0 9.0\n", ["cat", "dog"], {"case_merged": 1}),
    Case("spaces_in_word.vec", GOOD + b"New York 1 2\n", ["cat", "dog", "new york"]),
    Case("number_in_name.vec", GOOD + b"Catch 22 1.0 2.0\n", ["cat", "dog", "catch 22"]),
    Case("dots.vec", GOOD + b". . . 1 2\n", ["cat", "dog", ". . ."]),
    Case("no_break_space.vec", GOOD + "a\u00a0b 1 2\n".encode(), ["cat", "dog", "a\u00a0b"]),
    Case(
        "unicode_line_ends.vec",
        GOOD + "a\u0085b 1 2\nc\u2028d 3 4\n".encode(),
        ["cat", "dog", "a\u0085b", "c\u2028d"],
    ),
    Case(
        "control_characters.vec",
        GOOD + b"a\x0bb 1 2\nc\x1cd 3 4\n",
        ["cat", "dog", "a\x0bb", "c\x1cd"],
    ),
    Case(
        "not_utf8.vec",
        GOOD + b"caf\xe9 1.0 2.0\n",
        ["cat", "dog"],
        {"not_utf8": 1},
        mentions=r"line 3 ('caf\xe9')",
    ),
    Case("blank_middle.vec", b"cat 0.5 -1.5\n\ndog 1 2\n", ["cat", "dog"], {"blank": 1}),
    Case(
        "blank_spaces.vec",
        b"cat 0.5 -1.5\n \t\r\ndog 1 2\n",
        ["cat", "dog"],
        {"blank": 1},
    ),
    Case("blank_end.vec", b"2 2\n" + GOOD + b"\n\n", ["cat", "dog"], {"blank": 2}),
    Case(
        "header_count.vec",
        b"7 2\n" + GOOD,
        ["cat", "dog"],
        {"header_count": 1},
        mentions="it says 7, the file has 2 lines",
    ),
    Case("header_count_small.vec", b"1 2\n" + GOOD, ["cat", "dog"], {"header_count": 1}),
    Case("header_huge.vec", b"999999999999999 2\n" + GOOD, ["cat", "dog"], {"header_count": 1}),
    Case(
        "header_dimension.vec",
        b"2 300\n" + GOOD,
        ["cat", "dog"],
        {"header_dimension": 1},
        mentions="it says 300, the lines have 2",
    ),
    Case("one_dimension.vec", b"2 1\ncat 0.5\ndog 2\n", ["cat", "dog"], first=(0.5,)),
    Case("numeric_words.vec", b"1 0.5 -1.5\n2 1.0 2.0\n", ["1", "2"]),
    Case("wrong_name.npy", b"2 2\n" + GOOD, ["cat", "dog"]),
    Case("really_gzip.vec", gzip.compress(b"2 2\n" + GOOD), ["cat", "dog"]),
    Case("really_xz.txt", lzma.compress(GOOD), ["cat", "dog"]),
    Case("really_bz2.txt", bz2.compress(GOOD), ["cat", "dog"]),
    Case(
        "binary.bin",
        w2v((b"cat", [0.5, -1.5]), (b"dog", [1.0, 2.0]), header=b"2 2\n"),
        ["cat", "dog"],
    ),
    Case(
        "binary_called_vec.vec",
        w2v((b"cat", [0.5, -1.5]), (b"dog", [1.0, 2.0]), header=b"2 2\n"),
        ["cat", "dog"],
    ),
    Case(
        "binary_truncated.bin",
        w2v((b"cat", [0.5, -1.5]), (b"dog", [1.0, 2.0]), header=b"2 2\n")[:-4],
        ["cat"],
        {"truncated": 1, "header_count": 1},
        mentions="it says 2, the file has 1",
    ),
    Case(
        "binary_more.bin",
        w2v((b"cat", [0.5, -1.5]), (b"dog", [1.0, 2.0]), header=b"1 2\n"),
        ["cat"],
        {"header_count": 1},
    ),
    Case(
        "binary_nan.bin",
        w2v((b"cat", [0.5, -1.5]), (b"dog", [float("nan"), 2.0]), header=b"2 2\n"),
        ["cat"],
        {"not_finite": 1},
    ),
    Case(
        "binary_not_utf8.bin",
        w2v((b"cat", [0.5, -1.5]), (b"\xff\xfe", [1.0, 2.0]), header=b"2 2\n"),
        ["cat"],
        {"not_utf8": 1},
    ),
]

REFUSED = [
    Case("empty.vec", b"", error="is empty"),
    Case("empty.vec.gz", gzip.compress(b""), error="is empty"),
    Case("blank.vec", b"\n\n  \n", error="only blank lines"),
    Case("header_only.vec", b"5 300\n", error="has a header but no vectors"),
    Case("prose.txt", b"Once upon a time\nthere was a file\n", error="expected a word and its num"),
    Case("dictionary.tsv", b"cat\tchat\ndog\tchien\n", error="expected a word and its numbers"),
    Case("utf16.vec", GOOD.decode().encode("utf-16"), error="is neither UTF-8 text nor"),
    Case("cut.vec.gz", gzip.compress(GOOD * 50)[:-12], error="gzip archive is broken or cut off"),
    Case("cut.vec.xz", lzma.compress(GOOD * 50)[:-12], error="xz archive is broken or cut off"),
    Case("flipped.gz", gzip.compress(GOOD)[:-8] + bytes(8), error="gzip archive is broken"),
    Case("model.pkl", b"\x80\x04\x95\x00\x00\x00", error="Python pickle, which is never executed"),
    Case("latin1.vec", b"".join(b"\xe9t\xe9%d 1.0 2.0\n" % i for i in range(30)), error="0 of 30"),
    Case(
        "half_latin1.vec",
        b"".join(b"%s%d 1.0 2.0\n" % (b"\xe9" if i % 2 else b"e", i) for i in range(60)),
        error="30 words not in UTF-8 dropped",
        mentions="line 2 ",
    ),
    Case("all_nan.vec", b"cat nan nan\ndog nan 1\n", error="2 vectors with NaN"),
    Case("ragged.vec", b"a 1\nb 1 2\nc 1 2 3\nd 1 2 3 4\n", error="only 1 of 4 entries"),
    Case("vector.npy", npy(np.ones(3)), error="expected a 2-d array of numbers"),
    Case("text.npy", npy(np.array([["a"]])), error="expected a 2-d array of numbers"),
    Case(
        "object.npy",
        npy(np.array([{"a": 1}], dtype=object), pickled=True),
        error="pickled Python objects, which are never executed",
    ),
    Case("cut.npy", npy(np.ones((3, 2)))[:-8], error="is not a complete NumPy array"),
    Case(
        "alone.npy",
        npy(np.ones((3, 2))),
        error="without words; expected them, one a line, in alone.vocab.txt",
    ),
    Case("fasttext_cut.bin", struct.pack("<2i", 793712314, 12) + b"\1\0\0\0", error="is cut off"),
    Case("fasttext_new.bin", struct.pack("<2i", 793712314, 99), error="fastText version 99"),
    Case("binary_cut_early.bin", b"5 100\ncat \x01\x02\x03", error="only 0 of 1 entries"),
    Case("locked.zip", locked_zip(), error="is encrypted"),
    Case("broken.zip", b"PK\x03\x04 and nothing more", error="zip archive is broken"),
    Case("renamed.zip", changed_zip(b"cat.vec", 0), error="zip archive"),
    Case("newer.zip", changed_zip(b"PK\x01\x02", 6), error="zip archive"),
    Case(
        "huge.bin",
        w2v((b"cat", [0.1, 0.2]), header=b"5 999999999\n"),
        error="its header says dimension 999999999",
    ),
    Case(
        "header.npy", npy(np.ones((2, 2)))[:20] + b"(((" + npy(np.ones((2, 2)))[23:], error="NumPy"
    ),
    Case("noise.vec", bytes(range(256)) * 8, error="nor a known binary format"),
]


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.name)
def test_readable(case: Case, tmp_path: Path) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.content)
    found = Embeddings.load(path)
    assert found.words == case.words
    assert found.report.counts == case.counts
    assert found.vectors.dtype == np.float32
    assert found.vectors.flags.c_contiguous
    np.testing.assert_array_equal(found.vectors[0], np.array(case.first, dtype=np.float32))
    assert len(found.report.lines()) == len(case.counts)
    assert case.mentions in "\n".join(found.report.lines())
    again = Embeddings.load(path)
    assert again.words == found.words
    assert again.report == found.report
    np.testing.assert_array_equal(again.vectors, found.vectors)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused(case: Case, tmp_path: Path) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.content)
    with pytest.raises(FileError) as caught:
        Embeddings.load(path)
    message = str(caught.value)
    assert case.error in message
    assert case.mentions in message
    assert "\n" not in message
    with pytest.raises(FileError) as again:
        inspect(path, kind="vectors")
    assert str(again.value) == message


def test_missing_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        Embeddings.load(tmp_path / "nowhere.vec")
    with pytest.raises(FileError, match="is not a file"):
        Embeddings.load(tmp_path)


def test_the_corpus_is_large_enough() -> None:
    names = [case.name for case in READABLE + REFUSED]
    assert len(set(names)) == len(names)
    assert len(names) >= 20


def test_truncated_zstd(tmp_path: Path) -> None:
    whole = pyarrow.compress(GOOD * 50, codec="zstd", asbytes=True)
    (tmp_path / "good.vec.zst").write_bytes(whole)
    assert Embeddings.load(tmp_path / "good.vec.zst").words == ["cat", "dog"]
    (tmp_path / "cut.vec.zst").write_bytes(whole[:-9])
    with pytest.raises(FileError, match="zstd archive is broken or cut off"):
        Embeddings.load(tmp_path / "cut.vec.zst")
