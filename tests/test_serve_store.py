"""Decisions on disk: what was acknowledged is there after a kill, and nothing else changes it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blicer.errors import FileError, InputError
from blicer.lexicon import Lexicon
from blicer.serve.store import Store

WRITER = """
import sys
from blicer.serve.store import Store
store = Store(sys.argv[1])
for number in range(100_000):
    decision = store.decide(f"s{number}", f"t{number}", "accept", who="me")
    print(decision.id, decision.source, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.sqlite"


def test_decisions_are_there_again(path: Path) -> None:
    store = Store(path)
    store.decide("house", "дом", "accept", who="Анна", note="sure")
    store.decide("дом", "home", "reject", reverse=True)
    store.decide("cat", "кошак", "correct")
    store.undo()
    store.decide("cat", "", "skip")
    before = store.standing()
    store.close()
    again = Store(path)
    assert again.standing() == before
    assert [(one.source, one.verdict) for one in before] == [
        ("house", "accept"),
        ("дом", "reject"),
        ("cat", "skip"),
    ]
    right, wrong = again.judged()
    assert right == Lexicon([("house", "дом")])
    assert wrong == Lexicon([("home", "дом")])  # the source language first
    again.close()


def test_no_acknowledged_decision_is_lost_by_a_kill(path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline() for _ in range(200)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += writer.stdout.read().splitlines(keepends=True)  # up to the very end
    assert writer.wait() == -signal.SIGKILL
    store = Store(path)
    kept = {f"{one.id} {one.source}\n" for one in store.standing()}
    whole = {line for line in acknowledged if line.endswith("\n")}
    assert len(whole) >= 200
    assert whole <= kept
    assert len(kept) <= len(whole) + 2  # one more may be on disk and not yet said
    store.close()


def test_a_second_server_is_refused(path: Path) -> None:
    store = Store(path)
    store.decide("a", "b", "accept")
    code = "import sys; from blicer.serve.store import Store; Store(sys.argv[1])"
    other = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert "in use by another blicer serve" in other.stderr
    with pytest.raises(FileError, match="in use"):
        Store(path)
    store.close()
    Store(path).close()


def test_events_are_only_appended(path: Path) -> None:
    store = Store(path)
    store.decide("a", "b", "accept")
    store.undo(1)
    store.close()
    file = sqlite3.connect(path)
    for statement in ("DELETE FROM events", "UPDATE events SET verdict = 'reject'"):
        with pytest.raises(sqlite3.IntegrityError):
            file.execute(statement)
    assert file.execute("SELECT count(*) FROM events").fetchone() == (2,)
    file.close()


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other.sqlite"
    text.write_text("not a database, but long enough to look like something\n" * 20)
    file = sqlite3.connect(other)
    file.execute("CREATE TABLE mine (x)")
    file.commit()
    file.close()
    for path in (text, other):
        content = path.read_bytes()
        with pytest.raises(FileError, match="not a file of decisions"):
            Store(path)
        assert path.read_bytes() == content


def test_an_event_that_undoes_nothing_is_a_sentence(path: Path) -> None:
    Store(path).close()
    file = sqlite3.connect(path)
    file.execute("INSERT INTO events VALUES (7, 5, 'a', 'b', 'accept', 0, '', '', '')")
    file.commit()
    file.close()
    with pytest.raises(FileError, match="event 7 undoes 5"):
        Store(path)


def test_undoing_what_does_not_stand(path: Path) -> None:
    store = Store(path)
    with pytest.raises(InputError):
        store.undo()
    one = store.decide("a", "b", "accept")
    two = store.decide("a", "b", "reject")
    assert store.on_pair("a", "b") == "reject"
    assert store.undo(one.id) == one
    with pytest.raises(InputError, match=str(one.id)):
        store.undo(one.id)
    assert store.undo() == two
    assert store.on_pair("a", "b") is None
    store.close()


@pytest.mark.parametrize("word", ["", " a", "a\tb", "a\nb", "a\0b", "\ud800"])
def test_words_that_no_table_can_hold(path: Path, word: str) -> None:
    store = Store(path)
    with pytest.raises(InputError):
        store.decide("a", word, "accept")
    assert len(store) == 0
    store.close()


def test_what_a_word_was_decided_on(path: Path) -> None:
    """A right pair counts for both of its words, a wrong one only for the word asked."""
    store = Store(path)
    right = store.decide("house", "дом", "accept")
    wrong = store.decide("house", "кот", "reject")
    assert store.on_word("house") == [right, wrong]
    assert store.on_word("дом", reverse=True) == [right]
    assert store.on_word("кот", reverse=True) == []
    assert store.on_pair("кот", "house", reverse=True) == "reject"
    assert store.on_word("дом") == []
    store.close()


_word = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\0"), min_size=1).filter(
    lambda word: word == word.strip(" ")
)


@given(st.lists(st.tuples(_word, _word), min_size=1, max_size=5))
def test_the_table_reads_back(pairs: list[tuple[str, str]]) -> None:
    """By splitting at tabs: a cell never holds one."""
    store = Store(":memory:")
    for source, target in pairs:
        store.decide(source, target, "accept", note="two\twords\nhere")
    header, *rows = "".join(store.tsv()).split("\n")[:-1]
    assert header.split("\t") == ["source", "target", "verdict", "who", "when", "note"]
    for row, (source, target) in zip(rows, pairs, strict=True):
        cells = row.split("\t")
        escaped = f"\\{source}" if source.lstrip("\\")[:1] == "#" else source
        assert cells[:3] == [escaped, target, "accept"]
        assert cells[5] == "two words here"
    store.close()


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "decisions.sqlite"
    Store(path).close()
    assert path.is_file()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="cannot be used"):
        Store(tmp_path / "decisions.sqlite")
