"""Broken and odd dictionary files: each has its expected pairs and report, or its one error."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.errors import FileError, InputError
from blicer.io.dictionary import read_dictionary
from blicer.lexicon import Lexicon

CAT_DOG = [("cat", "chat"), ("dog", "chien")]

# name, bytes, load arguments, expected pairs, phrases that the report must hold
READ: list[tuple[str, bytes, dict[str, Any], list[tuple[str, str]], list[str]]] = [
    ("clean tsv", b"cat\tchat\ndog\tchien\n", {}, CAT_DOG, []),
    ("no final newline", b"cat\tchat\ndog\tchien", {}, CAT_DOG, []),
    ("crlf", b"cat\tchat\r\ndog\tchien\r\n", {}, CAT_DOG, []),
    ("old mac line ends", b"cat\tchat\rdog\tchien\r", {}, CAT_DOG, []),
    ("byte order mark", b"\xef\xbb\xbfcat\tchat\ndog\tchien\n", {}, CAT_DOG, []),
    ("blank lines", b"\ncat\tchat\n\n  \t \ndog\tchien\n\n", {}, CAT_DOG, ["4 blank lines"]),
    (
        "comments",
        b"# made by hand\ncat\tchat\n#dog\thund\ndog\tchien\n",
        {},
        CAT_DOG,
        ["2 lines beginning with # taken for comments"],
    ),
    ("muse, spaces", b"cat chat\ndog chien\n", {}, CAT_DOG, []),
    ("padded with spaces", b"cat      chat\n dog    chien  \n", {}, CAT_DOG, []),
    (
        "spaces and some tabs",
        b"cat chat\ndog\tchien\ncow vache\n",
        {},
        [*CAT_DOG, ("cow", "vache")],
        [],
    ),
    ("spaces around cells", b" cat \t chat \ndog\tchien \n", {}, CAT_DOG, []),
    ("csv", b"cat,chat\ndog,chien\n", {}, CAT_DOG, []),
    ("csv, space after comma", b"cat, chat\ndog, chien\n", {}, CAT_DOG, []),
    ("csv, quotes", b'"cat","chat"\n"dog", "chien"\n', {}, CAT_DOG, []),
    (
        "csv, comma and quote inside quotes",
        b'cat,chat\n"yes, sir","oui, ""monsieur"""\n',
        {},
        [("cat", "chat"), ("yes, sir", 'oui, "monsieur"')],
        ["1 target with separators inside, kept whole"],
    ),
    (
        "csv as blicer induce writes it",
        b"source,target,confidence,score,rank\ncat,chat,0.9,0.5,1\ndog,chien,,0.4,1\n",
        {},
        CAT_DOG,
        ["taken for a header: line 1", "2 lines with further columns"],
    ),
    ("semicolons", b"cat;chat\ndog;chien\n", {}, CAT_DOG, []),
    (
        "semicolons, commas in some targets",
        b"cat;chat\ndog;chien, toutou\n",
        {},
        [("cat", "chat"), ("dog", "chien, toutou")],
        ["1 target with separators inside", "'chien, toutou'"],
    ),
    ("vertical bars", b"cat|chat\ndog|chien\n", {}, CAT_DOG, []),
    ("tsv, every cell quoted", b'"cat"\t"chat"\n"dog"\t"chien"\n', {}, CAT_DOG, []),
    (
        "tsv, a quote is a word",
        '"\t«\ncat\tchat\n'.encode(),
        {},
        [('"', "«"), ("cat", "chat")],
        [],
    ),
    (
        "tsv, expressions and commas",
        "ice cream\tcrème glacée\nwell, well\ttiens, tiens\n".encode(),
        {},
        [("ice cream", "crème glacée"), ("well, well", "tiens, tiens")],
        ["1 target with separators inside, kept whole", "'tiens, tiens'"],
    ),
    (
        "targets listed after a space",
        b"cat chat,chatte\ndog chien,chienne\n",
        {},
        [("cat", "chat,chatte"), ("dog", "chien,chienne")],
        ["2 targets with separators inside, kept whole"],
    ),
    (
        "titles",
        b"source\ttarget\ncat\tchat\ndog\tchien\n",
        {},
        CAT_DOG,
        ["taken for a header: line 1"],
    ),
    (
        "language names",
        b"English,French\ncat,chat\ndog,chien\n",
        {},
        CAT_DOG,
        ["header: line 1 ('English,French')"],
    ),
    (
        "a title over scores",
        b"en\tfr\tscore\ncat\tchat\t0.9\ndog\tchien\t.8\n",
        {},
        CAT_DOG,
        ["taken for a header: line 1", "2 lines with further columns"],
    ),
    (
        "scores",
        b"cat\tchat\t0.91\ndog\tchien\t1e-3\n",
        {},
        CAT_DOG,
        ["2 lines with further columns"],
    ),
    (
        "scores after spaces",
        b"cat chat 0.91\ndog chien 1\n",
        {},
        CAT_DOG,
        ["2 lines with further columns"],
    ),
    (
        "third column of words",
        b"cat\tchat\tn.m.\ndog\tchien\tn.m.\n",
        {},
        CAT_DOG,
        ["2 lines with further columns", "'n.m.'"],
    ),
    ("empty third cell", b"cat\tchat\t\ndog\tchien\t\t\n", {}, CAT_DOG, []),
    (
        "one column",
        b"cat\tchat\nlonely\ndog\tchien\n",
        {},
        CAT_DOG,
        ["line 2 (one column, expected 2 separated by a tab: 'lonely')"],
    ),
    (
        "a space where the tab should be",
        b"cat\tchat\ncow vache\ndog\tchien\n",
        {},
        CAT_DOG,
        ["line 2 (one column"],
    ),
    (
        "empty target",
        b"# c\ncat\tchat\ncow\t\ndog\tchien\n",
        {},
        CAT_DOG,
        ["line 3 (the target is empty"],
    ),
    (
        "empty source",
        b"cat\tchat\n\tvache\ndog\tchien\n",
        {},
        CAT_DOG,
        ["line 2 (the source is empty"],
    ),
    (
        "expressions between spaces",
        b"cat chat\nice cream glace\ndog chien\n",
        {},
        CAT_DOG,
        ["line 2 (3 words between spaces"],
    ),
    (
        "quote not closed",
        b'cat,chat\n"cow,vache\ndog,chien\n',
        {},
        CAT_DOG,
        ["line 2 (a quote is opened and not closed"],
    ),
    (
        "repeated pairs",
        b"cat\tchat\ncat\tchat\ndog\tchien\n",
        {},
        CAT_DOG,
        ["1 repeated pair kept once (maps weigh them by how often they are listed)"],
    ),
    (
        "upper case",
        b"Cat\tchat\nCAT\tChat\nDog\tchien\n",
        {},
        CAT_DOG,
        ["1 repeated pair"],
    ),
    ("upper case kept", b"Cat\tchat\n", {"lowercase": False}, [("Cat", "chat")], []),
    (
        "U+0085 and U+2028 inside words",
        "a\u0085b\tc\u2028d\ncat\tchat\n".encode(),
        {},
        [("a\u0085b", "c\u2028d"), ("cat", "chat")],
        [],
    ),
    (
        "no-break space inside a word",
        "ice\u00a0cream\tglace\u00a0\n".encode(),
        {},
        [("ice\u00a0cream", "glace\u00a0")],
        [],
    ),
    (
        "decomposed accents are kept",
        "cafe\u0301\tcaf\u00e9\n".encode(),
        {},
        [("cafe\u0301", "caf\u00e9")],
        [],
    ),
    (
        "latin-1, said",
        "cat\tchât\n".encode("latin-1"),
        {"encoding": "latin-1"},
        [("cat", "chât")],
        [],
    ),
    ("utf-16, said", "cat\tchât\n".encode("utf-16"), {"encoding": "utf-16"}, [("cat", "chât")], []),
    ("gzip", gzip.compress(b"cat\tchat\ndog\tchien\n"), {}, CAT_DOG, []),
    ("bzip2", bz2.compress(b"cat\tchat\ndog\tchien\n"), {}, CAT_DOG, []),
    ("xz", lzma.compress(b"cat\tchat\ndog\tchien\n"), {}, CAT_DOG, []),
]


