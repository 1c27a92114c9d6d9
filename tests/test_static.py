"""Static vectors are the mean of a word's pieces, whatever the word."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer import lite
from blicer.encoders.static import CHUNK, StaticVectors
from blicer.errors import FileError
from tools.build_lite.static import choose_pieces

PIECES = ["▁un", "▁under", "▁s", "stand", "able", "a", "b", "st", "▁дом", "ик", "学", "▁学"]
RNG = np.random.default_rng(0)
CODES = RNG.integers(256, size=(len(PIECES), 5)).astype(np.uint8)
SCALE, LOW = RNG.random(5).astype(np.float32), -RNG.random(5).astype(np.float32) * 100
TABLE = {p: LOW + SCALE * c for p, c in zip(PIECES, CODES.astype(np.float32), strict=True)}


@pytest.fixture(scope="module")
def tiny() -> StaticVectors:
    return StaticVectors(PIECES, CODES, SCALE, LOW)


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("understandable", ["▁under", "stand", "able"]),
        ("UNDERstandABLE", ["▁under", "stand", "able"]),
        ("unable", ["▁un", "able"]),
        ("sta", ["▁s", "a"]),  # greedy: "▁s" leaves "t", which has no piece
        ("able", ["able"]),  # no piece for the beginning
        ("домик", ["▁дом", "ик"]),
        ("xстлb", ["b"]),
        ("xaxb", ["a", "b"]),
        ("un-understand", ["▁un", "▁under", "stand"]),
        ("un_under un", ["▁un", "▁under", "▁un"]),
        ("un\u2011a", ["▁un", "a"]),
        ("学学", ["▁学", "学"]),
        ("\uff55\uff4e", ["▁un"]),  # full width
        ("", []),
        ("▁", []),
        ("zzz", []),
    ],
)
def test_a_word_is_the_mean_of_its_pieces(
    tiny: StaticVectors, word: str, pieces: list[str]
) -> None:
    expected = np.zeros(5)
    for piece in pieces:
        expected += TABLE[piece] / len(pieces)
    if pieces:
        expected /= np.linalg.norm(expected)
    np.testing.assert_allclose(tiny.encode([word])[0], expected, atol=1e-5)


def test_many_words_are_as_each_by_itself(tiny: StaticVectors) -> None:
    words = ["", "unable", "zzz", "домик", "a b", "understand"]
    some = tiny.encode(words)
    np.testing.assert_array_equal(some, np.concatenate([tiny.encode([w]) for w in words]))
    many = tiny.encode(words * (CHUNK // 6 + 2))
    assert many.dtype == np.float32
    np.testing.assert_array_equal(many, np.tile(some, (CHUNK // 6 + 2, 1)))
    assert tiny.encode([]).shape == (0, tiny.dim)


@settings(deadline=None)
@given(words=st.lists(st.text(max_size=12), max_size=8))
def test_any_text_has_a_unit_vector_or_none(words: list[str]) -> None:
    for vectors in (StaticVectors.load(), StaticVectors(PIECES, CODES, SCALE, LOW)):
        norms = np.linalg.norm(vectors.encode(words), axis=1)
        assert np.all((norms == 0) | (np.abs(norms - 1) < 1e-5))


@settings(deadline=None)
@given(word=st.text(st.sampled_from("abemnrstуабвикющéñöčαβγδ -")))
def test_case_does_not_matter(word: str) -> None:
    vectors = StaticVectors.load()
    np.testing.assert_array_equal(vectors.encode([word]), vectors.encode([word.upper()]))


# Pairs of languages that the net does not know; none was looked up in a published dictionary.
PAIRS = [
    *(("water", "vesi"), ("winter", "talvi"), ("school", "koulu"), ("king", "kuningas")),
    *(("water", "voda"), ("winter", "zima"), ("school", "škola"), ("king", "kralj")),
    *(("school", "σχολείο"), ("water", "पानी"), ("king", "ملک"), ("book", "książka")),
    *(("book", "könyv"), ("brother", "брат"), ("month", "mwezi"), ("doctor", "ექიმი")),
]


def test_the_table_of_lite_knows_languages_that_the_net_does_not() -> None:
    vectors = StaticVectors.load()
    assert vectors is StaticVectors.load()
    left, right = (vectors.encode(words) for words in zip(*PAIRS, strict=True))
    cosines = left @ right.T
    same = np.array([[a[0] == b[0] for b in PAIRS] for a in PAIRS])
    good = np.diag(cosines)[:, None]
    assert np.mean(good > np.where(same, -1, cosines)) > 0.85


def test_pieces_are_as_the_segmentation_meets_them() -> None:
    pieces = (lite.HERE / lite.PIECES).read_text("utf-8").split("\n")
    vectors = StaticVectors.load()
    assert len(set(pieces)) == len(pieces) == len(vectors.codes)
    begins = [piece for piece in pieces if piece.startswith("▁")]
    assert all(vectors.segment(piece[1:]) == [pieces.index(piece)] for piece in begins[::500])


def test_a_capitalised_piece_stands_in_for_a_missing_one() -> None:
    source = "[UNK] ▁the ▁The ▁Arbeit ▁ARBEIT ▁ __ ... . ▁( Ab a-b".split()
    assert choose_pieces(source) == {"▁the": 1, ".": 8, "▁(": 9, "▁arbeit": 3, "ab": 10}


def test_damage_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = json.loads((lite.HERE / lite.MANIFEST).read_text("utf-8"))
    assert {lite.STATIC, lite.PIECES} <= manifest["files"].keys()
    (tmp_path / lite.MANIFEST).write_bytes((lite.HERE / lite.MANIFEST).read_bytes())
    (tmp_path / lite.STATIC).write_bytes((lite.HERE / lite.STATIC).read_bytes())
    (tmp_path / lite.PIECES).write_bytes((lite.HERE / lite.PIECES).read_bytes() + b"x")
    monkeypatch.setattr(lite, "HERE", tmp_path)
    lite.check_files(lite.STATIC)
    with pytest.raises(FileError, match=r"pieces\.txt.*damaged"):
        lite.check_files(lite.STATIC, lite.PIECES)
