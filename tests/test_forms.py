"""Forms of one lemma, on a vocabulary whose inflection is known."""

from __future__ import annotations

import numpy as np
import pytest

from blicer.embeddings import Embeddings
from blicer.forms import Forms


@pytest.fixture(scope="module")
def forms() -> Forms:
    """Eighty nouns with three endings; two pairs of words that only look alike."""
    rng = np.random.default_rng(0)
    words, vectors = [], []
    for number in range(80):
        stem = "".join(rng.choice(list("bdfgklmnprst"), 4))
        meaning = rng.normal(size=20)
        for ending in ("o", "os", "ar"):
            words.append(f"{stem}{number:02d}{ending}")
            vectors.append(meaning + 0.3 * rng.normal(size=20))
    words += ["tablo", "tablix", "casto", "castos"]
    vectors += list(rng.normal(size=(4, 20)))
    return Forms(Embeddings(words, np.array(vectors, np.float32)))


def test_all_nouns_are_grouped_and_no_others(forms: Forms) -> None:
    words = list(forms.language.words)
    found = [[words[place] for place in group] for group in forms.group(words)]
    assert found[:80] == [words[3 * i : 3 * i + 3] for i in range(80)]
    assert found[80:] == [["tablo"], ["tablix"], ["casto"], ["castos"]]


def test_endings_that_do_not_go_together(forms: Forms) -> None:
    assert not forms("tablo", "tablix")  # -ix is an ending of nothing else
    assert not forms("casto", "castos")  # they do, but the words are not used alike


def test_heads_stay_apart(forms: Forms) -> None:
    one, two, three = forms.language.words[:3]
    assert forms.group([one, two, three]) == [[0, 1, 2]]
    assert forms.group([one, two, three], heads=2) == [[0, 2], [1]]
    assert forms.group(["unknown", one, "unknowns", ""]) == [[0], [1], [2], [3]]
    assert forms.group([]) == []