@pytest.mark.parametrize(
    ("content", "arguments", "pairs", "phrases"),
    [case[1:] for case in READ],
    ids=[c[0] for c in READ],
)
def test_is_read_and_reported(
    tmp_path: Path,
    content: bytes,
    arguments: dict[str, Any],
    pairs: list[tuple[str, str]],
    phrases: list[str],
) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    lexicon = Lexicon.load(path, **arguments)
    assert lexicon.pairs == pairs
    said = lexicon.report.lines()
    for phrase in phrases:
        assert any(phrase in line for line in said), said
    if not phrases:
        assert said == []


VECTORS = b"".join(
    b"w%d " % n + b" ".join(b"0.%03d" % d for d in range(50)) + b"\n" for n in range(30)
)

# name, bytes, load arguments, line of the error, phrases of its message
REFUSED: list[tuple[str, bytes, dict[str, Any], int | None, list[str]]] = [
    ("empty", b"", {}, None, ["has no word pairs", "empty"]),
    ("comments only", b"# a\n\n# b\n", {}, None, ["has no word pairs", "only comments"]),
    ("header only", b"source\ttarget\n", {}, None, ["no word pairs after its header"]),
    (
        "one column",
        b"cat\ndog\ncow\n",
        {},
        None,
        ["none of 3 lines is a word pair", "line 1 (one column", "'cat'"],
    ),
    (
        "latin-1",
        "cat\tchat\nfather\tpère\nbrother\tfrère\n".encode("latin-1"),
        {},
        2,
        ["byte 0xE8 is not UTF-8", "name its encoding"],
    ),
    (
        "utf-16",
        "cat\tchat\n".encode("utf-16"),
        {},
        1,
        ["byte 0xFF is not UTF-8"],
    ),
    (
        "utf-16 unmarked",
        "cat\tchat\ndog\tchien\n".encode("utf-16-le"),
        {},
        None,
        ["zero bytes", "UTF-16"],
    ),
    (
        "cut inside a character",
        "cat\tchat\ndog\tпёс".encode()[:-1],
        {},
        2,
        ["is not UTF-8"],
    ),
    ("binary", bytes(4000), {}, None, ["zero bytes", "no text file"]),
    ("json lines", b'{"source": "cat", "target": "chat"}\n', {}, None, ["is JSON"]),
    ("excel", b"PK\x03\x04" + bytes(30), {}, None, ["Excel workbook", "tab-separated"]),
    ("zstd", b"\x28\xb5\x2f\xfd" + bytes(30), {}, None, ["zstd"]),
    (
        "damaged gzip",
        gzip.compress(b"cat\tchat\n" * 99)[:-9],
        {},
        None,
        ["gzip archive is broken or cut off"],
    ),
    ("numpy", b"\x93NUMPY\x01\x00" + bytes(80), {}, None, ["is a NumPy array"]),
    ("picture", b"\x89PNG\r\n\x1a\n" + bytes(80), {}, None, ["is a PNG image"]),
    ("vectors", VECTORS, {}, None, ["looks like word vectors", "50 numbers a line"]),
    ("vectors, gzip", gzip.compress(VECTORS), {}, None, ["looks like word vectors"]),
    ("wrong encoding said", "cat\tпёс\n".encode(), {"encoding": "ascii"}, 1, ["is not ascii"]),
]


