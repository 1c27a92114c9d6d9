"""Published dictionaries and vectors: the collections, and the files of a request.

The collections are in ``catalogue.json``, and known checksums of their files in ``checksums.tsv``.
Paths are patterns of ``{pair}`` (``en-fr``), ``{source}`` (``en``), ``{size}`` (``5000``),
``{short}`` (``5k``) and ``{language}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from blicer.errors import InputError

ALL = "all"
_LANGUAGE = re.compile(r"[a-z]{2,3}(_[a-z]{1,12}){0,2}")  # Wikipedia's codes: en, zh_yue, be_x_old


class Item(NamedTuple):
    """One published file."""

    url: str
    file: str  # path below the folder of all data
    sha256: str | None = None
    members: tuple[str, ...] = ()  # of a zip archive: paths that its files are unpacked to


@dataclass(frozen=True)
class Collection:
    """Dictionaries of language pairs, or (without training sizes) vectors of languages."""

    name: str
    about: str
    page: str  # its web page
    base: str  # URL of the folder of its files
    train: str  # path of a training dictionary, or of a vector file
    test: str = ""
    archive: str = ""  # path of a zip archive with all pairs of a source language, if in one
    names: tuple[str, ...] = ()  # pairs or languages; empty if only listed on its page
    sizes: Sequence[int] = ()  # source words of the training dictionaries
    both_orders: bool = True  # False: each pair is published in one order only

    @property
    def vectors(self) -> bool:
        return not self.sizes


def short_size(size: int) -> str:
    """5000 as XLING writes it: ``5k``."""
    return f"{size // 1000}k" if size % 1000 == 0 else str(size)


def _read(file: str) -> str:
    return resources.files("blicer").joinpath(file).read_text("utf-8")


COLLECTIONS = {
    one["name"]: Collection(**{**one, "names": tuple(one.get("names", "").split())})
    for one in json.loads(_read("catalogue.json"))
}


@lru_cache(maxsize=1)
def checksums() -> dict[str, str]:
    """Known SHA-256 of published files, by their path."""
    return dict(line.split("\t") for line in _read("checksums.tsv").splitlines()[1:])


def find_collection(name: str) -> Collection:
    """The collection of this name; unknown names raise ``InputError``."""
    if name not in COLLECTIONS:
        raise InputError(f"{name!r} is no collection: there are {', '.join(COLLECTIONS)}")
    return COLLECTIONS[name]


def plan(name: str, wanted: Iterable[str]) -> tuple[list[Item], list[str]]:
    """The files of a request, each once, and notes for the user.

    ``wanted``: pairs (``en-fr``, or ``all``) of a collection of dictionaries, with training
    dictionaries of all sizes and test dictionaries, or languages (``en``) of vectors.
    """
    collection, wanted = find_collection(name), list(wanted)
    if not wanted:
        kind, some = ("languages", "en, fr") if collection.vectors else ("pairs", "all, en-fr")
        raise InputError(f"which {kind} of {name}? Name them ({some} …); see `blicer data list`")
    if collection.vectors:
        files = [collection.train.format(language=one) for one in _languages(collection, wanted)]
        return [Item(f"{collection.base}/{file}", f"vectors/{file}") for file in files], []
    pairs, notes = _pairs(collection, wanted)
    published: dict[str, list[str]] = {}  # path below the address: files inside, of an archive
    for pair in pairs:
        files = [
            collection.train.format(pair=pair, size=size, short=short_size(size))
            for size in collection.sizes
        ]
        files.append(collection.test.format(pair=pair))
        if collection.archive:
            archive = collection.archive.format(source=pair.split("-")[0])
            published.setdefault(archive, []).extend(f"{name}/{file}" for file in files)
        else:
            published |= {file: [] for file in files}
    known = checksums()
    items = [
        Item(f"{collection.base}/{path}", f"{name}/{path}", known.get(f"{name}/{path}"), tuple(of))
        for path, of in published.items()
    ]
    return items, notes


def _pairs(collection: Collection, wanted: list[str]) -> tuple[list[str], list[str]]:
    pairs: list[str] = []
    notes: list[str] = []
    for name in wanted:
        pair = name.strip().lower().replace("_", "-")
        turned = "-".join(reversed(pair.split("-")))
        if pair == ALL:
            pairs.extend(collection.names)
        elif pair in collection.names:
            pairs.append(pair)
        elif not collection.both_orders and turned in collection.names:
            pairs.append(turned)
            notes.append(
                f"{collection.name} publishes {pair} as {turned}: the first column is "
                f"{turned.split('-')[0]} (in Python, Lexicon.load(...).reverse() turns it)"
            )
        else:
            see = f"see: blicer data list {collection.name}"
            raise InputError(f"{collection.name} has no pair {name}; {see}")
    return list(dict.fromkeys(pairs)), notes


def _languages(collection: Collection, wanted: list[str]) -> list[str]:
    """Codes of languages, each once; a pair is two languages."""
    codes = [code for name in wanted for code in name.strip().lower().split("-")]
    for code in codes:
        if code == ALL:
            problem = "all is hundreds of gigabytes; name the languages"
        elif not _LANGUAGE.fullmatch(code):
            problem = f"{code!r} is no code of a language; expected one such as en"
        elif collection.names and code not in collection.names:
            problem = f"no vectors of {code!r}; see `blicer data list`, or {collection.page}"
        else:
            continue
        raise InputError(f"{collection.name}: {problem}")
    return list(dict.fromkeys(codes))
