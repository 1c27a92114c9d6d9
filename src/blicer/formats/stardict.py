"""StarDict (GoldenDict, KOReader, sdcv): ``.ifo``, ``.idx``, ``.dict.dz`` and ``.syn``.

``.syn`` leads from inflected forms to their headword. ``.dict.dz`` is a dictzip file: gzip in
pieces, with a table of their sizes in its header, so that readers can jump to an article.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from blicer.dictionary import Dictionary, Entry
from blicer.errors import FileError
from blicer.files import open_output
from blicer.progress import note

LONGEST = 255  # bytes of a headword
PIECE = 58315  # bytes of text in a piece: what compresses badly still fits 16 bits


def write(path: Path, dictionary: Dictionary) -> None:
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


def check_free(path: Path, other: str) -> None:
    """StarDict and dictd both have a ``.dict.dz``: one must not take the other's."""
    if path.with_suffix(other).exists():
        raise FileError(
            path.with_suffix(other),
            f"is beside it and needs its own {path.with_suffix('.dict.dz').name}; choose another "
            "name",
        )


def article(entries: Iterable[Entry]) -> str:
    """The translations of a word as a reader sees them, one a line."""
    lines = []
    for entry in entries:
        forms = f" [{', '.join(entry.forms)}]" if entry.forms else ""
        sure = "" if entry.surest is None else f" ({entry.surest:.0%})"
        lines.append(f"{entry.target}{forms}{sure}".replace("\n", " "))
    return "\n".join(lines)


def _fits(word: str) -> bool:
    return len(word.encode("utf-8", "replace")) <= LONGEST and "\0" not in word


def _key(word: str) -> bytes:
    return word.encode("utf-8", "replace") + b"\0"


def _order(word: str) -> tuple[bytes, bytes]:
    """StarDict's order: ASCII letters without case first, then the bytes."""
    content = word.encode("utf-8", "replace")
    return content.lower(), content


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
