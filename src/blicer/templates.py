"""The text around a word that the cross-encoder reads (docs/method.md §3, T1 to T16)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from blicer.errors import InputError

_PLAIN = ("[w]", "the word [w]", "[w] ([L])", "the word [w] in [L]")
_QUOTED = tuple(text.replace("[w]", "`[w]'") for text in _PLAIN)
_ALL = [*_PLAIN, *_QUOTED, *(f"{text}." for text in _PLAIN), *(f"{text}!" for text in _PLAIN)]
TEMPLATES = {f"T{number}": text for number, text in enumerate(_ALL, start=1)}


@dataclass(frozen=True)
class Template:
    """A text with ``[w]`` for the word and optionally ``[L]`` for its language's own name."""

    name: str  # T1 … T16, or the text itself
    text: str

    @classmethod
    def parse(cls, template: str | Template) -> Template:
        """A template by its name (``T1`` … ``T16``) or its text."""
        if isinstance(template, Template):
            return template
        name = str(template).strip().upper()
        if name in TEMPLATES:
            return cls(name, TEMPLATES[name])
        problem = ""
        if not isinstance(template, str) or "[w]" not in template:
            problem = "has no slot [w] for the word"
        elif "[W]" in template or "[l]" in template:
            problem = "has a slot in the wrong case: [w] is the word, [L] its language"
        elif not template.isprintable():
            problem = "is not one line without tabs"
        if problem:
            raise InputError(
                f"template = {template!r} {problem}: expected T1 to T16, or a text such as "
                "'the word [w] in [L]'"
            )
        return cls(template, template)

    @property
    def needs_language(self) -> bool:
        return "[L]" in self.text

    def fill_all(self, words: Iterable[str], language_name: str = "") -> list[str]:
        """The text of each word; a slot inside a word is not filled."""
        around = [part.replace("[L]", language_name) for part in self.text.split("[w]")]
        return [word.join(around) for word in words]
