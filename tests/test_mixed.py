"""C2: the loss against a naive loop, the mixture by hand, and what a tuned encoder brings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from blicer.align import encoder_mix as biencoder
from blicer.align import encoder_mix as mixed
from blicer.align.contrastive import Contrastive
from blicer.align.encoder_mix import (
    ContrastivePairs,
    EncoderMix,
    Tuning,
    contrastive_loss,
    hard_negatives,
    tune,
)
from blicer.align.space import Space
from blicer.embeddings import Embeddings
from blicer.encoders import tuning as checkpoints
from blicer.encoders.words import WordEncoder
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from tiny_models import tiny_encoder

C1 = {"steps": 3, "negatives": 10, "mined_pairs": 40, "rounds": 1}
WORDS = 160


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"), dropout=0.0)


@pytest.fixture(scope="module")
def sides() -> tuple[Embeddings, Embeddings]:
    """A target word is its source word written twice; target vectors are noisy copies."""
    rng = np.random.default_rng(0)
    names = [f"{a}{b}" for a in "abcdefghijklm" for b in "nopqrstuvwxyz"][:WORDS]
    vectors = rng.normal(size=(WORDS, 12)).astype(np.float32)
    noisy = vectors + 0.8 * rng.normal(size=vectors.shape).astype(np.float32)
    return (
        Embeddings(names, vectors, "en"),
        Embeddings([2 * name for name in names], noisy, "fr"),
    )


def lexicon(sides: tuple[Embeddings, Embeddings], step: int = 2) -> Lexicon:
    source, target = sides
    return Lexicon([(source.words[i], target.words[i]) for i in range(0, WORDS, step)])


def aligner(encoder: Path, **settings: Any) -> EncoderMix:
    usual = {"encoder": str(encoder), "negatives": 6, "epochs": 1, "c1": C1, "device": "cpu"}
    return EncoderMix.preset("supervised", **{**usual, **settings})


def test_the_loss_is_that_of_a_naive_loop() -> None:
    torch.manual_seed(0)
    x, y = (torch.nn.functional.normalize(torch.randn(5, 8), dim=1) for _ in range(2))
    wrong_y, wrong_x = (torch.nn.functional.normalize(torch.randn(5, 3, 8), dim=2) for _ in "ab")
    total = 0.0
    for i in range(5):
        right = math.exp(float(x[i] @ y[i]) / 0.1)
        wrong = sum(math.exp(float(wrong_y[i, j] @ x[i]) / 0.1) for j in range(3))
        wrong += sum(math.exp(float(wrong_x[i, j] @ y[i]) / 0.1) for j in range(3))
        total -= math.log(right / (right + wrong))
    found = contrastive_loss(x, y, wrong_y, wrong_x, 0.1)
    assert float(found) == pytest.approx(total / 5, rel=1e-4)


def test_negatives_are_the_nearest_wrong_words(sides: tuple[Embeddings, Embeddings]) -> None:
    space = Space(*sides, method="files")
    positives = np.array([[0, 0], [7, 7], [7, 9]])
    found = hard_negatives(space, positives, 5, 50)
    for reverse, asked, right, negatives in (
        (False, 0, 1, found.targets),
        (True, 1, 0, found.sources),
    ):
        every = space.retriever.search(50, positives[:, asked], reverse=reverse, limit=50).indices
        for row in range(3):
            expected = [word for word in every[row].tolist() if word != positives[row, right]][:5]
            assert negatives[row].tolist() == expected


def test_tuning_lowers_the_loss_and_is_kept(encoder: Path, tmp_path: Path) -> None:
    words = ["cat", "dog", "house", "the", "word", "chat", "chien", "maison"]
    rng = np.random.default_rng(0)
    pairs = ContrastivePairs(
        np.stack([np.arange(8), np.arange(8)], axis=1),
        np.stack([rng.permutation(np.delete(np.arange(8), i))[:3] for i in range(8)]),
        np.stack([rng.permutation(np.delete(np.arange(8), i))[:3] for i in range(8)]),
    )
    other = [word[::-1] for word in words]
    tuning = Tuning(epochs=8, learning_rate=1e-3, batch_size=4)
    tuned = WordEncoder(encoder, device="cpu")
    before = tuned.encode(words)
    losses = tune(tuned, words, other, pairs, tuning, keep=tmp_path / "kept")
    assert losses[-1] < losses[0]
    assert not np.allclose(tuned.encode(words), before, atol=1e-4)
    again = WordEncoder(encoder, device="cpu")
    assert tune(again, words, other, pairs, tuning, keep=tmp_path / "kept") == losses
    np.testing.assert_array_equal(again.encode(words), tuned.encode(words))
    third = WordEncoder(encoder, device="cpu")
    assert tune(third, words, other, pairs, tuning) == losses  # same seed, same course


@pytest.mark.parametrize("train_table", [True, False])
def test_a_tuning_that_was_killed_goes_on_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_table: bool
) -> None:
    encoder = tiny_encoder(tmp_path / "with dropout", dropout=0.2)
    words, other = ["cat", "dog", "house"], ["chat", "chien", "maison"]
    every = np.arange(3)
    pairs = ContrastivePairs(
        np.stack([every, every], axis=1), (every[:, None] + 1) % 3, (every[:, None] + 2) % 3
    )
    tuning = Tuning(epochs=3, learning_rate=1e-3, batch_size=2, train_table=train_table)
    whole = WordEncoder(encoder, device="cpu")
    losses = tune(whole, words, other, pairs, tuning)

    class Killed(Exception):
        pass

    batch_loss, steps = biencoder._batch_loss, []

    def dies_at_the_fifth(*arguments: Any) -> torch.Tensor:
        steps.append(arguments[-2].tolist())
        if len(steps) == 5:
            raise Killed
        return batch_loss(*arguments)

    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", 0.0)
    monkeypatch.setattr(biencoder, "_batch_loss", dies_at_the_fifth)
    keep = tmp_path / "c2-abc" / "encoder"
    with pytest.raises(Killed):
        tune(WordEncoder(encoder, device="cpu"), words, other, pairs, tuning, keep=keep)
    again = WordEncoder(encoder, device="cpu")
    assert tune(again, words, other, pairs, tuning, keep=keep) == pytest.approx(losses, rel=1e-6)
    assert len(steps) == 5 + 2  # the four finished steps of six were not done again
    assert steps[5] == steps[4]
    np.testing.assert_allclose(again.encode(words), whole.encode(words), atol=1e-6)
    assert not list(keep.parent.glob("encoder.checkpoint*"))


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_the_loss_of_an_epoch_is_that_of_the_words_themselves(
    encoder: Path, temperature: float
) -> None:
    words, other = ["cat", "dog", "house"], ["chat", "chien", "maison"]
    pairs = ContrastivePairs(
        np.array([[0, 0], [1, 1]]), np.array([[1, 2], [2, 0]]), np.array([[2, 1], [0, 2]])
    )
    still = WordEncoder(encoder, device="cpu")
    with torch.no_grad():  # untrained words are all alike: far apart, temperature matters
        for weight in still.model.parameters():
            weight.mul_(8.0)
    x, y = (
        torch.nn.functional.normalize(torch.from_numpy(still.encode(side)), dim=1)
        for side in (words, other)
    )
    assert float((x[0] - x[1]).norm()) > 0.5
    expected = contrastive_loss(x[:2], y[:2], y[pairs.targets], x[pairs.sources], temperature)
    tuning = Tuning(epochs=1, learning_rate=0.0, batch_size=2, temperature=temperature)
    (loss,) = tune(still, words, other, pairs, tuning)
    assert loss == pytest.approx(float(expected), rel=1e-4)


def test_a_frozen_table_stays(encoder: Path) -> None:
    one = WordEncoder(encoder, device="cpu")
    table = one.model.get_input_embeddings().weight.detach().clone()
    pairs = ContrastivePairs(np.array([[0, 0]]), np.array([[1]]), np.array([[1]]))
    tune(one, ["cat", "dog"], ["chat", "chien"], pairs, Tuning(train_table=False, epochs=2))
    assert torch.equal(one.model.get_input_embeddings().weight, table)


def test_the_space_is_the_mixture(
    encoder: Path, sides: tuple[Embeddings, Embeddings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the encoder left as it is: C1 turned onto it by SVD, then the weighted sum."""
    monkeypatch.setattr(mixed, "tune", lambda *_, **__: [])
    seeds = lexicon(sides)
    space = aligner(encoder, weight=0.3).align(*sides, seeds)
    start = Contrastive.preset("supervised", device="cpu", **C1).align(*sides, seeds)
    own = [WordEncoder(encoder, device="cpu").encode(side.words) for side in sides]

    def unit(rows: np.ndarray) -> np.ndarray:
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    used = np.arange(0, WORDS, 2)
    c1 = [unit(side.vectors.astype(np.float64)) for side in (start.source, start.target)]
    theirs = [unit(each.astype(np.float64)) for each in own]
    a = np.concatenate([side[used] for side in c1])
    b = np.concatenate([side[used] for side in theirs])
    left, _, right = np.linalg.svd(a.T @ b, full_matrices=False)
    turn = left @ right  # 12 dimensions into 32
    for side, ours, encoded in zip((space.source, space.target), c1, theirs, strict=True):
        expected = unit(0.7 * ours @ turn + 0.3 * encoded)
        np.testing.assert_allclose(side.vectors, expected, atol=1e-4)


