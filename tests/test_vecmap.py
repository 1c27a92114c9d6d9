"""VecMap in all its modes on spaces whose true map is known."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from blicer import progress
from blicer.align import VecMap
from blicer.align.base import apply_
from blicer.align.vecmap import closed_form_maps, from_shared_words, whitening
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon

FAST = {"patience": 4, "device": "cpu"}


def clustered(words: int = 500, dim: int = 25, noise: float = 0.05, seed: int = 0):
    """Words in clusters of unequal spread, seen from two sides; real spaces are not isotropic."""
    random = np.random.default_rng(seed)
    decay = np.exp(-np.arange(dim) / 12)
    centres = random.standard_normal((50, dim)) * decay
    spread = random.gamma(2.0, 0.3, (words, 1))
    x = centres[random.integers(0, 50, words)] + spread * random.standard_normal((words, dim)) * (
        decay
    )
    rotation = np.linalg.qr(random.standard_normal((dim, dim)))[0]
    y = (x + noise * x.std(axis=0) * random.standard_normal(x.shape)) @ rotation
    order = random.permutation(words)
    source = Embeddings([f"s{i}" for i in range(words)], x)
    target = Embeddings([f"t{i}" for i in order], y[order])
    return source, target, [(f"s{i}", f"t{i}") for i in range(words)]


def accuracy(space, pairs) -> float:
    x = space.source.vectors / np.linalg.norm(space.source.vectors, axis=1, keepdims=True)
    y = space.target.vectors / np.linalg.norm(space.target.vectors, axis=1, keepdims=True)
    best = (x @ y.T).argmax(axis=1)
    hits = [space.target.words[best[space.source.lookup[a]]] == b for a, b in pairs]
    return float(np.mean(hits))


@pytest.mark.parametrize(
    ("noise", "seeds", "least"), [(0.02, 60, 1), (0.1, 100, 0.97), (0.3, 300, 0.75)]
)
def test_supervised_recovers_a_rotation(noise: float, seeds: int, least: float) -> None:
    source, target, pairs = clustered(noise=noise)
    space = VecMap(device="cpu").align(source, target, Lexicon(pairs[:seeds]))
    assert space.settings["whitened"] is True
    assert accuracy(space, pairs[seeds:]) >= least


def test_semi_supervised_needs_few_seeds() -> None:
    source, target, pairs = clustered(noise=0.2)
    seeds = Lexicon(pairs[:12])
    start = accuracy(VecMap(device="cpu").align(source, target, seeds), pairs)
    space = VecMap.preset("semi_supervised", **FAST).align(source, target, seeds)
    assert start < 0.6
    assert accuracy(space, pairs) > 0.9
    assert space.settings["iterations"] > 4


def test_unsupervised_recovers_a_rotation() -> None:
    source, target, pairs = clustered()
    space = VecMap.preset("unsupervised", **FAST).align(source, target)
    assert accuracy(space, pairs) > 0.97
    assert space.settings["converged"] is True


def test_unsupervised_failure_is_said() -> None:
    """Two unrelated clouds of points have no common map; the outcome says so and what to try."""
    random = np.random.default_rng(0)
    source, target = (
        Embeddings([f"{side}{i}" for i in range(300)], random.standard_normal((300, 30)))
        for side in "st"
    )
    with pytest.warns(UserWarning, match="did not find a common structure"):
        space = VecMap.preset("unsupervised", **FAST).align(source, target)
    assert space.settings["converged"] is False
    assert "seed" in space.settings["verdict"]


def test_identical_words_and_numerals_start() -> None:
    source, target, pairs = clustered()
    names = {b: a for a, b in pairs[:40]}
    shared = Embeddings([names.get(word, word) for word in target.words], target.vectors)
    truth = [(a, names.get(b, b)) for a, b in pairs]
    space = VecMap.preset("identical", **FAST).align(source, shared)
    assert space.settings["first_pairs"] == 40
    assert accuracy(space, truth) > 0.97
    digits = {a: str(1900 + i) for i, (a, _) in enumerate(pairs[:40])}
    arabic = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    left = Embeddings([digits.get(word, word) for word in source.words], source.vectors)
    right = Embeddings(
        [digits[names[b]].translate(arabic) if b in names else b for b in target.words],
        target.vectors,
    )
    assert len(from_shared_words(left, right, numerals=True)) == 40
    with pytest.raises(InputError, match="share no word"):
        VecMap.preset("identical", **FAST).align(source, target)
    with pytest.raises(InputError, match="share no numeral"):
        VecMap.preset("numerals", **FAST).align(source, target)


def test_final_map_step_by_step() -> None:
    """Whiten, rotate, re-weight, de-whiten, each written out in NumPy's float64."""
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 50, 4)) @ np.diag([3.0, 2.0, 1.0, 0.5])
    y = y * 0.3 + x @ np.linalg.qr(random.standard_normal((4, 4)))[0]
    pairs = np.column_stack([np.arange(30), np.arange(30)])
    white = []
    for rows in (x[:30], y[:30]):
        left, scales, right = np.linalg.svd(rows, full_matrices=False)
        white.append(right.T @ np.diag(1 / scales) @ right)
    xw, yw = x @ white[0], y @ white[1]
    left, scales, right = np.linalg.svd(xw[:30].T @ yw[:30])
    xw, yw = xw @ left * scales**0.5, yw @ right.T * scales**0.5
    xw = xw @ left.T @ np.linalg.inv(white[0]) @ left
    yw = yw @ right @ np.linalg.inv(white[1]) @ right.T
    ours_x, ours_y = (torch.from_numpy(rows.astype(np.float32)) for rows in (x, y))
    maps = closed_form_maps(ours_x, ours_y, torch.from_numpy(pairs), 0.5)
    assert maps[1] is not None
    ours_x, ours_y = apply_(ours_x, maps[0]), apply_(ours_y, maps[1])
    np.testing.assert_allclose(ours_x @ ours_y.T, xw @ yw.T, atol=2e-4)


