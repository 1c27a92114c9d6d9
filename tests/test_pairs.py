"""The training set, against naive loops over small random spaces and hand-computed values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.config import Config
from blicer.errors import InputError
from blicer.neighbours.mining import as_pairs, first_occurrences, interleave, silver_pairs
from blicer.training_pairs import (
    KINDS,
    NEGATIVE,
    SEED,
    SILVER,
    Examples,
    Scaling,
    TrainingPairs,
    build_pairs,
    fit_scaling,
    polarise,
)


class Found(NamedTuple):
    indices: np.ndarray
    scores: np.ndarray


class NaiveRetriever:
    """The retrieval engine's contract, by whole matrices and full sorts."""

    def __init__(self, source: np.ndarray, target: np.ndarray, k_csls: int = 10) -> None:
        self.source, self.target = source, target
        unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (source, target)]
        cosine = unit[0] @ unit[1].T
        r_source = np.sort(cosine, axis=1)[:, -min(k_csls, len(target)) :].mean(1, keepdims=True)
        r_target = np.sort(cosine, axis=0)[-min(k_csls, len(source)) :].mean(0, keepdims=True)
        self.matrix = {
            ("csls", False): 2 * cosine - r_source - r_target,
            ("csls", True): (2 * cosine - r_source - r_target).T,
            ("csls_candidate", False): 2 * cosine - r_target,
            ("csls_candidate", True): (2 * cosine - r_source).T,
        }

    def search(
        self,
        k: int,
        queries: np.ndarray,
        *,
        measure: str = "csls",
        reverse: bool = False,
        limit: None = None,
    ) -> Found:
        scores = self.matrix[measure, reverse].astype(np.float32)[queries]
        indices = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return Found(indices, np.take_along_axis(scores, indices, 1))

    def score(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        return self.matrix["csls", False].astype(np.float32)[source, target]


def random_retriever(seed: int, n_source: int, n_target: int, dim: int = 3) -> Any:
    generator = np.random.default_rng(seed)
    return NaiveRetriever(
        generator.standard_normal((n_source, dim)), generator.standard_normal((n_target, dim)), 3
    )


def ranked(retriever: Any, word: int, measure: str, reverse: bool) -> list[tuple[float, int]]:
    """All candidates of a word, best first, ties in order of frequency."""
    row = retriever.matrix[measure, reverse].astype(np.float32)[word]
    return sorted(((float(score), index) for index, score in enumerate(row)), key=lambda s: -s[0])


def naive_silver(
    retriever: Any, taken: list[tuple[int, int]], n_aug: int, n_freq: int, n_aug_pool: int
) -> list[tuple[int, int]]:
    lists = []
    for reverse in (False, True):
        best = []
        for word in range(min(n_freq, len(retriever.target if reverse else retriever.source))):
            score, match = ranked(retriever, word, "csls_candidate", reverse)[0]
            best.append((score, (match, word) if reverse else (word, match)))
        best.sort(key=lambda item: -item[0])
        lists.append([pair for _, pair in best[:n_aug_pool]])
    result: list[tuple[int, int]] = []
    for rank in range(max(map(len, lists))):
        for pairs in lists:
            if rank >= len(pairs) or len(result) == n_aug:
                continue
            x, y = pairs[rank]
            seen = any(x == other or y == y_other for other, y_other in taken)
            if not seen and (x, y) not in result:
                result.append((x, y))
    return result


def naive_pairs(
    retriever: Any, positives: list[tuple[int, int]], config: Config
) -> tuple[dict[tuple[int, int], float], list[tuple[int, int]], float, float]:
    """Labels of all pairs, the negatives in no order, and the pool's least and greatest score."""
    csls = retriever.matrix["csls", False].astype(np.float32).astype(float)
    near: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for x, y in positives:
        targets = [j for _, j in ranked(retriever, x, "csls", False) if j != y][: config.n_neg]
        sources = [i for _, i in ranked(retriever, y, "csls", True) if i != x][: config.n_neg]
        near[x, y] = [(x, j) for j in targets] + [(i, y) for i in sources]
    pool = [csls[pair] for pair in positives]
    pool += [csls[pair] for pairs in near.values() for pair in pairs]
    low, high = min(pool), max(pool)

    def scale(pair: tuple[int, int]) -> float:
        return float((csls[pair] - low) / (high - low))

    negatives: list[tuple[int, int]] = []
    for positive, pairs in near.items():
        for pair in pairs:
            hard = scale(pair) >= scale(positive) - config.delta
            if hard and pair not in positives and pair not in negatives:
                negatives.append(pair)
    labels = {pair: config.alpha * scale(pair) - config.alpha + 1 for pair in positives}
    labels.update({pair: config.alpha * scale(pair) for pair in negatives})
    return labels, negatives, low, high


def rows(built: TrainingPairs, *kinds: int) -> list[tuple[int, int]]:
    chosen = np.isin(built.kind, kinds)
    return list(zip(built.source[chosen].tolist(), built.target[chosen].tolist(), strict=True))


sizes = st.integers(4, 12)
# Seeds repeat, and words have several translations, because words are drawn from a few.
seed_lists = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    n_source=sizes,
    n_target=sizes,
    seeds=seed_lists,
    n_neg=st.integers(1, 13),
    # Not a value that a difference of two scores hits exactly.
    delta=st.sampled_from([0.0123, 0.1017, 0.2034, 0.51, 3.0]),
    alpha=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    n_rep=st.integers(0, 4),
    n_aug=st.integers(0, 6),
)
def test_build_pairs_against_a_naive_loop(
    seed: int,
    n_source: int,
    n_target: int,
    seeds: list[tuple[int, int]],
    n_neg: int,
    delta: float,
    alpha: float,
    n_rep: int,
    n_aug: int,
) -> None:
    retriever = random_retriever(seed, n_source, n_target)
    config = Config.resolve(
        overrides={"n_neg": n_neg, "delta": delta, "alpha": alpha, "n_rep": n_rep, "n_aug": n_aug}
        | {"n_freq": 8, "n_aug_pool": 5}
    )
    gold = list(dict.fromkeys(seeds))
    silver = naive_silver(retriever, gold, n_aug, 8, 5) if n_aug else []
    if not gold + silver:
        with pytest.raises(InputError, match="nothing to train on"):
            build_pairs(retriever, np.array(seeds), config)
        return
    built = build_pairs(retriever, np.array(seeds), config)
    labels, negatives, low, high = naive_pairs(retriever, gold + silver, config)

    assert rows(built, SEED) == gold
    assert rows(built, SILVER) == silver
    found = rows(built, NEGATIVE)
    assert len(found) == len(set(found))
    assert set(found) == set(negatives)
    assert not set(found) & set(gold + silver)
    everything = rows(built, SEED, SILVER, NEGATIVE)
    assert built.label.tolist() == pytest.approx([labels[pair] for pair in everything], abs=1e-5)
    assert built.label.min() >= 0
    assert built.label.max() <= 1
    assert built.is_positive.tolist() == [pair in gold + silver for pair in everything]
    assert built.weight.tolist() == [1 + n_rep if p in gold + silver else 1 for p in everything]
    assert float(built.scaling(low)) == pytest.approx(0, abs=1e-6)
    assert float(built.scaling(high)) == pytest.approx(1, abs=1e-6)
    report = built.report
    assert (report.seeds, report.silver, report.negatives) == (
        len(gold),
        len(silver),
        len(negatives),
    )
    assert report.seeds_repeated == len(seeds) - len(gold)
    candidates = sum(
        min(n_neg, n_target - 1) + min(n_neg, n_source - 1) for _ in range(len(gold + silver))
    )
    left_out = report.below_delta + report.in_positives + report.negatives_repeated
    assert report.negatives + left_out == candidates


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    n_source=sizes,
    n_target=sizes,
    taken=seed_lists,
    n_aug=st.integers(0, 9),
    n_freq=st.integers(1, 14),
    n_aug_pool=st.integers(1, 14),
)
def test_the_silver_walk_against_a_naive_loop(
    seed: int,
    n_source: int,
    n_target: int,
    taken: list[tuple[int, int]],
    n_aug: int,
    n_freq: int,
    n_aug_pool: int,
) -> None:
    retriever = random_retriever(seed, n_source, n_target)
    found = silver_pairs(
        retriever,
        as_pairs(taken, n_source, n_target),
        n_aug=n_aug,
        n_freq=n_freq,
        n_aug_pool=n_aug_pool,
    )
    expected = naive_silver(retriever, taken, n_aug, n_freq, n_aug_pool)
    assert [tuple(pair) for pair in found.tolist()] == expected