def test_weight_0_ranks_as_c1_and_weight_1_as_the_encoder(
    encoder: Path, sides: tuple[Embeddings, Embeddings]
) -> None:
    seeds = lexicon(sides)
    start = Contrastive.preset("supervised", device="cpu", **C1).align(*sides, seeds)
    plain = aligner(encoder, weight=0.0).align(*sides, seeds)
    np.testing.assert_array_equal(
        plain.retriever.search(3).indices, start.retriever.search(3).indices
    )
    other = aligner(encoder, weight=1.0).align(*sides, seeds)
    assert (other.retriever.search(1).indices != plain.retriever.search(1).indices).any()


def test_an_encoder_narrower_than_the_vectors(tmp_path: Path) -> None:
    narrow = tiny_encoder(tmp_path, hidden_size=8)
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(60, 20)).astype(np.float32)
    words = [f"{a}{b}" for a in "abcdef" for b in "nopqrstuvw"]
    two = (Embeddings(words, vectors), Embeddings([w + "a" for w in words], vectors))
    seeds = Lexicon([(w, w + "a") for w in words[:40]])
    space = aligner(narrow, weight=0.0).align(*two, seeds)
    assert space.dim == 20
    assert (space.retriever.search(1).indices[:, 0] == np.arange(60)).all()


