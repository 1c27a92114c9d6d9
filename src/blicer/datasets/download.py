"""One file over HTTP, whatever happens to the connection."""

from __future__ import annotations

import http.client
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from blicer import progress
from blicer.datasets.answers import (
    DownloadError,
    Passing,
    agree,
    content_range,
    no_connection,
    readable,
    refusal,
    version_of,
    whole_number,
    why,
)
from blicer.datasets.part import PIECE, Part, Version
from blicer.datasets.watch import PlainFile, UnexpectedData, Watch
from blicer.errors import FileError

_MEGABYTE = 1_000_000
_ATTEMPTS_TO_REACH = 3  # without a network the user should not wait long to hear of it


@dataclass(frozen=True)
class Patience:
    """When to try again, and when to give up."""

    attempts: int = 6  # in a row without a new byte
    first_wait: float = 1.0  # seconds; doubles each time
    longest_wait: float = 60.0
    timeout: float = 30.0
    sleep: Callable[[float], None] = time.sleep


class _Complete(Exception):
    """Nothing is left to ask for."""


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise DownloadError(req.full_url, f"leads to {newurl}, which is not safe (no https)")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Downloader:
    def __init__(self, patience: Patience | None = None) -> None:
        from blicer import __version__

        self.patience = patience or Patience()
        # Hosts that answered, and hosts that did not: one that never did is soon given up.
        self._alive: set[str] = set()
        self._dead: set[str] = set()
        # Put together by hand: build_opener would also follow a redirect to ftp:.
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.UnknownHandler(),
            _SafeRedirects(),
        ):
            self._opener.add_handler(handler)
        self._opener.addheaders = [("User-Agent", f"blicer/{__version__}")]

    def fetch(self, url: str, part: Part, watch: Watch | None = None) -> None:
        """Bring ``part`` to the whole file, or to as much of it as ``watch`` wants."""
        watch = watch or PlainFile()
        try:
            if not self._had_before(url, part, watch):
                self._insist(url, part, watch)
        except UnexpectedData as error:
            part.discard()
            raise DownloadError(url, str(error)) from error

    def _had_before(self, url: str, part: Part, watch: Watch) -> bool:
        """Show ``watch`` what an earlier run left; True when that is all that is needed."""
        version = part.version
        if version is None or version.url != url:
            return False
        progress.note(f"{part.target.name}: {readable(part.size)} are there, going on")
        try:
            if any(watch.feed(piece) for piece in part.pieces()):
                return True
            return part.size == version.length and watch.finish()
        except UnexpectedData:
            part.discard()
            watch.reset()
            return False

    def _insist(self, url: str, part: Part, watch: Watch) -> None:
        """Attempt until it is done, or until nothing new has come for too long."""
        patience, host = self.patience, urlsplit(url).netloc
        failures = changes = most = 0
        version = part.version if _is_of(part, url) else None
        if version is not None:
            most = part.size
        while True:
            try:
                return self._attempt(url, part, watch)
            except Passing as error:
                problem = error
            except UnexpectedData as error:
                if not error.again:
                    raise
                part.discard()
                watch.reset()
                problem = Passing(f"it {error}")
            if version is not None and part.version not in (version, None):
                changes, most = changes + 1, 0
            version = part.version or version
            if part.size > most:
                most, failures = part.size, 0
            failures += 1
            attempts = patience.attempts
            if problem.reached:
                self._alive.add(host)
            elif host not in self._alive:
                attempts = min(attempts, 1 if host in self._dead else _ATTEMPTS_TO_REACH)
            if failures >= attempts or changes >= patience.attempts:
                if not problem.reached:
                    self._dead.add(host)
                raise DownloadError(url, f"{problem}; {_what_now(part)}")
            doubled = patience.first_wait * 2.0 ** (failures - 1)
            wait = min(max(doubled, problem.wait), patience.longest_wait)
            progress.note(f"{part.target.name}: {problem}; trying again in {wait:.0f} s")
            patience.sleep(wait)

    def _attempt(self, url: str, part: Part, watch: Watch) -> None:
        length = part.version.length if part.version is not None else None
        try:
            with self._request(url, part) as response:
                self._alive.add(urlsplit(url).netloc)
                length = _begin_or_go_on(url, response, part, watch)
                if _receive(response, part, watch, length):
                    return
        except _Complete:
            pass
        except urllib.error.HTTPError as error:
            raise refusal(url, error) from error
        except urllib.error.URLError as error:
            raise no_connection(url, error.reason) from error
        except (OSError, http.client.HTTPException) as error:
            place = f"after {readable(part.size)}"
            raise Passing(f"the connection broke {place} ({why(error)})") from error
        if not watch.finish(length_known=length is not None):
            came = readable(part.size)
            if length is None:
                part.discard()
                watch.reset()
            raise Passing(f"the file ended too early, after {came}")

    def _request(self, url: str, part: Part) -> Any:
        request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
        # Bytes from elsewhere stay until this address turns out to have the file.
        version = part.version if _is_of(part, url) else None
        if part.size and version is not None:
            request.add_header("Range", f"bytes={part.size}-")
            # A weak tag may not be used here; then the answer's own tag is compared.
            strong = version.etag if version.etag and not version.etag.startswith("W/") else None
            if strong or version.modified:
                request.add_header("If-Range", strong or version.modified or "")
        try:
            return self._opener.open(request, timeout=self.patience.timeout)
        except urllib.error.HTTPError as error:
            if error.code != 416 or version is None:
                raise
            _, total = content_range(error.headers)
            if part.size == (version.length if total is None else total):
                raise _Complete from None
            part.discard()
            raise Passing("the file is another than before; starting over") from error


