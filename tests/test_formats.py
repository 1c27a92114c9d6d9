"""Every format against a reader that we did not write, or its specification by hand.

Programs of other licences (dictd, sdcv, lttoolbox, pyglossary) are run where they are installed.
"""

from __future__ import annotations

import csv
import gzip
import html
import json
import math
import shutil
import sqlite3
import struct
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import openpyxl
import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from blicer import formats
from blicer.dictionary import About, Dictionary, Entry
from blicer.errors import BlicerError, FileError, InputError
from blicer.formats import glossary
from blicer.formats.apps import DICTD_DIGITS as DIGITS
from blicer.formats.apps import PIECE, dictzip

ABOUT = About("en", "fr", ("en.vec (9 words)", "fr.vec"), 12, "twoview", "2026-01-31")
ENTRIES = [
    Entry("cat", "chat", 0.9, 0.5, 1, forms=("chats",)),
    Entry("cat", "=minou", 0.25, 0.25, 2),
    Entry("Café & bar", '<"thé">', 1.0, None, 1, seed=True),
    Entry("a b", "deux mots", 0.5, 0.1, 1, verdict="accept"),
    Entry("été", "summer\x01", 0.75, 0.1, 1),
    Entry("Zoo", "zoo", None, None, 1),
]
WORDS = [(e.source, e.target) for e in ENTRIES]
LEGAL = [(source, target.replace("\x01", "")) for source, target in WORDS]  # in XML
XML = "{http://www.w3.org/XML/1998/namespace}"
TMX_DTD = """
<!ELEMENT tmx (header, body)> <!ATTLIST tmx version CDATA #REQUIRED>
<!ELEMENT header (note | prop | ude)*>
<!ATTLIST header creationtool CDATA #REQUIRED creationtoolversion CDATA #REQUIRED
  segtype (block | paragraph | sentence | phrase) #REQUIRED o-tmf CDATA #REQUIRED
  adminlang CDATA #REQUIRED srclang CDATA #REQUIRED datatype CDATA "unknown"
  o-encoding CDATA #IMPLIED creationdate CDATA #IMPLIED creationid CDATA #IMPLIED>
<!ELEMENT ude EMPTY> <!ELEMENT note (#PCDATA)> <!ELEMENT prop (#PCDATA)>
<!ATTLIST prop type CDATA #REQUIRED xml:lang CDATA #IMPLIED>
<!ELEMENT body (tu*)> <!ELEMENT tu ((note | prop)*, tuv+)> <!ATTLIST tu tuid CDATA #IMPLIED>
<!ELEMENT tuv ((note | prop)*, seg)> <!ATTLIST tuv xml:lang CDATA #REQUIRED>
<!ELEMENT seg (#PCDATA)>
"""
TBX_DTD = """
<!ELEMENT martif (martifHeader, text)>
<!ATTLIST martif type CDATA #REQUIRED xml:lang CDATA #REQUIRED>
<!ELEMENT martifHeader (fileDesc, encodingDesc?)> <!ELEMENT fileDesc (titleStmt?, sourceDesc+)>
<!ELEMENT titleStmt (title)> <!ELEMENT title (#PCDATA)> <!ELEMENT sourceDesc (p+)>
<!ELEMENT encodingDesc (p+)> <!ELEMENT p (#PCDATA)> <!ATTLIST p type CDATA #IMPLIED>
<!ELEMENT text (body)> <!ELEMENT body (termEntry+)> <!ELEMENT termEntry (langSet+)>
<!ATTLIST termEntry id ID #IMPLIED> <!ELEMENT langSet (tig+)>
<!ATTLIST langSet xml:lang CDATA #REQUIRED> <!ELEMENT tig (term, (termNote | note)*)>
<!ELEMENT term (#PCDATA)> <!ELEMENT termNote (#PCDATA)> <!ELEMENT note (#PCDATA)>
<!ATTLIST termNote type CDATA #REQUIRED>
"""
DIX_DTD = """
<!ELEMENT dictionary (alphabet?, sdefs?, pardefs?, section+)> <!ELEMENT alphabet (#PCDATA)>
<!ELEMENT sdefs (sdef+)> <!ELEMENT sdef EMPTY> <!ATTLIST sdef n ID #REQUIRED c CDATA #IMPLIED>
<!ELEMENT pardefs EMPTY> <!ELEMENT section (e+)>
<!ATTLIST section id ID #REQUIRED type (standard | inconditional | postblank) #REQUIRED>
<!ELEMENT e (p)> <!ATTLIST e r (LR | RL) #IMPLIED w CDATA #IMPLIED c CDATA #IMPLIED>
<!ELEMENT p (l, r)> <!ELEMENT l (#PCDATA | b)*> <!ELEMENT r (#PCDATA | b)*> <!ELEMENT b EMPTY>
"""


