"""Whole dictionaries: induced from a translator, kept scores, tables, standard output, verdicts."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from typer.testing import CliRunner

from blicer import formats
from blicer.align.space import Space
from blicer.calibration import Absent, Scored, calibrate
from blicer.cli import app
from blicer.dictionary import About, Dictionary, Entry, joined, merged
from blicer.embeddings import Embeddings
from blicer.errors import FileError, InputError
from blicer.files import atomic_write, open_output
from blicer.forms import Forms
from blicer.io.dictionary import escape_formula, unescape_formula
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, Mixture
from blicer.training_pairs import Scaling
from blicer.translator import Translator, rank_cached, ranking_cache

WORDS = 60


class Counting:
    """A fixed number from the two spellings, and how many pairs were asked for."""

    name = "spelling"

    def __init__(self) -> None:
        self.asked = 0

    def score(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        self.asked += len(source)
        pairs = zip(source, target, strict=True)
        return np.array([(sum(map(ord, a + "|" + b)) * 37 % 100) / 100 for a, b in pairs])


def make_translator(n_cand: int = 10, **changed: Any) -> Translator:
    rng = np.random.default_rng(0)
    source = rng.normal(size=(WORDS, 8)).astype(np.float32)
    target = (source + 0.8 * rng.normal(size=source.shape)).astype(np.float32)
    space = Space(
        Embeddings([f"s{i}" for i in range(WORDS)], source, "en"),
        Embeddings([f"t{i}" for i in range(WORDS)], target, "fr"),
    )
    mixed = rng.random((80, 10))
    words = Scored(mixed, np.stack([mixed, mixed], axis=2), np.arange(80) % 2 == 0, np.arange(80))
    calibration = calibrate(words, rng.random(mixed.shape) < mixed, (Absent(), Absent()))
    options: dict[str, Any] = {"calibration": calibration, "n_cand": n_cand, **changed}
    mixture = Mixture({CSLS: 0.4, "spelling": 0.6})
    return Translator(space, [Counting()], mixture, Scaling(0.5, 0.5), **options)


@pytest.fixture
def translator(monkeypatch: pytest.MonkeyPatch) -> Translator:
    monkeypatch.setattr("blicer.translator.QUERIES_AT_ONCE", 7)
    monkeypatch.setattr("blicer.translator.CACHED_BLOCK", 7)
    return make_translator()


def pairs_asked(translator: Translator) -> int:
    return translator.scorers[0].asked  # type: ignore[attr-defined, no-any-return]


# -- induced --------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("least", [None, 0.0, 0.3])
def test_induced_is_what_translate_says(
    translator: Translator, reverse: bool, least: float | None
) -> None:
    translator.seeds = Lexicon([("s3", "t9"), ("s3", "odd")])
    words = (translator.target if reverse else translator.source).words[:25]
    options: dict[str, Any] = {"reverse": reverse, "min_confidence": least}
    for _ in range(2):  # computed, and from what was kept
        found = translator.induce(25, 3, **options)
        expected = [
            (entry.word, one.word, one.confidence, one.score, rank, one.seed)
            for entry in translator.translate(words, 3, **options)
            for rank, one in enumerate(entry.candidates, start=1)
        ]
        got = [(e.source, e.target, e.confidence, e.score, e.rank, e.seed) for e in found]
        assert got == expected
        assert found.asked == 25
        assert (found.about.source, found.about.target) == (
            ("fr", "en") if reverse else ("en", "fr")
        )


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_parts_are_the_whole(translator: Translator, parts: int, tmp_path: Path) -> None:
    whole = translator.induce(25, 3)
    files = []
    for part in range(1, parts + 1):
        files.append(tmp_path / f"{part}.jsonl")
        translator.induce(25, 3, shard=f"{part}/{parts}").save(files[-1])
    assert pairs_asked(translator) == 25 * 10  # nothing twice
    every = [translator.induce(25, 3, shard=f"{part}/{parts}") for part in range(1, parts + 1)]
    assert joined(every) == whole
    assert joined([*every, every[0]]) == whole
    assert joined(every).asked == 25
    done = CliRunner().invoke(app, ["export", *map(str, files), "-o", str(tmp_path / "all.tsv")])
    assert done.exit_code == 0
    whole.save(tmp_path / "whole.tsv")
    assert (tmp_path / "all.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    with pytest.raises(InputError, match="in parts"):
        translator.induce(25, both=True, shard="1/2")


def test_no_pair_is_scored_twice(translator: Translator) -> None:
    translator.induce(20)
    assert pairs_asked(translator) == 20 * 10
    for options in ({"k": 1}, {"min_confidence": 0.5}, {"seeds_as_evidence": True}):
        translator.induce(20, **options)  # type: ignore[arg-type]
    translator.induce(11)
    assert pairs_asked(translator) == 20 * 10
    translator.induce(23)  # in the middle of a block, and beyond
    assert pairs_asked(translator) == 23 * 10
    again = make_translator()
    assert again.induce(23) == translator.induce(23)
    assert pairs_asked(again) == 0
    other = make_translator(n_cand=9)  # another translator shares nothing
    other.induce(5)
    assert pairs_asked(other) == 5 * 9


def test_a_killed_run_goes_on(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Translator.rank
    calls = []

    def dies(self: Translator, queries: Any, **options: Any) -> Any:
        calls.append(len(queries))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return rank(self, queries, **options)

    monkeypatch.setattr(Translator, "rank", dies)
    with pytest.raises(KeyboardInterrupt):
        translator.induce()
    assert pairs_asked(translator) == 21 * 10
    found = translator.induce()
    assert pairs_asked(translator) == WORDS * 10
    assert len(found.words) == WORDS


def test_rows_of_several_blocks_in_any_order(translator: Translator) -> None:
    """A word with a space around it can be that of another row."""
    queries = [20, 3, 9, 3, 59]
    expected = translator.rank(queries)
    kept = ranking_cache(translator)
    for _ in range(2):
        found = rank_cached(translator, kept, queries, reverse=False)
        # Products of few and of many rows round differently.
        for key, values in vars(found).items():
            np.testing.assert_allclose(values, getattr(expected, key), rtol=1e-5, atol=1e-6)


def test_damaged_files_are_computed_again(translator: Translator, own_cache: Path) -> None:
    expected = translator.induce(20)
    files = sorted(own_cache.glob("scores/*/*"))
    assert len(files) == 3
    content = bytearray(files[0].read_bytes())
    content[-3] ^= 1
    files[0].write_bytes(bytes(content))
    files[1].write_bytes(b"")
    files[2].write_bytes(files[2].read_bytes()[:-9])
    before = pairs_asked(translator)
    assert translator.induce(20) == expected
    assert pairs_asked(translator) == before + 20 * 10


def test_a_cache_that_cannot_be_written_is_no_failure(
    translator: Translator, own_cache: Path
) -> None:
    (own_cache / "scores").write_text("a file")
    assert len(translator.induce(20).words) == 20


def test_both_directions_are_merged(translator: Translator) -> None:
    forward = {(e.source, e.target): e for e in translator.induce(k=2)}
    backward = {(e.target, e.source): e for e in translator.induce(k=2, reverse=True)}
    found = translator.induce(k=2, both=True)
    assert {(e.source, e.target) for e in found} == set(forward) | set(backward)
    agreed = [(e.source, e.target) in forward.keys() & backward.keys() for e in found]
    assert any(agreed)
    assert agreed == sorted(agreed, reverse=True)
    for entry in found:
        pair = entry.source, entry.target
        assert entry.confidence == (forward[pair].confidence if pair in forward else None)
        assert entry.back_confidence == (backward[pair].confidence if pair in backward else None)
    for both in (agreed.count(True), 0):
        part = [e.surest for e in (found.entries[:both] if both else found.entries[sum(agreed) :])]
        assert part == sorted(part, reverse=True)
    for entries in found.words.values():
        assert [e.rank for e in entries] == list(range(1, len(entries) + 1))
    with pytest.raises(InputError, match="has no reverse"):
        translator.induce(both=True, reverse=True)
    with pytest.raises(InputError, match="words is 0"):
        translator.induce(0)


def test_inflected_forms_lead_to_their_headword() -> None:
    rng = np.random.default_rng(3)
    stems = ["".join(rng.choice(list("bdfgklmn"), 5)) for _ in range(50)]
    vectors = np.repeat(rng.normal(size=(50, 8)), 2, axis=0) + 0.1 * rng.normal(size=(100, 8))
    language = Embeddings([stem + end for stem in stems for end in ("a", "as")], vectors)
    heads = [stem + "a" for stem in stems[:10]]
    assert Forms(language).of(heads) == {stem + "as": stem + "a" for stem in stems[:10]}


# -- the object --------------------

ENTRIES = [
    Entry("cat", "chat", 0.91234, 0.5, 1, forms=("chats",)),
    Entry("cat", "=minou", 0.25, 0.25, 2),
    Entry("#1", "-20%", 1.0, None, 1, seed=True),
    Entry("'@home", 'à "la" maison, ici', None, None, 1),
]


def test_a_dictionary_is_a_sequence_and_a_mapping() -> None:
    found = Dictionary(ENTRIES, About("en", "fr"))
    assert len(found) == 4
    assert [entry.target for entry in found["cat"]] == ["chat", "=minou"]
    assert "cat" in found
    assert "chat" not in found
    with pytest.raises(KeyError, match="dog"):
        found["dog"]
    assert repr(found) == "Dictionary(en-fr, 4 entries for 3 words)"
    assert [e.target for e in found.best(1, 0.3)] == ["chat", "-20%"]
    assert found.reverse()["chat"][0].target == "cat"
    assert found.reverse()["chat"][0].back_confidence == 0.91234
    page = Dictionary([Entry("<b>", "&", 0.5)])._repr_html_()
    assert "<td>&lt;b&gt;</td><td>&amp;</td><td>0.50</td>" in page


def test_data_frames() -> None:
    found = Dictionary(ENTRIES)
    frame, lazy = found.to_pandas(), found.to_polars()
    assert frame["target"].tolist() == lazy["target"].to_list() == [e.target for e in ENTRIES]
    assert lazy["forms"].to_list() == [list(e.forms) for e in ENTRIES]
    assert lazy["confidence"].null_count() == 1
    assert frame["confidence"].isna().sum() == 1
    assert Dictionary([]).to_polars().columns == list(frame.columns)


# -- tables --------------------


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet", "tsv.gz", "csv.zst"])
def test_tables_are_read_back(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"d.{ending}"
    Dictionary(ENTRIES, About("en", "fr", seeds=7)).save(path)
    again = Dictionary.load(path)
    whole = ending in ("jsonl", "parquet")
    for one, other in zip(again, ENTRIES, strict=True):
        assert (one.source, one.target, one.rank) == (other.source, other.target, other.rank)
        assert one.confidence == pytest.approx(other.confidence, abs=5e-5)
        assert one.score == other.score
        assert one.seed == other.seed
        assert one.forms == (other.forms if whole else ())
    if ending == "parquet":
        assert (again.about.source, again.about.seeds) == ("en", 7)
    if ending != "parquet" and ending != "jsonl":
        assert Lexicon.load(path).pairs == [(e.source, e.target.lower()) for e in ENTRIES]


def test_other_programs_read_the_tables(tmp_path: Path) -> None:
    found = Dictionary(ENTRIES)
    for ending in ("tsv", "csv", "parquet", "jsonl"):
        found.save(tmp_path / f"d.{ending}")
    frame = polars.read_parquet(tmp_path / "d.parquet")
    assert frame["source"].to_list() == [e.source for e in ENTRIES]
    lines = polars.read_ndjson(tmp_path / "d.jsonl")
    assert lines["target"].to_list() == [e.target for e in ENTRIES]
    with (tmp_path / "d.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert not [cell for row in rows for cell in row.values() if cell and cell[0] in "=+-@\t\r"]
    found.save(tmp_path / "y.tsv.gz")
    packed = (tmp_path / "y.tsv.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "d.tsv").read_bytes()
    found.save(tmp_path / "y.tsv.zst")
    with pyarrow.input_stream(str(tmp_path / "y.tsv.zst"), compression="zstd") as file:
        assert file.read() == (tmp_path / "d.tsv").read_bytes()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_formulas_are_escaped_and_come_back(text: str) -> None:
    safe = escape_formula(text)
    assert not safe or safe[0] not in "=+-@\t\r"
    assert unescape_formula(safe) == text


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_an_editor_s_verdicts_become_seeds_and_wrong_pairs(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"d.{ending}"
    reviewed = [
        Entry("cat", "chat", 0.9, verdict="accept"),
        Entry("dog", "chat", 0.9, verdict="NO", note="odd"),
        Entry("house", "toit", 0.9, correction="maison"),
        Entry("sea", "mer", 0.9, verdict="yes", correction="océan"),
        Entry("sun", "soleil", 0.9),
    ]
    Dictionary(reviewed).save(path)
    again = Dictionary.load(path)
    right, wrong = again.curated()
    assert right.pairs == [("cat", "chat"), ("house", "maison"), ("sea", "océan"), ("sea", "mer")]
    assert wrong.pairs == [("dog", "chat"), ("house", "toit")]
    assert again.entries[1].note == "odd"
    Dictionary([Entry("cat", "chat", verdict="perhaps")]).save(path)
    with pytest.raises(FileError, match=r"cat - chat has the verdict 'perhaps'"):
        Dictionary.load(path)


def test_the_other_direction_has_the_same_decisions() -> None:
    found = Dictionary(
        [
            Entry("cat", "chat", 0.9, verdict="no", note="odd"),
            Entry("foo", "x", 0.9, correction="y"),
            Entry("foo", "y", 0.2, rank=2),
            Entry("sea", "mer", 0.9, verdict="yes", correction="océan"),
            Entry("bar", "z", 0.9, verdict="no", correction="z"),
        ]
    )
    right, wrong = found.curated()
    back_right, back_wrong = found.reverse().curated()
    assert set(back_right.pairs) == {(b, a) for a, b in right.pairs}
    assert set(back_wrong.pairs) == {(b, a) for a, b in wrong.pairs}
    assert found.reverse()["chat"][0].note == "odd"
    assert [one.rank for one in found.reverse()["y"]] == [1]
    assert len(Dictionary([Entry("a", "b"), Entry("a", "b")]).reverse()) == 2


def test_columns_for_an_editor_are_there_when_asked_for(tmp_path: Path) -> None:
    Dictionary(ENTRIES).save(tmp_path / "d.tsv", review=True)
    head = (tmp_path / "d.tsv").read_text().splitlines()[0].split("\t")
    assert head[5:] == ["seed", "verdict", "correction", "note"]
    assert Dictionary.load(tmp_path / "d.tsv").curated() == (Lexicon([]), Lexicon([]))
    with pytest.raises(InputError, match="columns for an editor"):
        Dictionary(ENTRIES).save(tmp_path / "d.txt", "moses", review=True)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.tsv", "source\ttarget\tconfidence\ncat\tchat\thigh\n", "line 2.*'high'"),
        ("a.tsv", "source\ttarget\ncat\t\n", "line 2.*empty"),
        ("a.jsonl", '{"source": "cat"}\n', "line 1.*empty"),
        ("a.jsonl", "[1]\n", "line 1.*object"),
        ("a.jsonl", "{\n", "line 1.*JSON"),
        ("a.parquet", "x", "Parquet"),
    ],
)
def test_bad_tables_are_one_sentence(name: str, text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError, match=problem):
        Dictionary.load(tmp_path / name)


_VERDICTS = "source,target,verdict,correction,note\ns1,t1,accept,,\n"


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('s2,t2,reject,,"unclosed\ns3,t3,reject,,\ns4,t4,reject,,\n', 3),
        ('s2,t2,reject,,"two\nlines"\ns3,t3,reject,,"unclosed\ns4,t4,,,"note"\n', 5),
        (f"s2,t2,reject,,{'x' * 200_000}\n", 3),
    ],
)
def test_no_quote_hides_the_rest_of_an_editor_s_decisions(
    rows: str, line: int, tmp_path: Path
) -> None:
    path = tmp_path / "cur.csv"
    path.write_text(_VERDICTS + rows)
    with pytest.raises(FileError) as caught:
        Dictionary.load(path)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", '# made, by hand\nsource,target,verdict\ncat,chat,no\n\\#1,2 "x",yes\n'),
        ("a.tsv", '\n# a, b\nsource\ttarget\tverdict\ncat\tchat\tno\n\\#1\t2 "x"\tyes\n'),
        ("a.tsv", 'source\ttarget\tverdict\rcat\tchat\tno\r\\#1\t2 "x"\tyes\r'),
        ("a.csv", 'Rank,Source,Target,Verdict\n1,cat,chat,no\n# "odd\n1,\\#1,"2 ""x""",yes\n'),
        ("a.csv", 'source,target,"my\n remark",verdict\ncat,chat,,no\n\\#1,"2 ""x""",,yes\n'),
        ("a.csv", 'source;target;verdict;"note, if any"\ncat;chat;no;\n\\#1;2 "x";yes;\n'),
        ("a.tsv", '"verdict"\t"source"\t"target"\n"no"\t"cat"\t"chat"\nyes\t\\#1\t"2 ""x"""\n'),
    ],
)
def test_verdicts_are_found_in_any_layout(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert Dictionary.load(tmp_path / name).entries == [
        Entry("cat", "chat", verdict="no"),
        Entry("#1", '2 "x"', verdict="yes"),
    ]


@pytest.mark.parametrize(
    "cell",
    [
        '"rank": 1e999',
        '"rank": 0',
        '"rank": 1.5',
        f'"rank": {"9" * 30}',
        '"rank": [1]',
        f'"confidence": {"9" * 400}',
        '"confidence": NaN',
        '"confidence": -5',
        '"back_confidence": 1.01',
        '"score": Infinity',
        '"score": {}',
        '"forms": 5',
        '"forms": [1, [2]]',
        '"forms": ["\\ud800"]',
        '"target": "\\ud800"',
        '"note": ["a"]',
        f'"rank": {"9" * 5000}',
    ],
)
def test_values_that_no_dictionary_has_are_one_sentence(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    start = '{"source": "s", "target": "t"}\n{"source": "cat", "target": "chat", '
    path.write_text(f"{start}{cell}}}\n")
    with pytest.raises(FileError) as caught:
        Dictionary.load(path)
    assert caught.value.line == 2
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_damage_that_a_library_finds_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    table = pyarrow.table({"source": ["cat"], "target": ["chat"]})
    marked = table.replace_schema_metadata({"blicer": "{"})
    parquet.write_table(marked, tmp_path / "json.parquet")
    parquet.write_table(table, tmp_path / "cut.parquet")
    whole = (tmp_path / "cut.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:40] + bytes(20) + whole[60:])
    for name in ("deep.jsonl", "json.parquet", "cut.parquet"):
        with pytest.raises(FileError) as caught:
            Dictionary.load(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_small_files_of_many_rows_are_refused(tmp_path: Path) -> None:
    many = 1_000_001
    ones = pyarrow.repeat("a", many)
    parquet.write_table(pyarrow.table({"source": ones, "target": ones}), tmp_path / "d.parquet")
    with gzip.open(tmp_path / "d.tsv.gz", "wb", 1) as file:
        file.write(b"source\ttarget\n" + b"a\tb\n" * many)
    with gzip.open(tmp_path / "d.jsonl.gz", "wb", 1) as file:
        file.write(b"{}\n" * many)
    with gzip.open(tmp_path / "pairs.txt.gz", "wb", 1) as file:
        file.write(b"a\tb\n" * many)
    for name in ("d.parquet", "d.tsv.gz", "d.jsonl.gz", "pairs.txt.gz"):
        with pytest.raises(FileError, match=r"has 1,000,00. rows in [\d,]+ bytes"):
            Dictionary.load(tmp_path / name)


def test_foreign_columns_of_parquet_are_not_read(tmp_path: Path) -> None:
    table = {"source": ["cat"] * 5000, "x": [1] * 5000, "target": [str(n) for n in range(5000)]}
    parquet.write_table(pyarrow.table(table), tmp_path / "d.parquet")
    targets = [entry.target for entry in Dictionary.load(tmp_path / "d.parquet")]
    assert targets == table["target"]


@pytest.mark.parametrize(
    "changed",
    [
        {"tool": "x\nsametypesequence=h"},
        {"version": "1\u2028"},
        {"method": "\x1b[2J"},
        {"vectors": ["a", "b\n"]},
        {"vectors": ["a"]},
        {"vectors": 5},
        {"source": 'en . <urn:a> <urn:b> "c'},
        {"target": "no language"},
        {"date": '2026-01-31"@en . <urn:a> <urn:b> "c'},
        {"date": 5},
        {"date": "2026-1-31"},
        {"seeds": "many"},
        {"seeds": -1},
        {"seeds": True},
        {"seeds": 1.5},
        {"tool": None},
    ],
)
@pytest.mark.parametrize("ending", ["parquet", "xlsx"])
def test_provenance_of_a_file_is_checked(
    changed: dict[str, Any], ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"d.{ending}"
    about = asdict(About("en", "fr", ("en.vec", "fr.vec"), 7, "c1", "2026-01-31"))
    assert asdict(About.from_dict(about)) == about
    assert About.from_dict({"source": "", "date": "", "other": 1}) == About(date="")
    with pytest.raises(ValueError, match="tool"):
        About.from_dict({"tool": "\ud800"})
    monkeypatch.setattr("blicer.formats.tables.asdict", lambda _: about | changed)
    Dictionary(ENTRIES).save(path)
    with pytest.raises(FileError) as caught:
        Dictionary.load(path)
    assert "\n" not in str(caught.value)


def test_the_name_of_a_vector_file_is_one_line(tmp_path: Path) -> None:
    about = About("en", "fr", ("en\nsametypesequence=h.vec", "fr\udcff.vec"))
    Dictionary(ENTRIES, about).save(tmp_path / "d.ifo")
    assert "\nsametypesequence=h" not in (tmp_path / "d.ifo").read_text("utf-8")
    Dictionary(ENTRIES, about).save(tmp_path / "d.parquet")
    assert Dictionary.load(tmp_path / "d.parquet").about == about


@pytest.mark.parametrize("mark", ["\t", ","])
def test_lines_that_are_no_entries_are_counted(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr("blicer.formats.tables.note", notes.append)
    rows = [["#1", "one"], ["source", "target"], ["cat", "chat"], ["#2", "two"], ["dog", "chien"]]
    path = tmp_path / "a.txt"
    path.write_text("".join(mark.join(row) + "\n" for row in rows))
    assert [entry.source for entry in Dictionary.load(path)] == ["cat", "dog"]
    (line,) = notes
    assert f"{path}: 2 lines beginning with #" in line
    path.write_text(f"cat{mark}chat\nlonely\ndog{mark}chien\n")
    assert len(Dictionary.load(path)) == 2
    assert "1 line that could not be read" in notes[-1]


def test_numbers_as_other_programs_write_them(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("source\ttarget\tconfidence\tscore\trank\n1\t2\t1\t-3e-1\t2.0\n")
    assert Dictionary.load(path).entries == [Entry("1", "2", 1.0, -0.3, 2)]


def test_a_plain_list_of_pairs_is_a_dictionary(tmp_path: Path) -> None:
    (tmp_path / "muse.txt").write_text("Cat chat\ndog chien\n")
    assert Dictionary.load(tmp_path / "muse.txt").entries == [
        Entry("Cat", "chat"),
        Entry("dog", "chien"),
    ]


def test_what_cannot_be_written_is_said_before(tmp_path: Path) -> None:
    found = Dictionary(ENTRIES)
    for name in ("d.doc", "d.json", "d.doc.gz"):
        with pytest.raises(InputError, match="which no dictionary format has"):
            found.save(tmp_path / name)
    with pytest.raises(InputError, match="there is no format 'xml'"):
        found.save(tmp_path / "d.tsv", "xml")
    with pytest.raises(FileError, match="is a folder"):
        found.save(tmp_path)
    assert not list(tmp_path.iterdir())
    assert formats.check_output(Path("/dev/stdout")) == "tsv"


# -- the command --------------------


@pytest.mark.parametrize("ending", ["tsv", "xlsx"])
def test_an_editor_s_work_is_not_replaced(tmp_path: Path, ending: str) -> None:
    run, out = CliRunner(), tmp_path / f"d.{ending}"
    Dictionary(ENTRIES).save(tmp_path / "d.jsonl")
    again = ["export", str(tmp_path / "d.jsonl"), "--review", "-o", str(out)]
    for _ in range(2):  # without a verdict it is replaced
        assert run.invoke(app, again).exit_code == 0
    Dictionary([replace(ENTRIES[0], verdict="reject"), *ENTRIES[1:]]).save(out, review=True)
    before = out.read_bytes()
    refused = run.invoke(app, again)
    assert isinstance(refused.exception, InputError)
    assert "editor" in str(refused.exception)
    assert out.read_bytes() == before
    # From the file itself the verdicts come along.
    assert run.invoke(app, ["export", str(out), "-o", str(out)]).exit_code == 0
    assert Dictionary.load(out).is_reviewed


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("seeds.tsv", "cat\tchat\n"),
        ("words.txt", "cat\ndog\n"),
        ("edited.tsv", "source\ttarget\tconfidence\tverdict\ncat\tchat\t0.5\tmaybe\n"),
        ("other.jsonl", "{}\n"),
    ],
)
def test_a_table_of_somebody_s_own_is_not_replaced(tmp_path: Path, name: str, content: str) -> None:
    Dictionary(ENTRIES).save(tmp_path / "d.jsonl")
    own = tmp_path / name
    own.write_text(content)
    refused = CliRunner().invoke(app, ["export", str(tmp_path / "d.jsonl"), "-o", str(own)])
    assert isinstance(refused.exception, InputError)
    assert "choose another name" in str(refused.exception)
    assert own.read_text() == content


def test_a_language_that_is_not_known_is_said(tmp_path: Path) -> None:
    Dictionary(ENTRIES).save(tmp_path / "d.jsonl")
    for ending, tags, said in (
        ("tmx", [], True),
        ("tmx", ["--source-language", "en"], True),
        ("tmx", ["--source-language", "en", "--target-language", "fr"], False),
        ("csv", [], False),
    ):
        out = ["-o", str(tmp_path / f"d.{ending}")]
        done = CliRunner().invoke(app, ["export", str(tmp_path / "d.jsonl"), *out, *tags])
        assert ("--source-language" in done.stderr) == said


def test_a_dictionary_file_is_exported(tmp_path: Path) -> None:
    run = CliRunner()
    Dictionary(ENTRIES).save(tmp_path / "d.jsonl")
    arguments = ["export", str(tmp_path / "d.jsonl"), "--source-language", "EN", "--json"]
    out = str(tmp_path / "d.parquet")
    done = run.invoke(app, [*arguments, "--min-confidence", "0.3", "-o", out])
    assert json.loads(done.stdout) == {"output": out, "words": 3, "translated": 2, "entries": 2}
    found = Dictionary.load(tmp_path / "d.parquet")
    assert [entry.target for entry in found] == ["chat", "-20%"]
    assert found.about.source == "en"
    run.invoke(app, [*arguments, "-n", "1", "-k", "1", "--reverse", "--review", "-o", out])
    assert [entry.target for entry in Dictionary.load(tmp_path / "d.parquet")] == ["cat"]
    for wrong, said in (
        (["--both", "-o", out], "need a translator"),
        (["-o", "-"], "both go to standard output"),
        (["-o", str(tmp_path / "d.doc")], "no dictionary format"),
        (["--source-language", "english", "-o", out], "BCP 47"),
    ):
        failed = run.invoke(app, [*arguments, *wrong])
        assert isinstance(failed.exception, InputError)
        assert said in str(failed.exception)


# -- standard output, pipes --------------------

_WRITE = """
import sys
from blicer.dictionary import Dictionary, Entry
Dictionary([Entry("cat", "chat", 0.5)]).save(sys.argv[1])
"""
_LINES = b"source\ttarget\tconfidence\tscore\trank\tseed\ncat\tchat\t0.5000\t\t1\t\n"


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_appended_to(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITE, name]
    piped = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    assert piped.stdout == _LINES
    mine = tmp_path / "mine.txt"
    mine.write_bytes(b"precious\n")
    with mine.open("ab") as file:
        subprocess.run(command, stdout=file, check=True, cwd=tmp_path)
    assert mine.read_bytes() == b"precious\n" + _LINES
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_another_descriptor_is_written_to(tmp_path: Path) -> None:
    read, write = os.pipe()
    with atomic_write(f"/dev/fd/{write}") as file:
        file.write("through")
    os.close(write)
    with open(read) as file:
        assert file.read() == "through"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "d.tsv.gz"
    path.write_bytes(b"old")

    def half() -> Iterator[str]:
        yield "half"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), open_output(path) as file:
        file.writelines(half())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_merged_without_confidences() -> None:
    forward = Dictionary([Entry("a", "x"), Entry("b", "y")])
    backward = Dictionary([Entry("y", "b"), Entry("z", "c")])
    found = merged(forward, backward)
    assert [(e.source, e.target) for e in found] == [("b", "y"), ("a", "x"), ("c", "z")]


def test_jsonl_holds_what_the_others_hide(tmp_path: Path) -> None:
    Dictionary(ENTRIES).save(tmp_path / "d.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert rows[0]["forms"] == ["chats"]
    assert rows[2]["seed"] is True