def _is_of(part: Part, url: str) -> bool:
    return part.version is not None and part.version.url == url


def _begin_or_go_on(url: str, response: Any, part: Part, watch: Watch) -> int | None:
    """The length that the whole file must have, if the server says."""
    headers = response.headers
    encoding = headers.get("Content-Encoding", "identity")
    if encoding != "identity" and not url.endswith(".gz"):
        raise DownloadError(url, f"came packed ({encoding}), which was not asked for")
    sent = whole_number(headers.get("Content-Length"))
    if response.status == 206:
        start, total = content_range(headers)
        if (
            start != part.size
            or part.version is None
            or not _is_of(part, url)
            or not agree(version_of(url, headers, total), part.version)
        ):
            part.discard()
            watch.reset()
            raise Passing("the file is another than before; starting over")
        if total is None and sent is not None:
            total = start + sent
        return total
    if response.status != 200:
        raise DownloadError(url, f"the server answers {response.status} {response.reason}")
    version = version_of(url, headers, sent)
    if part.size and part.version is not None and _is_of(part, url):
        same = agree(version, part.version)
        reason = "the server cannot go on in the middle" if same else "the file has changed"
        progress.note(f"{part.target.name}: {reason}; starting over")
    if sent is not None and watch.wanted is None:
        _check_space(part, sent)
    if sent is None:
        progress.note(
            f"{part.target.name}: the server does not say how long it is; should the end be "
            "missing, that may not be noticed"
        )
    part.begin(version)
    watch.reset()
    return sent


def _receive(response: Any, part: Part, watch: Watch, length: int | None) -> bool:
    """True when ``watch`` has enough, False at the end of the file."""
    megabytes = None if length is None else length // _MEGABYTE
    total = megabytes if watch.wanted is None else watch.wanted
    with progress.task(part.target.name, total=total) as task:
        # read1 gives what has arrived: of a piece that a lost connection cuts, nothing is lost.
        while length is None or part.size < length:
            piece = response.read1(PIECE if length is None else min(PIECE, length - part.size))
            if not piece:
                break
            part.append(piece)
            enough = watch.feed(piece)
            if watch.wanted is None:
                task.advance(part.size // _MEGABYTE - task.done, "MB")
            else:
                words = min(watch.words, watch.wanted)
                task.advance(words - task.done, f"words, {readable(part.size)}")
            if enough:
                return True
    if length is not None and part.size < length:
        raise Passing(f"the connection ended after {readable(part.size)} of {readable(length)}")
    return False


def _check_space(part: Part, length: int) -> None:
    free = shutil.disk_usage(part.path.parent).free + part.size
    if free < length:
        raise FileError(
            part.target,
            f"needs {readable(length)}, and {readable(free)} are free on the disk; take another "
            "folder, or of vectors only the first words (--first)",
        )


def _what_now(part: Part) -> str:
    if part.size:
        return f"{readable(part.size)} are kept: the same command goes on from there"
    return "try again later, or take it from a mirror (--mirror)"


def copy(source: Path, part: Part, watch: Watch | None = None) -> None:
    """The same from a folder of this computer."""
    watch = watch or PlainFile()
    try:
        with source.open("rb") as file:
            part.begin(Version(str(source), length=source.stat().st_size))
            while piece := file.read(PIECE):
                part.append(piece)
                if watch.feed(piece):
                    return
        whole = watch.finish()
    except UnexpectedData as error:
        part.discard()
        raise FileError(source, str(error)) from error
    except OSError as error:
        raise FileError(source, f"cannot be read ({error.strerror or error})") from error
    if not whole:
        part.discard()
        raise FileError(source, "ends too early: the mirror's copy is not whole")
