"""The routes of ``blicer serve``: the page, and the same endpoints for programs (docs/serve.md)."""

from __future__ import annotations

import asyncio
import html
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

import blicer
from blicer.errors import BlicerError, MissingDependency
from blicer.expectations import DIRECTIONS
from blicer.languages import autonym
from blicer.pages import needed
from blicer.serve.learning import Busy, Learner
from blicer.serve.lookup import (
    BACKGROUND,
    QUEUES,
    STREAMED,
    URGENT,
    Lookup,
    Row,
    Worker,
    fold,
    right_to_left,
)
from blicer.serve.store import REJECT, RIGHT, Decision, Store

with needed("fastapi", "blicer serve", "serve"):
    from fastapi import FastAPI, Query, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import (
        FileResponse,
        HTMLResponse,
        JSONResponse,
        PlainTextResponse,
        Response,
        StreamingResponse,
    )
    from fastapi.staticfiles import StaticFiles
    from pydantic import AfterValidator, BaseModel, ConfigDict, Field
    from starlette.exceptions import HTTPException

from blicer.serve.guard import PICTURE_POLICY, Guard, PunctualProtocol, Refused, Traffic

STATIC = Path(__file__).parent / "static"
MOST_WORDS, MOST_PAIRS, MOST_ROWS, MOST_NEAR = 10_000, 1_000, 1_000, 200
WORDS_A_PART = 128  # of a streamed answer
LONGEST = 500  # characters of a word
AT_ONCE = 8  # remembered words that are answered without another thread
SECONDS = 30.0  # that one step of an answer may take
MOST_WAITING = 500
SETTINGS: dict[str, Any] = {  # of uvicorn
    "http": PunctualProtocol,
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "timeout_keep_alive": 30,
    "timeout_graceful_shutdown": 5,
    "limit_concurrency": 1_000,
}
Result = TypeVar("Result")


def _text(value: str) -> str:
    if "\0" in value:  # pydantic refuses halves of surrogate pairs itself
        raise ValueError("a zero byte is not text")
    return value


Word = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(_text)]
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Words(Body):
    """Words to translate; `min_confidence` leaves out what is less sure."""

    words: Annotated[list[Word], Field(max_length=MOST_WORDS)]
    k: Annotated[int, Field(ge=1, le=100)] = 5
    reverse: bool = False
    min_confidence: Confidence | None = None


class Pairs(Body):
    """Pairs to score, source word first."""

    pairs: Annotated[list[tuple[Word, Word]], Field(max_length=MOST_PAIRS)]


class Near(Body):
    """A word whose neighbours are asked for."""

    word: Word
    reverse: bool = False
    n: Annotated[int, Field(ge=1, le=MOST_NEAR)] = 10


class Judgement(Body):
    """A decision on a translation; `correct`: the target is the user's own."""

    model_config = ConfigDict(str_strip_whitespace=True)

    source: Word
    target: Annotated[str, Field(max_length=LONGEST), AfterValidator(_text)] = ""
    verdict: Literal["accept", "reject", "correct", "skip"]
    reverse: bool = False
    note: Annotated[str, Field(max_length=2_000), AfterValidator(_text)] = ""
    who: Annotated[str, Field(max_length=100), AfterValidator(_text)] = ""


class Undo(Body):
    """The decision to take back; by default the last one."""

    id: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None


class Nothing(Body):
    """No arguments."""


