"""Likeness of spelling against counts made by hand."""

from __future__ import annotations

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blicer.scorers.spelling import SpellingScorer


def test_by_hand() -> None:
    """ab: a b ^a ab b$ ^ab ab$ (7); ac: a c ^a ac c$ ^ac ac$ (7); shared: a and ^a."""
    assert SpellingScorer().score(["ab"], ["ac"])[0] == pytest.approx(2 / (sqrt(7) * sqrt(7)))


def test_accents_and_case_do_not_count() -> None:
    assert SpellingScorer().score(["Café"], ["cafe"])[0] == pytest.approx(1)


def test_other_scripts_share_nothing() -> None:
    assert SpellingScorer().score(["cat"], ["кот"])[0] == 0


@given(st.text(max_size=12), st.text(max_size=12))
def test_symmetric_and_in_range(one: str, other: str) -> None:
    forward, back = SpellingScorer().score([one, other], [other, one])
    assert forward == back
    assert 0 <= forward <= 1 + 1e-6
