"""Yomitan: a zip of an index and banks of terms, for reading in the browser."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from blicer.dictionary import Dictionary
from blicer.files import open_output
from blicer.formats.stardict import article

TERMS_A_BANK = 10_000


def write(path: Path, dictionary: Dictionary) -> None:
    about = dictionary.about
    index: dict[str, Any] = {
        "title": about.title,
        "revision": f"{about.version}.{about.date}",
        "format": 3,
        "sequenced": True,
        "author": f"{about.tool} {about.version}",
        "description": "\n".join(about.lines()),
        "sourceLanguage": about.tags[0],
        "targetLanguage": about.tags[1],
    }
    terms: list[list[Any]] = []
    for number, (word, entries) in enumerate(dictionary.words.items(), start=1):
        sure = round(1000 * (entries[0].surest or 0.0))  # Yomitan shows higher scores first
        texts = [article([entry]) for entry in entries]
        terms.append([word, "", "", "", sure, texts, number, ""])
    for form, head in dictionary.inflected.items():
        link = [[head, ["form"]]]
        terms.append([form, "", "non-lemma", "", 0, link, len(terms) + 1, ""])
    with open_output(path, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("index.json", _json(index))
        for bank, start in enumerate(range(0, len(terms), TERMS_A_BANK), start=1):
            pack.writestr(f"term_bank_{bank}.json", _json(terms[start : start + TERMS_A_BANK]))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