class Server:
    """The translator in use, the decisions, and the thread that computes."""

    def __init__(
        self, folder: Path, lookup: Lookup, store: Store, vectors: Sequence[Path] | None
    ) -> None:
        self.lookup, self.store, self.worker = lookup, store, Worker()
        self.learner = Learner(folder, store, lookup, self.use, vectors)
        self.pictures: dict[str, str] = {}
        self._drawing = threading.Lock()

    def start(self) -> None:
        self.worker.start()
        self.use(self.lookup)

    def use(self, lookup: Lookup) -> None:
        """Answer with this translator from now on."""
        self.lookup, self.pictures = lookup, {}
        self.worker.submit(lookup.warm)
        self._extend(lookup)

    def _extend(self, lookup: Lookup) -> None:
        def step() -> None:
            if self.lookup is lookup and not lookup.ready:
                lookup.extend()
                self._extend(lookup)

        self.worker.submit(step, priority=BACKGROUND)

    def stop(self) -> None:
        self.learner.stop()
        self.worker.stop()
        self.store.close()

    async def compute(
        self,
        run: Callable[[], Result],
        *,
        words: Sequence[str] = (),
        reverse: bool = False,
        priority: int = URGENT,
    ) -> Result:
        """Run in the worker's thread; what takes too long or is too much raises ``Refused``."""
        if self.worker.waiting > MOST_WAITING:
            raise Refused(503, "the server is busy; try again")
        lookup = self.lookup
        rows = list(lookup.rows(words, reverse).values())
        if words and lookup.remembers(rows, reverse):
            if len(words) <= AT_ONCE:
                return run()  # takes less time than to change threads
            return await asyncio.to_thread(run)
        asked = (lookup.translator, reverse)
        future: Future[Result] = self.worker.submit(run, rows=rows, asked=asked, priority=priority)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), SECONDS)
        except asyncio.TimeoutError:
            raise Refused(503, f"this took more than {SECONDS:.0f} s; ask for less") from None

    def picture(self, name: str) -> str | None:
        with self._drawing:
            if name not in self.pictures:
                drawn = _draw(name, self.lookup)
                if drawn is None:
                    return None
                self.pictures[name] = drawn
            return self.pictures[name]


def listen(host: str, port: int) -> socket.socket:
    """An open socket; an address that cannot be had raises."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol asyncio does not turn Nagle's algorithm off, and answers wait 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise BlicerError(
            f"cannot listen on {host}, port {port} ({error.strerror or error}): name another --port"
        ) from error
    return listening


def address(listening: socket.socket, token: str | None) -> str:
    """What to open in a browser."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}/" + (f"#token={quote(token)}" if token else "")


def create_app(
    folder: Path,
    lookup: Lookup,
    store: Store,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    vectors: Sequence[Path] | None = None,
) -> FastAPI:
    """The application for the translator in ``folder``; ``vectors``: see ``Learner``."""
    server = Server(folder, lookup, store, vectors)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        server.start()
        yield
        server.stop()

    app = FastAPI(
        title="blicer serve",
        version=blicer.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        description="A bilingual dictionary with confidences: look, correct, learn.",
    )
    app.state.server = server
    app.state.traffic = Traffic()
    app.add_middleware(Guard, host=host, token=token, traffic=app.state.traffic)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(BlicerError, _sentence)
    _add_routes(app, server)
    if STATIC.is_dir():
        app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    return _error(422, f"{where or 'the request'}: {first['msg']}")


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, str(error.detail))


def _sentence(_: Request, error: Exception) -> Response:
    special: dict[type[Exception], int] = {Busy: 409, MissingDependency: 501}
    return _error(special.get(type(error), 400), str(error))


def _error(status: int, sentence: str) -> Response:
    text = sentence.encode("utf-8", "replace").decode("utf-8")
    return JSONResponse({"error": text}, status)


# -- routes ---------------------------------------------------------------------------------------

Offset = Annotated[int, Query(ge=0, le=2**31)]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]
Asked = Annotated[str, Query(min_length=1, max_length=LONGEST), AfterValidator(_text)]


