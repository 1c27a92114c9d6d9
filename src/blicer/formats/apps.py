"""Dictionaries to look words up in: StarDict, dictd, Yomitan, Anki, EPUB and Kindle.

The texts of StarDict and dictd are in a dictzip file, ``.dict.dz``: gzip in pieces, with a table of
their sizes in its header, so that readers can jump to an article.
"""

from __future__ import annotations

import html
import json
import shutil
import struct
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from blicer.dictionary import Dictionary, Entry
from blicer.errors import BlicerError, FileError, needed
from blicer.files import digest, open_output
from blicer.progress import note

LONGEST = 255  # bytes of a headword
PIECE = 58315  # bytes of text in a piece: what compresses badly still fits 16 bits
DICTD_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
TERMS_A_BANK = 10_000  # of Yomitan


def article(entries: Iterable[Entry]) -> str:
    """The translations of a word as a reader sees them, one a line."""
    lines = []
    for entry in entries:
        forms = f" [{', '.join(entry.forms)}]" if entry.forms else ""
        sure = "" if entry.surest is None else f" ({entry.surest:.0%})"
        lines.append(f"{entry.target}{forms}{sure}".replace("\n", " "))
    return "\n".join(lines)


def check_free(path: Path, other: str) -> None:
    """StarDict and dictd both have a ``.dict.dz``: one must not take the other's."""
    if path.with_suffix(other).exists():
        raise FileError(
            path.with_suffix(other),
            f"is beside it and needs its own {path.with_suffix('.dict.dz').name}; choose another "
            "name",
        )


def dictzip(data: bytes) -> bytes:
    """A gzip file in pieces that can be unpacked one by one."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    pieces = [
        packer.compress(data[start : start + PIECE]) + packer.flush(zlib.Z_FULL_FLUSH)
        for start in range(0, len(data), PIECE)
    ]
    sizes = struct.pack(f"<{len(pieces)}H", *map(len, pieces))
    table = struct.pack("<HHH", 1, PIECE, len(pieces)) + sizes
    extra = b"RA" + struct.pack("<H", len(table)) + table
    head = b"\x1f\x8b\x08\x04" + bytes(4) + b"\x02\x03" + struct.pack("<H", len(extra)) + extra
    end = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return head + b"".join(pieces) + packer.flush(zlib.Z_FINISH) + end


def write_stardict(path: Path, dictionary: Dictionary) -> None:
    """StarDict (GoldenDict, KOReader, sdcv): ``.ifo``, ``.idx``, ``.dict.dz`` and ``.syn``.

    ``.syn`` leads from inflected forms to their headword.
    """
    check_free(path, ".index")
    about = dictionary.about
    words = [word for word in dictionary.words if _fits(word)]
    if left := len(dictionary.words) - len(words):
        note(f"{path}: {left} words left out: over {LONGEST} bytes, or with a zero byte")
    words.sort(key=_order)
    articles = [article(dictionary[word]).encode("utf-8", "replace") for word in words]
    index, at = [], 0
    for word, text in zip(words, articles, strict=True):
        index.append(_key(word) + struct.pack(">II", at, len(text)))
        at += len(text)
    places = {word: place for place, word in enumerate(words)}
    synonyms = [
        _key(form) + struct.pack(">I", places[head])
        for form, head in sorted(dictionary.inflected.items(), key=lambda pair: _order(pair[0]))
        if head in places and form not in places and _fits(form)
    ]
    facts = {
        "version": "2.4.2",
        "bookname": about.title,
        "wordcount": len(words),
        **({"synwordcount": len(synonyms)} if synonyms else {}),
        "idxfilesize": sum(map(len, index)),
        "sametypesequence": "m",
        "date": about.date.replace("-", "."),
        "author": f"{about.tool} {about.version}",
        "description": "<br>".join(about.lines()),
    }
    for ending, content in ((".idx", index), (".syn", synonyms)):
        file_name = path.with_suffix(ending)
        if content:
            with open_output(file_name, "wb") as file:
                file.writelines(content)
        else:
            file_name.unlink(missing_ok=True)  # of an earlier dictionary of this name
    with open_output(path.with_suffix(".dict.dz"), "wb") as file:
        file.write(dictzip(b"".join(articles)))
    with open_output(path.with_suffix(".ifo")) as file:  # last: it makes the others a dictionary
        file.write("StarDict's dict ifo file\n")
        file.writelines(f"{name}={value}\n" for name, value in facts.items())


def _fits(word: str) -> bool:
    return len(word.encode("utf-8", "replace")) <= LONGEST and "\0" not in word


def _key(word: str) -> bytes:
    return word.encode("utf-8", "replace") + b"\0"


def _order(word: str) -> tuple[bytes, bytes]:
    """StarDict's order: ASCII letters without case first, then the bytes."""
    content = word.encode("utf-8", "replace")
    return content.lower(), content


