"""Groups of test words, against cases by hand and a loop over all words."""

from __future__ import annotations

import math
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from blicer.breakdown import GROUPS, UNKNOWN, word_groups
from blicer.lexicon import Lexicon


def side(words: list[str]) -> SimpleNamespace:
    return SimpleNamespace(lookup={word: row for row, word in enumerate(words)})


def groups(pairs: list[tuple[str, str]], source: list[str], target: list[str]) -> dict:
    lexicon = Lexicon(pairs)
    found = word_groups(lexicon, side(source), side(target))
    assert list(found) == list(GROUPS)
    for kind, labels in found.items():
        assert set(labels) <= set(GROUPS[kind])
    return {
        word: {kind: labels[at] for kind, labels in found.items()}
        for at, word in enumerate(lexicon.targets)
    }


def test_frequency_bands() -> None:
    rows = (0, 4_999, 5_000, 19_999, 20_000, 49_999, 50_000, 59_999)
    bands = ("1-5k", "1-5k", "5k-20k", "5k-20k", "20k-50k", "20k-50k", "from 50k on", "from 50k on")
    words, others = [f"s{n}" for n in range(60_000)], [f"t{n}" for n in range(60_000)]
    found = groups([(f"s{row}", f"t{row}") for row in rows], words, others)
    for row, band in zip(rows, bands, strict=True):
        assert found[f"s{row}"]["frequency of the word"] == band
        assert found[f"s{row}"]["frequency of the gold"] == band


def test_the_most_frequent_gold_counts_and_unknown_words_are_said() -> None:
    many = [f"t{n}" for n in range(30_000)]
    pairs = [("a", "t25000"), ("a", "t100"), ("a", "nowhere"), ("b", "nowhere"), ("c", "t6000")]
    found = groups(pairs, ["a", "b"], many)
    assert found["a"]["frequency of the gold"] == "1-5k"
    assert found["b"]["frequency of the gold"] == found["b"]["form of the gold"] == UNKNOWN
    assert found["c"]["frequency of the word"] == UNKNOWN
    assert found["c"]["frequency of the gold"] == "5k-20k"


def test_names() -> None:
    source = ["Rose", "rose", "Haus", "paris", "Anna", "2005", "taxi", "May", "may", "will", "Will"]
    target = ["Rosa", "rosa", "house", "Paris", "Анна", "2005", "taxi", "mai", "Mai", "wird"]
    pairs = [
        ("rose", "rosa"),  # both vocabularies have the capitalised form, and more often
        ("Haus", "house"),  # only one side is capitalised
        ("paris", "Paris"),  # the same but for case
        ("Anna", "Анна"),
        ("2005", "2005"),  # no letter
        ("taxi", "taxi"),  # a loan word: the spelling cannot tell
        ("may", "mai"),  # "mai" is more frequent than "Mai"
        ("will", "wird"),
        ("лондон", "london"),
        ("нос", "hoc"),  # the letters look alike, but sound otherwise
    ]
    found = groups(pairs, source, target)
    names = {word for word, labels in found.items() if labels["kind"] == "proper name"}
    assert names == {"rose", "paris", "Anna", "taxi", "лондон"}


def test_inflected_forms_by_hand() -> None:
    target = ["house", "states", "houses", "station", "run", "running", "housekeeping", "дома"]
    pairs = [(f"q{n}", word) for n, word in enumerate(target)]
    found = groups(pairs, [f"q{n}" for n in range(len(target))], target)
    inflected = [
        word
        for labels, word in zip(found.values(), target, strict=True)
        if labels["form of the gold"] == "inflected"
    ]
    # houses: house is 5 of 6. station and states share 4 of 7; running and run only 3 letters;
    # housekeeping and houses share 5 of 12.
    assert inflected == ["houses"]


WORDS = st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=25, unique=True)


@given(words=WORDS)
def test_inflected_forms_by_a_loop(words: list[str]) -> None:
    found = groups([(f"q{n}", word) for n, word in enumerate(words)], ["q0"], words)
    for row, (word, labels) in enumerate(zip(words, found.values(), strict=True)):
        expected = False
        for other in words[:row]:
            common = 0
            while common < min(len(word), len(other)) and word[common] == other[common]:
                common += 1
            wanted = max(4, math.ceil(6 * max(len(word), len(other)) / 10))
            expected |= common >= wanted
        assert labels["form of the gold"] == ("inflected" if expected else "base")