@pytest.fixture
def dictionary() -> Dictionary:
    found = Dictionary(ENTRIES, ABOUT)
    found.inflected = {"cats": "cat", "Zoos": "Zoo"}
    return found


def parsed(path: Path, dtd: str = "") -> etree._Element:
    root = etree.parse(str(path)).getroot()
    if dtd:
        from io import StringIO

        checker = etree.DTD(StringIO(dtd))
        assert checker.validate(root), checker.error_log
    return root


def text(element: etree._Element, path: str) -> str:
    return "".join(element.find(path).itertext()).strip("\n")


# -- decisions of an editor --------------------


@pytest.mark.parametrize("name", [*formats.FORMATS])
def test_rejected_pairs_are_not_exported_and_corrections_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "epub":
        pytest.skip("made of StarDict")
    notes: list[str] = []
    monkeypatch.setattr("blicer.dictionary.note", notes.append)
    reviewed = [
        Entry("foo", "xxxx", 0.9, verdict="reject", correction="yyyy"),
        Entry("foo", "yyyy", 0.1, rank=2),
        Entry("bad", "zzzz", 0.9, verdict="no"),
        Entry("good", "wwww", 0.9, verdict="yes"),
    ]
    written: list[Dictionary] = []
    write = formats.writer(name)

    def keep(path: Path, found: Dictionary, **options: bool) -> None:
        written.append(found)
        write(path, found, **options)

    monkeypatch.setattr(formats, "writer", lambda _: keep)
    Dictionary(reviewed, ABOUT).save(tmp_path / "d.ending", name)
    pairs = [(one.source, one.target) for one in written[0]]
    if name in formats.REVIEWED:
        assert written[0].entries == reviewed
        assert not notes
    elif name == "tbx":
        root = parsed(tmp_path / "d.ending")
        status = [one.findtext(".//termNote").split("Term-")[0] for one in root.iter("termEntry")]
        assert pairs == [("foo", "yyyy"), ("foo", "xxxx"), ("bad", "zzzz"), ("good", "wwww")]
        assert status == ["preferred", "deprecated", "deprecated", "preferred"]
    else:
        assert pairs == [("foo", "yyyy"), ("good", "wwww")]
        assert any("1 rejected" in one for one in notes)
        assert any("1 targets replaced" in one for one in notes)


def test_a_corrected_glossary_by_hand(tmp_path: Path) -> None:
    reviewed = [Entry("foo", "x", 0.3, correction="y"), Entry("bad", "z", 0.9, verdict="no")]
    for name, text in (("deepl", "foo\ty\n"), ("moses", "y foo 1.0000000\n")):
        Dictionary(reviewed).save(tmp_path / "d.txt", name)
        assert (tmp_path / "d.txt").read_text() == text


# -- XML --------------------


def test_tmx(dictionary: Dictionary, tmp_path: Path) -> None:
    dictionary.save(tmp_path / "d.tmx")
    root = parsed(tmp_path / "d.tmx", TMX_DTD)
    units = root.findall("body/tu")
    pairs = [tuple(tuv.findtext("seg") for tuv in unit.findall("tuv")) for unit in units]
    assert pairs == LEGAL
    assert [tuv.get(f"{XML}lang") for tuv in units[0].findall("tuv")] == ["en", "fr"]
    assert units[0].findtext("prop[@type='x-confidence']") == "0.9000"
    header = root.find("header")
    assert (header.get("srclang"), header.get("creationdate")) == ("en", "20260131T000000Z")
    assert "12 seed pairs" in "".join(header.itertext())


