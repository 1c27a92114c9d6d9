"""The text around a word that the cross-encoder reads (docs/method.md §3, T1 to T16)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from blicer.errors import InputError

_PLAIN = ("[w]", "the word [w]", "[w] ([L])", "the word [w] in [L]")
_QUOTED = tuple(text.replace("[w]", "`[w]'") for text in _PLAIN)

TEMPLATES: dict[str, str] = {
    f"T{number}": text
    for number, text in enumerate(
        [*_PLAIN, *_QUOTED, *(f"{text}." for text in _PLAIN), *(f"{text}!" for text in _PLAIN)],
        start=1,
    )
}

_SLOT = re.compile(r"(\[w\]|\[L\])")
_WRONG_SLOT = re.compile(r"\[W\]|\[l\]")


@dataclass(frozen=True)
class Template:
    """A text with ``[w]`` for the word and, if wanted, ``[L]`` for its language's own name."""

    name: str  # T1 … T16, or the text itself
    text: str

    @classmethod
    def parse(cls, template: str | Template) -> Template:
        """One of ``T1`` … ``T16``, or a text of the user's own."""
        if isinstance(template, Template):
            return template
        if not isinstance(template, str):
            raise InputError(f"template = {template!r}: expected T1 to T16 or a text with [w]")
        name = template.strip().upper()
        if name in TEMPLATES:
            return cls(name, TEMPLATES[name])
        wrong = _WRONG_SLOT.search(template)
        if wrong is not None:
            raise InputError(
                f"the template {template!r} contains {wrong.group()}: "
                "the slots are written [w] for the word and [L] for its language"
            )
        if "[w]" not in template:
            raise InputError(
                f"the template {template!r} has no slot for the word: "
                "expected T1 to T16, or a text with [w] in it such as 'the word [w] in [L]'"
            )
        if any(not character.isprintable() for character in template):
            raise InputError(f"the template {template!r} must be one line without tabs")
        return cls(template, template)

    @property
    def needs_language(self) -> bool:
        return "[L]" in self.text

    def fill(self, word: str, language_name: str = "") -> str:
        return self.fill_all([word], language_name)[0]

    def fill_all(self, words: Iterable[str], language_name: str = "") -> list[str]:
        """The text of each word. Slots are filled once: a word ``[L]`` stays ``[L]``."""
        pieces = _SLOT.split(self.text)
        places = [place for place, piece in enumerate(pieces) if piece == "[w]"]
        pieces = [language_name if piece == "[L]" else piece for piece in pieces]
        filled = []
        for word in words:
            for place in places:
                pieces[place] = word
            filled.append("".join(pieces))
        return filled

    def __str__(self) -> str:
        return self.name
