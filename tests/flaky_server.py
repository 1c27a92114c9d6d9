"""A web server that misbehaves on demand: it cuts connections, ignores Range, changes its files."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import patch
from urllib.parse import urlsplit

from blicer import catalogue
from blicer.download import Outcome, get

PATIENT = {"attempts": 7, "timeout": 5}
HASTY = {"attempts": 1, "timeout": 5}


@dataclass
class Asked:
    path: str
    first_byte: int | None  # of the Range header
    if_range: str | None


@dataclass
class Site:
    """What the server has and how it behaves; tests change it as they like."""

    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # body bytes after which each answer is cut
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # given first
    redirects: dict[str, str] = field(default_factory=dict)
    before: Callable[[int], None] | None = None  # called with the number of the request, from 1
    reset: bool = False  # cut with a reset instead of an ordinary end
    ranges: bool = True  # honour Range
    if_range: bool = True  # honour If-Range
    off_by: int = 0  # go on so many bytes after the place that was asked for
    etag: str | None = "strong"  # strong, weak or None
    modified: str | None = None
    length: bool = True  # send Content-Length
    chunked: bool = False
    headers: dict[str, str] = field(default_factory=dict)

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    sent: int = 0  # bytes of bodies
    waits: list[float] = field(default_factory=list)  # seconds between attempts

    def tag(self, body: bytes) -> str | None:
        if self.etag is None:
            return None
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        return f"W/{tag}" if self.etag == "weak" else tag

    def firsts(self) -> list[int | None]:
        return [one.first_byte for one in self.asked]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.close_connection = True
        site = self.site
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(found[1]) if found else None
        if_range = self.headers.get("If-Range")
        site.asked.append(Asked(self.path, first, if_range))
        if site.before is not None:
            site.before(len(site.asked))
        body = site.files.get(self.path)
        if site.refusals:
            self._short(*site.refusals.pop(0))
        elif self.path in site.redirects:
            self._short(302, {"Location": site.redirects[self.path]})
        elif body is None:
            self._short(404, {})
        else:
            tag = site.tag(body)
            changed = if_range is not None and if_range not in (tag, site.modified)
            if not site.ranges or (changed and site.if_range):
                first = None
            if first is not None:
                first += site.off_by
            if first is not None and first >= len(body):
                self._short(416, {"Content-Range": f"bytes */{len(body)}"})
            else:
                self._send(body, first, tag)

    def _short(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", "Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, body: bytes, first: int | None, tag: str | None) -> None:
        site, rest = self.site, body[first or 0 :]
        self.send_response(200 if first is None else 206)
        if first is not None:
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        if tag is not None:
            self.send_header("ETag", tag)
        if site.modified is not None:
            self.send_header("Last-Modified", site.modified)
        if site.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif site.length:
            self.send_header("Content-Length", str(len(rest)))
        for name, value in site.headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        cut = site.cuts.pop(0) if site.cuts else None
        try:
            self._body(rest if cut is None else rest[:cut])
            if site.chunked and cut is None:
                self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except OSError:
            return  # the client has enough
        if cut is not None and site.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _body(self, data: bytes) -> None:
        for start in range(0, len(data), 1 << 14):
            piece = data[start : start + (1 << 14)]
            if self.site.chunked:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            else:
                self.wfile.write(piece)
            self.site.sent += len(piece)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # connections that end early are what this server is for


@contextmanager
def serving() -> Iterator[Site]:
    """A running server; the downloader does not really wait between attempts."""
    site = Site()
    handler = type("Handler", (_Handler,), {"site": site})
    server = _Server(("127.0.0.1", 0), handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with (
            patch.dict(os.environ, {"no_proxy": "*"}),
            patch.dict(catalogue.COLLECTIONS, published_by(site)),
            patch("blicer.download.sleep", site.waits.append),
        ):
            yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def published_by(site: Site) -> dict[str, catalogue.Collection]:
    """The collections, with the site in place of all publishers."""
    return {
        name: replace(one, base=site.url + urlsplit(one.base).path)
        for name, one in catalogue.COLLECTIONS.items()
    }


def fetch_from(site: Site, folder: Path, *asked: str, **options: object) -> list[Outcome]:
    """``blicer.download.get`` from the site."""
    collection, *wanted = asked
    options = {**PATIENT, **options}
    return list(get(collection, wanted, folder, **options))  # type: ignore[arg-type]