@pytest.mark.parametrize(
    ("content", "arguments", "line", "phrases"),
    [c[1:] for c in REFUSED],
    ids=[c[0] for c in REFUSED],
)
def test_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, arguments: dict[str, Any], line: int | None, phrases: list[str]
) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        Lexicon.load(path, **arguments)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.line == line
    for phrase in phrases:
        assert phrase in str(caught.value)


def test_equal_lines_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 200_000
    text = "cat\tchat\n" * many
    monkeypatch.setattr("blicer.io.dictionary.read_text", lambda *_: text)
    tracemalloc.start()
    pairs, report = read_dictionary("words.tsv")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(pairs), report["repeated"]) == (many, many - 1)
    assert most < 20 * many  # bytes; of these 8 a line are the list of pairs


def test_files_of_too_many_lines_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blicer.io.dictionary.MOST_LINES", 3)
    path = tmp_path / "words.tsv"
    path.write_text("a\tb\n" * 2)
    assert len(Lexicon.load(path)) == 1
    path.write_text("a\tb\r" * 3 + "a\tb")
    with pytest.raises(FileError, match="has 4 lines"):
        Lexicon.load(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        Lexicon.load(tmp_path / "nothing.tsv")
    with pytest.raises(FileError, match="is a folder"):
        Lexicon.load(tmp_path)


def test_unknown_encoding(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("cat\tchat\n")
    with pytest.raises(InputError, match="'utf-9' is not known"):
        Lexicon.load(path, encoding="utf-9")


def test_many_unreadable_lines_are_counted_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("".join(f"a{n}\tb\n" for n in range(60)) + "alone\n" * 25)
    report = Lexicon.load(path).report
    assert report["unreadable"] == 25
    (line,) = report.lines()
    assert line.startswith("25 lines that could not be read: line 61 (")
    assert line.endswith("…")


NOISE = st.binary(max_size=200) | st.lists(
    st.sampled_from([b"cat", b"\t", b",", b";", b"|", b" ", b'"', b"\n", b"\r", b"#", b"\\", b"1"])
    | st.sampled_from([b"\xe9", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1f\x8b", b"BZh91AY&SY"]),
    max_size=40,
).map(b"".join)


@settings(max_examples=500)
@given(content=NOISE)
def test_any_bytes_give_pairs_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("noise") / "words.txt"
    path.write_bytes(content)
    try:
        lexicon = Lexicon.load(path)
    except FileError:
        return
    # Every line is accounted for: as pairs, a comment, blank, header or unreadable.
    report = lexicon.report
    text = content.decode("utf-8") if content[:2] not in (b"\x1f\x8b", b"BZ") else ""
    text = text.removeprefix("\ufeff")
    lines = text.split("\n" if "\n" in text else "\r")
    others = sum(report[kind] for kind in ("comment", "blank", "header", "unreadable"))
    assert len(list(lexicon.listed())) + others == len(lines) - (lines[-1] == "")