def _add_routes(app: FastAPI, server: Server) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        index = STATIC / "index.html"
        if not index.is_file():
            return PlainTextResponse("The page is not there; the API is: /api-docs", 404)
        return FileResponse(index)

    @app.get("/api-docs", include_in_schema=False)
    def api_docs() -> Response:
        return HTMLResponse(_api_page(app.openapi()))

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the server is up."""
        pair = [side.language for side in server.lookup.sides]
        return {"status": "ok", "version": blicer.__version__, "pair": pair}

    @app.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> str:
        """Figures for Prometheus."""
        return _metrics(app, server)

    @app.get("/info")
    def info() -> dict[str, Any]:
        """The translator and its training, the decisions, and how far the dictionary is."""
        return _info(server)

    @app.get("/complete")
    async def complete(
        q: Annotated[str, Query(max_length=LONGEST), AfterValidator(_text)] = "",
        reverse: bool = False,
        limit: Annotated[int, Query(ge=1, le=100)] = 12,
    ) -> dict[str, Any]:
        """Words that begin so, most frequent first; case and accents are ignored."""
        return {"words": server.lookup.complete(q, limit, reverse=reverse)}

    @app.post("/translate")
    async def translate(asked: Words, request: Request) -> Any:
        """Translations of up to 10,000 words; with `Accept: application/x-ndjson` a line each."""
        lookup, parts = server.lookup, range(0, len(asked.words), WORDS_A_PART)
        lookup.translator.check_request([], asked.k, asked.min_confidence)
        priority = URGENT if len(parts) < 2 else STREAMED

        async def translated(start: int) -> list[dict[str, Any]]:
            words = asked.words[start : start + WORDS_A_PART]
            return await server.compute(
                lambda: lookup.translations(words, asked.k, asked.reverse, asked.min_confidence),
                words=words,
                reverse=asked.reverse,
                priority=priority,
            )

        async def lines() -> AsyncIterator[str]:
            for start in parts:
                for entry in await translated(start):
                    yield json.dumps(entry, ensure_ascii=False) + "\n"

        if "application/x-ndjson" in request.headers.get("accept", ""):
            return StreamingResponse(lines(), media_type="application/x-ndjson")
        return {"entries": [entry for start in parts for entry in await translated(start)]}

    @app.post("/score")
    async def score(asked: Pairs) -> dict[str, Any]:
        """Every scorer's score of given pairs; confidence is 0 if CSLS does not find the target."""
        lookup = server.lookup
        return {"scores": await server.compute(lambda: lookup.score(asked.pairs))}

    @app.post("/neighbours")
    async def neighbours(asked: Near) -> dict[str, Any]:
        """Nearest words of the word's own language by cosine, and of the other by CSLS."""
        lookup = server.lookup
        return await server.compute(
            lambda: lookup.neighbours(asked.word, asked.n, reverse=asked.reverse)
        )

    @app.get("/entry")
    async def entry(word: Asked, reverse: bool = False) -> dict[str, Any]:
        """All that is known of a word: candidates with every score, neighbours, decisions."""
        lookup = server.lookup
        found = lookup.known_entry(word, reverse=reverse)
        if found is None:
            found = await server.compute(lambda: lookup.entry(word, reverse=reverse))
        known = lookup.spelled(word, reverse)
        decided = [one.to_dict() for one in server.store.on_word(known, reverse=reverse)]
        candidates = [
            {**one, "decision": server.store.on_pair(known, one["word"], reverse=reverse)}
            for one in found["candidates"]
        ]
        return {**found, "candidates": candidates, "decisions": decided}

    @app.get("/map")
    async def map(
        word: Asked, reverse: bool = False, n: Annotated[int, Query(ge=1, le=MOST_NEAR)] = 30
    ) -> dict[str, Any]:
        """The word and its neighbours of both languages in two dimensions."""
        lookup = server.lookup
        return {"points": await server.compute(lambda: lookup.map(word, n, reverse=reverse))}

    @app.get("/dictionary")
    def dictionary(
        reverse: bool = False,
        offset: Offset = 0,
        limit: Limit = 100,
        sort: Literal["rank", "word", "translation", "confidence"] = "rank",
        order: Literal["asc", "desc"] = "asc",
        q: Annotated[str, Query(max_length=LONGEST), AfterValidator(_text)] = "",
        status: Literal["all", "open", "accept", "reject", "correct", "seed"] = "all",
        min_confidence: Annotated[float, Query(ge=0, le=1)] = 0.0,
        max_confidence: Annotated[float, Query(ge=0, le=1)] = 1.0,
    ) -> dict[str, Any]:
        """First translations of the most frequent words, as decided or as computed so far.

        `ready` is false while more are computed.
        """
        rows = _rows(server, reverse)
        total = len(rows)
        if q:
            text = fold(q)
            rows = [row for row in rows if text in row.folded[0] or text in row.folded[1]]
        if status != "all":
            rows = [row for row in rows if _status(row) == status]
        if min_confidence > 0 or max_confidence < 1:
            least, most = min_confidence, max_confidence
            rows = [row for row in rows if least <= (row.confidence or 0.0) <= most]
        if sort != "rank":
            rows.sort(key=_SORTED[sort], reverse=order == "desc")
        elif order == "desc":
            rows.reverse()
        shown = [{name: getattr(row, name) for name in _SHOWN} for row in rows[offset:][:limit]]
        own = server.lookup.dictionaries[int(reverse)]
        return {
            "ready": own.done == own.total,
            "total": total,
            "filtered": len(rows),
            "rows": shown,
        }

    @app.get("/queue")
    async def queue(
        kind: Literal["uncertain", "frequent", "disagreement", "seeds"] = "uncertain",
        reverse: bool = False,
        offset: Offset = 0,
        limit: Limit = 20,
    ) -> dict[str, Any]:
        """Words that nobody decided on, in the order in which deciding them helps."""
        return await asyncio.to_thread(_queue, server, kind, reverse, offset, limit)

    @app.post("/decisions")
    def decide(asked: Judgement) -> dict[str, Any]:
        """Record a decision; it is on disk when this answers."""
        words = {
            "source": server.lookup.spelled(asked.source, asked.reverse),
            "target": server.lookup.spelled(asked.target, not asked.reverse),
        }
        return server.store.decide(**asked.model_dump() | words).to_dict()

    @app.post("/decisions/undo")
    def undo(asked: Undo) -> dict[str, Any]:
        """Take back a decision, by default the last one."""
        return {"undone": server.store.undo(asked.id).to_dict()}

    @app.get("/decisions")
    def decisions(offset: Offset = 0, limit: Limit = 100) -> dict[str, Any]:
        """Decisions that stand, newest first."""
        standing = server.store.standing()[::-1]
        rows = [one.to_dict() for one in standing[offset : offset + limit]]
        return {"total": len(standing), "rows": rows}

    @app.get("/decisions.tsv")
    def decisions_table() -> Response:
        """Decisions that stand as a table, source language first."""
        return Response(
            "".join(server.store.tsv()),
            media_type="text/tab-separated-values; charset=utf-8",
            headers={"content-disposition": 'attachment; filename="decisions.tsv"'},
        )

    @app.post("/learn", status_code=202)
    def learn(_: Nothing) -> dict[str, Any]:
        """Train again with accepted and corrected pairs as seeds and rejected ones as negatives."""
        server.learner.start()
        return server.learner.report()

    @app.get("/learn")
    def learning() -> dict[str, Any]:
        """How far the learning is, and what it changed."""
        return server.learner.report()

    @app.post("/learn/back", status_code=202)
    def back(_: Nothing) -> dict[str, Any]:
        """Return to the translator before the last learning."""
        server.learner.back()
        return server.learner.report()

    @app.get("/pictures/{name}.svg", include_in_schema=False)
    def picture(name: Literal["reliability", "risk-coverage", "lambda"]) -> Response:
        drawn = server.picture(name)
        if drawn is None:
            raise Refused(404, "this translator has no such figures: nothing was held out")
        how = {"content-security-policy": PICTURE_POLICY}
        return Response(drawn, media_type="image/svg+xml", headers=how)


