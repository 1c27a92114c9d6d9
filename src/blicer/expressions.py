"""Words outside the vocabulary: near spellings, and expressions composed of known parts."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import product
from math import prod

from blicer.lexicon import Lexicon, Vocabulary, spellings_of

SUGGESTED_FROM = 50_000  # most frequent words; rarer ones are seldom meant and often typos
SUGGESTIONS = 3
MOST_PARTS = 5
PART_TRANSLATIONS = 3  # of each part, that are combined
DISCOUNT = 0.5
"""The confidence of a composed translation is half the product of its parts': many expressions mean
something else (*ice cream*), and the seeds do not tell how many."""

Sure = tuple[str, float]  # a translation and its confidence, or its score


def fold(text: str) -> str:
    """The text without case and accents."""
    apart = unicodedata.normalize("NFKD", text)
    return "".join(one for one in apart if not unicodedata.combining(one)).casefold()


class Spellings:
    """Finds words of a vocabulary that a misspelt word may stand for."""

    def __init__(self, words: Sequence[str]) -> None:
        self.same: defaultdict[str, list[str]] = defaultdict(list)
        self.alike: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for place, word in enumerate(words):
            folded = fold(word)
            self.same[folded].append(word)
            if place < SUGGESTED_FROM:
                self.alike[folded[:1], len(folded)].append(folded)

    def near(self, word: str) -> list[str]:
        """Words that differ in accents only, then near ones with the same first letter."""
        folded = fold(word.strip())
        lengths = range(len(folded) - 1, len(folded) + 2)
        begin = [one for length in lengths for one in self.alike.get((folded[:1], length), ())]
        close = get_close_matches(folded, dict.fromkeys(begin), n=SUGGESTIONS, cutoff=0.75)
        found = [one for key in (folded, *close) for one in self.same.get(key, ())]
        return [one for one in dict.fromkeys(found) if one != word][:SUGGESTIONS]


def parts_of(expression: str) -> list[str]:
    """The words of an expression; none if it is one word, or too many."""
    parts = [part for part in re.split(r"[\s_-]+", expression) if part]
    return parts if 2 <= len(parts) <= MOST_PARTS else []


def compose(parts: Sequence[Sequence[Sure]], seeds: Lexicon, offered: Vocabulary) -> list[Sure]:
    """Translations of an expression from those of its parts, best first.

    They are joined in order, or reversed if ``swaps``; the confidence is the product of the parts'
    times ``DISCOUNT``. Expressions of the target vocabulary, in either order, come first, in its
    spelling.
    """
    step = -1 if swaps(seeds) else 1
    found: dict[str, tuple[bool, float]] = {}
    for choice in product(*(part[:PART_TRANSLATIONS] for part in parts)):
        sure = DISCOUNT * prod(one for _, one in choice)
        words = [word for word, _ in choice][::step]
        orders = [" ".join(words), " ".join(reversed(words))]
        written = (one for order in orders for one in spellings_of(order))
        there = next((one for one in written if one in offered.lookup), None)
        word = there or orders[0]
        found[word] = max(found.get(word, (False, 0.0)), (there is not None, sure))
    best = sorted(found.items(), key=lambda item: item[1], reverse=True)
    return [(word, sure) for word, (_, sure) in best]


def swaps(seeds: Lexicon) -> bool:
    """Whether more expressions of two words among the seeds swap their parts than keep them."""
    balance = 0
    for source, target in seeds.pairs:
        if len(left := source.split()) == len(right := target.split()) == 2:
            kept = sum(pair in seeds for pair in zip(left, right, strict=True))
            balance += sum(pair in seeds for pair in zip(left, reversed(right), strict=True)) - kept
    return balance > 0
