"""The server: its answers are the translator's, and it refuses what it must refuse."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from typer.testing import CliRunner

from blicer import Config, Embeddings, Lexicon, Translator, train
from blicer.cli import app as cli
from blicer.errors import FileError
from blicer.files import locked
from blicer.serve import app as served
from blicer.serve.client import Client
from blicer.serve.guard import MOST_BYTES
from blicer.serve.learning import _delete, recover
from blicer.serve.lookup import BACKGROUND, Completion, Lookup, RememberingTranslator, Worker
from blicer.serve.store import Store, beside

ODD = ["<script>alert(1)</script>", "كتاب", "本", "É\"'&<", "naïve", "İstanbul"]
SEEDS, WORDS = 120, 240
HERE = "http://127.0.0.1:8642"


def words(letter: str) -> list[str]:
    return [*(f"{letter}{number}" for number in range(WORDS - len(ODD))), *ODD]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator trained on files that are still there."""
    place: Path = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(WORDS, 12)).astype(np.float32)
    turned = vectors @ np.linalg.qr(rng.normal(size=(12, 12)))[0]
    noisy = turned + 0.5 * rng.normal(size=turned.shape)
    for name, rows in (("s", vectors), ("t", noisy)):
        Embeddings(words(name), rows).save(place / f"{name}.vec")
    source, target = (
        Embeddings.load(place / f"{name}.vec", lowercase=False, cache=False) for name in "st"
    )
    seeds = Lexicon([(f"s{n}", f"t{n}") for n in range(SEEDS)])
    config = Config.resolve(overrides={"space": "procrustes", "scorers": ["spelling"]})
    translator = train(source, target, seeds, config)
    files = [str(place / f"{name}.vec") for name in "st"]
    translator.details["vectors"] = {"files": files, "max_words": None, "lowercase": False}
    translator.save(place / "translator")
    return place / "translator"


@pytest.fixture(scope="module")
def plain(folder: Path) -> Translator:
    return Translator.load(folder)


def application(folder: Path, store: Path, **options: Any) -> Any:
    return served.create_app(folder, Lookup.load(folder), Store(store), **options)


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(application(folder, tmp_path / "d.sqlite"), base_url=HERE) as found:
        yield found


def ready(client: TestClient) -> None:
    wait_for(lambda: client.get("/info").json()["dictionary"]["ready"])


def wait_for(condition: Any, seconds: float = 120) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.05)


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_translations_are_the_translators(
    client: TestClient, plain: Translator, reverse: bool
) -> None:
    asked = [*(plain.target if reverse else plain.source).words[100:], "unknown", "T3", "S3"]
    for _ in range(2):  # computed, then remembered
        body = {"words": asked, "k": 3, "reverse": reverse}
        entries = client.post("/translate", json=body).json()["entries"]
        for entry, expected in zip(
            entries, plain.translate(asked, 3, reverse=reverse), strict=True
        ):
            assert entry["word"] == expected.word
            assert entry["known"] == expected.known
            given = [(one["word"], one["seed"]) for one in entry["candidates"]]
            assert given == [(one.word, one.seed) for one in expected.candidates]
            for one, other in zip(entry["candidates"], expected.candidates, strict=True):
                assert one["confidence"] == pytest.approx(other.confidence)


def test_ten_thousand_words_stream(client: TestClient, plain: Translator) -> None:
    asked = [plain.source.words[n % WORDS] if n % 3 else f"no{n}" for n in range(10_000)]
    lines: list[str] = []
    body = {"words": asked, "k": 1}
    how = {"accept": "application/x-ndjson"}
    with client.stream("POST", "/translate", json=body, headers=how) as answer:
        assert answer.status_code == 200
        lines += answer.iter_lines()
    entries = [json.loads(line) for line in lines]
    assert [entry["word"] for entry in entries] == asked
    assert all(entry["known"] == (n % 3 != 0) for n, entry in enumerate(entries))
    too_many = client.post("/translate", json={"words": [*asked, "one more"]})
    assert too_many.status_code == 422