# -- dictionary and queues ------------------------------------------------------------------------


def _rows(server: Server, reverse: bool) -> list[Row]:
    """Rows of the dictionary; what the user decided on takes the place of what was computed."""
    rows = list(server.lookup.dictionaries[int(reverse)].rows)
    places = server.lookup.asked(reverse).lookup
    for word in server.store.words(reverse=reverse):
        if (place := places.get(word, len(rows))) < len(rows):
            for one in server.store.on_word(word, reverse=reverse):
                rows[place] = _decided(rows[place], one, reverse)
    return rows


def _decided(row: Row, decision: Decision, reverse: bool) -> Row:
    other = decision.pair[0 if reverse else 1]
    if decision.verdict in RIGHT:
        folded = (row.folded[0], fold(other))
        return row._replace(
            target=other, confidence=None, seed=False, decision=decision.verdict, folded=folded
        )
    if decision.verdict == REJECT and other == row.target:
        return row._replace(decision=REJECT)
    return row


def _status(row: Row) -> str:
    return row.decision or ("seed" if row.seed else "open")


_SHOWN = ("rank", "source", "target", "confidence", "seed", "decision")
_SORTED: dict[str, Callable[[Row], Any]] = {
    "word": lambda row: row.folded[0],
    "translation": lambda row: row.folded[1],
    "confidence": lambda row: -1.0 if row.confidence is None else row.confidence,
}


