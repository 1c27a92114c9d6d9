"""Write a dictionary in every format, and open each with a reader that we did not write.

    python -m tools.check_formats DICTIONARY_OR_TRANSLATOR [-n WORDS] [--programs FOLDER]
        [--node FOLDER] [-o results/formats.md]

Prints a table: format, reader with its version, entries written, entries found. Readers under other
licences than ours are run as programs: of Debian (dictd, dict, sdcv, dictzip, lttoolbox), of a
virtual environment (``--programs``: its ``bin``, with translate-toolkit and pyglossary) and of Node
(``--node``: a folder with ``node_modules/yomichan-dict-reader``). A reader that is not there is
said so. Entries are counted and compared as pairs of words where the reader gives words.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import html
import json
import re
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import blicer
import blicer.formats
from blicer.files import atomic_write

Pairs = list[tuple[str, str]]
SHOWN = re.compile(r"( \[.*\])?( \(\d+%\))?$")  # what follows a translation in an article


class Missing(Exception):
    """A reader is not installed."""


class Readers:
    """Every method opens a file with one reader and gives its name and the pairs found."""

    def __init__(self, found: blicer.Dictionary, programs: Path | None, node: Path | None) -> None:
        self.dictionary, self.programs, self.node = found, programs, node

    # -- helpers --------------------

    def program(self, name: str) -> str:
        places = [str(self.programs / name)] if self.programs else []
        found = next(
            (one for one in [*places, shutil.which(name)] if one and Path(one).exists()), ""
        )
        if not found:
            raise Missing(name)
        return found

    def run(self, name: str, *arguments: object, **how: Any) -> str:
        command = [self.program(name), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, check=True, text=True, **how).stdout

    def package(self, name: str) -> str:
        """Version of a Debian package; nothing elsewhere."""
        try:
            return self.run("dpkg-query", "-W", "-f", "${Version}", name).strip()
        except (Missing, subprocess.CalledProcessError):
            return ""

    def distribution(self, name: str) -> str:
        """Version of a Python package beside the programs."""
        code = f"from importlib.metadata import version; print(version('{name}'))"
        return self.run("python", "-c", code).strip()

    def articles(self, found: dict[str, str]) -> Pairs:
        """The pairs of articles, which have a translation a line."""
        return [
            (word, SHOWN.sub("", line.strip()))
            for word, text in found.items()
            for line in text.split("\n")
            if line.strip()
        ]

    # -- one a format --------------------

    def polars_csv(self, path: Path, separator: str) -> tuple[str, Pairs]:
        import polars

        frame = polars.read_csv(
            path, separator=separator, quote_char=None if separator == "\t" else '"'
        )
        rows = zip(frame["source"].to_list(), frame["target"].to_list(), strict=True)
        plain = [
            tuple(re.sub(r"^(?:'(?=[=+\-@])|\\(?=#))", "", str(word)) for word in row)
            for row in rows
        ]
        return f"polars {version('polars')}", plain  # type: ignore[return-value]

    def tsv(self, path: Path) -> tuple[str, Pairs]:
        return self.polars_csv(path, "\t")

    def csv(self, path: Path) -> tuple[str, Pairs]:
        return self.polars_csv(path, ",")

    def jsonl(self, path: Path) -> tuple[str, Pairs]:
        import pandas

        frame = pandas.read_json(path, lines=True, dtype=False)
        return f"pandas {version('pandas')}", list(
            zip(frame["source"], frame["target"], strict=True)
        )

    def parquet(self, path: Path) -> tuple[str, Pairs]:
        import polars

        frame = polars.read_parquet(path)
        pairs = list(zip(frame["source"].to_list(), frame["target"].to_list(), strict=True))
        return f"polars {version('polars')}", pairs

    def glossary(self, path: Path) -> tuple[str, Pairs]:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [tuple(row) for row in csv.reader(file)]
        return "Python's csv (no reader of the service runs here)", rows  # type: ignore[return-value]

    deepl = google = microsoft = glossary

    def table(self, path: Path) -> tuple[str, Pairs]:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        rows = [line.split() for line in text.decode().splitlines()]
        order = (0, 1) if "fast" in path.name else (1, 0)
        return "line by line, as the readers' sources do", [
            tuple(row[i] for i in order) for row in rows
        ]  # type: ignore[misc]

    moses = bicleaner = fast_align = table

    def hunalign(self, path: Path) -> tuple[str, Pairs]:
        rows = [line.split(" @ ") for line in path.read_text("utf-8").splitlines()]
        return "line by line, as hunalign's manual says", [
            (source, target) for target, source in rows
        ]

    def toolkit(self, path: Path) -> tuple[str, Pairs]:
        code = (
            "import json, sys; from translate.storage import factory; "
            "units = factory.getobject(sys.argv[1]).units; "
            "print(json.dumps([[str(u.source), str(u.target)] for u in units]))"
        )
        name = f"translate-toolkit {self.distribution('translate-toolkit')}"
        return name, [tuple(pair) for pair in json.loads(self.run("python", "-c", code, path))]

    tmx = tbx = toolkit

    def lxml(self, path: Path, entry: str, source: str, target: str) -> tuple[str, Pairs]:
        from lxml import etree

        root = etree.parse(str(path)).getroot()
        pairs = [
            (one.xpath(f"string({source})"), "".join(other.itertext()))
            for one in root.xpath(entry)
            for other in one.xpath(target)
        ]
        return f"lxml {version('lxml')}", pairs

    def tei(self, path: Path) -> tuple[str, Pairs]:
        orth = "*[local-name()='form'][{}]/*[local-name()='orth']"
        lemma, other = (
            orth.format("@type='lemma'"),
            ".//*[local-name()='cit']/" + orth.format("not(@type)"),
        )
        return self.lxml(path, "//*[local-name()='entry']", lemma, other)

    def lift(self, path: Path) -> tuple[str, Pairs]:
        return self.lxml(path, "//entry", "lexical-unit/form/text", "sense/gloss/text")

    def ontolex(self, path: Path) -> tuple[str, Pairs]:
        import rdflib

        graph = rdflib.Graph().parse(path, format="turtle")
        ontolex, vartrans = (
            f"http://www.w3.org/ns/lemon/{name}#" for name in ("ontolex", "vartrans")
        )
        rows = graph.query(
            f"""PREFIX o: <{ontolex}> PREFIX v: <{vartrans}> SELECT ?x ?y WHERE {{
            ?t a v:Translation ; v:source ?s ; v:target ?u . ?a o:sense ?s . ?b o:sense ?u .
            ?a o:canonicalForm/o:writtenRep ?x . ?b o:canonicalForm/o:writtenRep ?y }}"""
        )
        return f"rdflib {version('rdflib')}", [(str(x), str(y)) for x, y in rows]

    def apertium(self, path: Path) -> tuple[str, Pairs]:
        compiled = path.with_suffix(".bin")
        self.run("lt-comp", "lr", path, compiled)
        expanded = self.run("lt-expand", path).splitlines()
        rows = [re.split(r":(?:>:|<:)?", line, maxsplit=1) for line in expanded]
        name = f"lt-comp and lt-expand of lttoolbox {self.package('lttoolbox')}"
        return name, [(a, b) for a, b in rows]

    def xlsx(self, path: Path) -> tuple[str, Pairs]:
        import openpyxl

        rows = openpyxl.load_workbook(path)["dictionary"].iter_rows(min_row=2, max_col=2)
        pairs = [(str(a.value), str(b.value)) for a, b in rows]
        return f"openpyxl {version('openpyxl')}", pairs

    def stardict(self, path: Path) -> tuple[str, Pairs]:
        name = f"sdcv {self.package('sdcv')}"
        found: dict[str, str] = {}
        for word in self.dictionary.words:
            answer = self.run(
                "sdcv", "-n", "-e", "-j", "--utf8-output", "-2", path.parent, "--", word
            )
            rows = json.loads(answer)
            if rows:
                found[rows[0]["word"]] = rows[0]["definition"]
        return name, self.articles(found)

    def stardict_pyglossary(self, path: Path) -> tuple[str, Pairs]:
        out = path.with_suffix(".out.json")
        self.run("pyglossary", path, out, "--ui=none", "--no-color")
        values = json.loads(out.read_text("utf-8"))
        heads = {word.split("|")[0]: text for word, text in values.items()}  # then its forms
        found = {word: text for word, text in heads.items() if word in self.dictionary}
        return f"pyglossary {self.distribution('pyglossary')}", self.articles(found)

    def dictd(self, path: Path) -> tuple[str, Pairs]:
        name = f"dict against dictd {self.package('dictd')}"
        found: dict[str, str] = {}
        with served(self.program("dictd"), path) as port:
            for word in self.dictionary.words:
                answer = subprocess.run(
                    [
                        self.program("dict"),
                        "-h",
                        "127.0.0.1",
                        "-p",
                        str(port),
                        "-s",
                        "exact",
                        "--",
                        word,
                    ],
                    capture_output=True,
                    text=True,
                    check=False,
                ).stdout
                for part in re.split(r"^From .*$", answer, flags=re.M)[1:]:
                    head, *lines = [line.strip() for line in part.strip().split("\n")]
                    found[head] = "\n".join(lines)
        return name, self.articles(found)

    def anki(self, path: Path) -> tuple[str, Pairs]:
        with zipfile.ZipFile(path) as pack:
            pack.extract("collection.anki2", path.parent)
        base = sqlite3.connect(path.parent / "collection.anki2")
        notes = [row[0].split("\x1f") for row in base.execute("select flds from notes")]
        found = {html.unescape(a): html.unescape(b).replace("<br>", "\n") for a, b, *_ in notes}
        return f"SQLite {sqlite3.sqlite_version}, the collection's tables", self.articles(found)

    def yomitan(self, path: Path) -> tuple[str, Pairs]:
        if self.node is None:
            raise Missing("yomichan-dict-reader")
        code = (
            "const Y = require('yomichan-dict-reader'); const y = new Y();"
            "y.readDictionary(process.argv[1]).then(async () => console.log(JSON.stringify("
            "await y.getAllEntriesFromDict(process.argv[1]))))"
        )
        entries = json.loads(self.run("node", "-e", code, path, cwd=self.node).splitlines()[-1])
        package = self.node / "node_modules/yomichan-dict-reader/package.json"
        rows = entries if isinstance(entries, list) else list(entries.values())
        found = {
            row["term"]: "\n".join(row["definitions"])
            for row in flat(rows)
            if row["sequence"] <= len(self.dictionary.words)
        }
        return f"yomichan-dict-reader {json.loads(package.read_text())['version']}", self.articles(
            found
        )

    def epub(self, path: Path) -> tuple[str, Pairs]:
        with zipfile.ZipFile(path) as book:
            text = "".join(
                book.read(name).decode() for name in book.namelist() if name.endswith("html")
            )
        pairs = [
            (entry.source, entry.target)
            for entry in self.dictionary
            if html.escape(entry.source, quote=False) in text
            and html.escape(entry.target, quote=False) in text
        ]
        made = f"written by pyglossary {self.distribution('pyglossary')}"
        return f"{made}, words found in its pages", pairs


def flat(value: Any) -> Iterator[dict[str, Any]]:
    """Dictionaries of terms, however deep in lists."""
    for one in value.values() if isinstance(value, dict) and "term" not in value else value:
        if isinstance(one, dict) and "term" in one:
            yield one
        else:
            yield from flat(one)


@contextmanager
def served(program: str, path: Path) -> Iterator[int]:
    """A dictd of our own on a free local port, with this dictionary alone."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    settings = path.with_suffix(".conf")
    data, index = path.with_suffix(".dict.dz"), path.with_suffix(".index")
    settings.write_text(
        f"global {{ listen_to 127.0.0.1 port {port} }}\naccess {{ allow * }}\n"
        f'database ours {{ data "{data}" index "{index}" }}\n'
    )
    options = ["-d", "nofork", "--locale", "C.UTF-8", "-c", str(settings)]
    running = subprocess.Popen(
        [program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port
    finally:
        running.terminate()
        running.wait()


def expected(name: str, found: blicer.Dictionary) -> Pairs:
    """What the format can hold of the dictionary (the tests check what is left out)."""
    pairs = [(entry.source, entry.target) for entry in found]
    if name in ("deepl", "google", "microsoft"):
        return [(word, entries[0].target) for word, entries in found.words.items()]
    if name in ("moses", "bicleaner", "fast_align"):
        return [pair for pair in pairs if not any(" " in word for word in pair)]
    return pairs


def check(
    found: blicer.Dictionary, folder: Path, programs: Path | None, node: Path | None
) -> Iterator[tuple[str, str, int, str]]:
    """Format, reader, entries in, entries out."""
    readers = Readers(found, programs, node)
    methods: list[tuple[str, Callable[[Path], tuple[str, Pairs]]]] = []
    for name in blicer.formats.FORMATS:
        methods.append((name, getattr(readers, name)))
        if name == "stardict":
            methods.append((name, readers.stardict_pyglossary))
    for name, read in methods:
        ending = (*blicer.formats.FORMATS[name].endings, ".gz" if name == "bicleaner" else ".csv")[
            0
        ]
        place = folder / f"{name}-{read.__name__}"
        place.mkdir()
        path = place / f"{name}{ending}"
        try:
            found.save(path, name)
            reader, pairs = read(path)
        except (Missing, blicer.BlicerError) as error:
            yield name, f"not run: {error}", len(expected(name, found)), "–"
            continue
        wanted = expected(name, found)
        same = sorted(set(wanted) & set(pairs))
        out = (
            str(len(pairs))
            if len(same) == len(set(wanted))
            else f"{len(pairs)} ({len(same)} equal)"
        )
        yield name, reader, len(wanted), out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("-n", "--words", type=int, default=1000)
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--node", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    if asked.source.is_dir():
        found = blicer.Translator.load(asked.source).induce(asked.words, k=3)
    else:
        found = blicer.Dictionary.load(asked.source)
    lines = [
        f"# Formats and their readers\n\n{found!r}, written in every format by "
        "`python -m tools.check_formats` and opened by a reader that is not ours.\n",
        "| format | reader | entries in | entries out |\n|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # dictd gives up root's rights before it reads
        for row in check(found, Path(name), asked.programs, asked.node):
            lines.append(f"| {' | '.join(map(str, row))} |")
            print(lines[-1], flush=True)
    if asked.output is not None:
        with atomic_write(asked.output) as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
