"""dictd (the DICT protocol): ``.index`` and ``.dict.dz``."""

from __future__ import annotations

from pathlib import Path

from blicer.dictionary import Dictionary
from blicer.files import open_output
from blicer.formats.stardict import article, check_free, dictzip

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def write(path: Path, dictionary: Dictionary) -> None:
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
            rows.append((_plain(key), number(at), number(len(text))))
        texts.append(text)
        at += len(text)
    rows.sort(key=lambda row: (row[0].lower().encode("utf-8", "replace"), row[1:]))
    with open_output(path.with_suffix(".dict.dz"), "wb") as file:
        file.write(dictzip(b"".join(texts)))
    with open_output(path.with_suffix(".index")) as file:
        file.writelines("\t".join(row) + "\n" for row in rows)


def _plain(word: str) -> str:
    return " ".join(word.split())


def number(value: int) -> str:
    """A number in dictd's digits, the most significant first."""
    text = DIGITS[value % 64]
    while value := value // 64:
        text = DIGITS[value % 64] + text
    return text
