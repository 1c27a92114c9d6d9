"""TEI Lex-0: a headword is an entry, a translation a sense, and its confidence ``@cert``."""

from __future__ import annotations

from pathlib import Path

from blicer.dictionary import Dictionary
from blicer.formats.markup import ID, LANGUAGE, Attributes, shown, xml_file


def write(path: Path, dictionary: Dictionary) -> None:
    about = dictionary.about
    source, target = about.tags
    root = {"xmlns": "http://www.tei-c.org/ns/1.0", "type": "lex-0", LANGUAGE: "en"}
    with xml_file(path) as xml, xml.element("TEI", root):
        with xml.element("teiHeader"), xml.element("fileDesc"):
            with xml.element("titleStmt"):
                xml.leaf("title", about.title)
            with xml.element("publicationStmt"):
                xml.leaf("p", f"{about.tool} {about.version}, {about.date}")
            with xml.element("sourceDesc"):
                for line in about.lines():
                    xml.leaf("p", line)
        with xml.element("text"), xml.element("body"):
            for number, (word, entries) in enumerate(dictionary.words.items(), start=1):
                with xml.element("entry", {ID: f"e{number}", LANGUAGE: source}):
                    with xml.element("form", {"type": "lemma"}):
                        xml.leaf("orth", word)
                    for place, entry in enumerate(entries, start=1):
                        equivalent: Attributes = {
                            "type": "translationEquivalent",
                            LANGUAGE: target,
                        }
                        if entry.surest is not None:
                            equivalent["cert"] = shown(entry.surest)
                        with (
                            xml.element("sense", {ID: f"e{number}.{place}"}),
                            xml.element("cit", equivalent),
                        ):
                            with xml.element("form"):
                                xml.leaf("orth", entry.target)
                            for other in entry.forms:
                                with xml.element("form", {"type": "variant"}):
                                    xml.leaf("orth", other)