def test_an_entry_adds_up(client: TestClient, plain: Translator) -> None:
    """The shares make the score; ranks on the way back are counted by hand."""
    retriever = plain.space.retriever
    entry = client.get("/entry", params={"word": "s130"}).json()
    row = plain.source.lookup["s130"]
    assert entry["rank"] == row + 1
    assert entry["here"] == pytest.approx(plain.translate("s130").here)
    for one in entry["candidates"]:
        assert sum(one["shares"].values()) == pytest.approx(one["score"])
        at = plain.target.lookup[one["word"]]
        assert one["rank"] == at + 1
        back = retriever.search(WORDS, [at], reverse=True).indices[0].tolist().index(row) + 1
        assert one["back_rank"] == (back if back <= 100 else 0)
        assert one["decision"] is None
    unit = np.asarray(retriever.source)
    cosines = unit @ unit[row]
    best = [n for n in np.argsort(-cosines) if n != row][:10]
    assert [one["word"] for one in entry["own"]] == [plain.source.words[n] for n in best]
    across = retriever.search(10, [row])
    assert [one["word"] for one in entry["other"]] == [
        plain.target.words[n] for n in across.indices[0]
    ]


@pytest.mark.parametrize("word", ODD)
def test_odd_words_come_back_as_they_are(client: TestClient, word: str) -> None:
    answer = client.get("/entry", params={"word": word})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["word"] == word
    assert answer.json()["known"]
    decided = {"source": word, "target": word, "verdict": "correct", "note": word, "who": word}
    assert client.post("/decisions", json=decided).json().items() >= decided.items()
    assert client.get("/decisions").json()["rows"][0]["note"] == word
    assert word in client.get("/decisions.tsv").text
    completed = client.get("/complete", params={"q": word}).json()["words"]
    assert word in [one["word"] for one in completed]
    points = client.get("/map", params={"word": word, "reverse": True, "n": 5}).json()["points"]
    assert points[0] == points[0] | {"word": word, "side": "target", "asked": True}
    assert len(points) == 11
    assert max(abs(one[axis]) for one in points for axis in "xy") == pytest.approx(1.0)


def test_pairs_are_scored(client: TestClient, plain: Translator) -> None:
    pairs = [["s130", "t130"], ["s130", "nothing"], ["s131", "t7"]]
    first, unknown, far = client.post("/score", json={"pairs": pairs}).json()["scores"]
    assert not unknown["known"]
    entry = client.get("/entry", params={"word": "s130"}).json()
    same = next(one for one in entry["candidates"] if one["word"] == "t130")
    assert first["confidence"] == pytest.approx(same["confidence"])
    assert first["parts"] == pytest.approx(same["parts"], abs=1e-6)
    csls = plain.space.retriever.score([131], [7])[0]
    assert far["parts"]["csls"] == pytest.approx(plain.scaling(csls), abs=1e-6)


def test_completion_ignores_case_and_accents() -> None:
    complete = Completion(["Zebra", "élan", "elan", "Elandsgracht", "el", "本", "本屋", "ÉLAN"])

    def found(start: str, limit: int = 9) -> list[str]:
        return [one["word"] for one in complete(start, limit)]

    assert found("ELAN") == ["élan", "elan", "Elandsgracht", "ÉLAN"]
    assert found("éla", 2) == ["élan", "elan"]
    assert found("本") == ["本", "本屋"]
    assert found("zz") == []
    assert found("", 2) == ["Zebra", "élan"]