def test_tbx(dictionary: Dictionary, tmp_path: Path) -> None:
    dictionary.save(tmp_path / "d.tbx")
    root = parsed(tmp_path / "d.tbx", TBX_DTD)
    concepts = root.findall("text/body/termEntry")
    assert [tuple(one.xpath("langSet/tig/term/text()")) for one in concepts] == LEGAL
    assert concepts[0].xpath("langSet/@xml:lang") == ["en", "fr"]
    assert concepts[0].findtext(".//note") == "confidence 0.9000"
    assert concepts[3].findtext(".//termNote") == "preferredTerm-admn-sts"


def test_tei(dictionary: Dictionary, tmp_path: Path) -> None:
    dictionary.save(tmp_path / "d.tei")
    root = parsed(tmp_path / "d.tei")
    space = {"t": "http://www.tei-c.org/ns/1.0"}
    entries = root.findall("t:text/t:body/t:entry", space)
    pairs = [
        (entry.findtext("t:form[@type='lemma']/t:orth", namespaces=space), equivalent)
        for entry in entries
        for equivalent in entry.xpath(
            "t:sense/t:cit/t:form[not(@type)]/t:orth/text()", namespaces=space
        )
    ]
    assert pairs == LEGAL
    cit = entries[0].find("t:sense/t:cit", space)
    assert (cit.get("cert"), cit.get(f"{XML}lang")) == ("0.9000", "fr")
    assert cit.get("type") == "translationEquivalent"
    assert cit.xpath("t:form[@type='variant']/t:orth/text()", namespaces=space) == ["chats"]
    assert len({one.get(f"{XML}id") for one in root.iter() if one.get(f"{XML}id")}) == 11


def test_lift(dictionary: Dictionary, tmp_path: Path) -> None:
    dictionary.save(tmp_path / "d.lift")
    root = parsed(tmp_path / "d.lift")
    pairs = [
        (entry.findtext("lexical-unit/form[@lang='en']/text"), gloss.findtext("text"))
        for entry in root.findall("entry")
        for gloss in entry.findall("sense/gloss[@lang='fr']")
    ]
    assert pairs == LEGAL
    assert root.get("version") == "0.13"
    assert root.find("entry/sense/annotation").get("value") == "0.9000"


@pytest.mark.parametrize("program", [None, "lt-comp"])
def test_apertium(dictionary: Dictionary, tmp_path: Path, program: str | None) -> None:
    two_way = [replace(e, back_confidence=0.5) if i else e for i, e in enumerate(ENTRIES)]
    path = tmp_path / "d.dix"
    Dictionary([*two_way, Entry("x", "y", None, back_confidence=0.5)], ABOUT).save(path)
    rows = parsed(path, DIX_DTD).findall("section/e")
    pairs = []
    for row in rows:
        for blank in row.iter("b"):
            blank.tail = " " + (blank.tail or "")
        pairs.append((text(row, "p/l"), text(row, "p/r")))
    assert pairs == [*LEGAL, ("x", "y")]
    assert [row.get("r") for row in rows] == ["LR", *[None] * 4, "RL", "RL"]
    assert float(rows[0].get("w")) == pytest.approx(-math.log(0.9), abs=1e-4)
    if program is None:
        return
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    for direction, word, expected in (("lr", "^cat$", "chat"), ("rl", "^y$", "x")):
        made = tmp_path / f"{direction}.bin"
        subprocess.run([program, direction, path, made], check=True, capture_output=True)
        found = subprocess.run(
            ["lt-proc", "-b", made], input=word, capture_output=True, text=True, check=True
        )
        assert expected in found.stdout


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_text_makes_legal_xml(source: str, target: str) -> None:
    import io
    from xml.sax.saxutils import XMLGenerator

    from blicer.formats.markup import Markup

    out = io.StringIO()
    xml = Markup(XMLGenerator(out, "utf-8"))
    with xml.element("e", {"a": source}, lines=False):
        xml.text(target)
    root = etree.fromstring(out.getvalue())
    assert root.get("a") == xml.legal(source)
    assert (root.text or "") == xml.legal(target).replace("\r\n", "\n").replace("\r", "\n")


