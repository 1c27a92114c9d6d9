"""XML files, written element by element with everything escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from blicer.files import open_output
from blicer.progress import note

ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0
LANGUAGE, ID = "xml:lang", "xml:id"
Attributes = dict[str, str]


class Markup:
    """What is being written; characters that XML cannot hold are left out and counted."""

    def __init__(self, generator: XMLGenerator) -> None:
        self._out, self.dropped = generator, 0

    def legal(self, text: str) -> str:
        kept, count = ILLEGAL.subn("", text)
        self.dropped += count
        return kept

    @contextmanager
    def element(
        self, name: str, attributes: Attributes | None = None, *, lines: bool = True
    ) -> Iterator[None]:
        """Everything inside the block is inside the element, on ``lines`` of its own."""
        self._start(name, attributes)
        if lines:
            self._out.characters("\n")
        yield
        self._out.endElement(name)
        self._out.characters("\n")

    def leaf(self, name: str, text: str = "", attributes: Attributes | None = None) -> None:
        """An element that holds only text."""
        with self.element(name, attributes, lines=False):
            self.text(text)

    def text(self, text: str) -> None:
        if text:
            self._out.characters(self.legal(text))

    def empty(self, name: str, attributes: Attributes | None = None) -> None:
        """An element without content, inside a word."""
        self._start(name, attributes)
        self._out.endElement(name)

    def _start(self, name: str, attributes: Attributes | None) -> None:
        legal = {key: self.legal(value) for key, value in (attributes or {}).items()}
        self._out.startElement(name, AttributesImpl(legal))


@contextmanager
def xml_file(path: Path) -> Iterator[Markup]:
    with open_output(path) as file:
        generator = XMLGenerator(file, "utf-8", short_empty_elements=True)
        generator.startDocument()
        markup = Markup(generator)
        yield markup
        generator.endDocument()
    if markup.dropped:
        note(f"{path}: {markup.dropped} control characters were left out; XML cannot hold them")


def shown(confidence: float | None) -> str:
    return "" if confidence is None else f"{confidence:.4f}"