def test_remembered_rankings_are_the_same_and_bounded(
    folder: Path, plain: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blicer.serve.lookup.MOST_RANKINGS", 20)
    remembering = RememberingTranslator.load(folder)
    for rows in ([5, 3, 5], list(range(50)), [3, 49, 7]):
        one, other = remembering.rank(rows, reverse=True), plain.rank(rows, reverse=True)
        np.testing.assert_array_equal(one.indices, other.indices)
        np.testing.assert_allclose(
            one.scores, other.scores, rtol=1e-5
        )  # products of few and many rows
        np.testing.assert_allclose(one.parts, other.parts, rtol=1e-5, atol=1e-6)
        assert one.confidence is not None
        np.testing.assert_allclose(one.confidence, other.confidence, rtol=1e-5)
        assert one.here is not None
        np.testing.assert_allclose(one.here, other.here, rtol=1e-5)
    assert isinstance(remembering, RememberingTranslator)
    assert len(remembering.rankings) == 20


def test_requests_at_the_same_time(client: TestClient, plain: Translator) -> None:
    expected = {one.word: one.best for one in plain.translate(plain.source.words)}
    wrong: list[str] = []

    def ask(first: int) -> None:
        for word in plain.source.words[first::8]:
            entry = client.post("/translate", json={"words": [word]}).json()["entries"][0]
            if entry["candidates"][0]["word"] != expected[word]:
                wrong.append(word)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_waiting_requests_are_ranked_together(
    folder: Path, plain: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = RememberingTranslator.load(folder)
    assert isinstance(translator, RememberingTranslator)
    ranked: list[list[int]] = []
    original = Translator.rank

    def counted(self: Any, queries: Any, *, reverse: bool = False) -> Any:
        ranked.append(list(queries))
        return original(self, queries, reverse=reverse)

    monkeypatch.setattr(Translator, "rank", counted)
    worker = Worker()
    futures = [
        worker.submit(lambda n=n: translator.rank([n]), rows=[n], asked=(translator, False))
        for n in range(20)
    ]
    later = worker.submit(lambda: len(ranked), priority=BACKGROUND)
    worker.start()
    for row, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(60).indices, plain.rank([row]).indices)
    assert later.result(60) >= 1
    assert ranked[0] == list(range(20))
    assert sum(len(one) > 1 for one in ranked) == 1
    worker.stop()


def test_what_takes_too_long_is_given_up(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "SECONDS", 0.05)
    monkeypatch.setattr(Lookup, "map", lambda *_, **__: time.sleep(1))
    answer = client.get("/map", params={"word": "s1"})
    assert answer.status_code == 503
    assert "error" in answer.json()


# -- dictionary and queues ------------------------------------------------------------------------


def rows(client: TestClient, **asked: Any) -> list[dict[str, Any]]:
    answer = client.get("/dictionary", params={"limit": 1000, **asked}).json()
    assert answer["filtered"] == len(answer["rows"])
    found: list[dict[str, Any]] = answer["rows"]
    return found


def test_the_dictionary(client: TestClient, plain: Translator) -> None:
    ready(client)
    every = rows(client)
    for row, expected in zip(every, plain.translate(plain.source.words, 1), strict=True):
        assert (row["source"], row["target"]) == (expected.word, expected.best)
        assert row["seed"] == expected.candidates[0].seed
    sure = [row["confidence"] for row in rows(client, sort="confidence", order="desc")]
    assert sure == sorted((row["confidence"] for row in every), reverse=True)
    names = [row["source"] for row in rows(client, q="13")]
    assert names == [row["source"] for row in every if "13" in row["source"] + row["target"]]
    assert len(rows(client, status="seed")) == SEEDS
    between = [row for row in every if 0.2 <= row["confidence"] <= 0.8]
    assert rows(client, min_confidence=0.2, max_confidence=0.8) == between
    page = client.get("/dictionary", params={"offset": 10, "limit": 5}).json()
    assert page["ready"] is True
    assert page["rows"] == every[10:15]
    assert page["total"] == WORDS


def test_decisions_show_in_the_dictionary(client: TestClient) -> None:
    ready(client)
    decide(client, "s150", "own", "correct")
    row = next(row for row in rows(client) if row["source"] == "s150")
    assert (row["target"], row["decision"]) == ("own", "correct")
    first = next(row for row in rows(client) if row["source"] == "s151")
    decide(client, "s151", first["target"], "reject")
    assert [row["source"] for row in rows(client, status="reject")] == ["s151"]
    assert "s150" not in [row["source"] for row in rows(client, status="open")]
    undone = client.post("/decisions/undo", json={}).json()["undone"]
    assert undone["source"] == "s151"
    assert rows(client, status="reject") == []


def decide(client: TestClient, source: str, target: str, verdict: str, **more: Any) -> int:
    body = {"source": source, "target": target, "verdict": verdict, **more}
    answer = client.post("/decisions", json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def test_a_decision_is_on_the_word_of_the_vocabulary(client: TestClient) -> None:
    """Typed with other spaces, case or accents apart, it is the same word."""
    typed = {"source": " S150 ", "target": "T7", "verdict": "correct"}
    found = client.post("/decisions", json=typed).json()
    assert (found["source"], found["target"]) == ("s150", "t7")
    apart = client.post("/decisions", json={**typed, "target": "nai\u0308ve"}).json()
    assert apart["target"] == "na\u00efve"
    entry = client.get("/entry", params={"word": "S150"}).json()
    assert [one["id"] for one in entry["decisions"]] == [found["id"], apart["id"]]


def test_queues(client: TestClient, plain: Translator) -> None:
    ready(client)

    def queue(kind: str, **more: Any) -> list[str]:
        answer = client.get("/queue", params={"kind": kind, "limit": 1000, **more}).json()
        assert answer["total"] == len(answer["rows"])
        return [row["source"] for row in answer["rows"]]

    open_words = [row["source"] for row in rows(client) if not row["seed"]]
    assert queue("frequent") == open_words
    sure = {row["source"]: row["confidence"] for row in rows(client)}
    uncertain = queue("uncertain")
    gaps = [abs(sure[word] - 0.5) for word in uncertain]
    assert gaps == sorted(gaps)
    assert sorted(uncertain) == sorted(open_words)
    differing = []
    for row, word in enumerate(plain.source.words[SEEDS:], start=SEEDS):
        ranking = plain.rank([row])
        by_score = ranking.parts[0].argmax(axis=0)
        if any(place != 0 for place in by_score):
            differing.append(word)
    assert sorted(queue("disagreement")) == sorted(differing)
    for reverse, name in ((False, "source"), (True, "target")):
        expected = [one[name] for one in plain.details["suspects"]]
        assert queue("seeds", reverse=reverse) == expected
    decide(client, uncertain[0], "", "skip")
    decide(client, "t200", uncertain[1], "accept", reverse=True)
    assert queue("uncertain") == uncertain[2:]


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:8642"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8642"}, 421),
        ({"host": "[bad"}, 421),
        ({"host": ""}, 421),
        ({"origin": HERE}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_who_may_decide(client: TestClient, headers: dict[str, str], status: int) -> None:
    body = json.dumps({"source": "a", "target": "b", "verdict": "accept"})
    sent = {"content-type": "application/json", **headers}
    answer = client.post("/decisions", content=body, headers=sent)
    assert answer.status_code == status
    assert client.get("/decisions").json()["total"] == (status == 200)
    assert ("error" in answer.json()) == (status != 200)
    assert "access-control-allow-origin" not in answer.headers
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_token_is_asked_for(folder: Path, tmp_path: Path) -> None:
    web = application(folder, tmp_path / "d.sqlite", host="0.0.0.0", token="sesame-1")
    with TestClient(web, base_url="http://192.0.2.7:8642") as client:
        assert client.get("/health").status_code == 200
        assert client.get("/info").status_code == 401
        for given in ("Bearer wrong", "sesame-1", "Basic sesame-1", "Bearer ", "Bearer \xe9"):
            answer = client.get("/info", headers={"authorization": given.encode("latin-1")})
            assert answer.status_code == 401
        known = {"authorization": "Bearer sesame-1"}
        assert client.get("/info", headers=known).status_code == 200
        assert client.get("/info", headers={**known, "host": "evil.example"}).status_code == 421


def test_too_much(client: TestClient) -> None:
    answer = client.post("/translate", json={"words": ["a" * 400] * (MOST_BYTES // 400)})
    assert answer.status_code == 413

    def unannounced() -> Iterator[bytes]:
        for _ in range(MOST_BYTES // 2**16 + 2):
            yield b" " * 2**16

    sent = {"content-type": "application/json"}
    answer = client.post("/translate", content=unannounced(), headers=sent)
    assert answer.status_code == 413
    assert client.get("/complete", params={"q": "a" * 501}).status_code == 422
    assert client.get("/entry", params={"word": "s1"}).status_code == 200


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "a\0b"])
def test_what_is_not_text(client: TestClient, text: str) -> None:
    decision = {"source": "s1", "target": "t1", "verdict": "accept"}
    for path, body in (
        ("/translate", {"words": [text]}),
        ("/score", {"pairs": [["s1", text]]}),
        ("/neighbours", {"word": text}),
        *(("/decisions", {**decision, name: text}) for name in ("source", "target", "note", "who")),
    ):
        sent = {"content-type": "application/json"}
        answer = client.post(path, content=json.dumps(body), headers=sent)
        assert answer.status_code == 422, path
    assert client.get("/decisions").json()["total"] == 0


def test_requests_that_do_not_come_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte, half a request, half a second one; an answer may take longer."""
    monkeypatch.setattr("blicer.serve.guard.MOST_SECONDS", 0.5)

    async def slow(scope: Any, _: Any, send: Any) -> None:
        await asyncio.sleep(1.5 if scope["path"] == "/slow" else 0)
        length = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b"ok"})

    listening = served.listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(slow, lifespan="off", **served.SETTINGS))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    half = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n"
    for begun in (b"", half % b"", half % b"slow" + b"\r\n"):
        with socket.create_connection(listening.getsockname(), timeout=30) as client:
            client.sendall(begun)
            if begun.endswith(b"\r\n\r\n"):
                answer = b""
                while not answer.endswith(b"ok"):
                    part = client.recv(1000)
                    assert part, answer
                    answer += part
                client.sendall(half % b"")
            assert client.recv(1000) == b""  # closed
    wait_for(lambda: not server.server_state.connections)
    server.should_exit = True
    thread.join()
    listening.close()


def test_pages_that_are_not_there(client: TestClient) -> None:
    for path in ("/nothing", "/static/../app.py", "/static/%2e%2e/app.py", "/pictures/x.svg"):
        answer = client.get(path)
        assert answer.status_code in (404, 422)
        assert "error" in answer.json()
    assert client.request("DELETE", "/decisions").status_code in (405, 415)


_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = "words k reverse min_confidence pairs word n source target verdict note who id".split()


@settings(max_examples=150)
@given(
    st.sampled_from("translate score neighbours decisions decisions/undo learn/back".split()),
    st.dictionaries(
        st.sampled_from(_FIELDS) | st.text(max_size=3),
        _value | st.sampled_from(["accept", "s3", ["s3"], [["s3", "t3"]], 3, True, 0.5, "\ud800"]),
    )
    | _value,
)
def test_no_request_is_an_error_of_ours(long_lived: TestClient, path: str, body: Any) -> None:
    sent = {"content-type": "application/json"}
    answer = long_lived.post(f"/{path}", content=json.dumps(body).encode(), headers=sent)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert isinstance(answer.json()["error"], str)


@settings(max_examples=150)
@given(
    st.sampled_from("complete entry map dictionary queue decisions info learn metrics".split()),
    st.dictionaries(
        st.sampled_from("q word reverse limit n offset sort order status kind".split()),
        st.text(st.characters(codec="utf-8"))
        | st.sampled_from(["true", "1", "-1", "nan", "1e999", "s3", "seeds", "desc", "word"]),
    ),
)
def test_no_question_is_an_error_of_ours(
    long_lived: TestClient, path: str, asked: dict[str, str]
) -> None:
    answer = long_lived.get(f"/{path}", params=asked)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert isinstance(answer.json()["error"], str)


@pytest.fixture(scope="module")
def long_lived(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    web = application(folder, tmp_path_factory.mktemp("free") / "d.sqlite")
    with TestClient(web, base_url=HERE, raise_server_exceptions=True) as found:
        yield found


def test_the_api_is_described(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    expected = "/translate /score /neighbours /dictionary /decisions /entry /learn /health".split()
    assert set(expected) <= set(schema["paths"])
    page = client.get("/api-docs").text
    assert all(path in page for path in expected)
    assert "<script" not in page
    metrics = client.get("/metrics").text
    assert re.search(r'blicer_requests_total\{path="/api-docs",status="200"\} 1', metrics)


# -- learning -------------------------------------------------------------------------------------


def learned(client: TestClient) -> dict[str, Any]:
    wait_for(lambda: client.get("/learn").json()["state"] != "running")
    ready(client)
    found: dict[str, Any] = client.get("/learn").json()
    assert found["state"] == "done", found["message"]
    return found


def test_learning_and_going_back(folder: Path, tmp_path: Path) -> None:
    """What is rejected is never given again, what is accepted comes first; both after a restart."""
    own, store = tmp_path / "translator", tmp_path / "d.sqlite"
    shutil.copytree(folder, own)
    plain = Translator.load(own)
    first = plain.translate("s150", min_confidence=0)
    with TestClient(application(own, store), base_url=HERE) as client:
        ready(client)
        assert client.post("/learn", json={}).status_code == 400  # nothing was decided
        assert client.post("/learn/back", json={}).status_code == 400
        decide(client, "s150", str(first.best), "reject")
        decide(client, "s151", "of my own", "correct")
        decide(client, "s0", "t0", "reject")  # a seed
        number = decide(client, "s152", "t1", "accept")
        client.post("/decisions/undo", json={"id": number})
        answer = client.post("/learn", json={})
        assert answer.status_code == 202
        assert client.post("/learn", json={}).status_code == 409
        assert client.get("/entry", params={"word": "s3"}).status_code == 200  # meanwhile
        report = learned(client)
        changes = {one["word"]: one for one in report["changes"] if not one["reverse"]}
        assert changes["s151"]["after"] == "of my own"
        assert changes["s150"]["before"] == first.best
        sure = [
            max(one["confidence_before"] or 0, one["confidence_after"] or 0) >= 0.5
            for one in report["changes"]
        ]
        assert sure == sorted(sure, reverse=True)  # what matters comes first
        assert sum(sure) == report["n_sure_changes"]
        assert report["can_go_back"]
        assert report["expected_before"] == plain.details["expected"]
        entries = client.post("/translate", json={"words": ["s150", "s0"], "k": 50}).json()
        for entry, gone in zip(entries["entries"], (first.best, "t0"), strict=True):
            assert gone not in [one["word"] for one in entry["candidates"]]
    with TestClient(application(own, store), base_url=HERE) as client:  # a new start
        assert client.get("/info").json()["seeds"] == SEEDS
        assert client.get("/learn").json()["can_go_back"]
        # The rejected seed comes back if its rejection is undone.
        seed = next(one for one in client.get("/decisions").json()["rows"] if one["source"] == "s0")
        client.post("/decisions/undo", json={"id": seed["id"]})
        client.post("/learn", json={})
        learned(client)
        assert client.get("/info").json()["seeds"] == SEEDS + 1
        assert client.post("/learn/back", json={}).status_code == 202
        wait_for(lambda: client.get("/learn").json()["state"] == "done")
        assert client.get("/info").json()["seeds"] == SEEDS
        assert not client.get("/learn").json()["can_go_back"]
    assert Translator.load(own).translate("s151").best == "of my own"


def test_vectors_that_are_gone(folder: Path, tmp_path: Path) -> None:
    own, translator = tmp_path / "translator", Translator.load(folder)
    translator.details["vectors"]["files"] = ["/nowhere/s.vec", "/nowhere/t.vec"]
    translator.save(own)
    with TestClient(application(own, tmp_path / "d.sqlite"), base_url=HERE) as client:
        decide(client, "s150", "t1", "reject")
        answer = client.post("/learn", json={})
        assert answer.status_code == 400
        assert "/nowhere/s.vec" in answer.json()["error"]
        assert "--vectors" in answer.json()["error"]


def test_an_interrupted_exchange_is_finished(tmp_path: Path) -> None:
    """A kill between the two renames leaves no folder of the translator's own name."""
    folder = tmp_path / "translator"
    for ending, content in (("previous", "old"), ("learned", "new")):
        beside(folder, ending).mkdir()
        (beside(folder, ending) / "translator.json").write_text(content)
    recover(folder)
    assert (folder / "translator.json").read_text() == "old"
    shutil.rmtree(folder)
    beside(folder, "previous").mkdir()
    shutil.rmtree(beside(folder, "learned"))
    recover(folder)
    assert not folder.exists()  # the user removed it


def between_two_renames(folder: Path, place: Path) -> Path:
    """A translator whose exchange for a new one is at its middle."""
    own = place / "translator"
    for ending in ("previous", "learned"):
        shutil.copytree(folder, beside(own, ending))
    return own


def test_a_second_server_does_not_recover_from_the_first(folder: Path, tmp_path: Path) -> None:
    """The first is exchanging folders: it holds the decisions, or at least the translator."""
    own = between_two_renames(folder, tmp_path)
    run = CliRunner().invoke
    store = Store(beside(own, "decisions.sqlite"))
    done = run(cli, ["serve", str(own), "--port", "0"])
    assert isinstance(done.exception, FileError)
    assert "in use by another blicer serve" in str(done.exception)
    store.close()
    refused: list[Any] = []

    def other() -> None:  # a lock is a thread's own
        done = run(cli, ["serve", str(own), "--decisions", str(tmp_path / "d.sqlite")])
        refused.append(done.exception)

    with locked(own):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "is being written by another blicer" in str(refused[0])
    assert not own.exists()
    recover(own)
    assert Translator.load(own).translate("s3").best == "t3"


def test_without_a_translator_there_is_no_store(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["serve", str(tmp_path / "nothing")])
    assert "does not exist" in str(done.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["previous", "learned"])
@pytest.mark.parametrize("is_file", [False, True])
def test_folders_of_the_user_are_left_alone(
    folder: Path, tmp_path: Path, ending: str, is_file: bool
) -> None:
    """Said before the training; and found after it if they came meanwhile."""
    own = tmp_path / "translator"
    shutil.copytree(folder, own)
    theirs = beside(own, ending)
    if not is_file:
        theirs.mkdir()
    mine = theirs if is_file else theirs / "thesis.txt"
    mine.write_text("mine")
    with TestClient(application(own, tmp_path / "d.sqlite"), base_url=HERE) as client:
        assert not client.get("/learn").json()["can_go_back"]
        decide(client, "s151", "of my own", "correct")
        answer = client.post("/learn", json={})
        assert answer.status_code == 400
        assert str(theirs) in answer.json()["error"]
        assert client.post("/learn/back", json={}).status_code == 400
        with pytest.raises(FileError, match="left as it is"):
            _delete(theirs)
    assert mine.read_text() == "mine"
    assert Translator.load(own).seeds == Translator.load(folder).seeds


def test_a_translator_with_a_file_of_the_user_is_kept(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "translator"
    for place in (own, beside(own, "previous")):
        shutil.copytree(folder, place)
    (beside(own, "previous") / "notes.txt").write_text("mine")
    with TestClient(application(own, tmp_path / "d.sqlite"), base_url=HERE) as client:
        answer = client.post("/learn/back", json={})
        assert "notes.txt" in answer.json()["error"]
    (beside(own, "previous") / "notes.txt").unlink()
    _delete(beside(own, "previous"))
    assert not beside(own, "previous").exists()


# -- the command ----------------------------------------------------------------------------------


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    code = "from blicer.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(folder), "--port", "0", *more],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "300"},
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://[^/]+", line):
            return found[0]
    raise AssertionError("no address was said")


def test_the_command(folder: Path, tmp_path: Path) -> None:
    """It says its address, refuses a second server, and keeps decisions whatever ends it."""
    store = ["--decisions", str(tmp_path / "d.sqlite")]
    first = start(folder, *store)
    api = Client(said(first))
    assert api.translate(["s3"])[0]["candidates"][0]["word"] == "t3"
    second = start(folder, *store)
    assert second.wait(120) == 2
    assert second.stderr is not None
    assert "in use by another blicer serve" in second.stderr.read()
    ids = [api.decide(f"s{n}", f"t{n}", "accept", who="me")["id"] for n in range(20)]
    first.send_signal(signal.SIGKILL)
    first.wait()
    third = start(folder, *store)
    api = Client(said(third))
    assert [one["id"] for one in api.decisions()] == ids[::-1]
    third.send_signal(signal.SIGTERM)
    assert third.wait(60) == 0


def test_another_host_needs_a_token(folder: Path) -> None:
    process = start(folder, "--host", "0.0.0.0")
    assert process.wait(120) == 2
    assert process.stderr is not None
    assert "--token" in process.stderr.read()