def _queue(server: Server, kind: str, reverse: bool, offset: int, limit: int) -> dict[str, Any]:
    """The rows of a queue, and why each is in it."""
    lookup, decided = server.lookup, set(server.store.words(reverse=reverse))
    if kind == "seeds":
        way, word, other = DIRECTIONS[reverse], *("source", "target")[:: -1 if reverse else 1]
        found = [
            (one[word], one[other], one[f"{way}_confidence"], f"rather {one[way]}?")
            for one in lookup.translator.details.get("suspects", [])
            if one[word] not in decided
        ]
    else:
        rows = [
            row
            for row in lookup.dictionaries[int(reverse)].rows
            if row.target is not None and not row.seed and row.source not in decided
        ]
        if kind == "disagreement":
            rows = [row for row in rows if row.doubt]
        rows.sort(key=QUEUES[kind])
        found = [(row.source, row.target, row.confidence, _why(kind, row)) for row in rows]
    names = ("source", "target", "confidence", "why")
    shown = [dict(zip(names, one, strict=True)) for one in found[offset : offset + limit]]
    return {"total": len(found), "rows": shown}


def _why(kind: str, row: Row) -> str:
    if kind == "frequent":
        return f"word {row.rank} by frequency"
    if kind == "disagreement":
        return row.choices
    return "no confidence" if row.confidence is None else f"{100 * row.confidence:.0f} % sure"


# -- about the translator -------------------------------------------------------------------------


def _info(server: Server) -> dict[str, Any]:
    lookup, translator = server.lookup, server.lookup.translator
    details, calibration = translator.details, translator.calibration
    measured = calibration.reliability if calibration is not None else None
    done = [one.done for one in lookup.dictionaries]
    return {
        "languages": [side.language for side in lookup.sides],
        "language_names": [
            autonym(side.language) if side.language else name
            for side, name in zip(lookup.sides, ("source", "target"), strict=True)
        ],
        "rtl": [right_to_left(side) for side in lookup.sides],
        "words": [len(side) for side in lookup.sides],
        "scores": translator.mixture.names,
        "weights": translator.mixture.weights,
        "n_cand": translator.n_cand,
        "likely": calibration.likely if calibration is not None else None,
        "expected": details.get("expected"),
        "advice": details.get("advice") or None,
        "reliability": None
        if measured is None
        else {key: asdict(measured)[key] for key in ("bins", "curve", "error")},
        "details": {
            key: value for key, value in details.items() if key not in ("suspects", "learned")
        },
        "seeds": len(translator.seeds),
        "decisions": server.store.counts(),
        "dictionary": {
            "ready": lookup.ready,
            "done": sum(done),
            "total": sum(one.total for one in lookup.dictionaries),
        },
        "learn": server.learner.report(),
    }


