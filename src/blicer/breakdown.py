"""Groups of test words with separate results (docs/method.md §5).

A mean over a test dictionary hides the results for rare words, names and inflected forms
(Czarnowska et al. 2019; Kementchedjhieva et al. 2019).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from blicer.lexicon import Lexicon, Vocabulary, find_words
from blicer.scorers.spelling import romanise

BANDS = (5_000, 20_000, 50_000)
BAND_NAMES = ("1-5k", "5k-20k", "20k-50k", "from 50k on")
UNKNOWN = "out of vocabulary"
GROUPS = {
    "frequency of the word": (*BAND_NAMES, UNKNOWN),
    "frequency of the gold": (*BAND_NAMES, UNKNOWN),
    "kind": ("proper name", "other"),
    "form of the gold": ("inflected", "base", UNKNOWN),
}


def word_groups(lexicon: Lexicon, source: Vocabulary, target: Vocabulary) -> dict[str, list[str]]:
    """The group of each test word, for every way of grouping (docs/method.md §5).

    Frequency is a word's place in its vocabulary. Of several golds the most frequent one counts.
    Proper names and inflected forms are recognised by spelling alone:

    - proper name: the word is spelled as one of its translations (romanised, if in two scripts) and
      has a letter, or both begin with a capital letter, in the test dictionary or, more frequently
      than without, in the vocabulary. Loan words are taken for names, and where case is folded,
      names that the two languages spell differently are missed.
    - inflected: a more frequent word of the gold's language shares its beginning: at least 4
      letters, and 60 % of the longer one.
    """
    words = list(lexicon.targets)
    rows, gold_rows = (
        find_words(words, source),
        find_words({word for _, word in lexicon.pairs}, target),
    )
    golds = [
        min((gold_rows[one], one) for one in answers if one in gold_rows)
        if any(one in gold_rows for one in answers)
        else None
        for answers in lexicon.targets.values()
    ]
    inflected = _inflected({gold[1]: gold[0] for gold in golds if gold is not None}, target)
    forms = {True: "inflected", False: "base"}
    names = {True: "proper name", False: "other"}
    found = (
        [_band(rows.get(word)) for word in words],
        [_band(None if gold is None else gold[0]) for gold in golds],
        [
            names[any(_is_name(word, one, source, target) for one in answers)]
            for word, answers in lexicon.targets.items()
        ],
        [UNKNOWN if gold is None else forms[gold[1] in inflected] for gold in golds],
    )
    return dict(zip(GROUPS, found, strict=True))


def _band(row: int | None) -> str:
    if row is None:
        return UNKNOWN
    return BAND_NAMES[int(np.searchsorted(BANDS, row, side="right"))]


def _is_name(word: str, gold: str, source: Vocabulary, target: Vocabulary) -> bool:
    two_scripts = set(word).isdisjoint(gold)
    if word.casefold() == gold.casefold() or (two_scripts and romanise(word) == romanise(gold)):
        return any(letter.isalpha() for letter in word)
    return _is_capitalised(word, source) and _is_capitalised(gold, target)


def _is_capitalised(word: str, vocabulary: Vocabulary) -> bool:
    if word[0].isupper():
        return True
    lookup, capitalised = vocabulary.lookup, word[0].upper() + word[1:]
    row = lookup.get(capitalised)
    return row is not None and row < lookup.get(word, len(lookup))


def _inflected(words: Mapping[str, int], vocabulary: Vocabulary) -> set[str]:
    """The words (given with their rows) that begin like a more frequent word."""
    shortest = 4
    alike: dict[str, list[tuple[int, str]]] = {word[:shortest]: [] for word in words}
    for word, row in vocabulary.lookup.items():
        if word[:shortest] in alike:
            alike[word[:shortest]].append((row, word))

    def shares(word: str, other: str) -> bool:
        needed = max(shortest, -(-6 * max(len(word), len(other)) // 10))
        return len(word) >= needed and word[:needed] == other[:needed]

    return {
        word
        for word, row in words.items()
        if any(place < row and shares(word, other) for place, other in alike[word[:shortest]])
    }
