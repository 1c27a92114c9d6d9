"""LIFT 0.13 for FieldWorks (FLEx): a headword is an entry, a translation a sense with a gloss."""

from __future__ import annotations

from pathlib import Path

from blicer.dictionary import Dictionary
from blicer.formats.markup import shown, xml_file


def write(path: Path, dictionary: Dictionary) -> None:
    about = dictionary.about
    source, target = about.tags
    root = {"version": "0.13", "producer": f"{about.tool} {about.version}"}
    with xml_file(path) as xml, xml.element("lift", root):
        english = {"lang": "en"}
        with xml.element("header"), xml.element("description"), xml.element("form", english):
            xml.leaf("text", "; ".join(about.lines()))
        for number, (word, entries) in enumerate(dictionary.words.items(), start=1):
            with xml.element("entry", {"id": f"{word}_{number}"}):
                with xml.element("lexical-unit"), xml.element("form", {"lang": source}):
                    xml.leaf("text", word)
                for place, entry in enumerate(entries, start=1):
                    with xml.element("sense", {"id": f"{word}_{number}_{place}"}):
                        with xml.element("gloss", {"lang": target}):
                            xml.leaf("text", entry.target)
                        values = {"confidence": shown(entry.surest), "verdict": entry.verdict}
                        for name, value in values.items():
                            if value:
                                xml.leaf("annotation", "", {"name": name, "value": value})
