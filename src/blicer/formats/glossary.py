"""Word lists for machine translation: glossaries, lexical translation tables, hunalign."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from blicer.dictionary import Dictionary, Entry
from blicer.files import open_output
from blicer.formats import plain
from blicer.progress import note

LEAST = 1e-4  # probability of an entry with confidence 0, which has no logarithm
FILE_BYTES = 10 * 2**20  # of a glossary, at all three services
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _write_pairs(path: Path, dictionary: Dictionary, *, service: str, term_bytes: int) -> None:
    """The best translation of each word within the service's limits; notes what is left out."""
    comma = plain(path).suffix.lower() == ".csv"
    second = too_long = too_many = size = 0
    seen: set[str] = set()
    with open_output(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        for entry in dictionary:
            pair = [_CONTROL.sub(" ", word).strip() for word in (entry.source, entry.target)]
            if pair[0] in seen:
                second += 1
                continue
            longest = max(len(word.encode("utf-8", "replace")) for word in pair)
            if longest > term_bytes or not all(pair):
                too_long += 1
                continue
            size += sum(len(word.encode("utf-8", "replace")) + 3 for word in pair)  # at most
            if size > FILE_BYTES:
                too_many += 1
                continue
            seen.add(pair[0])
            if comma:
                rows.writerow(pair)
            else:
                file.write("\t".join(pair) + "\n")
    _note_count(path, second, f"further translations left out: {service} takes one a word")
    _note_count(path, too_long, f"pairs left out: over {term_bytes} bytes a term, or empty")
    limit = f"over {FILE_BYTES // 2**20} MiB a file (ask for fewer with -n or --min-confidence)"
    _note_count(path, too_many, f"pairs left out: {limit}")


write_deepl = partial(_write_pairs, service="DeepL", term_bytes=1024)
write_google = partial(_write_pairs, service="Google", term_bytes=1023)
write_microsoft = partial(_write_pairs, service="Microsoft", term_bytes=1024)


def write_moses(path: Path, dictionary: Dictionary) -> None:
    """``target source p(target|source)``, as Moses and Bicleaner read it (Bicleaner: with .gz)."""
    with open_output(path) as file:
        for entry, probability in _lexical(path, dictionary):
            file.write(f"{entry.target} {entry.source} {probability:.7f}\n")


def write_fast_align(path: Path, dictionary: Dictionary) -> None:
    """``source target log p(target|source)``, the table that fast_align writes and reads."""
    with open_output(path) as file:
        for entry, probability in _lexical(path, dictionary):
            file.write(f"{entry.source}\t{entry.target}\t{math.log(probability):.6f}\n")


def _lexical(path: Path, dictionary: Dictionary) -> Iterator[tuple[Entry, float]]:
    """Entries whose words are one token, with probabilities that do not add up to more than 1."""
    several = 0
    for entries in dictionary.words.values():
        single = [one for one in entries if len(one.source.split()) == len(one.target.split()) == 1]
        several += len(entries) - len(single)
        sure = [max(LEAST, 1.0 if one.surest is None else one.surest) for one in single]
        total = max(1.0, sum(sure))
        yield from zip(single, (one / total for one in sure), strict=True)
    _note_count(path, several, "entries left out: this format has no room for several words")


def write_hunalign(path: Path, dictionary: Dictionary) -> None:
    """``target @ source``, as hunalign reads it."""
    with open_output(path) as file:
        for entry in dictionary:
            target, source = (_CONTROL.sub(" ", word) for word in (entry.target, entry.source))
            file.write(f"{target} @ {source}\n")


def _note_count(path: Path, count: int, what: str) -> None:
    if count:
        note(f"{path}: {count:,} {what}")
