"""A client of ``blicer serve`` that needs nothing but Python.

>>> api = Client("http://127.0.0.1:8642")  # doctest: +SKIP
>>> api.translate(["house"])[0]["candidates"][0]["word"]  # doctest: +SKIP
'дом'
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypedDict
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from blicer.errors import BlicerError

Verdict = Literal["accept", "reject", "correct", "skip"]


class Candidate(TypedDict):
    word: str
    confidence: float | None
    score: float | None
    seed: bool
    forms: list[str]


class Entry(TypedDict):
    word: str
    known: bool
    here: float | None
    """The chance that the other vocabulary has a translation at all."""
    candidates: list[Candidate]


class Decision(TypedDict):
    id: int
    source: str
    target: str
    verdict: Verdict
    reverse: bool
    note: str
    who: str
    when: str


class Client:
    """Calls a server; what it refuses raises ``BlicerError`` with its sentence."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0) -> None:
        self.url, self.timeout = url.rstrip("/"), timeout
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def translate(self, words: Sequence[str], k: int = 5, **options: Any) -> list[Entry]:
        """``options``: ``reverse``, ``min_confidence``."""
        return list(self.stream(words, k, **options))

    def stream(self, words: Sequence[str], k: int = 5, **options: Any) -> Iterator[Entry]:
        """Entries as the server computes them; up to 10,000 words."""
        body = {"words": list(words), "k": k, **options}
        with self._open("/translate", body, {"Accept": "application/x-ndjson"}) as answer:
            for line in answer:
                yield json.loads(line)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.post("/score", pairs=list(pairs))["scores"]
        return found

    def decide(self, source: str, target: str, verdict: Verdict, **more: Any) -> Decision:
        """``more``: ``reverse``, ``note``, ``who``."""
        decision: Decision = self.post(
            "/decisions", source=source, target=target, verdict=verdict, **more
        )
        return decision

    def decisions(self, offset: int = 0, limit: int = 1000) -> list[Decision]:
        """Newest first."""
        found: list[Decision] = self.get("/decisions", offset=offset, limit=limit)["rows"]
        return found

    def get(self, path: str, **query: Any) -> Any:
        """Any other endpoint."""
        with self._open(f"{path}?{urlencode(query)}" if query else path) as answer:
            return json.load(answer)

    def post(self, path: str, **body: Any) -> Any:
        with self._open(path, body) as answer:
            return json.load(answer)

    def _open(self, path: str, body: Any = None, headers: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **self.headers, **(headers or {})}
        try:
            return urlopen(Request(self.url + path, data, sent), timeout=self.timeout)
        except HTTPError as error:
            try:
                sentence = json.load(error)["error"]
            except (ValueError, KeyError, TypeError):
                sentence = f"the server answered {error.code}"
            raise BlicerError(sentence) from error
        except URLError as error:
            raise BlicerError(f"{self.url} does not answer ({error.reason})") from error
