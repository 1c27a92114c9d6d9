"""Anki: a deck of cards from word to translations, and back if both directions were asked for."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from blicer.dictionary import Dictionary
from blicer.errors import MissingDependency
from blicer.files import digest, open_output
from blicer.formats.stardict import article

FIELDS = ("source", "target", "confidence")
_ANSWER = '{{FrontSide}}<hr id="answer">{{target}}'
_BACK_ANSWER = '{{FrontSide}}<hr id="answer">{{source}}'


def write(path: Path, dictionary: Dictionary) -> None:
    try:
        import genanki
    except ImportError as error:
        raise MissingDependency("genanki", "an Anki deck", "anki") from error
    about = dictionary.about
    templates = [{"name": "to target", "qfmt": "{{source}}", "afmt": _ANSWER}]
    if dictionary.is_two_way:
        templates.append({"name": "to source", "qfmt": "{{target}}", "afmt": _BACK_ANSWER})
    fields = [{"name": name} for name in FIELDS]
    model = genanki.Model(
        _number("model", str(len(templates))), "blicer", fields=fields, templates=templates
    )
    note = "<br>".join(map(html.escape, about.lines()))
    deck = genanki.Deck(_number("deck", *about.tags), about.title, description=note)
    for word, entries in dictionary.words.items():
        sure = entries[0].surest
        values = [word, article(entries), "" if sure is None else f"{sure:.4f}"]
        cells = [html.escape(value).replace("\n", "<br>") for value in values]
        # The same word keeps its identity: a new export updates the card, and keeps its history.
        deck.add_note(
            genanki.Note(model=model, fields=cells, guid=genanki.guid_for(*about.tags, word))
        )
    with open_output(path, "wb") as file:
        genanki.Package(deck).write_to_file(_Seekable(file))


def _number(*parts: str) -> int:
    """A fixed identity, as Anki wants them."""
    return int(digest(*parts, length=8), 16) | 1 << 30


class _Seekable:
    """Nothing but ``write`` and ``flush``, so that a zip can go to a pipe too."""

    def __init__(self, file: Any) -> None:
        self.write, self.flush = file.write, file.flush
