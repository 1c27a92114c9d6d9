"""The 16 templates, letter for letter, and users' own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blicer.errors import InputError
from blicer.templates import TEMPLATES, Template

FILLED = {
    "T1": "chat",
    "T2": "the word chat",
    "T3": "chat (français)",
    "T4": "the word chat in français",
    "T5": "`chat'",
    "T6": "the word `chat'",
    "T7": "`chat' (français)",
    "T8": "the word `chat' in français",
    "T9": "chat.",
    "T10": "the word chat.",
    "T11": "chat (français).",
    "T12": "the word chat in français.",
    "T13": "chat!",
    "T14": "the word chat!",
    "T15": "chat (français)!",
    "T16": "the word chat in français!",
}


def test_all_sixteen() -> None:
    filled = {name: Template.parse(name).fill_all(["chat"], "français")[0] for name in TEMPLATES}
    assert filled == FILLED


def test_names_in_any_case_and_texts_of_ones_own() -> None:
    assert Template.parse(" t15 ").name == "T15"
    own = Template.parse("[w] = [w] in [L]?")
    filled = own.fill_all(["chat", "eau"], "français")
    assert filled == ["chat = chat in français?", "eau = eau in français?"]
    assert own.needs_language
    assert not Template.parse("<[w]>").needs_language
    assert Template.parse(own) is own
    assert own.name == own.text


def test_words_and_names_are_not_filled_again() -> None:
    assert Template.parse("T15").fill_all(["[L]"], "[w]") == ["[L] ([w])!"]
    assert Template.parse("T4").fill_all(["[w] [L]"], "x") == ["the word [w] [L] in x"]


@given(st.text(), st.text())
def test_filling_is_plain_text(word: str, name: str) -> None:
    assert Template.parse("T16").fill_all([word], name) == ["the word " + word + f" in {name}!"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no slot", "'no slot' has no slot \\[w\\]"),
        ("", "no slot"),
        ("T17", "T1 to T16"),
        ("only [L]", "no slot"),
        ("[W] in [L]", "no slot \\[w\\]"),
        ("[w] in [l]", "wrong case: .*\\[L\\]"),
        ("[w]\t[L]", "one line"),
    ],
)
def test_a_bad_template_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Template.parse(text)


def test_something_that_is_no_text() -> None:
    with pytest.raises(InputError, match="template = 15"):
        Template.parse(15)  # type: ignore[arg-type]
