"""OntoLex-Lemon as Turtle: two lexicons, and a ``vartrans:Translation`` for each entry."""

from __future__ import annotations

import json
from pathlib import Path

from blicer.dictionary import Dictionary
from blicer.files import open_output
from blicer.formats.markup import shown

PREFIXES = {
    "ontolex": "http://www.w3.org/ns/lemon/ontolex#",
    "lime": "http://www.w3.org/ns/lemon/lime#",
    "vartrans": "http://www.w3.org/ns/lemon/vartrans#",
    "tr": "http://purl.org/net/translation#",
    "dct": "http://purl.org/dc/terms/",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}


def write(path: Path, dictionary: Dictionary) -> None:
    about = dictionary.about
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    with open_output(path) as file:
        for prefix, address in PREFIXES.items():
            file.write(f"@prefix {prefix}: <{address}> .\n")
        file.write(f"@prefix : <urn:blicer:{'-'.join(about.tags)}#> .\n\n")
        facts = [
            "a vartrans:TranslationSet",
            f"dct:creator {_text(f'{about.tool} {about.version}')}",
            f'dct:created "{about.date}"^^xsd:date',
            *(f"dct:description {_text(line)}@en" for line in about.lines()),
        ]
        file.write(f":translations {' ; '.join(facts)} .\n")
        for side, tag in zip("st", about.tags, strict=True):
            file.write(f":lexicon-{side} a lime:Lexicon ; lime:language {_text(tag)} .\n")
        for number, entry in enumerate(dictionary, start=1):
            words = zip("st", about.tags, numbers, (entry.source, entry.target), strict=True)
            for side, tag, known, word in words:
                if word not in known:
                    known[word] = len(known) + 1
                    name = f":{side}{known[word]}"
                    form = f"[ ontolex:writtenRep {_text(word)}@{tag} ]"
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


def _text(text: str) -> str:
    """A Turtle string: its escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
