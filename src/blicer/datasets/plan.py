"""From what the user asked for (``xling en-fr``) to the published files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from blicer.datasets.catalogue import (
    COLLECTIONS,
    Collection,
    Item,
    muse_items,
    panlex_items,
    short_size,
    vector_item,
    xling_items,
)
from blicer.errors import InputError

ALL = "all"
_LANGUAGE = re.compile(r"[a-z]{2,3}(_[a-z]{1,12}){0,2}")  # Wikipedia's codes: en, zh_yue, be_x_old
_SIZE = re.compile(r"(\d{1,6})(k?)")
_FEW = 12


@dataclass(frozen=True)
class Plan:
    """What to fetch, and what the user should know about how the request was understood."""

    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()


def find_collection(name: str) -> Collection:
    if name not in COLLECTIONS:
        near = get_close_matches(name.lower(), COLLECTIONS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"{name!r} is no collection: there are {', '.join(COLLECTIONS)}{hint}")
    return COLLECTIONS[name]


def plan(name: str, wanted: Iterable[str], sizes: Iterable[str | int] = ()) -> Plan:
    """The files of these pairs (``en-fr``) or languages (``en``), each once.

    ``sizes`` chooses among the training files, all if empty; test files always come along.
    """
    collection = find_collection(name)
    wanted = list(wanted)
    training = _training_sizes(collection, list(sizes))
    if collection.vectors:
        return Plan(tuple(vector_item(name, one) for one in _languages(collection, wanted)))
    pairs, notes = _pairs(collection, wanted)
    if name == "panlex":
        return Plan(tuple(panlex_items(pairs, training)), tuple(notes))
    of_pair = xling_items if name == "xling" else muse_items
    return Plan(tuple(item for pair in pairs for item in of_pair(pair, training)), tuple(notes))


def _training_sizes(collection: Collection, sizes: list[str | int]) -> tuple[int, ...]:
    if not sizes:
        return collection.sizes
    if collection.vectors:
        raise InputError(f"{collection.name} has no sizes: use --first for fewer words")
    wanted = set()
    for given in sizes:
        found = _SIZE.fullmatch(str(given).strip().lower())
        size = int(found[1]) * (1000 if found[2] else 1) if found else 0
        if size not in collection.sizes:
            there = ", ".join(map(short_size, collection.sizes))
            raise InputError(
                f"{collection.name} has no training file of size {given}; it has {there}"
            )
        wanted.add(size)
    return tuple(sorted(wanted))


def _pairs(collection: Collection, wanted: list[str]) -> tuple[list[str], list[str]]:
    if not wanted:
        raise InputError(
            f"which pairs of {collection.name}? Say {ALL}, or name them: {_some(collection.names)}"
        )
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
            raise InputError(_no_such_pair(collection, name, pair))
    return list(dict.fromkeys(pairs)), notes


def _no_such_pair(collection: Collection, name: str, pair: str) -> str:
    asked = set(pair.split("-"))
    related = [one for one in collection.names if asked & set(one.split("-"))]
    if len(asked) == 1 and related:
        return f"{collection.name} comes in pairs of languages; with {name}: {_some(related)}"
    if related:
        return f"{collection.name} has no pair {name}; with these languages: {_some(related)}"
    return f"{collection.name} has no pair {name}; it has {_some(collection.names)}"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _FEW} more (see `blicer data list`)" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def _languages(collection: Collection, wanted: list[str]) -> list[str]:
    if not wanted:
        raise InputError(f"which languages of {collection.name}? Name them, such as en fr")
    found: list[str] = []
    for name in wanted:
        # A pair is two languages: the vectors that go with its dictionary.
        for language in name.strip().lower().split("-"):
            if language == ALL:
                raise InputError(
                    f"all of {collection.name} is hundreds of gigabytes; name the languages"
                )
            if not _LANGUAGE.fullmatch(language):
                raise InputError(f"{name!r} is no code of a language; expected one such as en")
            if collection.names and language not in collection.names:
                near = get_close_matches(language, collection.names, n=3, cutoff=0.5)
                hint = f" (near: {', '.join(near)})" if near else ""
                raise InputError(
                    f"{collection.name} has no vectors of {language!r}{hint}; "
                    f"its languages are listed at {collection.page}"
                )
            found.append(language)
    return list(dict.fromkeys(found))