def test_what_xml_cannot_hold_is_said(
    dictionary: Dictionary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("blicer.formats.markup.note", said.append)
    dictionary.save(tmp_path / "d.tmx")
    assert len(said) == 1
    assert "1 control character" in said[0]


def test_ontolex(dictionary: Dictionary, tmp_path: Path) -> None:
    dictionary.save(tmp_path / "d.ttl")
    graph = rdflib.Graph().parse(tmp_path / "d.ttl", format="turtle")
    rows = graph.query(
        """
        PREFIX o: <http://www.w3.org/ns/lemon/ontolex#> PREFIX tr: <http://purl.org/net/translation#>
        PREFIX v: <http://www.w3.org/ns/lemon/vartrans#> PREFIX l: <http://www.w3.org/ns/lemon/lime#>
        SELECT ?x ?y ?sure WHERE {
          ?t a v:Translation ; v:source ?s ; v:target ?u .
          ?a o:sense ?s ; o:canonicalForm/o:writtenRep ?x . ?b o:sense ?u ;
          o:canonicalForm/o:writtenRep ?y . [] a l:Lexicon ; l:entry ?a ; l:language "en" .
          OPTIONAL { ?t tr:translationConfidence ?sure } }"""
    )
    found = {(str(x), str(y)): sure for x, y, sure in rows}
    assert set(found) == set(WORDS)
    assert float(found["cat", "chat"]) == 0.9
    assert found["Zoo", "zoo"] is None
    assert {x.language for x, _, _ in rows} == {"en"}


# -- machine translation --------------------


@pytest.mark.parametrize("name", ["deepl", "google", "microsoft"])
def test_glossaries_have_one_translation_a_word(
    dictionary: Dictionary, tmp_path: Path, name: str
) -> None:
    expected = [("cat", "chat"), *((s, t.replace("\x01", "")) for s, t in WORDS[2:])]
    dictionary.save(tmp_path / "d.tsv", name)
    lines = (tmp_path / "d.tsv").read_text("utf-8").splitlines()
    assert [tuple(line.split("\t")) for line in lines] == expected
    dictionary.save(tmp_path / "d.csv", name)
    with (tmp_path / "d.csv").open(newline="", encoding="utf-8") as file:
        assert [tuple(row) for row in csv.reader(file)] == expected


def test_limits_of_a_glossary_are_kept_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(glossary, "note", said.append)
    monkeypatch.setattr(glossary, "FILE_BYTES", 3000)
    long = [Entry("é" * 512, "x"), Entry("é" * 513, "x"), Entry("y", "z" * 1025)]
    many = [Entry(f"w{i}", "x" * 90) for i in range(40)]
    Dictionary([*long, *many]).save(tmp_path / "d.tsv", "deepl")
    content = (tmp_path / "d.tsv").read_bytes()
    lines = content.decode().splitlines()
    assert lines[0] == "é" * 512 + "\tx"
    assert len(content) <= 3000
    assert len(said) == 2
    assert "2 pairs left out: over 1024 bytes" in said[0]
    assert f"{len(long) - 2 + len(many) - len(lines)} pairs left out: over" in said[1]


def test_lexical_tables(dictionary: Dictionary, tmp_path: Path) -> None:
    sums = Dictionary([Entry("cat", "a", 0.9), Entry("cat", "b", 0.6), Entry("dog", "c", 0.4)])
    sums.save(tmp_path / "lex.f2e", "moses")
    rows = [line.split(" ") for line in (tmp_path / "lex.f2e").read_text().splitlines()]
    assert [(s, t) for t, s, _ in rows] == [("cat", "a"), ("cat", "b"), ("dog", "c")]
    assert [float(p) for *_, p in rows] == pytest.approx([0.6, 0.4, 0.4])
    sums.save(tmp_path / "dict.gz", "bicleaner")
    assert gzip.decompress((tmp_path / "dict.gz").read_bytes()) == (
        (tmp_path / "lex.f2e").read_bytes()
    )
    sums.save(tmp_path / "table.txt", "fast_align")
    first = (tmp_path / "table.txt").read_text().splitlines()[0].split("\t")
    assert first[:2] == ["cat", "a"]
    assert math.exp(float(first[2])) == pytest.approx(0.6, abs=1e-5)
    dictionary.save(tmp_path / "lex.f2e", "moses")  # of several words there is no entry
    assert [line.split(" ")[1] for line in (tmp_path / "lex.f2e").read_text().splitlines()] == [
        "cat",
        "cat",
        "été",
        "Zoo",
    ]
    dictionary.save(tmp_path / "d.dic")
    assert (tmp_path / "d.dic").read_text("utf-8").splitlines()[0] == "chat @ cat"


# -- workbooks, decks, readers --------------------


def test_a_workbook_is_edited_and_read_back(dictionary: Dictionary, tmp_path: Path) -> None:
    path = tmp_path / "d.xlsx"
    dictionary.save(path)
    book = openpyxl.load_workbook(path)
    sheet = book["dictionary"]
    titles = [cell.value for cell in sheet[1]]
    assert titles[-3:] == ["verdict", "correction", "note"]
    rows = list(sheet.iter_rows(min_row=2))
    assert [(row[0].value, row[1].value) for row in rows] == LEGAL
    assert {cell.data_type for row in rows for cell in row[:2]} == {"s"}  # no formula
    assert rows[0][2].value == 0.9
    assert len(sheet.data_validations.dataValidation) == 1
    places = {title: place for place, title in enumerate(titles)}
    rows[0][places["verdict"]].value = "accept"
    rows[1][places["verdict"]].value = "reject"
    rows[1][places["correction"]].value = "minet"
    book.save(path)
    again = Dictionary.load(path)
    right, wrong = again.curated()
    assert right.pairs == [("cat", "chat"), ("cat", "minet"), ("a b", "deux mots")]
    assert wrong.pairs == [("cat", "=minou")]
    assert again.about == ABOUT
    assert again.entries[0].forms == ("chats",)
    assert again.entries[2].seed


def test_a_workbook_of_others_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.xlsx"
    book = openpyxl.Workbook()
    for row in (["Target", "Source", "remark"], ["chat", "cat", 1], [None, None, None]):
        book.active.append(row)
    book.save(path)
    assert Dictionary.load(path).entries == [Entry("cat", "chat")]
    book.active.append(["chien", None])
    book.save(path)
    with pytest.raises(FileError, match=r"line 4.*empty"):
        Dictionary.load(path)
    path.write_bytes(b"PK\x03\x04 no book")
    with pytest.raises(FileError, match="Excel workbook"):
        Dictionary.load(path)


def repacked(path: Path, **changed: bytes) -> None:
    """Replace members of a workbook, named by the beginnings of their file names."""
    with zipfile.ZipFile(path) as pack:
        members = {name: pack.read(name) for name in pack.namelist()}
    for begin, content in changed.items():
        name = next(name for name in members if Path(name).name.startswith(begin))
        members[name] = content
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in members.items():
            pack.writestr(name, content)


SHEET = (
    b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">%s</worksheet>'
)
CELLS = "".join(f'<c r="{column}%s" t="inlineStr"><is><t>%s</t></is></c>' for column in "AB")
ROWS = (
    f'<row r="1">{CELLS}</row><row r="3">{CELLS}</row>'
    % (1, "source", 1, "target", 3, "cat", 3, "chat")
).encode()


@pytest.mark.parametrize("size", [b"A1:XFD1048576", b"A1:A1", b"C5:D6"])
def test_the_size_that_a_sheet_says_it_has_is_not_believed(size: bytes, tmp_path: Path) -> None:
    path = tmp_path / "d.xlsx"
    openpyxl.Workbook().save(path)
    data = b'<dimension ref="%s"/><sheetData>%s</sheetData>' % (size, ROWS)
    repacked(path, sheet1=SHEET % data)
    assert Dictionary.load(path).entries == [Entry("cat", "chat")]


BOMB = b"""<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a0 "aaaaaaaaaa">%s]><w>&a9;</w>""" % b"".join(
    b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 10)
)


