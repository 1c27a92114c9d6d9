"""Publishing and getting: what arrives is what was published, and nothing else is ever taken."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from blicer.align.space import Space
from blicer.cli import app
from blicer.download import DownloadError
from blicer.embeddings import Embeddings
from blicer.errors import BlicerError, FileError, InputError
from blicer.files import locked
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, Mixture
from blicer.pretrained import OURS, Index, publish
from blicer.training_pairs import Scaling
from blicer.translator import Translator


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BLICER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("blicer.download.sleep", lambda _: None)
    return tmp_path / "cache"


@pytest.fixture
def translator(tmp_path: Path) -> Path:
    vectors = np.random.default_rng(0).normal(size=(20, 4))
    sides = [Embeddings([f"{one}{i}" for i in range(20)], vectors, one) for one in ("en", "fr")]
    space = Space(*sides, method="files", settings={"source_file": "/home/somebody/en.vec"})
    seeds = Lexicon([("/en0", "/fr0")])
    details = {"seeds": 1, "vectors": {"files": ["/home/somebody/en.vec", "C:\\data\\fr.vec"]}}
    made = Translator(
        space, [], Mixture({CSLS: 1.0}), Scaling(0.5, 0.5), n_cand=5, seeds=seeds, details=details
    )
    made.save(tmp_path / "mine")
    return tmp_path / "mine"


@pytest.fixture
def zoo(tmp_path: Path, translator: Path) -> Path:
    """A folder with a translator and a dictionary in it."""
    folder = tmp_path / "zoo"
    publish(translator, folder / "en-fr", licence="CC0-1.0", about="<b>Ours</b>")
    (tmp_path / "words.tsv").write_text("cat\tchat\ndog\tchien\n")
    publish(
        tmp_path / "words.tsv", folder / "words", licence="CC-BY-4.0", languages=("en", "x-mine")
    )
    return folder


@pytest.fixture
def server(zoo: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(zoo))) as opened:
        threading.Thread(target=opened.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{opened.server_port}/index.json"
        opened.shutdown()


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("remote", [False, True])
def test_what_was_published_arrives(
    zoo: Path, server: str, tmp_path: Path, cache: Path, remote: bool
) -> None:
    index = Index(server if remote else zoo)
    assert {name: one.kind for name, one in index.entries.items()} == {
        "en-fr": "translator",
        "words": "dictionary",
    }
    for name in index.entries:
        index.get(name, tmp_path / "got" / name)
        assert contents(tmp_path / "got" / name) == contents(zoo / name)
        index.get(name, tmp_path / "got" / name)  # again, over the first
    assert Translator.load(tmp_path / "got" / "en-fr").translate("en3").best == "fr3"
    assert len(Lexicon.load(tmp_path / "got" / "words" / "dictionary.tsv")) == 2
    assert not contents(cache)  # nothing is left there


def test_the_index_says_sizes_and_checksums(zoo: Path) -> None:
    for entry in json.loads((zoo / "index.json").read_text())["entries"]:
        found = contents(zoo / entry["name"])
        assert {one["path"] for one in entry["files"]} == set(found)
        for one in entry["files"]:
            assert one["size"] == len(found[one["path"]])
            assert one["sha256"] == hashlib.sha256(found[one["path"]]).hexdigest()


def test_no_folder_of_the_publisher_is_published(zoo: Path) -> None:
    everything = b"".join(contents(zoo).values())
    assert b"somebody" not in everything
    assert b"C:" not in everything
    assert b"fr.vec" in everything
    assert Translator.load(zoo / "en-fr").seeds.pairs == [("/en0", "/fr0")]


def test_the_card(zoo: Path) -> None:
    card = (zoo / "words" / "README.md").read_text()
    assert "- Licence: CC-BY-4.0" in card
    assert "- Languages: en, x-mine" in card
    assert "2 pairs of 2 words" in card
    assert "blicer export words/dictionary.tsv" in card
    card = (zoo / "en-fr" / "README.md").read_text()
    assert "- Vectors: en.vec, fr.vec" in card
    assert "blicer translate en-fr WORD" in card


@pytest.mark.parametrize("remote", [False, True])
def test_other_bytes_are_refused(zoo: Path, server: str, tmp_path: Path, remote: bool) -> None:
    path = zoo / "words" / "dictionary.tsv"
    whole = path.read_bytes()
    for damage in (whole[::-1], whole + b"more", whole[:-1]):
        path.write_bytes(damage)
        with pytest.raises(BlicerError, match=r"dictionary\.tsv: is "):
            Index(server if remote else zoo).get("words", tmp_path / "got")
        assert not (tmp_path / "got").exists()
    path.unlink()
    with pytest.raises(BlicerError, match="is not there"):
        Index(server if remote else zoo).get("words", tmp_path / "got")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../words"},
        {"name": ""},
        {"files": []},
        {"files": [{"path": "../../x", "size": 1, "sha256": "0" * 64}]},
        {"files": [{"path": "/etc/passwd", "size": 1, "sha256": "0" * 64}]},
        {"files": [{"path": "a\\b", "size": 1, "sha256": "0" * 64}]},
        {"files": [{"path": ".hidden", "size": 1, "sha256": "0" * 64}]},
        {"files": [{"path": "x", "size": 10**12, "sha256": "0" * 64}]},
        {"files": [{"path": "x", "size": -1, "sha256": "0" * 64}]},
        {"files": [{"path": "x", "size": 1, "sha256": "none"}]},
        {"files": [{"path": "x"}]},
        {"languages": ["en"]},
        {"languages": "en-fr"},
        {"licence": None},
        {"kind": "\x1b[2Jtranslator"},
        {"files": [{"path": "x", "size": float("inf"), "sha256": "0" * 64}]},
    ],
)
def test_an_index_is_not_trusted(zoo: Path, change: dict[str, Any]) -> None:
    values = json.loads((zoo / "index.json").read_text())
    values["entries"][0] |= change
    (zoo / "index.json").write_text(json.dumps(values))
    with pytest.raises(FileError, match="is not an index of blicer"):
        Index(zoo)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "blicer-index", "version": 9}', "x"])
def test_what_is_no_index(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(FileError, match=r"index\.json: is not"):
        Index(tmp_path)


def test_an_index_that_is_nested_too_deep(zoo: Path, server: str) -> None:
    (zoo / "index.json").write_text("[" * 200_000)
    for place in (zoo, server):
        with pytest.raises(BlicerError, match=r"index\.json: is not JSON .*nested too deep"):
            Index(place)


@pytest.mark.parametrize("url", ["http://[::1/index.json", "http://127.0.0.1:9/é.json"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(DownloadError, match="cannot be asked for"):
        Index(url)


def test_no_index_steers_the_terminal(zoo: Path, tmp_path: Path) -> None:
    values = json.loads((zoo / "index.json").read_text())
    values["entries"][1] |= {"licence": "\x1b[31mCC0\nx", "about": "\x9b2J [/b] \u202e"}
    (zoo / "index.json").write_text(json.dumps(values))
    for command in (["list"], ["get", "words", "-o", str(tmp_path / "got")]):
        done = CliRunner().invoke(app, ["pretrained", *command, "--index", str(zoo)])
        assert done.exit_code == 0
        assert not set("\x1b\x9b\u202e") & set(done.stdout)
        assert "\\x1b[31mCC0 x" in done.stdout


def test_an_index_has_a_largest_size(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blicer.pretrained.LARGEST_INDEX", 100)
    with pytest.raises(DownloadError, match="larger than the 100 bytes"):
        Index(server)


def test_files_of_the_user_are_left_alone(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "letter.txt").write_text("mine")
    for call in (
        lambda: Index(zoo).get("words", tmp_path / "own"),
        lambda: publish(zoo / "en-fr", tmp_path / "own", licence="x"),
    ):
        with pytest.raises(FileError, match="left as it is"):
            call()
    assert contents(tmp_path / "own") == {"letter.txt": b"mine"}


def test_mistakes_of_a_publisher(translator: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.tsv"
    words.write_text("cat\tchat\n")
    with pytest.raises(InputError, match="--languages"):
        publish(words, tmp_path / "zoo" / "words", licence="x")
    with pytest.raises(InputError, match="licence is empty"):
        publish(translator, tmp_path / "zoo" / "x", licence=" ")
    with pytest.raises(InputError, match="cannot name an entry"):
        publish(translator, tmp_path / "zoo" / "a b", licence="x")
    with pytest.raises(InputError, match="beside"):
        publish(translator, tmp_path / "zoo" / "x", licence="x", index=tmp_path / "index.json")
    with pytest.raises(InputError, match="has no 'nothing'"):
        Index(OURS).get("nothing", tmp_path / "out")


def test_six_publishers_at_once_are_all_listed(tmp_path: Path) -> None:
    words, zoo = tmp_path / "words.tsv", tmp_path / "zoo"
    words.write_text("cat\tchat\n")
    code = "from blicer.cli import main; main()"
    named = ("--licence", "CC0-1.0", "--languages", "en-fr")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, "publish", words, "-o", zoo / f"e{number}", *named],
        )
        for number in range(6)
    ]
    assert [one.wait(120) for one in running] == [0] * 6
    assert set(Index(zoo).entries) == {f"e{number}" for number in range(6)}


def test_an_index_that_another_holds_is_waited_for(zoo: Path, translator: Path) -> None:
    published: list[Any] = []

    def other() -> None:
        published.append(publish(translator, zoo / "late", licence="x"))

    thread = threading.Thread(target=other)
    with locked(zoo / "index.json"):
        thread.start()
        thread.join(1.0)
        assert thread.is_alive()
        before = Index(zoo).entries
    thread.join()
    assert set(Index(zoo).entries) == {*before, "late"}


@pytest.mark.parametrize("held", ["output", "index"])
def test_what_another_process_writes_is_refused(
    zoo: Path, translator: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    monkeypatch.setattr("blicer.pretrained.WAIT_FOR_INDEX", 0.1)
    refused: list[str] = []

    def other() -> None:
        for call in (
            lambda: publish(translator, zoo / "en-fr", licence="x"),
            lambda: Index(zoo).get("en-fr", zoo / "en-fr"),
        )[: 2 if held == "output" else 1]:
            with pytest.raises(FileError, match="is being written by another") as caught:
                call()
            refused.append(str(caught.value))

    thread = threading.Thread(target=other)
    with locked(zoo / ("en-fr" if held == "output" else "index.json")):
        thread.start()
        thread.join()
    assert len(refused) == (2 if held == "output" else 1)


def test_the_first_entry_comes_with_the_package(tmp_path: Path) -> None:
    entry = Index().get("en-ru-starter", tmp_path / "got")
    assert entry.size < 300_000
    pairs = Lexicon.load(tmp_path / "got" / "dictionary.tsv.gz")
    assert len(pairs) > 5_000
    assert ("house", "дом") in pairs


def test_the_commands(translator: Path, zoo: Path, tmp_path: Path) -> None:
    run = partial(CliRunner().invoke, app, catch_exceptions=False)
    made = run(["publish", str(translator), "-o", str(zoo / "again"), "--licence", "CC0-1.0"])
    assert made.exit_code == 0
    listed = json.loads(run(["pretrained", "list", "--index", str(zoo), "--json"]).stdout)
    assert [one["name"] for one in listed] == ["en-fr", "words", "again"]
    assert "x-mine" in run(["pretrained", "list", "--index", str(zoo)]).stdout
    got = run(["pretrained", "get", "again", "--index", str(zoo), "-o", str(tmp_path / "got")])
    assert got.exit_code == 0
    assert "CC0-1.0" in got.stdout
