"""What servers answer, and what that means for the file that was asked for."""

from __future__ import annotations

import errno
import re
import socket
import ssl
import urllib.error
from datetime import datetime, timezone
from email.message import Message
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from blicer.datasets.part import Version
from blicer.errors import BlicerError

_MAY_PASS = {408, 425, 429, 500, 502, 503, 504}
_UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")


class DownloadError(BlicerError):
    """A file could not be fetched; ``absent`` when the server does not have it."""

    def __init__(self, url: str, problem: str, *, absent: bool = False) -> None:
        super().__init__(f"{url}: {problem}")
        self.problem, self.absent = problem, absent


class Passing(Exception):
    """What may go better at another attempt, after ``wait`` seconds if the server says so."""

    def __init__(self, problem: str, *, wait: float = 0.0, reached: bool = True) -> None:
        super().__init__(problem)
        self.wait, self.reached = wait, reached


def refusal(url: str, error: urllib.error.HTTPError) -> DownloadError | Passing:
    said = f"{error.code} {error.reason}".strip()
    if error.code in _MAY_PASS:
        return Passing(f"the server answers {said}", wait=_retry_after(error.headers))
    if error.code in (404, 410):
        return DownloadError(url, f"is not there ({said})", absent=True)
    if error.code == 403:
        # Amazon's storage, where fastText and MUSE are, says so of files that do not exist.
        return DownloadError(url, f"is not there, or not open to you ({said})", absent=True)
    return DownloadError(url, f"the server answers {said}")


def no_connection(url: str, reason: object) -> DownloadError | Passing:
    host = urlsplit(url).netloc
    if isinstance(reason, ssl.SSLCertVerificationError):
        return DownloadError(
            url,
            f"the certificate of {host} is not valid here ({reason.verify_message}); check this "
            "computer's clock and proxy, or take the file from a mirror (--mirror)",
        )
    if isinstance(reason, socket.gaierror):
        return Passing(f"{host} was not found (is there a network?)", reached=False)
    unreachable = isinstance(reason, (ConnectionRefusedError, TimeoutError)) or (
        isinstance(reason, OSError) and reason.errno in _UNREACHABLE
    )
    return Passing(f"no connection to {host} ({why(reason)})", reached=not unreachable)


def why(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def content_range(headers: Message) -> tuple[int | None, int | None]:
    """The first byte that is sent, and the length of the whole file."""
    found = _RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if found is None:
        return None, None
    return whole_number(found[1]), whole_number(found[2])


def whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def version_of(url: str, headers: Message, length: int | None) -> Version:
    return Version(url, headers.get("ETag"), headers.get("Last-Modified"), length)


def agree(one: Version, other: Version) -> bool:
    """Nothing that both say differs. Some servers go on in the middle of a replaced file."""
    facts = (
        (one.etag, other.etag),
        (one.modified, other.modified),
        (one.length, other.length),
    )
    return all(a is None or b is None or a == b for a, b in facts)


def _retry_after(headers: Message) -> float:
    """Seconds; the server gives them or a date."""
    text = headers.get("Retry-After", "").strip()
    seconds = whole_number(text)
    if seconds is not None:
        return float(seconds)
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return 0.0
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return max(0.0, (date - datetime.now(timezone.utc)).total_seconds())


def readable(size: int) -> str:
    for unit, step in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size} bytes"
