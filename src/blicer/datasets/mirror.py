"""Where a file is looked for: at its publisher's, or on a mirror."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import url2pathname

from blicer.datasets.catalogue import Item
from blicer.errors import InputError


class Mirror:
    """A web address or a folder in place of the publishers' hosts.

    It holds the files under the paths that they have at their publishers' (below the host), or
    under those that ``blicer data get`` writes; so a folder that it filled is a mirror.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._folder: Path | None = None
        try:
            scheme = urlsplit(place).scheme
            if scheme in ("http", "https"):
                self._base = _encoded(place).rstrip("/")
                return
        except ValueError as error:
            raise InputError(f"the mirror {place} is not an address ({error})") from error
        if "://" in place and scheme != "file":
            raise InputError(f"the mirror {place} is neither an http(s) address nor a folder")
        path = url2pathname(urlsplit(place).path) if scheme == "file" else place
        self._folder = Path(path).expanduser()
        if not self._folder.is_dir():
            raise InputError(
                f"the mirror {place} is no folder; expected one, or an http(s) address"
            )

    def places(self, item: Item) -> list[str | Path]:
        paths = [urlsplit(item.url).path.lstrip("/"), item.file]
        if self._folder is not None:
            return [self._folder / path for path in paths]
        return [f"{self._base}/{path}" for path in paths]


def _encoded(address: str) -> str:
    """An address in ASCII: its host as DNS knows it, its path percent-encoded."""
    parts = urlsplit(address)
    host = (parts.hostname or "").encode("idna").decode()
    if not host:
        raise ValueError("it names no host")
    if ":" in host:
        host = f"[{host}]"
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    port = f":{parts.port}" if parts.port is not None else ""
    path = quote(parts.path, safe="/%:@+,;=~")
    return urlunsplit((parts.scheme, f"{user}{host}{port}", path, "", ""))


def places_of(item: Item, mirror: Mirror | None) -> list[str | Path]:
    return [item.url] if mirror is None else mirror.places(item)