@pytest.mark.parametrize(
    "content",
    [
        (SHEET % (b"<sheetData>" + ROWS))[:-60],
        SHEET % b"<sheetData>" + ROWS,
        BOMB,
        SHEET % (b'<sheetData><row r="x">%s</row></sheetData>' % ROWS),
        SHEET % (b"<sheetData>" + b"<!-- -->" * 3_000_000 + b"</sheetData>"),
    ],
    ids=["cut", "not closed", "entities", "row", "large"],
)
def test_a_damaged_sheet_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "d.xlsx"
    openpyxl.Workbook().save(path)
    repacked(path, sheet1=content)
    with pytest.raises(FileError) as caught:
        Dictionary.load(path)
    assert "\n" not in str(caught.value)


def test_large_parts_of_a_workbook_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "d.xlsx"
    book = openpyxl.Workbook()
    for row in (["source", "target"], ["cat", "chat"]):
        book.active.append(row)
    book.save(path)
    repacked(path, styles=b"<sst>" + b"<si><t/></si>" * 2_000_000 + b"</sst>")
    with pytest.raises(FileError, match="unpacks to 24 MB"):
        Dictionary.load(path)


def test_an_editor_s_own_sheet_about_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "d.xlsx"
    for rows in ([["remarks"], ["mine"]], [[1], [2]], [["date", "5"]], [["a", "[" * 5000]]):
        book = openpyxl.Workbook()
        for row in (["source", "target"], ["cat", "chat"]):
            book.active.append(row)
        sheet = book.create_sheet("about")
        for row in rows:
            sheet.append(row)
        book.save(path)
        assert Dictionary.load(path).entries == [Entry("cat", "chat")]


