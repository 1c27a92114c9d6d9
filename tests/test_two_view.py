"""Two views: what is kept, what is chosen, and that held-out pairs stay held out.

600 words seen from two sides (a rotation and noise), and an encoder's view of known quality.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blicer.align import two_view
from blicer.align.base import cross_product, unit_
from blicer.align.space import Space
from blicer.align.two_view import Chain, Learner, TwoView, side_by_side
from blicer.align.vecmap import VecMap, closed_form_maps, shrunk_maps
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import fold_masks, largest_group

WORDS, DIM = 600, 20
Sides = tuple[Embeddings, Embeddings]
QUICK: dict[str, Any] = {"encoder": "none", "descent": "never", "device": "cpu"}


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def noisy_copies(noise: float, seed: int = 0, words: int = WORDS) -> list[np.ndarray]:
    """Two views of the same random words; clusters make some of them hard to tell apart."""
    rng = np.random.default_rng(seed)
    decay = np.exp(-np.arange(DIM) / 10)
    rows = rng.normal(size=(40, DIM))[rng.integers(0, 40, words)] + rng.normal(size=(words, DIM))
    rows = rows * decay
    scale = noise * rows.std()
    return [unit(rows + scale * rng.normal(size=rows.shape)) for _ in range(2)]


def two_languages(noise: float, seed: int = 0) -> Sides:
    left, right = noisy_copies(noise, seed)
    turn = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(DIM, DIM)))[0]
    return (
        Embeddings([f"s{i}" for i in range(len(left))], left),
        Embeddings([f"t{i}" for i in range(len(right))], unit(right @ turn)),
    )


@pytest.fixture(scope="module")
def sides() -> Sides:
    return two_languages(0.5)


ENCODER = "an encoder"  # not `lite`, whose static vectors would know the numbers in these words


def seeds(count: int, start: int = 0) -> np.ndarray:
    """Every word's translation is its own number."""
    numbers = np.random.default_rng(start).permutation(WORDS)[:count]
    return np.stack([numbers, numbers], axis=1)


def precision(space: Space, among: np.ndarray | None = None) -> float:
    best = space.retriever.search(1).indices[:, 0]
    right = best == np.arange(len(best))
    return float((right if among is None else right[among]).mean())


def unseen(pairs: np.ndarray) -> np.ndarray:
    return np.setdiff1d(np.arange(WORDS), pairs[:, 0])


def see(monkeypatch: pytest.MonkeyPatch, left: np.ndarray, right: np.ndarray) -> None:
    """Let the encoder's vectors be these."""
    own = [torch.from_numpy(side) for side in (left, right)]
    monkeypatch.setattr(two_view, "encoder_view", lambda *_: own)


def learner(sides: Sides, chains: list[Chain], **settings: Any) -> Learner:
    return Learner(TwoView(**{**QUICK, **settings}), *sides, chains, None, None)


# -- sides of different dimensions ----------------------------------------------------------------


@pytest.mark.parametrize("wider", ["source", "target"])
@pytest.mark.parametrize("descent", ["never", "always"])
def test_the_wider_side_keeps_what_the_narrower_one_needs(
    monkeypatch: pytest.MonkeyPatch, wider: str, descent: str
) -> None:
    """Twenty loud dimensions that the other side knows nothing of: PCA would keep just these."""
    narrow, quiet = noisy_copies(0.3)
    loud = 3 * np.random.default_rng(5).normal(size=quiet.shape) / np.sqrt(DIM)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(2 * DIM, 2 * DIM)))[0]
    wide = unit(np.hstack([quiet, loud]) @ turn)
    rows = (wide, narrow) if wider == "source" else (narrow, wide)
    source, target = (
        Embeddings([f"{side}{i}" for i in range(WORDS)], own)
        for side, own in zip("st", rows, strict=True)
    )
    known = seeds(200)
    settings = {**QUICK, "rounds": 1, "descent": descent}
    with monkeypatch.context() as patched:  # no PCA where nothing is self-learned
        patched.setattr("blicer.align.base.reduce_by_pca", None)
        space = TwoView(**settings).fit(source, target, known)
    assert space.dim == DIM
    reduced = VecMap().fit(source, target, known)
    found, before = (precision(one, unseen(known)) for one in (space, reduced))
    assert found > 0.4 > 2 * before


