"""``Embeddings``: the class, reading against a naive reader, round trips and the cache."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blicer.io.text as text_format
from blicer import progress
from blicer.embeddings import Embeddings, LoadReport
from blicer.errors import FileError, InputError
from blicer.inspection import inspect

ANY_FILE = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Free-form words without the separators of the text form (space, tab, line end).
WORDS = st.lists(
    st.text(
        st.characters(exclude_characters=" \t\n", exclude_categories=["Cs"]), min_size=1, max_size=8
    ),
    min_size=1,
    max_size=12,
    unique=True,
)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def naive_load(path: Path) -> tuple[list[str], np.ndarray]:
    """The usual line-by-line loader."""
    words, rows = [], []
    with path.open(encoding="utf-8", newline="\n") as file:
        next(file)
        for line in file:
            word, *numbers = line.rstrip("\n").split(" ")
            words.append(word)
            rows.append([np.float32(float(number)) for number in numbers])
    return words, np.array(rows, dtype=np.float32)


@pytest.fixture
def small() -> Embeddings:
    return Embeddings(["cat", "dog", "eel"], np.arange(6).reshape(3, 2), language="en")


def test_the_class(small: Embeddings) -> None:
    assert len(small) == 3
    assert small.dim == 2
    assert small.language == "en"
    part = small.head(2)
    part.language = "deu"
    assert part.language == "de"  # made canonical
    with pytest.raises(InputError, match="not the tag of a language"):
        part.language = "deutsch"
    assert (part.language, small.language) == ("de", "en")
    assert "dog" in small
    assert "cow" not in small
    assert small["dog"].tolist() == [2.0, 3.0]
    assert small.lookup == {"cat": 0, "dog": 1, "eel": 2}
    assert small.vectors.dtype == np.float32
    assert small.head(2).words == ["cat", "dog"]
    assert np.shares_memory(small.head(2).vectors, small.vectors)
    assert len(small.head(99)) == 3
    other = small.with_vectors(np.ones((3, 5)))
    assert (other.words, other.language, other.dim) == (small.words, "en", 5)
    assert not small.report
    with pytest.raises(KeyError, match="cow"):
        small["cow"]


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        (["a"], np.ones((2, 2)), "1 words but 2 vectors"),
        (["a"], np.ones(2), "must be 2-d"),
        (["a", "a"], np.ones((2, 2)), "'a' occurs twice, in rows 0 and 1"),
        (["a", ""], np.ones((2, 2)), "word 1 must be a non-empty string"),
        (["a", 3], np.ones((2, 2)), "word 1 must be a non-empty string"),
        (["a", "b"], [[1, 2], [np.nan, 3]], "the vector of 'b' .row 1. has NaN"),
        (["a"], [["x", "y"]], "must be a 2-d array of numbers"),
    ],
)
def test_bad_arguments(words: list[str], vectors: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Embeddings(words, vectors)


def test_bad_options(small: Embeddings, tmp_path: Path) -> None:
    small.save(tmp_path / "a.vec")
    with pytest.raises(InputError, match="max_words must be at least 1, found 0"):
        Embeddings.load(tmp_path / "a.vec", max_words=0)
    with pytest.raises(InputError, match="BCP 47"):
        Embeddings.load(tmp_path / "a.vec", language="not a language")
    with pytest.raises(InputError, match="vocabulary= is for matrix files"):
        Embeddings.load(tmp_path / "a.vec", vocabulary=tmp_path / "a.txt")


@ANY_FILE
@given(data=st.data(), words=WORDS, dim=st.integers(1, 4))
def test_text_round_trip(data: st.DataObject, words: list[str], dim: int, tmp_path: Path) -> None:
    row = st.lists(FLOATS, min_size=dim, max_size=dim)
    vectors = np.array([data.draw(row) for _ in words], dtype=np.float32)
    saved = Embeddings(words, vectors)
    for name in ("a.vec", "a.txt.gz"):
        saved.save(tmp_path / name)
        back = Embeddings.load(tmp_path / name, lowercase=False, cache=False)
        assert back.words == words
        np.testing.assert_array_equal(back.vectors, vectors)
        assert not back.report.dropped


@ANY_FILE
@given(
    words=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        max_size=9,
        min_size=1,
        unique=True,
    )
)
def test_safetensors_round_trip(words: list[str], tmp_path: Path) -> None:
    vectors = np.random.default_rng(len(words)).standard_normal((len(words), 3))
    Embeddings(words, vectors, language="fi").save(tmp_path / "fi.safetensors")
    back = Embeddings.load(tmp_path / "fi.safetensors", lowercase=False)
    assert back.words == words
    assert back.language == "fi"
    assert isinstance(back.vectors, np.memmap)
    np.testing.assert_array_equal(back.vectors, vectors.astype(np.float32))


@pytest.mark.parametrize("word", ["a\nb", " a", "a ", "a  b", "a\tb", "version 2.0", "\ud800"])
def test_words_that_text_cannot_hold(word: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        Embeddings([word], [[1.0]]).save(tmp_path / "a.vec")
    assert not list(tmp_path.iterdir())


NUMBERS = st.one_of(
    st.floats(-1e30, 1e30).map(repr),
    st.floats(-10, 10).map(lambda x: f"{x:.4f}"),
    st.floats(-10, 10).map(lambda x: f"{x:.18e}"),
    # Half-way between two float32 values, with digits far behind.
    st.integers(0, 2**24).map(lambda n: f"{(2 * n + 1) / 2**25:.30f}1"),
    st.sampled_from(["0", "-0", "5.", ".5", "1E5", "-1e-45", "1e-60", "16777217", "+2.5"]),
)


@ANY_FILE
@given(
    data=st.data(),
    words=WORDS,
    dim=st.integers(2, 5),
    block=st.integers(1, 200),
    tail=st.sampled_from(["\n", " \n", "\r\n"]),
)
def test_numbers_equal_python_s(
    data: st.DataObject, words: list[str], dim: int, block: int, tail: str, tmp_path: Path
) -> None:
    """Whatever the digits and wherever blocks are cut: float32 of ``float(text)``, exactly."""
    rows = [[data.draw(NUMBERS) for _ in range(dim)] for _ in words]
    lines = [f"{word} {' '.join(row)}" for word, row in zip(words, rows, strict=True)]
    path = tmp_path / "a.vec"
    path.write_bytes(f"{len(words)} {dim}\n{''.join(line + tail for line in lines)}".encode())
    before = text_format.BLOCK_BYTES
    text_format.BLOCK_BYTES = block
    try:
        found = Embeddings.load(path, lowercase=False, cache=False)
    finally:
        text_format.BLOCK_BYTES = before
    with np.errstate(all="ignore"):
        expected = np.array([[float(x) for x in row] for row in rows]).astype(np.float32)
    assert found.words == words
    np.testing.assert_array_equal(found.vectors, expected)


def test_against_the_naive_loader_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    lines = [f"w{i} " + " ".join(f"{x:.5g}" for x in rng.standard_normal(20)) for i in range(3000)]
    path = tmp_path / "a.vec"
    path.write_text("3000 20\n" + "\n".join(lines) + "\n")
    monkeypatch.setattr(text_format, "BLOCK_BYTES", 4096)
    words, vectors = naive_load(path)
    found = Embeddings.load(path, cache=False)
    assert found.words == words
    np.testing.assert_array_equal(found.vectors, vectors)

    # Every 7th line broken: the good ones stay in order, the bad ones keep their line numbers.
    bad = {i: f"w{i} 1.0 2.0" for i in range(0, 3000, 7)}
    path.write_text("\n".join(bad.get(i, line) for i, line in enumerate(lines)) + "\n")
    found = Embeddings.load(path, cache=False)
    kept = [i for i in range(3000) if i not in bad]
    assert found.words == [words[i] for i in kept]
    np.testing.assert_array_equal(found.vectors, vectors[kept])
    assert found.report.counts == {"wrong_length": len(bad)}
    assert found.report.examples["wrong_length"][2] == "line 15 (2 numbers, expected 20)"


def test_max_words_counts_kept_words(tmp_path: Path) -> None:
    path = tmp_path / "a.vec"
    path.write_text("A 1 2\na 3 4\nb nan 1\nc 5 6\nd 7 8\nbroken 1\nd 1 1\n")
    found = Embeddings.load(path, max_words=2)
    assert found.words == ["a", "c"]
    assert found.vectors.tolist() == [[1, 2], [5, 6]]
    assert found.report.counts == {"case_merged": 1, "not_finite": 1}
    assert Embeddings.load(path, max_words=2, lowercase=False).words == ["A", "a"]
    everything = Embeddings.load(path, max_words=99)
    assert everything.words == ["a", "c", "d"]
    assert everything.report["wrong_length"] == everything.report["duplicate"] == 1


def test_report_sentences_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr(progress, "note", notes.append)
    path = tmp_path / "a.vec"
    path.write_text("a 1 2\n" + 6 * "a 3 4\n" + "b 1 2\n")
    for _ in range(2):  # read, then cached
        notes.clear()
        Embeddings.load(path)
        (note,) = notes
        assert note.startswith(f"{path}: 6 duplicate words dropped")
        assert note.endswith(": line 2 'a', line 3 'a', line 4 'a', line 5 'a', line 6 'a', …")


def test_report_counts() -> None:
    report = LoadReport("text")
    assert not report
    report.count("zero", "line 1 'a'")
    for _ in range(3):
        report.count("duplicate")
    assert (report["duplicate"], report["zero"], report.dropped) == (3, 1, 3)
    assert [line[:2] for line in report.lines()] == ["3 ", "1 "]


def test_inspection_of_vectors(tmp_path: Path) -> None:
    path = tmp_path / "a.vec"
    path.write_text("2 2\nA 3 4\na 0 0\n")
    found = inspect(path)
    assert found["format"] == "text"
    assert (found["words"], found["dimension"], found["first_words"]) == (2, 2, ["A", "a"])
    assert found["norms"] == {"smallest": 0.0, "median": 2.5, "largest": 5.0}
    assert len(found["problems"]) == 1
    assert "all-zero" in found["problems"][0]


def test_import_is_light() -> None:
    code = "import sys, blicer.embeddings; print('torch' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_saving_over_a_folder_is_refused(small: Embeddings, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("x")
    with pytest.raises(FileError, match="cannot be written"):
        small.save(tmp_path / "precious")
    assert (tmp_path / "precious" / "thesis.tex").exists()
    small.save(tmp_path / "en.safetensors")
    small.head(1).save(tmp_path / "en.safetensors")  # replaced
    assert len(Embeddings.load(tmp_path / "en.safetensors")) == 1


def test_gzip_is_reproducible(small: Embeddings, tmp_path: Path) -> None:
    small.save(tmp_path / "a.vec.gz")
    assert (
        gzip.decompress((tmp_path / "a.vec.gz").read_bytes()) == b"3 2\ncat 0 1\ndog 2 3\neel 4 5\n"
    )