@pytest.mark.parametrize("both", [False, True])
def test_anki(dictionary: Dictionary, tmp_path: Path, both: bool) -> None:
    if both:
        dictionary = dictionary.of(replace(e, back_confidence=0.5) for e in ENTRIES)
    dictionary.save(tmp_path / "d.apkg")
    with zipfile.ZipFile(tmp_path / "d.apkg") as pack:
        pack.extract("collection.anki2", tmp_path)
    base = sqlite3.connect(tmp_path / "collection.anki2")
    notes = [row[0].split("\x1f") for row in base.execute("select flds from notes order by id")]
    assert [html.unescape(note[0]) for note in notes] == list(dictionary.words)
    assert html.unescape(notes[0][1]).startswith("chat [chats] (90%)<br>=minou")
    cards = base.execute("select count(*) from cards").fetchone()[0]
    assert cards == len(dictionary.words) * (2 if both else 1)


def test_yomitan(dictionary: Dictionary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blicer.formats.apps.TERMS_A_BANK", 3)
    dictionary.save(tmp_path / "d.zip")
    with zipfile.ZipFile(tmp_path / "d.zip") as pack:
        index = json.loads(pack.read("index.json"))
        banks = sorted(set(pack.namelist()) - {"index.json"})
        terms = [term for bank in banks for term in json.loads(pack.read(bank))]
    assert (index["format"], index["sourceLanguage"], index["targetLanguage"]) == (3, "en", "fr")
    assert banks == ["term_bank_1.json", "term_bank_2.json", "term_bank_3.json"]
    assert all(len(term) == 8 for term in terms)
    assert [term[0] for term in terms] == [*dictionary.words, "cats", "Zoos"]
    assert terms[-1][5] == [["Zoo", ["form"]]]
    assert terms[0][5] == ["chat [chats] (90%)", "=minou (25%)"]


def test_stardict(dictionary: Dictionary, tmp_path: Path) -> None:
    """Read back word for word, as its specification says."""
    dictionary.save(tmp_path / "d.ifo")
    lines = (tmp_path / "d.ifo").read_text("utf-8").splitlines()
    assert lines[:2] == ["StarDict's dict ifo file", "version=2.4.2"]
    facts = dict(line.split("=", 1) for line in lines[1:])
    index = (tmp_path / "d.idx").read_bytes()
    assert int(facts["idxfilesize"]) == len(index)
    articles = gzip.decompress((tmp_path / "d.dict.dz").read_bytes())
    found, words = {}, []
    while index:
        word, rest = index.split(b"\0", 1)
        at, size = struct.unpack(">II", rest[:8])
        found[word.decode()] = articles[at : at + size].decode()
        words.append(word)
        index = rest[8:]
    assert int(facts["wordcount"]) == len(words) == len(dictionary.words)
    assert set(found) == set(dictionary.words)
    assert words == sorted(words, key=lambda word: (word.lower(), word))
    assert found["cat"] == "chat [chats] (90%)\n=minou (25%)"
    synonyms, content = {}, (tmp_path / "d.syn").read_bytes()
    while content:
        form, rest = content.split(b"\0", 1)
        synonyms[form.decode()] = words[struct.unpack(">I", rest[:4])[0]].decode()
        content = rest[4:]
    assert synonyms == dictionary.inflected
    assert int(facts["synwordcount"]) == 2
    dictionary.inflected = {}
    dictionary.save(tmp_path / "d.ifo")
    assert not (tmp_path / "d.syn").exists()
    with pytest.raises(FileError, match=r"d\.ifo.*d\.dict\.dz"):  # dictd's would replace it
        dictionary.save(tmp_path / "d.index")


@given(st.binary(max_size=2000), st.integers(0, 3))
def test_dictzip_is_gzip_in_pieces(tail: bytes, many: int) -> None:
    data = bytes(range(256)) * (many * PIECE // 256) + tail
    packed = dictzip(data)
    assert gzip.decompress(packed) == data
    _, size, count = struct.unpack("<HHH", packed[16:22])
    assert size == PIECE
    assert count == -(-len(data) // PIECE)


def test_dictd(dictionary: Dictionary, tmp_path: Path) -> None:
    dictionary.save(tmp_path / "d.index")
    articles = gzip.decompress((tmp_path / "d.dict.dz").read_bytes())
    found = {}
    for line in (tmp_path / "d.index").read_text("utf-8").splitlines():
        word, at, size = line.split("\t")
        start, length = (
            sum(DIGITS.index(c) * 64**p for p, c in enumerate(n[::-1])) for n in (at, size)
        )
        found[word] = articles[start : start + length].decode()
    assert set(found) == {
        *dictionary.words,
        *dictionary.inflected,
        *(f"00-database-{name}" for name in ("allchars", "info", "short", "utf8")),
    }
    assert found["cats"] == found["cat"] == "cat\n  chat [chats] (90%)\n  =minou (25%)\n"
    assert "en-fr" in found["00-database-short"]


def test_ebooks_need_a_program(
    dictionary: Dictionary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(BlicerError, match="pip install pyglossary"):
        dictionary.save(tmp_path / "d.epub")
    assert not list(tmp_path.iterdir())


# -- all --------------------


def test_every_format_is_written_and_several_files_are_not_piped(
    dictionary: Dictionary, tmp_path: Path
) -> None:
    for name, one in formats.FORMATS.items():
        assert one.what
        if name == "epub":
            continue
        path = tmp_path / f"{name}{one.endings[0] if one.endings else '.txt'}"
        dictionary.save(path, name)
        assert path.stat().st_size
        if one.files > 1:
            with pytest.raises(InputError, match=f"{one.files} files"):
                dictionary.save("-", name)
    endings = [ending for one in formats.FORMATS.values() for ending in one.endings]
    assert len(endings) == len(set(endings))
    with pytest.raises(InputError, match="which is not read back"):
        Dictionary.load(tmp_path / "tmx.tmx")


def test_an_empty_dictionary_is_written_too(tmp_path: Path) -> None:
    for name, one in formats.FORMATS.items():
        if name not in ("epub", "apertium"):
            ending = one.endings[0] if one.endings else ".txt"
            Dictionary([], ABOUT).save(tmp_path / f"{name}{ending}", name)
