"""Split a starter dictionary into its seed and its test part.

    python tools/split_starter.py            # writes en-ru.seeds.tsv and en-ru.test.tsv
    python tools/split_starter.py --check    # only says whether they are up to date

The master file holds one ``source<TAB>target`` pair a line, a word's main translation first, and
lines starting with ``#`` at its top. Both parts keep the master's order, so the split can be made
again from the master alone, on any machine, with the same bytes.

A test word must not be answerable by having seen its translation in training. Words are therefore
put into groups first: two source words are in one group when a translation of one is the main
translation of the other (ё and е count as one letter there). Whole groups go to one part, which
leaves no source word on both sides and no test target that is a main translation among the seeds.
Which part a group goes to hangs only on a hash of its alphabetically first source word: it is as
good as random over fields and word classes, and adding a word moves only the group it joins.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

STARTER = Path(__file__).resolve().parent.parent / "src" / "blicer" / "starter"
ONE_IN = 4  # one group in so many is for testing

Entries = dict[str, list[str]]


def read_master(path: Path) -> Entries:
    """The translations of every source word, in file order; stops on a malformed line."""
    entries: Entries = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 2 or any(not field or field != field.strip() for field in fields):
            raise SystemExit(f"{path}, line {number}: expected source<TAB>target, found {line!r}.")
        source, target = fields
        targets = entries.setdefault(source, [])
        if target in targets:
            raise SystemExit(f"{path}, line {number}: the pair {source} {target} is there twice.")
        targets.append(target)
    return entries


def fold(target: str) -> str:
    """Both spellings of a Russian word with ё are one word for the purpose of the split."""
    return target.replace("ё", "е")


def groups(entries: Entries) -> dict[str, str]:
    """For every source word, the alphabetically first word of its group."""
    first = {source: source for source in entries}

    def find(source: str) -> str:
        while first[source] != source:
            source = first[source]
        return source

    by_main: dict[str, list[str]] = {}
    for source, targets in entries.items():
        by_main.setdefault(fold(targets[0]), []).append(source)
    for source, targets in entries.items():
        for target in targets:
            for other in by_main.get(fold(target), ()):
                one, two = sorted((find(source), find(other)))
                first[two] = one
    return {source: find(source) for source in entries}


def is_test(group: str) -> bool:
    """Whether a group is for testing, from a hash that no Python version or run changes."""
    digest = hashlib.sha256(group.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") % ONE_IN == 0


def split(entries: Entries) -> tuple[Entries, Entries]:
    """The seed part and the test part."""
    seeds: Entries = {}
    test: Entries = {}
    for source, group in groups(entries).items():
        (test if is_test(group) else seeds)[source] = entries[source]
    return seeds, test


def as_text(entries: Entries, name: str, part: str) -> str:
    lines = [f"# The {part} part of {name}, made by tools/split_starter.py. Licence: Apache-2.0."]
    lines += [f"{source}\t{target}" for source, targets in entries.items() for target in targets]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Split a starter dictionary into seeds and test.")
    parser.add_argument("master", nargs="?", type=Path, default=STARTER / "en-ru.tsv")
    parser.add_argument("--check", action="store_true", help="write nothing, compare only")
    options = parser.parse_args(arguments)
    master: Path = options.master
    stale = False
    for part, entries in zip(("seeds", "test"), split(read_master(master)), strict=True):
        path = master.with_suffix(f".{part}.tsv")
        text = as_text(entries, master.name, part)
        pairs = sum(len(targets) for targets in entries.values())
        print(f"{path.name}: {len(entries)} source words, {pairs} pairs")
        if not options.check:
            path.write_text(text, encoding="utf-8", newline="\n")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale = True
            print(f"{path.name} is not what {master.name} gives; run tools/split_starter.py.")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
