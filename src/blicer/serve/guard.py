"""What stands before every request: who may ask, how much, how long; and headers of every answer.

A page of another site must not reach the server through the user's browser. So the Host must be a
name of this machine (DNS rebinding), requests that change something must come from our own page
(Origin) and be JSON, and no answer allows other origins to read it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
import socket
import time
from collections import Counter, defaultdict
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_BYTES = 4 << 20
MOST_SECONDS = 60.0  # to receive a request
LOOPBACK = ("localhost", "127.0.0.1", "::1")
OPEN = ("/", "/health", "/api-docs", "/openapi.json", "/favicon.ico")  # need no token: no data
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Refused(HTTPException):
    """A request that is not answered, and why."""


class Traffic:
    """How many requests there were, and how long they took, by path."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, host: str, token: str | None, traffic: Traffic) -> None:
        self.app, self.token, self.traffic = app, token, traffic
        self.names = {*LOOPBACK, host.lower()}
        self.loopback = is_loopback(host)
        if not self.loopback:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no websockets
        started, status = time.perf_counter(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in given
                    ),
                ]
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, _limited(receive), answer)
        except Refused as refused:
            await _refuse(refused, answer)
        finally:
            # Paths are labels: only those of routes, so that nobody can make up endless ones.
            route = scope.get("route")
            path = getattr(route, "path", "") or "other"
            self.traffic.requests[(path, status)] += 1
            self.traffic.seconds[path] += time.perf_counter() - started

    def _check(self, scope: Scope) -> None:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise Refused(421, f"this server is not called {host[:100]!r}")
        path: str = scope["path"]
        if self.token is not None and path not in OPEN and not path.startswith("/static/"):
            kind, _, token = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(
                token.strip().encode("latin-1"), self.token.encode()
            ):
                raise Refused(401, "this server asks for its token: Authorization: Bearer TOKEN")
        length = headers.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,15}", length) or int(length) > MOST_BYTES:
            raise Refused(413, f"the request has more than {MOST_BYTES >> 20} MB")
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return
        origin = headers.get("origin")
        if origin is not None and _place(origin) != host.lower():
            raise Refused(403, f"requests from {origin[:100]!r} are refused: another origin")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refused(403, "requests from other sites are refused")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "requests that change or ask something are JSON: application/json")

    def _is_ours(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self.names:
            return True
        if self.loopback:
            return False
        try:  # an address cannot be rebound
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _place(origin: str) -> str:
    """Host and port of an Origin; nothing if it is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _limited(receive: Receive) -> Receive:
    """A request of at most ``MOST_BYTES`` that comes within ``MOST_SECONDS``."""
    received, ends, complete = 0, time.monotonic() + MOST_SECONDS, False

    async def limited() -> Message:
        nonlocal received, complete
        if complete:  # what comes now is that the client went away
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), ends - time.monotonic())
        except asyncio.TimeoutError:
            raise Refused(408, f"the request took more than {MOST_SECONDS:.0f} s") from None
        received += len(message.get("body", b""))
        if received > MOST_BYTES:
            raise Refused(413, f"the request has more than {MOST_BYTES >> 20} MB")
        complete = not message.get("more_body", False)
        return message

    return limited


class PunctualProtocol(H11Protocol):
    """Closes a connection whose next request does not have its headers after ``MOST_SECONDS``.

    uvicorn itself waits for ever for a request that has begun, and such connections count towards
    its limit. It closes connections between two requests (``timeout_keep_alive``).
    """

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._closing = self.loop.call_later(MOST_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # a request is there
            self._keep_open()
        elif self._closing is None:
            self._closing = self.loop.call_later(MOST_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._keep_open()
        super().connection_lost(exc)

    def _keep_open(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None


async def _refuse(refused: Refused, send: Send) -> None:
    body = json.dumps({"error": refused.detail}, ensure_ascii=False).encode("utf-8", "replace")
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": refused.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
