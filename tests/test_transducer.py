"""The transducer: probabilities against a naive recursion, and what it learns from ciphers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.errors import FileError
from blicer.scorers import load_scorer
from blicer.scorers import transducer as module
from blicer.scorers.spelling import Spelling
from blicer.scorers.transducer import Tables, Transducer

GEORGIAN = dict(zip("abcdefghijklmnopqrstuvwxyz", "აბგდევზთიკლმნოპჟრსტუფქღყშჩ", strict=True))


def cipher(word: str) -> str:
    return "".join(GEORGIAN[letter] for letter in word)


def related_words(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Words, and the same in another script with a vowel changed here and there."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    source, target = [], []
    for _ in range(count):
        word = "".join(rng.choice(letters, rng.integers(4, 9)))
        other = word[:-1] if rng.random() < 0.3 else word
        source.append(word)
        target.append(cipher(other))
    return source, target


def pairs_to_learn_from(
    source: list[str], target: list[str], unrelated: float = 0.0
) -> tuple[list[str], list[str], np.ndarray]:
    """Positives (a share of which have nothing in common), and three negatives for each."""
    rng = np.random.default_rng(1)
    target = [
        target[rng.integers(len(target))] if rng.random() < unrelated else word for word in target
    ]
    left, right = list(source), list(target)
    for word in source:
        for _ in range(3):
            left.append(word)
            right.append(target[rng.integers(len(target))])
    return left, right, np.arange(len(left)) < len(source)


def rank_of_own(scorer: Transducer | Spelling, source: list[str], target: list[str]) -> float:
    """P@1 of each source word among all target words."""
    best = [int(scorer.score([word] * len(target), target).argmax()) for word in source]
    return float(np.mean(np.array(best) == np.arange(len(best))))


def test_it_reads_a_script_that_nobody_told_it_of() -> None:
    source, target = related_words(400)
    scorer = Transducer()
    scorer.fit(*pairs_to_learn_from(source[:300], target[:300]))
    assert rank_of_own(scorer, source[300:], target[300:]) > 0.9
    assert rank_of_own(Spelling(), source[300:], target[300:]) < 0.1


def test_unrelated_pairs_among_the_seeds_do_not_spoil_it() -> None:
    source, target = related_words(600)
    scorer = Transducer()
    scorer.fit(*pairs_to_learn_from(source[:500], target[:500], unrelated=0.5))
    assert rank_of_own(scorer, source[500:], target[500:]) > 0.8


def test_where_languages_are_unrelated_all_pairs_score_nearly_the_same() -> None:
    source, target = related_words(600)
    shuffled = [target[i] for i in np.random.default_rng(3).permutation(len(target))]
    scorer = Transducer()
    scorer.fit(*pairs_to_learn_from(source[:500], shuffled[:500]))
    assert np.std(scorer.score(source[500:], shuffled[500:])) < 0.08


def naive(left: list[int], right: list[int], tables: Tables) -> float:
    """Probability of a pair by the recursion that defines it."""

    @cache
    def prefix(i: int, j: int) -> float:
        if i == 0 and j == 0:
            return 1.0
        total = 0.0
        if i and j:
            total += prefix(i - 1, j - 1) * tables.replace[left[i - 1], right[j - 1]]
        if i:
            total += prefix(i - 1, j) * tables.drop[left[i - 1]]
        if j:
            total += prefix(i, j - 1) * tables.add[right[j - 1]]
        return total

    return prefix(len(left), len(right))


def random_tables(seed: int, letters: int = 4) -> Tables:
    rng = np.random.default_rng(seed)
    counts = rng.random(letters * letters + 2 * letters + 1)
    counts /= counts.sum()
    square = letters * letters
    return Tables(
        counts[:square].reshape(letters, letters),
        counts[square : square + letters],
        counts[square + letters : -1],
        float(counts[-1]),
        np.full(letters, 1 / letters),
        np.full(letters, 1 / letters),
    )


words = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=5)


def padded(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [-1] * (width - len(row)) for row in rows])


@settings(max_examples=40, deadline=None)
@given(left=words, seed=st.integers(0, 1000))
def test_probabilities_by_the_naive_recursion(left: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    right = [list(map(int, rng.integers(4, size=rng.integers(1, 6)))) for _ in left]
    tables = random_tables(seed)
    forward, lengths = module._forward(padded(left), padded(right), tables)
    expected = [naive(a, b, tables) for a, b in zip(left, right, strict=True)]
    np.testing.assert_allclose(module._ends(forward, lengths), expected, rtol=1e-9)


def test_expected_counts_are_the_derivative_of_the_log_probability() -> None:
    """d log P / d log p(operation) is how often the operation is used, on average."""
    tables = random_tables(5)
    left, right = [1, 2, 0, 3], [1, 0, 2]
    counts = module._expected_counts(padded([left]), padded([right]), tables, share=1 - 1e-12)
    step = 1e-6
    for a in range(4):
        for b in range(4):
            more = tables.replace.copy()
            more[a, b] *= 1 + step
            moved = Tables(more, tables.drop, tables.add, tables.stop, tables.source, tables.target)
            ratio = naive(left, right, moved) / naive(left, right, tables)
            assert counts[0][a, b] == pytest.approx(np.log(ratio) / step, abs=1e-4)


def test_saved_and_loaded_it_scores_the_same(tmp_path: Path) -> None:
    source, target = related_words(60)
    scorer = Transducer()
    scorer.fit(*pairs_to_learn_from(source, target))
    values = {"name": "transducer", **scorer.save(tmp_path)}
    loaded = load_scorer(tmp_path, values)
    np.testing.assert_array_equal(loaded.score(source, target), scorer.score(source, target))
    (tmp_path / module.FILE).write_bytes(b"damaged")
    with pytest.raises(FileError, match="cannot be read"):
        load_scorer(tmp_path, values)


def test_nothing_to_learn_from_gives_one_score_for_all() -> None:
    scorer = Transducer()
    scorer.fit(["a", "b"], ["c", "d"], np.array([True, True]))
    assert len(set(scorer.score(["a", "x"], ["c", "y"]).tolist())) == 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=4, max_size=12))
def test_any_text_can_be_learned_from_and_scored(pairs: list[tuple[str, str]]) -> None:
    scorer = Transducer()
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    scorer.fit(left, right, np.arange(len(pairs)) % 2 == 0)
    scores = scorer.score(left, right)
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1)).all()