def test_the_engine_gives_the_same_set_as_the_naive_one() -> None:
    from blicer.neighbours.retriever import Retriever

    generator = np.random.default_rng(5)
    source = generator.standard_normal((90, 8)).astype(np.float32)
    target = source[:70] + 0.4 * generator.standard_normal((70, 8)).astype(np.float32)
    seeds = np.column_stack([np.arange(20), np.arange(20)])
    config = Config.resolve(
        overrides={"n_neg": 7, "n_aug": 15, "n_freq": 60, "n_aug_pool": 25, "n_rep": 2}
    )
    engine = Retriever(source, target, k_csls=10, device="cpu")
    built = build_pairs(engine, seeds, config)
    naive = build_pairs(NaiveRetriever(source, target, 10), seeds, config)  # type: ignore[arg-type]
    assert rows(built, SEED, SILVER) == rows(naive, SEED, SILVER)
    assert set(rows(built, NEGATIVE)) == set(rows(naive, NEGATIVE))
    assert len(rows(built, SILVER)) == 15
    label = dict(zip(rows(naive, SEED, SILVER, NEGATIVE), naive.label.tolist(), strict=True))
    expected = [label[pair] for pair in rows(built, SEED, SILVER, NEGATIVE)]
    assert built.label.tolist() == pytest.approx(expected, abs=1e-4)


