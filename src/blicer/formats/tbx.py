"""TBX-Basic in the structure of ISO 30042:2008, which terminology tools read: a concept an entry.

The edition of 2019 renamed its elements; readers such as the Translate Toolkit do not know it yet.
"""

from __future__ import annotations

from pathlib import Path

from blicer.dictionary import Dictionary, Entry
from blicer.formats.markup import LANGUAGE, Markup, shown, xml_file

SCHEMA = "TBXBasicXCSV02.xcs"


def write(path: Path, dictionary: Dictionary) -> None:
    about = dictionary.about
    root = {"type": "TBX-Basic", LANGUAGE: about.tags[0]}
    with xml_file(path) as xml, xml.element("martif", root):
        with xml.element("martifHeader"):
            with xml.element("fileDesc"):
                with xml.element("titleStmt"):
                    xml.leaf("title", about.title)
                with xml.element("sourceDesc"):
                    for line in about.lines():
                        xml.leaf("p", line)
            with xml.element("encodingDesc"):
                xml.leaf("p", SCHEMA, {"type": "XCSURI"})
        with xml.element("text"), xml.element("body"):
            for number, entry in enumerate(dictionary, start=1):
                with xml.element("termEntry", {"id": f"c{number}"}):
                    words = zip(about.tags, (entry.source, entry.target), strict=True)
                    for place, (tag, word) in enumerate(words):
                        with xml.element("langSet", {LANGUAGE: tag}), xml.element("tig"):
                            xml.leaf("term", word)
                            if place:
                                _facts(xml, entry)


def _facts(xml: Markup, entry: Entry) -> None:
    """TBX-Basic has a place for the status of a term, and notes for the confidences."""
    if entry.is_accepted or entry.is_rejected:
        status = "preferredTerm" if entry.is_accepted else "deprecatedTerm"
        xml.leaf("termNote", f"{status}-admn-sts", {"type": "administrativeStatus"})
    numbers = {"confidence": entry.confidence, "back confidence": entry.back_confidence}
    said = [f"{name} {shown(value)}" for name, value in numbers.items() if value is not None]
    if said:
        xml.leaf("note", "; ".join(said))