def write_dictd(path: Path, dictionary: Dictionary) -> None:
    """dictd (the DICT protocol): ``.index`` and ``.dict.dz``."""
    check_free(path, ".ifo")
    about = dictionary.about
    articles = {
        "00-database-allchars": "",  # words are compared with all their characters
        "00-database-info": "\n".join(about.lines()),
        "00-database-short": about.title,
        "00-database-utf8": "",
    }
    forms: dict[str, list[str]] = {}
    for form, head in dictionary.inflected.items():
        forms.setdefault(head, []).append(form)
    rows, texts, at = [], [], 0
    articles |= {word: article(entries) for word, entries in dictionary.words.items()}
    for word, lines in articles.items():
        indented = "".join(f"  {line}\n" for line in lines.split("\n"))
        text = f"{word}\n{indented}".encode("utf-8", "replace")
        for key in (word, *forms.get(word, ())):
            rows.append((" ".join(key.split()), dictd_number(at), dictd_number(len(text))))
        texts.append(text)
        at += len(text)
    rows.sort(key=lambda row: (row[0].lower().encode("utf-8", "replace"), row[1:]))
    with open_output(path.with_suffix(".dict.dz"), "wb") as file:
        file.write(dictzip(b"".join(texts)))
    with open_output(path.with_suffix(".index")) as file:
        file.writelines("\t".join(row) + "\n" for row in rows)


def dictd_number(value: int) -> str:
    """A number in dictd's digits, the most significant first."""
    text = DICTD_DIGITS[value % 64]
    while value := value // 64:
        text = DICTD_DIGITS[value % 64] + text
    return text


def write_yomitan(path: Path, dictionary: Dictionary) -> None:
    """Yomitan, for reading in the browser: a zip of an index and banks of terms."""
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


def write_anki(path: Path, dictionary: Dictionary) -> None:
    """Anki: a deck of cards from word to translations, and back in a two-way dictionary."""
    with needed("genanki", "an Anki deck", "anki"):
        import genanki
    about = dictionary.about
    templates = [_anki_template("source", "target")]
    if dictionary.is_two_way:
        templates.append(_anki_template("target", "source"))
    fields = [{"name": name} for name in ("source", "target", "confidence")]
    model = genanki.Model(
        _anki_id("model", str(len(templates))), "blicer", fields=fields, templates=templates
    )
    description = "<br>".join(map(html.escape, about.lines()))
    deck = genanki.Deck(_anki_id("deck", *about.tags), about.title, description=description)
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


def _anki_template(asked: str, answer: str) -> dict[str, str]:
    back = f'{{{{FrontSide}}}}<hr id="answer">{{{{{answer}}}}}'
    return {"name": f"to {answer}", "qfmt": f"{{{{{asked}}}}}", "afmt": back}


def _anki_id(*parts: str) -> int:
    """A fixed id, as Anki wants them."""
    return int(digest(*parts, length=8), 16) | 1 << 30


class _Seekable:
    """Nothing but ``write`` and ``flush``, so that a zip can go to a pipe too."""

    def __init__(self, file: Any) -> None:
        self.write, self.flush = file.write, file.flush


def write_ebook(path: Path, dictionary: Dictionary) -> None:
    """EPUB and Kindle, made by the program ``pyglossary`` where the user has it.

    It is under the GPL, so it is called as a program and never imported.
    """
    program = shutil.which("pyglossary")
    if program is None:
        raise BlicerError(
            "EPUB and Kindle are made by the program pyglossary, which is not installed: "
            "pip install pyglossary (GPL), or write StarDict (.ifo) and convert that"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_stardict(folder / "dictionary.ifo", dictionary)
        made = folder / f"made{path.suffix.lower()}"
        command = [program, str(folder / "dictionary.ifo"), str(made), "--no-color"]
        command += ["--read-format=Stardict", "--ui=none"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if not made.is_file():
            said = (ran.stderr or ran.stdout).strip().splitlines() or ["no reason given"]
            raise BlicerError(f"pyglossary wrote nothing ({said[-1]})")
        with open_output(path, "wb") as file:
            file.write(made.read_bytes())