def test_whitening_whitens() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32))
    weights = whitening(rows.double().T @ rows.double())
    assert weights is not None
    white = rows.double() @ weights
    torch.testing.assert_close(
        white.T @ white, torch.eye(5, dtype=torch.float64), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("seeds", [1, 5, 24, 45])
def test_fewer_seeds_than_whitening_needs(seeds: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The usual code returns values of 1e15 here."""
    source, target, pairs = clustered(noise=0.02)
    progress.enable()
    try:
        space = VecMap(device="cpu").align(source, target, Lexicon(pairs[:seeds]))
    finally:
        progress.enable(False)
    assert space.settings["whitened"] is False
    assert np.abs(space.source.vectors).max() < 2
    assert np.abs(space.target.vectors).max() < 2
    assert f"{seeds} distinct seed pairs are too few to whiten 25 dimensions" in (
        capsys.readouterr().err
    )


def test_many_seeds_of_few_words_count_as_few() -> None:
    """Rank, not the number of lines, is what whitening needs."""
    source, target, _ = clustered()
    seeds = Lexicon([(f"s{i}", f"t{j}") for i in range(9) for j in range(9)])
    space = VecMap(device="cpu").align(source, target, seeds)
    assert space.settings["whitened"] is False
    assert np.isfinite(space.source.vectors).all()


def test_seeds_that_do_not_span_all_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    """A dead dimension, as some vector files have: no whitening, but still a good space."""
    source, target, pairs = clustered(noise=0.02)
    flat = target.vectors @ np.diag([1.0] * 24 + [0.0]).astype(np.float32)
    progress.enable()
    try:
        space = VecMap(device="cpu").align(source, target.with_vectors(flat), Lexicon(pairs[:200]))
    finally:
        progress.enable(False)
    assert space.settings["whitened"] is False
    assert "do not span all dimensions" in capsys.readouterr().err
    assert accuracy(space, pairs) > 0.9


def test_unequal_dimensions() -> None:
    source, target, pairs = clustered(noise=0.02)
    random = np.random.default_rng(3)
    wide = np.linalg.qr(random.standard_normal((50, 50)))[0][:25]
    space = VecMap(device="cpu").align(
        source, target.with_vectors(target.vectors @ wide), Lexicon(pairs[:100])
    )
    assert space.dim == 25
    assert accuracy(space, pairs) > 0.97


def test_same_seed_same_space() -> None:
    source, target, pairs = clustered(words=200)
    seeds = Lexicon(pairs[:10])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = (
            VecMap.preset("semi_supervised", seed=4, **FAST).align(source, target, seeds)
            for _ in range(2)
        )
    np.testing.assert_array_equal(one.source.vectors, two.source.vectors)
    np.testing.assert_array_equal(one.target.vectors, two.target.vectors)


def test_seeds_must_be_given() -> None:
    source, target, _ = clustered(words=100)
    with pytest.raises(InputError, match="vecmap in this mode needs seed pairs"):
        VecMap.preset("semi_supervised").align(source, target)


def test_schedule() -> None:
    """On exact data nothing rises after the start: one stall for each keep probability."""
    patient = VecMap(patience=3, keep_start=0.25)
    assert patient.iterations_left(0.25, 0) == 9
    assert patient.iterations_left(1.0, 2) == 1
    assert VecMap().iterations_left(0.1, 0) == 250
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32))
    x /= x.norm(dim=1, keepdim=True)
    same = torch.arange(60)[:, None].expand(-1, 2)
    cut = VecMap(patience=3, max_iterations=2).self_learn(x, x, same)
    assert (cut.iterations, cut.stalled) == (2, False)
    whole = patient.self_learn(x, x, same)
    assert whole.stalled
    assert whole.iterations >= 9
    assert whole.objective == pytest.approx(1.0, abs=1e-5)


def test_distributions_match_words_across_a_rotation() -> None:
    source, target, _ = clustered(words=300, noise=0.0)
    x, y = (torch.from_numpy(each.vectors.copy()) for each in (source, target))
    pairs = VecMap().from_distributions(x, y)
    right = [source.words[i][1:] == target.words[j][1:] for i, j in pairs.tolist()]
    assert np.mean(right) > 0.95


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"k_csls": 0}, "k_csls is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"memory_gb": 0.0}, "memory_gb is 0"),
        ({"patience": 0}, "patience is 0"),
    ],
)
def test_bad_settings_are_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        VecMap(**wrong)