# -- seeds ----------------------------------------------------------------------------------------


def test_seeds_are_kept_also_where_the_vectors_contradict_them(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every dictionary that a map is fitted on has all of them, and no other pair of theirs."""
    known = seeds(60)
    known[:10, 1] = np.roll(known[:10, 1], 1)
    fitted: list[np.ndarray] = []

    def spy(x: Any, y: Any, pairs: torch.Tensor, *rest: Any) -> Any:
        fitted.append(pairs.numpy())
        return shrunk_maps(x, y, pairs, *rest)

    monkeypatch.setattr(two_view, "shrunk_maps", spy)
    TwoView(**QUICK).fit(*sides, known)
    whole = [pairs for pairs in fitted if len(np.unique(pairs[:60], axis=0)) == 60]
    whole = [pairs for pairs in whole if (pairs[:60] == known).all()]
    assert len(whole) >= 3  # the start, and some rounds
    for pairs in whole:
        mined = pairs[60:]
        for side in (0, 1):
            assert not set(mined[:, side]) & set(known[:, side])
    assert max(map(len, whole)) > 300


@pytest.mark.parametrize("count", [1, 4, 22])
def test_few_seeds(sides: Sides, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, *noisy_copies(0.3, seed=7))
    space = TwoView(descent="never", device="cpu").fit(*sides, seeds(count))
    assert np.isfinite(space.source.vectors).all()
    assert precision(space, unseen(seeds(count))) > 0.9
    assert space.settings["seed_pairs"] == count
    # 10 pairs are 20 questions in both directions: below that nothing is decided by them.
    assert space.settings.get("converged") == (True if count < 10 else None)
    assert space.settings["held_out_words"] == (0 if count < 10 else 2 * count)


def test_no_seeds(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, *noisy_copies(0.3, seed=7))
    space = TwoView(device="cpu").fit(*sides, None)
    assert (space.settings["converged"], space.settings["start"]) == (True, "encoder")
    assert (space.settings["seed_pairs"], space.settings["held_out_precision"]) == (0, None)
    assert precision(space) > 0.9
    with pytest.raises(InputError, match="share no word"):
        TwoView(**QUICK, init="identical").fit(*sides, None)


@pytest.mark.parametrize("poor", [0.0, 2.0])
def test_self_learning_is_tried_where_rounds_lead_nowhere(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, poor: float
) -> None:
    monkeypatch.setattr(two_view, "POOR", poor)
    tried: list[Any] = []
    own = VecMap.self_learn
    monkeypatch.setattr(VecMap, "self_learn", lambda *a, **k: tried.append(a) or own(*a, **k))
    space = TwoView(**QUICK, rounds=1).fit(*sides, seeds(20))
    assert bool(tried) == (poor > 0)
    assert (space.settings["start"] == "self-learning") == (poor > 0)  # it needs no second round
    assert (precision(space) > 0.7) == (poor > 0)


def test_rounds_help_where_seeds_are_few(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_view, "POOR", 0.0)  # no self-learning
    known = seeds(20)
    before, after = (
        precision(TwoView(**QUICK, rounds=rounds).fit(*sides, known), unseen(known))
        for rounds in (0, 8)
    )
    assert after > before + 0.05


@pytest.mark.parametrize(
    ("few", "wrong", "kept"), [(True, 42, True), (True, 90, False), (False, 42, False)]
)
def test_where_seeds_are_few_rounds_count_unless_they_harm(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, few: bool, wrong: int, kept: bool
) -> None:
    """Each later round has two, or fifty, of 100 answers wrong that were right before."""
    known = seeds(100)
    held = Chain(known[50:], known[:50], known[:0])
    one = learner(sides, [held, Chain(known, known[:0], known[:0])], rounds=2, words=WORDS)
    one.few = few
    for chain in one.chains:
        one._fit_maps(chain, chain.mined)
    first = one.choice = replace(one.choice, ranks=[1] * 60 + [2] * 40)
    ranks = iter([[1] * 61 + [2] * 39, *[[1] * (100 - wrong) + [2] * wrong] * 3])
    monkeypatch.setattr(one, "_evaluate", lambda: replace(first, ranks=next(ranks)))
    one._rounds()
    assert (one.choice.ranks.count(2) == wrong) is kept


# -- the encoder's weight -------------------------------------------------------------------------


def test_a_useless_view_weighs_nothing(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    known = seeds(100)
    alone = TwoView(**QUICK).fit(*sides, known)
    left, right = noisy_copies(0.5, seed=3)
    see(monkeypatch, left, right[np.random.default_rng(0).permutation(WORDS)])
    space = TwoView(**{**QUICK, "encoder": ENCODER}).fit(*sides, known)
    assert space.settings["chosen_weight"] == 0
    assert space.dim == alone.dim == DIM
    np.testing.assert_array_equal(space.source.vectors, alone.source.vectors)


@pytest.mark.parametrize("knows", [True, False])
def test_weights_begin_with_the_usual_ones_and_only_clear_gains_change_them(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    noise = 0.1 if knows else 9.0
    see(monkeypatch, *noisy_copies(noise, seed=3))
    known = seeds(75)
    one = learner(
        sides,
        [Chain(known[50:], known[:50], known[:0]), Chain(known, known[:0], known[:0])],
        encoder=ENCODER,
    )
    for chain in one.chains:
        one._fit_maps(chain, chain.mined)
    with monkeypatch.context() as patched:
        patched.setattr(two_view, "clear_gain", lambda *_: False)
        found = one._evaluate().weights
    assert found == ([two_view.USUAL[two_view.MAPPED], 0.0] if knows else [0.0, 0.0])
    assert (one._evaluate().weights != found) == knows  # knowing more than usual, it weighs more


@pytest.mark.parametrize(("worse", "kept"), [(False, True), (True, False)])
def test_contrastive_steps_are_kept_unless_clearly_worse(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, worse: bool, kept: bool
) -> None:
    monkeypatch.setattr(two_view, "clear_gain", lambda better, other: worse)
    space = TwoView(**{**QUICK, "descent": "auto", "rounds": 1}).fit(*sides, seeds(100))
    assert space.settings["descended"] is kept


def test_a_good_view_helps(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    known = seeds(100)
    alone = TwoView(**QUICK).fit(*sides, known)
    see(monkeypatch, *noisy_copies(0.5, seed=3))
    space = TwoView(**{**QUICK, "encoder": ENCODER}).fit(*sides, known)
    assert 0 < space.settings["chosen_weight"] < np.inf
    assert space.dim > DIM
    assert precision(space, unseen(known)) > precision(alone, unseen(known))
    weights = space.settings["chosen_weights"]
    assert list(weights) == ["mapped encoder", "encoder"]
    assert set(weights.values()) <= set(two_view.WEIGHTS)


@pytest.mark.parametrize("rounds", [0, 1])
def test_the_encoder_alone_may_start_but_is_never_the_space(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors that say nothing beside a view that says all: the weight stays finite."""
    left, right = noisy_copies(0.5)
    noise = np.random.default_rng(0).permutation(WORDS)
    sides = (
        Embeddings([f"s{i}" for i in range(WORDS)], left),
        Embeddings([f"t{i}" for i in range(WORDS)], right[noise]),
    )
    see(monkeypatch, *noisy_copies(0.1, seed=3))
    space = TwoView(descent="never", device="cpu", rounds=rounds).fit(*sides, seeds(40))
    assert 0 < space.settings["chosen_weight"] < np.inf
    assert np.isfinite(space.source.vectors).all()


def test_a_given_weight_is_taken(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, *noisy_copies(0.5, seed=3))
    space = TwoView(descent="never", device="cpu", weight=0.7, rounds=1).fit(*sides, seeds(100))
    assert space.settings["chosen_weight"] == 0.7
    lengths = [
        np.linalg.norm(space.source.vectors[:, part], axis=1)
        for part in (slice(0, DIM), slice(DIM, None))
    ]
    np.testing.assert_allclose(lengths[1] / lengths[0], 0.7, rtol=1e-5)


def test_side_by_side_is_a_weighted_mean_of_cosines() -> None:
    views = [[torch.from_numpy(side) for side in noisy_copies(0.5, seed)] for seed in (0, 1)]
    weight = 0.6
    left, right = side_by_side(views, [1.0, weight])
    first, second = ((one * other).sum(dim=1) for one, other in views)
    expected = (first + weight**2 * second) / (1 + weight**2)
    torch.testing.assert_close((left * right).sum(dim=1), expected)


# -- evidence -------------------------------------------------------------------------------------


def test_ranks_by_a_naive_loop(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, *noisy_copies(0.8, seed=3))
    known, held = seeds(200)[:150], seeds(200)[150:]
    held = np.concatenate([held, np.stack([held[:5, 0], (held[:5, 1] + 1) % WORDS], axis=1)])
    chain = Chain(known, held, known[:0])
    weights = ((0.0, 0.0), (0.5, 0.0), (0.7, 1.4), (0.0, np.inf))
    found = learner(sides, [chain], encoder=ENCODER)
    found._fit_maps(chain, known[:0])
    views = [[found.mapped(chain, side).numpy() for side in (0, 1)]]
    views.append([side.numpy() for side in found.view(chain, "mapped encoder")])
    views.append([side.numpy() for side in found.view(chain, "encoder")])
    expected: list[list[int]] = []
    for weight in weights:
        shares = np.array([1.0, weight[0] ** 2, weight[1] ** 2])
        shares = np.array([0.0, 0.0, 1.0]) if np.inf in weight else shares / shares.sum()
        ranks = []
        for one, other in ((0, 1), (1, 0)):
            scores = np.zeros((WORDS, WORDS))
            for part, view in zip(shares, views, strict=True):
                cosine = view[one] @ view[other].T
                near = np.sort(cosine, axis=0)[-two_view.HUBS :].mean(axis=0)
                scores += part * (2 * cosine - near)
            for word in dict.fromkeys(held[:, one].tolist()):  # in this order
                golds = held[held[:, one] == word, other]
                best = max(scores[word, gold] for gold in golds)
                wrong = [t for t in range(WORDS) if t not in golds]
                ranks.append(1 + sum(scores[word, t] > best for t in wrong))
        expected.append(ranks)
    asked = list(found._contenders(chain))
    ours = np.stack([two_view.ranks(asked, weight) for weight in weights])
    assert ours.shape == (4, len(expected[0]))
    # float32 against float64: a near tie may fall the other way.
    # Beyond the contenders of all views ranks are cut off.
    near = np.array(expected) <= two_view.CONTENDERS // 2
    assert near.mean() > 0.5
    assert (np.abs(ours - np.array(expected))[near] <= 1).all()
    assert (ours == np.array(expected))[near].mean() > 0.99
    assert (ours[~near] > two_view.CONTENDERS // 2 - 1).all()


def test_held_out_pairs_reach_no_map_of_their_fold(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the choices fixed, wrong held-out pairs change the space of all seeds alone."""
    monkeypatch.setattr(two_view, "FEW_SEEDS", 0)  # the start is not a choice either
    see(monkeypatch, *noisy_copies(0.5, seed=3))
    known = seeds(120)
    (mask, *_) = masks = fold_masks(known, 3)
    corrupted = known.copy()
    corrupted[mask, 1] = np.roll(known[mask, 1], 1)
    fixed = TwoView(weight=0.5, rounds=1, descent="never", device="cpu")
    first, second, _, whole = fixed.fit_folds(*sides, known, masks)
    again, other, _, spoiled = fixed.fit_folds(*sides, corrupted, masks)
    for side in ("source", "target"):
        ours, theirs = (getattr(space, side).vectors for space in (first, again))
        np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(second.source.vectors, other.source.vectors)
    assert not np.array_equal(whole.source.vectors, spoiled.source.vectors)


def test_folds_too_small_for_evidence_have_their_own_maps_too(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, *noisy_copies(0.5, seed=3))
    monkeypatch.setattr(VecMap, "verdict", lambda *_, **__: {"converged": True})
    known = seeds(30)
    mask = np.arange(30) < 5  # 10 questions
    corrupted = known.copy()
    corrupted[mask, 1] = np.roll(known[mask, 1], 1)
    aligner = TwoView(device="cpu")
    one, whole = aligner.fit_folds(*sides, known, [mask])
    other, spoiled = aligner.fit_folds(*sides, corrupted, [mask])
    np.testing.assert_array_equal(one.source.vectors, other.source.vectors)
    assert not np.array_equal(whole.source.vectors, spoiled.source.vectors)
    assert precision(one) > 0.9


def test_without_held_out_parts_it_has_folds_of_its_own(sides: Sides) -> None:
    (space,) = TwoView(**QUICK).fit_folds(*sides, seeds(100), [])
    assert space.settings["held_out_words"] == 200
    expected = TwoView(**QUICK).fit(*sides, seeds(100))
    np.testing.assert_array_equal(space.target.vectors, expected.target.vectors)


# -- going on after a kill ------------------------------------------------------------------------


def test_a_killed_run_goes_on_and_ends_bit_equal(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aligner = TwoView(encoder="none", descent="always", device="cpu")
    known = seeds(100)
    masks = fold_masks(known, 2)
    whole = list(aligner.fit_folds(*sides, known, masks, work=tmp_path / "a"))
    descend, mine = Learner._descend, Learner._mine

    def dies(self: Learner) -> None:
        monkeypatch.setattr(Learner, "_descend", descend)
        raise KeyboardInterrupt

    monkeypatch.setattr(Learner, "_descend", dies)
    with pytest.raises(KeyboardInterrupt):
        list(aligner.fit_folds(*sides, known, masks, work=tmp_path / "b"))
    mined: list[int] = []

    def watched(self: Learner, *given: Any) -> Any:
        mined.append(1)
        return mine(self, *given)

    monkeypatch.setattr(Learner, "_mine", watched)
    again = list(aligner.fit_folds(*sides, known, masks, work=tmp_path / "b"))
    assert not mined  # the rounds were finished
    for one, other in zip(whole, again, strict=True):
        np.testing.assert_array_equal(one.source.vectors, other.source.vectors)
        np.testing.assert_array_equal(one.target.vectors, other.target.vectors)
        assert one.settings == other.settings
        assert one.settings["descended"] is True


# -- what the steps are made of -------------------------------------------------------------------


def test_shrunk_maps_without_shrinking_are_the_closed_form(sides: Sides) -> None:
    x, y = (torch.from_numpy(side.vectors) for side in sides)
    pairs = torch.from_numpy(seeds(300))
    nothing = [torch.zeros(DIM, DIM, dtype=torch.float64)] * 2
    closed = closed_form_maps(x, y, pairs)
    for ours, side, theirs in zip(
        shrunk_maps(x, y, pairs, nothing, 0.0), (x, y), closed, strict=True
    ):
        assert theirs is not None
        rows, expected = unit_(side.double() @ ours), unit_(side.double() @ theirs)
        # Both have their scale and the signs of their directions free; cosines are theirs.
        torch.testing.assert_close(rows @ rows.T, expected @ expected.T, atol=1e-6, rtol=0)


def test_all_shrunk_whitens_by_all_words(sides: Sides) -> None:
    """With share 1 and every word a pair of itself, both ways are one."""
    x, y = (torch.from_numpy(side.vectors) for side in sides)
    pairs = torch.from_numpy(np.sort(seeds(WORDS), axis=0))
    own = [cross_product(side, side) / WORDS for side in (x, y)]
    for ours, theirs in zip(
        shrunk_maps(x, y, pairs, own, 1.0), shrunk_maps(x, y, pairs, own, 0.0), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    one = shrunk_maps(x, y, pairs[:1], own, 0.2)  # fewer pairs than dimensions
    assert all(torch.isfinite(weights).all() for weights in one)


pairs_of_words = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=2, max_size=40
).map(lambda pairs: np.array(pairs, dtype=np.int64))


@given(pairs_of_words, st.integers(2, 5), st.integers(0, 3))
def test_every_source_word_is_held_out_once(pairs: np.ndarray, folds: int, seed: int) -> None:
    masks = fold_masks(pairs, folds, seed)
    words = np.unique(pairs[:, 0])
    if len(words) == 1:
        assert not masks  # nothing would be left
        return
    assert 2 <= len(masks) <= folds
    assert (np.sum(masks, axis=0) == 1).all()
    apart = largest_group(pairs) <= max(1, len(words) / folds)
    for mask in masks:
        assert not set(pairs[mask, 0]) & set(pairs[~mask, 0])
        if apart:
            assert not set(pairs[mask, 1]) & set(pairs[~mask, 1])
