"""Markup for lexicographers and their tools: TMX, TBX, TEI, LIFT and Apertium, and OntoLex."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from blicer.dictionary import Dictionary, Entry
from blicer.files import open_output
from blicer.progress import note

ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0
LANGUAGE, ID = "xml:lang", "xml:id"
Attributes = dict[str, str]


class Markup:
    """Writes XML element by element; characters that XML cannot hold are dropped and counted."""

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


def write_tmx(path: Path, dictionary: Dictionary) -> None:
    """TMX 1.4b, for translation memories and Google glossaries: one translation unit an entry."""
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


def write_tbx(path: Path, dictionary: Dictionary) -> None:
    """TBX-Basic in the structure of ISO 30042:2008, for terminology tools: a concept an entry.

    The edition of 2019 renamed its elements; the Translate Toolkit and others cannot read it yet.
    """
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
                xml.leaf("p", "TBXBasicXCSV02.xcs", {"type": "XCSURI"})
        with xml.element("text"), xml.element("body"):
            for number, entry in enumerate(dictionary, start=1):
                with xml.element("termEntry", {"id": f"c{number}"}):
                    words = zip(about.tags, (entry.source, entry.target), strict=True)
                    for place, (tag, word) in enumerate(words):
                        with xml.element("langSet", {LANGUAGE: tag}), xml.element("tig"):
                            xml.leaf("term", word)
                            if place:
                                _tbx_facts(xml, entry)


def _tbx_facts(xml: Markup, entry: Entry) -> None:
    """TBX-Basic has a place for the status of a term, and notes for the confidences."""
    if entry.is_accepted or entry.is_rejected:
        status = "preferredTerm" if entry.is_accepted else "deprecatedTerm"
        xml.leaf("termNote", f"{status}-admn-sts", {"type": "administrativeStatus"})
    numbers = {"confidence": entry.confidence, "back confidence": entry.back_confidence}
    said = [f"{name} {shown(value)}" for name, value in numbers.items() if value is not None]
    if said:
        xml.leaf("note", "; ".join(said))


def write_tei(path: Path, dictionary: Dictionary) -> None:
    """TEI Lex-0: a headword is an entry, a translation a sense, and its confidence ``@cert``."""
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


def write_lift(path: Path, dictionary: Dictionary) -> None:
    """LIFT 0.13, for FieldWorks (FLEx): a headword is an entry, a translation a sense."""
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


def write_apertium(path: Path, dictionary: Dictionary) -> None:
    """Apertium ``.dix``, which ``lt-comp`` compiles in both directions.

    A pair that was found from one side only is used in that direction (``r``). The weight (``w``)
    is the negative logarithm of the confidence, as in a weighted transducer.
    """
    two_way = dictionary.is_two_way
    section = {"id": "main", "type": "standard"}
    with xml_file(path) as xml, xml.element("dictionary"):
        xml.leaf("alphabet")
        with xml.element("sdefs"):
            xml.leaf("sdef", "", {"n": "x", "c": "; ".join(dictionary.about.lines())})
        with xml.element("section", section):
            for entry in dictionary:
                with xml.element("e", _apertium_attributes(entry, two_way)), xml.element("p"):
                    for side, word in (("l", entry.source), ("r", entry.target)):
                        _side(xml, side, word)


def _apertium_attributes(entry: Entry, two_way: bool) -> Attributes:
    found: Attributes = {}
    if not two_way or entry.back_confidence is None:
        found["r"] = "LR"
    elif entry.confidence is None:
        found["r"] = "RL"
    if entry.surest is not None:
        found["w"] = f"{abs(math.log(max(1e-4, entry.surest))):.4f}"
        found["c"] = f"confidence {shown(entry.surest)}"
    return found


def _side(xml: Markup, side: str, word: str) -> None:
    with xml.element(side, lines=False):
        for place, part in enumerate(word.split(" ")):
            if place:
                xml.empty("b")
            xml.text(part)


PREFIXES = {
    "ontolex": "http://www.w3.org/ns/lemon/ontolex#",
    "lime": "http://www.w3.org/ns/lemon/lime#",
    "vartrans": "http://www.w3.org/ns/lemon/vartrans#",
    "tr": "http://purl.org/net/translation#",
    "dct": "http://purl.org/dc/terms/",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}


def write_ontolex(path: Path, dictionary: Dictionary) -> None:
    """OntoLex-Lemon as Turtle: two lexicons, and a ``vartrans:Translation`` for each entry."""
    about = dictionary.about
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    with open_output(path) as file:
        for prefix, address in PREFIXES.items():
            file.write(f"@prefix {prefix}: <{address}> .\n")
        file.write(f"@prefix : <urn:blicer:{'-'.join(about.tags)}#> .\n\n")
        facts = [
            "a vartrans:TranslationSet",
            f"dct:creator {_turtle(f'{about.tool} {about.version}')}",
            f'dct:created "{about.date}"^^xsd:date',
            *(f"dct:description {_turtle(line)}@en" for line in about.lines()),
        ]
        file.write(f":translations {' ; '.join(facts)} .\n")
        for side, tag in zip("st", about.tags, strict=True):
            file.write(f":lexicon-{side} a lime:Lexicon ; lime:language {_turtle(tag)} .\n")
        for number, entry in enumerate(dictionary, start=1):
            words = zip("st", about.tags, numbers, (entry.source, entry.target), strict=True)
            for side, tag, known, word in words:
                if word not in known:
                    known[word] = len(known) + 1
                    name = f":{side}{known[word]}"
                    form = f"[ ontolex:writtenRep {_turtle(word)}@{tag} ]"
                    file.write(f"{name} a ontolex:LexicalEntry ; ontolex:canonicalForm {form} .\n")
                    file.write(f":lexicon-{side} lime:entry {name} .\n")
                sense = f":{side}{known[word]}-{number}"
                file.write(f":{side}{known[word]} ontolex:sense {sense} .\n")
            source, target = numbers[0][entry.source], numbers[1][entry.target]
            relation = f"vartrans:source :s{source}-{number} ; vartrans:target :t{target}-{number}"
            sure = ""
            if entry.surest is not None:
                sure = f' ; tr:translationConfidence "{shown(entry.surest)}"^^xsd:decimal'
            file.write(f":p{number} a vartrans:Translation ; {relation}{sure} .\n")
            file.write(f":translations vartrans:trans :p{number} .\n")


def _turtle(text: str) -> str:
    """A Turtle string: its escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