def _metrics(app: FastAPI, server: Server) -> str:
    traffic = app.state.traffic
    lines = ["# TYPE blicer_requests_total counter"]
    for (path, status), number in sorted(traffic.requests.items()):
        lines.append(f'blicer_requests_total{{path="{path}",status="{status}"}} {number}')
    lines.append("# TYPE blicer_request_seconds_total counter")
    for path, seconds in sorted(traffic.seconds.items()):
        lines.append(f'blicer_request_seconds_total{{path="{path}"}} {seconds:.6f}')
    lines.append("# TYPE blicer_decisions gauge")
    for verdict, number in server.store.counts().items():
        lines.append(f'blicer_decisions{{verdict="{verdict}"}} {number}')
    lookup = server.lookup
    figures = {
        "cached_words": lookup.cached,
        "waiting_jobs": server.worker.waiting,
        "dictionary_words": sum(one.done for one in lookup.dictionaries),
    }
    for name, value in figures.items():
        lines += [f"# TYPE blicer_{name} gauge", f"blicer_{name} {value}"]
    return "\n".join(lines) + "\n"


def _draw(name: str, lookup: Lookup) -> str | None:
    """A picture of held-out words; None if there are none."""
    from blicer import plots

    translator = lookup.translator
    measured = translator.calibration.reliability if translator.calibration else None
    if name == "lambda":
        if not translator.mixture.curve:
            return None
        shares, right = zip(*translator.mixture.curve, strict=True)
        chosen = 1 - abs(translator.mixture.weights["csls"])
        percent = [100 * one for one in right]
        return plots.curves([plots.Curve("mixed", shares, percent, chosen)], "", "λ", "P@1, %")
    if measured is None or not measured.bins:
        return None
    if name == "reliability":
        return plots.reliability([(a, b, int(n)) for a, b, n in measured.bins], "")
    if not measured.curve:
        return None
    _, precision, coverage = zip(*measured.curve, strict=True)
    curve = plots.Curve(
        "entries, surest first", [100 * one for one in coverage], [100 * one for one in precision]
    )
    return plots.curves([curve], "", "words answered, %", "right, %")


def _api_page(schema: dict[str, Any]) -> str:
    """The endpoints as a plain page, from the OpenAPI description."""

    def parts() -> Iterator[str]:
        for path, methods in schema["paths"].items():
            for method, about in methods.items():
                yield f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>"
                yield f"<p>{html.escape(about.get('description', ''))}</p>"
                for one in about.get("parameters", []):
                    yield _described(one["name"], one["schema"])
                content = about.get("requestBody", {}).get("content", {})
                for body in content.values():
                    name = body["schema"].get("$ref", "").rpartition("/")[2]
                    found = schema["components"]["schemas"].get(name, {})
                    for field, value in found.get("properties", {}).items():
                        yield _described(field, value)

    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>blicer API</title>'
        '<meta name="viewport" content="width=device-width">'
        '<link rel="stylesheet" href="/static/app.css"></head><body><main><h1>blicer API</h1>'
        '<p>All answers are JSON; the same as <a href="/openapi.json">OpenAPI</a>. Errors are '
        "<code>{&quot;error&quot;: &quot;a sentence&quot;}</code>.</p>"
        f"{''.join(parts())}</main></body></html>"
    )


def _described(name: str, schema: dict[str, Any]) -> str:
    about = {key: value for key, value in schema.items() if key not in ("title", "description")}
    text = json.dumps(about, ensure_ascii=False)
    return f"<p><b>{html.escape(name)}</b> <code>{html.escape(text)}</code></p>"