def test_polarise_by_hand() -> None:
    scaled = np.array([0.0, 0.5, 1.0, 0.0, 0.5, 1.0])
    positive = np.array([True, True, True, False, False, False])
    labels = polarise(scaled, positive, 0.7)
    assert labels.tolist() == pytest.approx([0.3, 0.65, 1.0, 0.0, 0.35, 0.7])
    assert polarise(scaled, positive, 1.0).tolist() == pytest.approx([0, 0.5, 1, 0, 0.5, 1])
    assert polarise(scaled, positive, 0.0).tolist() == [1, 1, 1, 0, 0, 0]
    assert polarise(np.array([1.2, -0.2]), np.array([True, False]), 1.0).tolist() == [1, 0]


def test_scaling_by_hand() -> None:
    scaling = fit_scaling(np.array([-1.0, 0.0]), np.array([[3.0, 1.0]]))
    assert (scaling.slope, scaling.intercept) == (0.25, 0.25)
    # The same map on other scores, not clipped.
    assert scaling([5.0, -3.0]).tolist() == [1.5, -0.5]
    assert Scaling.from_dict(scaling.to_dict()) == scaling


def test_scaling_without_spread_keeps_the_order() -> None:
    scaling = fit_scaling(np.full(5, 0.3, np.float32))
    assert float(scaling(np.float32(0.3))) == pytest.approx(0.5)
    assert scaling(0.4) > scaling(0.3)


def test_scaling_refuses_what_it_cannot_scale() -> None:
    with pytest.raises(InputError, match="1 of 2 similarities are not finite"):
        fit_scaling(np.array([1.0, np.nan]))


def test_interleave_and_first_occurrences_by_hand() -> None:
    first = np.array([[1, 1], [2, 2], [3, 3]])
    second = np.array([[4, 4]])
    assert interleave(first, second)[:, 0].tolist() == [1, 4, 2, 3]
    assert first_occurrences(np.array([7, 3, 7, 9, 3])).tolist() == [0, 1, 3]


def small_set() -> TrainingPairs:
    return build_pairs(
        random_retriever(1, 6, 5),
        np.array([[0, 0], [0, 1], [2, 2]]),
        Config.resolve(overrides={"n_rep": 2, "n_neg": 2}),
    )


def naive_examples(built: TrainingPairs) -> list[tuple[str, str, float]]:
    expected = []
    for x, y, label, weight in zip(
        built.source, built.target, built.label, built.weight, strict=True
    ):
        left, right = f"s{x} (english)!", f"t{y} (français)!"
        expected += [(left, right, float(label)), (right, left, float(label))] * int(weight)
    return expected


def listed(shown: Examples) -> list[tuple[str, str, float]]:
    return list(zip(shown.left, shown.right, shown.labels.tolist(), strict=True))


