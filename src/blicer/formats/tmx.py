"""TMX 1.4b: one translation unit an entry, for translation memories and Google glossaries."""

from __future__ import annotations

from pathlib import Path

from blicer.dictionary import Dictionary
from blicer.formats.markup import LANGUAGE, shown, xml_file


def write(path: Path, dictionary: Dictionary) -> None:
    about = dictionary.about
    header = {
        "creationtool": about.tool,
        "creationtoolversion": about.version,
        "segtype": "phrase",
        "o-tmf": about.tool,
        "adminlang": "en",
        "srclang": about.tags[0],
        "datatype": "plaintext",
        "creationdate": f"{about.date.replace('-', '')}T000000Z",
    }
    with xml_file(path) as xml, xml.element("tmx", {"version": "1.4"}):
        with xml.element("header", header):
            for line in about.lines():
                xml.leaf("note", line)
        with xml.element("body"):
            for number, entry in enumerate(dictionary, start=1):
                with xml.element("tu", {"tuid": str(number)}):
                    facts = {
                        "x-confidence": shown(entry.confidence),
                        "x-back-confidence": shown(entry.back_confidence),
                        "x-verdict": entry.verdict,
                    }
                    for name, value in facts.items():
                        if value:
                            xml.leaf("prop", value, {"type": name})
                    words = (entry.source, entry.target)
                    for tag, word in zip(about.tags, words, strict=True):
                        with xml.element("tuv", {LANGUAGE: tag}):
                            xml.leaf("seg", word)
