"""Apertium ``.dix``: a bilingual dictionary that ``lt-comp`` compiles in both directions.

A pair that was found from one side only is used in that direction (``r``). The weight (``w``) is
the negative logarithm of the confidence, as in a weighted transducer.
"""

from __future__ import annotations

import math
from pathlib import Path

from blicer.dictionary import Dictionary, Entry
from blicer.formats.markup import Attributes, Markup, shown, xml_file

LEAST = 1e-4


def write(path: Path, dictionary: Dictionary) -> None:
    two_way = dictionary.is_two_way
    section = {"id": "main", "type": "standard"}
    with xml_file(path) as xml, xml.element("dictionary"):
        xml.leaf("alphabet")
        with xml.element("sdefs"):
            xml.leaf("sdef", "", {"n": "x", "c": "; ".join(dictionary.about.lines())})
        with xml.element("section", section):
            for entry in dictionary:
                with xml.element("e", _attributes(entry, two_way)), xml.element("p"):
                    for side, word in (("l", entry.source), ("r", entry.target)):
                        _side(xml, side, word)


def _attributes(entry: Entry, two_way: bool) -> Attributes:
    found: Attributes = {}
    if not two_way or entry.back_confidence is None:
        found["r"] = "LR"
    elif entry.confidence is None:
        found["r"] = "RL"
    if entry.surest is not None:
        found["w"] = f"{abs(math.log(max(LEAST, entry.surest))):.4f}"
        found["c"] = f"confidence {shown(entry.surest)}"
    return found


def _side(xml: Markup, side: str, word: str) -> None:
    with xml.element(side, lines=False):
        for place, part in enumerate(word.split(" ")):
            if place:
                xml.empty("b")
            xml.text(part)
