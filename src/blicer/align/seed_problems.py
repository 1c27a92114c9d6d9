"""Why seed pairs are not in the vocabularies: swapped columns, case, script, or other words."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from blicer.embeddings import Embeddings
from blicer.lexicon import Lexicon

SHOWN = 5  # missing words in a sentence
LOOKED_AT = 2000  # words that decide on a script


def sample(words: Iterable[str]) -> str:
    """The first few distinct words, quoted."""
    return ", ".join(f"'{word}'" for word in islice(dict.fromkeys(words), SHOWN))


def likely_reasons(source: Embeddings, target: Embeddings, seeds: Lexicon) -> list[str]:
    """Sentences, most telling first; never empty."""
    now = len(seeds.indices(source, target))
    reversed_pairs = len(seeds.reverse().indices(source, target))
    if reversed_pairs > now:
        return [
            f"the columns are swapped ({reversed_pairs} of {len(seeds)} pairs are found the other "
            "way round)"
        ]
    reasons = []
    for side, embeddings, words in (
        ("source", source, [a for a, _ in seeds]),
        ("target", target, [b for _, b in seeds]),
    ):
        missing = [word for word in words if word not in embeddings]
        if not missing:
            continue
        folded = {word.casefold() for word in embeddings.words}
        other_case = sum(word.casefold() in folded for word in missing)
        seed_script, own_script = main_script(missing), main_script(embeddings.words)
        if other_case:
            reasons.append(
                f"{other_case} of {len(missing)} missing {side} words are in the vocabulary in "
                "another case (load both with the same lowercase setting)"
            )
        elif seed_script and own_script and seed_script != own_script:
            reasons.append(
                f"the {side} seed words are written in {seed_script.capitalize()} script, the "
                f"{side} vocabulary in {own_script.capitalize()}"
            )
    return reasons or ["the seeds and the vectors are of other languages or other kinds of words"]


def main_script(words: Iterable[str]) -> str | None:
    """The script most letters are in, by the first word of their Unicode names."""
    counts: Counter[str] = Counter()
    for word in islice(words, LOOKED_AT):
        for letter in word:
            if letter.isalpha():
                counts[unicodedata.name(letter, "UNKNOWN").split()[0]] += 1
    return counts.most_common(1)[0][0] if counts else None