def test_a_killed_run_finds_its_tuned_encoder(
    encoder: Path,
    sides: tuple[Embeddings, Embeddings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = lexicon(sides)
    whole = aligner(encoder).align(*sides, seeds)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WordEncoder, "encode", dies)
        with pytest.raises(KeyboardInterrupt):
            aligner(encoder).align(*sides, seeds, work=tmp_path)
    monkeypatch.setattr(biencoder, "_batch_loss", dies)  # nothing may be tuned again
    space = aligner(encoder).align(*sides, seeds, work=tmp_path)
    np.testing.assert_allclose(space.source.vectors, whole.source.vectors, atol=1e-6)


def test_other_negatives_are_another_encoder(
    encoder: Path, sides: tuple[Embeddings, Embeddings], tmp_path: Path
) -> None:
    """What lies in a work folder was tuned on its own negatives, and serves no other run."""
    seeds = lexicon(sides)
    aligner(encoder, negatives=6).align(*sides, seeds, work=tmp_path)
    found = aligner(encoder, negatives=2).align(*sides, seeds, work=tmp_path)
    assert len(found.settings["losses"]) == 1
    alone = aligner(encoder, negatives=2).align(*sides, seeds)
    np.testing.assert_allclose(found.source.vectors, alone.source.vectors, atol=1e-6)


def test_a_cached_space_has_the_languages_of_the_run(
    sides: tuple[Embeddings, Embeddings], tmp_path: Path
) -> None:
    """A run that was told the wrong language and killed does not name the next one's."""
    first = Contrastive.preset("supervised", device="cpu", **C1)
    source, target = sides
    pairs = lexicon(sides).indices(source, target)
    wrong = Embeddings(source.words, source.vectors, "de")
    assert first.fit_cached(wrong, target, pairs, work=tmp_path).source.language == "de"
    again = first.fit_cached(source, target, pairs, work=tmp_path)
    assert (again.source.language, again.target.language) == ("en", "fr")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"weight": 1.5}, "weight is 1.5; expected a number of at least 0 and at most 1"),
        ({"weight": "much"}, "weight is 'much'"),
        ({"negatives": 0}, "negatives is 0"),
        ({"c1": {"magic": 1}}, "no setting 'magic'"),
        ({"mode": "magic"}, "mode is 'magic'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"epochs": -1}, "epochs is -1"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"seed": -1}, "seed is -1"),
        ({"c1": "abc"}, "c1 is 'abc'; expected a table of settings"),
    ],
)
def test_bad_settings_are_said_at_once(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        EncoderMix(**settings)


def test_c1_is_fitted_once_for_both(
    encoder: Path,
    sides: tuple[Embeddings, Embeddings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C2 takes the C1 space that lies in the work folder, and gives what it would have given."""
    seeds = lexicon(sides)
    alone = aligner(encoder).align(*sides, seeds)
    first = Contrastive.preset("supervised", device="cpu", **C1)
    pairs = seeds.indices(*sides)
    made = first.fit_cached(*sides, pairs, work=tmp_path)

    def again(*_: object, **__: object) -> None:
        raise AssertionError("C1 was fitted a second time")

    monkeypatch.setattr(Contrastive, "fit", again)
    found = aligner(encoder).align(*sides, seeds, work=tmp_path)
    np.testing.assert_allclose(found.source.vectors, alone.source.vectors, atol=1e-6)
    np.testing.assert_array_equal(
        first.fit_cached(*sides, pairs, work=tmp_path).target.vectors, made.target.vectors
    )
    with pytest.raises(AssertionError, match="second time"):  # other seeds, another space
        first.fit_cached(*sides, lexicon(sides, step=3).indices(*sides), work=tmp_path)
