"""``blicer data``: what is asked for, what is fetched, what is said."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from blicer import catalogue
from blicer.catalogue import plan
from blicer.cli import main
from blicer.download import FAILED, FETCHED, THERE, Outcome
from blicer.errors import InputError
from flaky_server import HASTY, Site, fetch_from, serving

XLING = "/codogogo/xling-eval/master/bli_datasets/"
PANLEX = "/cambridgeltl/panlex-bli/raw/master/lexicons/"
MUSE = "/arrival/dictionaries/"
WIKI = "/fasttext/vectors-wiki/"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as running:
        yield running


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [one.status for one in outcomes]


def know(monkeypatch: pytest.MonkeyPatch, **files: bytes) -> None:
    """Make these the published files whose checksums are known."""
    known = {file: hashlib.sha256(body).hexdigest() for file, body in files.items()}
    monkeypatch.setattr(catalogue, "checksums", lambda: known)


def test_files_go_under_their_published_names(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = "en-fr/yacle.train.freq.1k.en-fr.tsv"
    know(monkeypatch, **{f"xling/{file}": b"cat\tchat\n"})
    site.files[XLING + file] = b"cat\tchat\n"
    site.files[XLING + "en-fr/yacle.test.freq.2k.en-fr.tsv"] = b"dog\tchien\n"
    *_, train, _, _, test = fetch_from(site, tmp_path, "xling", "en-fr")
    assert (tmp_path / "xling" / file).read_bytes() == b"cat\tchat\n"
    assert (train.status, train.verified, train.size) == (FETCHED, True, 9)
    assert (test.status, test.verified) == (FETCHED, False)
    n = len(site.asked)
    again = fetch_from(site, tmp_path, "xling", "fr-en")
    assert statuses(again) == [FAILED, THERE, FAILED, FAILED, THERE]
    assert len(site.asked) == n + 3  # the three sizes that are not there


def test_wrong_checksum_keeps_nothing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = "en-fr/yacle.train.freq.500.en-fr.tsv"
    know(monkeypatch, **{f"xling/{file}": b"cat\tchat\n"})
    site.files[XLING + file] = b"cat\tchien\n"
    bad, absent, *_ = fetch_from(site, tmp_path, "xling", "en-fr")
    assert (bad.status, absent.status) == (FAILED, FAILED)
    found = hashlib.sha256(b"cat\tchien\n").hexdigest()
    assert f"its SHA-256 is {found}, expected" in str(bad.problem)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []


def test_bad_start_from_an_earlier_run_is_fetched_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b"".join(b"word%d\tmot%d\n" % (n, n) for n in range(1000))
    know(monkeypatch, **{"muse/en-fr.0-5000.txt": body})
    site.files = {MUSE + "en-fr.0-5000.txt": body, MUSE + "en-fr.5000-6500.txt": b"a b\n"}
    site.cuts = [5000]
    assert fetch_from(site, tmp_path, "muse", "en-fr", **HASTY)[0].status == FAILED
    part = tmp_path / "muse" / "en-fr.0-5000.txt.part"
    assert part.read_bytes() == body[:5000]
    part.write_bytes(b"x" * 5000)  # as a crash may leave it
    assert "try again" in str(fetch_from(site, tmp_path, "muse", "en-fr")[0].problem)
    assert fetch_from(site, tmp_path, "muse", "en-fr")[0].status == FETCHED
    assert (tmp_path / "muse" / "en-fr.0-5000.txt").read_bytes() == body


def test_file_that_is_not_the_published_one_is_not_overwritten_unasked(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, **{"muse/en-fr.0-5000.txt": b"cat chat\n"})
    site.files = {MUSE + "en-fr.0-5000.txt": b"cat chat\n", MUSE + "en-fr.5000-6500.txt": b"a b\n"}
    mine = tmp_path / "muse" / "en-fr.0-5000.txt"
    mine.parent.mkdir()
    mine.write_bytes(b"by hand\n")
    kept, _ = fetch_from(site, tmp_path, "muse", "en-fr")
    assert kept.status == FAILED
    assert "move it away" in str(kept.problem)
    assert mine.read_bytes() == b"by hand\n"


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return buffer.getvalue()


@pytest.fixture
def one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """PanLex with one training dictionary a pair."""
    small = replace(catalogue.COLLECTIONS["panlex"], sizes=[500])
    monkeypatch.setitem(catalogue.COLLECTIONS, "panlex", small)


@pytest.mark.usefixtures("site", "one_size")
def test_archive_gives_the_wanted_files_and_nothing_else(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = zipped(
        **{
            "bg-l2/bg-ca/bg-ca.train.500.cc.trans": b"a\tb\n",
            "../../../bg-ca.test.2000.cc.trans": b"c\td\n",  # leads out of the folder
            "/bg-eo/bg-eo.train.500.cc.trans": b"e\tf\n",
            "__MACOSX/bg-ca/._bg-ca.train.500.cc.trans": b"rubbish",
            "../../evil.txt": b"evil",
            "a/bg-fi.train.500.cc.trans": b"which\tone\n",
            "b/bg-fi.train.500.cc.trans": b"is\tit\n",
        }
    )
    know(monkeypatch, **{"panlex/lexicons/bg-l2.zip": archive})
    site.files[PANLEX + "bg-l2.zip"] = archive
    folder = tmp_path / "deep" / "er"
    outcomes = fetch_from(site, folder, "panlex", "bg-ca", "bg-eo", "bg-fi")
    assert statuses(outcomes) == [FETCHED] * 4 + [FAILED] * 3
    assert "has no bg-eo.test.2000.cc.trans; what it has: bg-ca, " in str(outcomes[4].problem)
    assert "has 2 different files bg-fi.train.500.cc.trans" in str(outcomes[5].problem)
    files = {str(one.relative_to(folder)) for one in tmp_path.rglob("*") if one.is_file()}
    assert files == {
        "panlex/lexicons/bg-l2.zip",
        "panlex/bg-ca/bg-ca.train.500.cc.trans",
        "panlex/bg-ca/bg-ca.test.2000.cc.trans",
        "panlex/bg-eo/bg-eo.train.500.cc.trans",
    }
    assert (folder / "panlex/bg-ca/bg-ca.test.2000.cc.trans").read_bytes() == b"c\td\n"
    assert len(site.asked) == 1
    (folder / "panlex/bg-ca/bg-ca.test.2000.cc.trans").unlink()
    again = fetch_from(site, folder, "panlex", "bg-ca")
    assert statuses(again) == [THERE, THERE, FETCHED]  # from the archive that is there
    assert len(site.asked) == 1


# What is asked for


def test_known_checksums() -> None:
    known = catalogue.checksums()
    assert len(known) == 21 * 5 + 15
    assert all(len(digest) == 64 and int(digest, 16) for digest in known.values())
    published = {item.file for name in ("xling", "panlex") for item in plan(name, ["all"])[0]}
    assert set(known) <= published
    assert len(published) == 28 * 5 + 15
    unknown = {file.split("/")[1] for file in published - set(known)}
    assert unknown == {"en-tr", "de-tr", "tr-fi", "tr-fr", "tr-hr", "tr-it", "tr-ru"}


def test_addresses() -> None:
    (item,), _ = plan("fasttext-wiki", ["zh_yue"])
    assert item.url == "https://dl.fbaipublicfiles.com/fasttext/vectors-wiki/wiki.zh_yue.vec"
    assert [one.file for one in plan("fasttext-cc", ["en-fr", "EN"])[0]] == [
        "vectors/cc.en.300.vec.gz",
        "vectors/cc.fr.300.vec.gz",
    ]
    (*_, turned, _), (note,) = plan("xling", ["fr_en"])
    assert turned.url == (
        "https://raw.githubusercontent.com/codogogo/xling-eval/master/bli_datasets/en-fr/"
        "yacle.train.freq.5k.en-fr.tsv"
    )
    assert "xling publishes fr-en as en-fr: the first column is en" in note
    (train, test), _ = plan("muse", ["fr-en"])
    assert train.url == "https://dl.fbaipublicfiles.com/arrival/dictionaries/fr-en.0-5000.txt"
    assert test.file == "muse/fr-en.5000-6500.txt"
    assert len(plan("muse", ["all"])[0]) == 2 * (2 * 44 + 5 * 4)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (["xlin", "en-fr"], "there are xling, panlex"),
        (["xling"], "which pairs of xling"),
        (["xling", "en"], "has no pair en; see: blicer data list xling"),
        (["xling", "en-es"], "has no pair en-es"),
        (["xling", "../../etc"], "has no pair"),
        (["muse", "fi-ru"], "has no pair fi-ru"),
        (["fasttext-cc", "enn"], "no vectors of 'enn'"),
        (["fasttext-wiki", "../x"], "is no code of a language"),
        (["fasttext-wiki"], "which languages"),
        (["fasttext-wiki", "all"], "hundreds of gigabytes"),
    ],
)
def test_what_is_not_published_is_said_at_once(asked: list[str], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(asked[0], asked[1:])
    assert problem in str(caught.value)


# The command line


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["blicer", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return Ran(int(caught.value.code or 0), out, err)

    return call


def test_command_says_what_it_did_and_what_failed(
    run: Callable[..., Ran], site: Site, tmp_path: Path
) -> None:
    site.files = {MUSE + "en-fr.0-5000.txt": b"a b\n" * 300, MUSE + "fr-en.0-5000.txt": b"b a\n"}
    site.files[MUSE + "fr-en.5000-6500.txt"] = b"d c\n"
    get = ("data", "get", "muse", "en-fr", "fr-en", "-o", tmp_path)
    ran = run(*get)
    assert ran.code == 1
    assert "fetched 3 (1.2 kB), there already 0, failed 1" in ran.out
    assert ran.err.count("blicer: ") == 1
    assert "en-fr.5000-6500.txt: is not there" in ran.err
    site.files[MUSE + "en-fr.5000-6500.txt"] = b"c d\n"
    assert "fetched 1 (4 bytes), there already 3, failed 0" in run(*get).out
    assert run("-q", *get).err == ""


def test_publisher_without_the_file(run: Callable[..., Ran], site: Site, tmp_path: Path) -> None:
    ran = run("data", "get", "fasttext-wiki", "xx", "-o", tmp_path)
    assert ran.code == 1
    assert (
        "wiki.xx.vec: is not there (the server answers 404 Not Found); what is published: "
        in ran.err
    )
    assert "Traceback" not in ran.err


def test_command_says_what_is_cut(run: Callable[..., Ran], site: Site, tmp_path: Path) -> None:
    site.files[WIKI + "wiki.en.vec"] = b"20 1\n" + b"cat 1\n" * 20
    get = ("data", "get", "fasttext-wiki", "en", "-o", tmp_path)
    ran = run(*get, "--first", 5)
    assert "wiki.en.vec: the first 5 of 20 words; its first line was changed" in ran.err
    assert "5 words" in ran.out
    assert "is for vectors" in run("data", "get", "xling", "en-fr", "--first", 5).err
    assert run("data", "get", "xling", "en-fr", "--first", 0).code == 2


def test_list(run: Callable[..., Ran]) -> None:
    ran = run("data", "list")
    assert all(name in ran.out for name in catalogue.COLLECTIONS)
    assert "en-fr" in run("data", "list", "xling").out
    assert len(catalogue.COLLECTIONS["panlex"].names) == 210
