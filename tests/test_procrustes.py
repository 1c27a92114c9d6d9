"""Procrustes against a known rotation, and the sentences for seeds that cannot be used."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer import progress
from blicer.align import Procrustes
from blicer.align.base import orthogonal_map
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon


def rotated(words: int, dim: int, noise: float, seed: int = 0):
    """Source and target vectors that are one point set seen from two sides, and all pairs."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((words, dim))
    rotation = np.linalg.qr(random.standard_normal((dim, dim)))[0]
    y = (x + noise * random.standard_normal(x.shape)) @ rotation
    order = random.permutation(words)
    source = Embeddings([f"s{i}" for i in range(words)], x, "en")
    target = Embeddings([f"t{i}" for i in order], y[order], "fr")
    return source, target, [(f"s{i}", f"t{i}") for i in range(words)]


def accuracy(space, pairs) -> float:
    """Share of the pairs that are nearest neighbours by cosine: a plain loop's worth of NumPy."""
    x = space.source.vectors / np.linalg.norm(space.source.vectors, axis=1, keepdims=True)
    y = space.target.vectors / np.linalg.norm(space.target.vectors, axis=1, keepdims=True)
    best = (x @ y.T).argmax(axis=1)
    hits = [space.target.words[best[space.source.lookup[a]]] == b for a, b in pairs]
    return float(np.mean(hits))


@pytest.mark.parametrize(
    ("noise", "seeds", "least"), [(0.0, 40, 1.0), (0.1, 60, 0.99), (0.3, 60, 0.8), (0.3, 300, 0.97)]
)
def test_recovers_a_rotation(noise: float, seeds: int, least: float) -> None:
    source, target, pairs = rotated(600, 20, noise)
    space = Procrustes().align(source, target, Lexicon(pairs[:seeds]))
    assert accuracy(space, pairs[seeds:]) >= least


def test_result_is_a_rotation_of_the_normalised_source() -> None:
    """Inner products among source words are those of unit, centred, unit vectors."""
    source, target, pairs = rotated(80, 12, 0.5)
    space = Procrustes().align(source, target, Lexicon(pairs[:30]))
    x = source.vectors.astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x -= x.mean(axis=0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    mapped = space.source.vectors.astype(np.float64)
    np.testing.assert_allclose(mapped @ mapped.T, x @ x.T, atol=1e-5)
    assert (space.method, space.settings["seed_pairs"]) == ("procrustes", 30)
    assert (space.source.language, space.target.language) == ("en", "fr")


@settings(max_examples=25)
@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 1000))
def test_map_is_orthogonal_and_best(rows: int, dim: int, seed: int) -> None:
    """No orthogonal map drawn at random comes nearer, whatever the rank of the seeds."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((2, rows, dim)).astype(np.float32)
    weights = orthogonal_map(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    np.testing.assert_allclose(weights @ weights.T, np.eye(dim), atol=1e-9)
    ours = np.linalg.norm(x @ weights - y)
    for _ in range(20):
        other = np.linalg.qr(random.standard_normal((dim, dim)))[0]
        assert ours <= np.linalg.norm(x @ other - y) + 1e-5


def test_same_twice_and_inputs_untouched() -> None:
    source, target, pairs = rotated(100, 10, 0.2)
    before = source.vectors.copy()
    first, second = (Procrustes().align(source, target, Lexicon(pairs[:20])) for _ in range(2))
    np.testing.assert_array_equal(first.source.vectors, second.source.vectors)
    np.testing.assert_array_equal(source.vectors, before)


def test_unequal_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten dimensions hidden in thirty, by an isometry, are found again, and the log says so."""
    source, target, pairs = rotated(400, 10, 0.05)
    random = np.random.default_rng(1)
    wider = np.linalg.qr(random.standard_normal((30, 30)))[0][:10]
    wide = target.with_vectors(target.vectors @ wider)
    progress.enable()
    try:
        space = Procrustes().align(source, wide, Lexicon(pairs[:100]))
        swapped = Procrustes().align(wide, source, Lexicon([(b, a) for a, b in pairs[:100]]))
    finally:
        progress.enable(False)
    assert space.dim == swapped.dim == 10
    assert accuracy(space, pairs) > 0.99
    assert accuracy(swapped, [(b, a) for a, b in pairs]) > 0.99
    said = capsys.readouterr().err
    assert "the target vectors have 30 dimensions: reduced by PCA to 10" in said
    assert "the source vectors have 30 dimensions: reduced by PCA to 10" in said


def test_fewer_seeds_than_dimensions_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    source, target, pairs = rotated(50, 20, 0.1)
    progress.enable()
    try:
        space = Procrustes().align(source, target, Lexicon(pairs[:5]))
    finally:
        progress.enable(False)
    assert np.isfinite(space.source.vectors).all()
    assert "5 distinct seed pairs for 20 dimensions" in capsys.readouterr().err


def embeddings(*words: str) -> Embeddings:
    random = np.random.default_rng(0)
    return Embeddings(words, random.standard_normal((len(words), 4)))


ENGLISH = embeddings("cat", "dog", "house", "tree", "water")
RUSSIAN = embeddings("кот", "собака", "дом", "дерево", "вода")


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("кот", "cat"), ("дом", "house")], "the columns are swapped (2 of 2 pairs"),
        ([("Cat", "Кот"), ("Dog", "Собака")], "in another case"),
        ([("kočka", "kot"), ("pes", "sobaka")], "target seed words are written in Latin script"),
        ([("chat", "кошка"), ("chien", "пёс")], "of other languages"),
    ],
)
def test_no_seed_in_vocabulary(pairs: list[tuple[str, str]], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        Procrustes().align(ENGLISH, RUSSIAN, Lexicon(pairs))
    message = str(caught.value)
    assert message.startswith("none of the 2 seed pairs are in both vocabularies")
    assert f"'{pairs[0][0]}'" in message
    assert "source vocabulary" in message
    assert expected in message
    assert "\n" not in message


def test_few_seeds_in_vocabulary_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """One usable pair of twenty is no error, but the reason is said."""
    pairs = [("cat", "кот")] + [(f"Dog{i}", "СОБАКА") for i in range(19)]
    progress.enable()
    try:
        Procrustes().align(ENGLISH, RUSSIAN, Lexicon(pairs))
    finally:
        progress.enable(False)
    assert "only 1 of the 20 seed pairs" in capsys.readouterr().err


def test_seeds_must_be_given() -> None:
    with pytest.raises(InputError, match="procrustes in this mode needs seed pairs"):
        Procrustes().align(ENGLISH, RUSSIAN)
    with pytest.raises(InputError, match="the seed dictionary is empty"):
        Procrustes().align(ENGLISH, RUSSIAN, Lexicon([]))


def test_empty_vectors() -> None:
    empty = Embeddings([], np.empty((0, 4), dtype=np.float32))
    with pytest.raises(InputError):
        Procrustes().align(empty, RUSSIAN, Lexicon([("cat", "кот")]))


def test_zero_vectors_stay_finite() -> None:
    source, target, pairs = rotated(60, 8, 0.1)
    vectors = source.vectors.copy()
    vectors[3] = 0
    space = Procrustes(centre=False).align(source.with_vectors(vectors), target, Lexicon(pairs))
    assert np.isfinite(space.source.vectors).all()
    assert not space.source.vectors[3].any()