def test_examples_are_repeated_and_in_both_orders() -> None:
    built = small_set()
    words = [f"s{i}" for i in range(6)], [f"t{i}" for i in range(5)]
    names = ("english", "français")
    shown = built.examples(*words, "T15", names)
    assert sorted(listed(shown)) == sorted(naive_examples(built))
    assert len(shown) == built.report.examples == 2 * int(built.weight.sum())
    assert set(shown.weights.tolist()) == {1.0}

    once = built.examples(*words, "T15", names, repeat=False)
    assert len(once) == 2 * len(built)
    by_weight = [e for e, w in zip(listed(once), once.weights, strict=True) for _ in range(int(w))]
    assert sorted(by_weight) == sorted(naive_examples(built))
    both: Examples = Examples.joined([shown, once])
    assert listed(both) == [*listed(shown), *listed(once)]
    assert len(both.weights) == len(both)


def test_reserved_words_are_not_in_silver_pairs() -> None:
    retriever = random_retriever(3, 12, 12)
    config = Config.resolve("unsupervised", overrides={"n_aug": 6})
    free = build_pairs(retriever, None, config)
    held = np.array(rows(free, SILVER)[:2])
    built = build_pairs(retriever, None, config, reserved=held)
    kept = np.array(rows(built, SILVER))
    assert not np.isin(kept[:, 0], held[:, 0]).any()
    assert not np.isin(kept[:, 1], held[:, 1]).any()
    assert rows(built, SILVER) == naive_silver(
        retriever, [tuple(pair) for pair in held.tolist()], 6, 20000, 6000
    )


def test_the_same_input_gives_the_same_arrays() -> None:
    first, second = small_set(), small_set()
    for name in ("source", "target", "score", "scaled", "label", "kind", "weight"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert [KINDS[kind] for kind in first.kind[:3]] == ["seed"] * 3


def test_one_word_a_side_has_no_negative() -> None:
    built = build_pairs(random_retriever(0, 1, 1), np.array([[0, 0]]), Config.resolve())
    assert len(built) == 1
    assert built.scaled.tolist() == [0.5]


@pytest.mark.parametrize(
    ("seeds", "sentence"),
    [
        (np.zeros((3, 3), int), "expected an \\(n, 2\\) array"),
        (np.zeros((3, 2)), "float64"),
        (np.array([[0, 9]]), "seed \\[0, 9\\] is outside the vocabularies.* 6 source and 5 target"),
        (np.array([[-1, 0]]), "outside"),
        (None, "nothing to train on"),
        (np.zeros((0, 2), int), "nothing to train on"),
    ],
)
def test_bad_seeds(seeds: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build_pairs(random_retriever(1, 6, 5), seeds, Config.resolve())


def test_repeated_seeds_are_reported() -> None:
    seeds = np.array([[0, 0], [0, 0]])
    built = build_pairs(random_retriever(1, 6, 5), seeds, Config.resolve())
    assert "1 seeds (1 repeated ones dropped)" in built.report.lines()[0]


def test_pairs_known_to_be_wrong_are_negatives_and_never_silver() -> None:
    retriever = random_retriever(3, 40, 35)
    config = Config.resolve("unsupervised", overrides={"n_aug": 12, "n_freq": 40, "n_neg": 3})
    free = build_pairs(retriever, None, config)
    best, known = rows(free, SILVER)[0], set(rows(free, SEED, SILVER, NEGATIVE))
    far = next((x, y) for x in range(40) for y in range(35) if (x, y) not in known)
    built = build_pairs(retriever, None, config, wrong=np.array([best, far, far]))
    assert {best, far} <= set(rows(built, NEGATIVE))
    assert best not in rows(built, SILVER)
    assert rows(built, NEGATIVE).count(far) == 1
    at = rows(built, SEED, SILVER, NEGATIVE).index(far)
    expected = retriever.score(np.array([far[0]]), np.array([far[1]]))
    np.testing.assert_allclose(built.score[at], expected[0], rtol=1e-5)
    assert not free.is_of_seeds.any()
    # Without silver pairs a wrong pair of other words is one of those that somebody has checked.
    supervised = Config.resolve(overrides={"n_neg": 3})
    checked = build_pairs(retriever, np.array([best]), supervised, wrong=np.array([far]))
    assert far in rows(checked, NEGATIVE)
    assert checked.is_of_seeds.all()
    # A seed is right, whatever else is said of it.
    taught = build_pairs(retriever, np.array([far]), config, wrong=np.array([far]))
    assert far in rows(taught, SEED)
    assert far not in rows(taught, NEGATIVE)
