"""Published translators and dictionaries: an index file, and a folder beside it for each entry.

Anyone can publish: ``publish`` makes the folder of an entry and adds the entry to an index, a JSON
file in a folder or on a web server. The index lists the size and SHA-256 of every file of its
entries; no other files are fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from blicer.download import DownloadError, Part, fetch
from blicer.errors import FileError, InputError
from blicer.expectations import lines
from blicer.files import (
    CHECKSUMS,
    SEAL,
    atomic_folder,
    atomic_write,
    cache_folder,
    check_replaceable,
    file_sha256,
    locked,
    read_json,
    write_json,
    write_marker,
)
from blicer.inspection import kind_of
from blicer.languages import validate_tag
from blicer.lexicon import Lexicon
from blicer.translator import read_translator

FORMAT, VERSION = "blicer-index", 1
INDEX, CARD, ENTRY = "index.json", "README.md", "entry.json"
OURS = Path(__file__).parent / INDEX
LARGEST_INDEX = 10_000_000  # bytes
LARGEST_ENTRY = 20_000_000_000
MOST_FILES = 1_000
KINDS = ("translator", "dictionary")
WAIT_FOR_INDEX = 30.0  # seconds, while other entries are added to it
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Published:
    """One file of an entry; ``path`` is relative to the entry."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Entry:
    """One line of an index."""

    name: str
    kind: str
    """translator or dictionary"""
    languages: tuple[str, str]
    licence: str
    about: str
    files: tuple[Published, ...]

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)

    @classmethod
    def from_dict(cls, values: Any) -> Entry:
        """An entry from the JSON of an index; raises ``ValueError`` if anything is wrong."""
        texts = {name: values[name] for name in ("name", "kind", "licence", "about")}
        if not all(isinstance(one, str) for one in texts.values()):
            raise ValueError("name, kind, licence and about must be texts")
        if texts["kind"] not in KINDS:
            raise ValueError(f"the kind is {texts['kind']!r}; expected {' or '.join(KINDS)}")
        if not _NAME.fullmatch(texts["name"]):
            raise ValueError(f"{texts['name']!r} is no name of an entry")
        source, target = map(validate_tag, values["languages"])
        files = tuple(
            Published(str(f["path"]), int(f["size"]), f["sha256"]) for f in values["files"]
        )
        found = cls(**texts, languages=(source, target), files=files)
        for one in files:
            if not all(map(_NAME.fullmatch, one.path.split("/"))):
                raise ValueError(f"{one.path!r} is no path of a file in an entry")
            if one.size < 0 or not _SHA256.fullmatch(one.sha256):
                raise ValueError(f"{one.path}: the size or the SHA-256 is none")
        if found.size > LARGEST_ENTRY or not 1 <= len(files) <= MOST_FILES:
            raise ValueError(f"{found.name} has {len(files)} files of {found.size} bytes in all")
        return found


class Index:
    """The entries of an index by name, and the place of their files."""

    def __init__(self, place: str | Path = OURS) -> None:
        """``place``: the URL of an index file, such a file, or the folder that it is in."""
        self.place = str(place)
        self.is_remote = self.place.lower().startswith(("http:", "https:"))
        if not self.is_remote and Path(place).is_dir():
            self.place = str(Path(place) / INDEX)
        values = _download_index(self.place) if self.is_remote else read_json(self.place)
        try:
            if values["format"] != FORMAT or values["version"] != VERSION:
                raise ValueError(f"expected {FORMAT!r} of version {VERSION}")
            entries = [Entry.from_dict(one) for one in values["entries"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FileError(self.place, f"is not an index of blicer ({error})") from error
        self.entries = {one.name: one for one in entries}

    def get(self, name: str, output: str | Path) -> Entry:
        """Fetch all files of an entry into the folder ``output``, and compare their checksums."""
        if name not in self.entries:
            known = ", ".join(self.entries) or "nothing"
            raise InputError(f"{self.place} has no {name!r}; it has {known}")
        entry = self.entries[name]
        marker = "translator.json" if entry.kind == "translator" else ENTRY
        with locked(output):
            check_replaceable(output, marker, f"a {entry.kind} that was fetched")
            with atomic_folder(output) as folder:
                for one in entry.files:
                    target = folder / one.path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if self.is_remote:
                        self._download(entry, one, target)
                    else:
                        self._copy(Path(self.place).parent / name / one.path, one, target)
        return entry

    def _copy(self, source: Path, one: Published, target: Path) -> None:
        if not source.is_file() or source.stat().st_size != one.size:
            raise FileError(source, f"is not there with {one.size} bytes, as the index says")
        shutil.copyfile(source, target)
        _check_sum(target, one, str(source))

    def _download(self, entry: Entry, one: Published, target: Path) -> None:
        """Download to the cache folder first, where a broken transfer can continue."""
        url = f"{self.place.rpartition('/')[0]}/{quote(entry.name)}/{quote(one.path)}"
        cached = cache_folder() / "pretrained" / one.sha256
        part = Part(cached)
        fetch(url, part, _bounded(part, one.size, url))
        try:
            _check_sum(part.path, one, url)
            shutil.copyfile(part.path, target)
        finally:
            part.discard()


def _bounded(part: Part, most: int, url: str) -> Any:
    """A check for ``fetch`` that stops at files longer than ``most`` bytes."""

    def check(ended: bool) -> float:
        if max(part.size, part.length or 0) > most:
            part.discard()
            raise DownloadError(url, f"is larger than the {most} bytes that it may have")
        return float(ended)

    return check


def _check_sum(path: Path, one: Published, place: str) -> None:
    if path.stat().st_size != one.size or file_sha256(path) != one.sha256:
        raise FileError(place, "is not the published file: its size or SHA-256 differs")


def _download_index(url: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        part = Part(Path(folder) / INDEX)
        fetch(url, part, _bounded(part, LARGEST_INDEX, url), attempts=3)
        try:
            return read_json(part.path)
        except FileError as error:
            problem = str(error).removeprefix(f"{part.path}: ")
            raise DownloadError(url, problem) from error


# -- publishing ------------------------------------------------------------------------------------


def publish(
    source: str | Path,
    output: str | Path,
    *,
    licence: str,
    languages: tuple[str, str] | None = None,
    about: str = "",
    index: str | Path | None = None,
) -> Entry:
    """Make the entry ``output`` of a translator's folder or a dictionary file.

    Its name is that of the folder ``output``, which must be beside the index. ``licence``: of the
    entry; the publisher must know what the licences of vectors and seeds allow. ``languages``:
    tags, if the translator does not have them. ``about``: a sentence for the card. ``index``: the
    index file to add the entry to (by default ``index.json`` beside ``output``).
    """
    source, output = Path(source), Path(output)
    index = Path(index) if index is not None else output.parent / INDEX
    if not _NAME.fullmatch(output.name):
        raise InputError(f"{output.name!r} cannot name an entry; expected letters and digits")
    if os.path.realpath(index.parent) != os.path.realpath(output.parent):
        raise InputError(f"{output} does not lie beside {index}; expected it in the same folder")
    if not licence.strip():
        raise InputError("the licence is empty; expected one such as CC-BY-4.0")
    kind = kind_of(source)
    if kind == "translator":
        facts = _translator_facts(source, languages)
    elif kind == "dictionary":
        facts = _dictionary_facts(source, languages)
    else:
        raise FileError(source, f"is {kind}; expected a translator or a dictionary")
    _listed(index)  # says now if it is none
    with locked(output):
        entry = _write_entry(source, output, kind, facts, licence, about)
        with locked(index, WAIT_FOR_INDEX):
            entries = _listed(index) | {entry.name: asdict(entry)}
            write_json(
                index, {"format": FORMAT, "version": VERSION, "entries": list(entries.values())}
            )
    return entry


def _listed(index: Path) -> dict[str, dict[str, Any]]:
    """What an index lists by name; nothing if there is none."""
    entries = Index(index).entries.values() if index.exists() else ()
    return {one.name: asdict(one) for one in entries}


def _write_entry(
    source: Path, output: Path, kind: str, facts: Mapping[str, Any], licence: str, about: str
) -> Entry:
    """Write the folder of an entry."""
    marker = "translator.json" if kind == "translator" else ENTRY
    check_replaceable(output, marker, "an entry")
    about = about or f"{facts['title']}, made with blicer"
    with atomic_folder(output) as folder:
        if kind == "translator":
            shutil.copytree(source, folder, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, folder / _safe_name(source))
        with atomic_write(folder / CARD) as file:
            file.write(_card(output.name, about, licence, facts))
        if kind == "translator":
            _rewrite(folder / "space", "space.json")
            _rewrite(folder, marker)  # it lists the card too
        else:
            write_marker(folder, marker, {"kind": kind, "licence": licence})
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = [
            Published(path.relative_to(folder).as_posix(), path.stat().st_size, file_sha256(path))
            for path in paths
        ]
        values = {"name": output.name, "kind": kind, "languages": facts["languages"]}
        values |= {"licence": licence, "about": about, "files": [asdict(one) for one in files]}
        try:
            return Entry.from_dict(values)
        except ValueError as error:
            raise FileError(source, f"cannot be published ({error})") from error


def _rewrite(folder: Path, marker: str) -> None:
    """Write the marker again, without local paths and with checksums of the present files."""
    values = read_json(folder / marker)
    (folder / marker).unlink()  # it does not list itself
    kept = {key: one for key, one in values.items() if key not in (SEAL, CHECKSUMS)}
    write_marker(folder, marker, _without_folders(kept))


def _safe_name(path: Path) -> str:
    """``dictionary`` with the file's endings, as its own name may be private."""
    return "dictionary" + "".join(path.suffixes[-2:])


def _translator_facts(folder: Path, given: tuple[str, str] | None) -> dict[str, Any]:
    values = read_translator(folder)
    tags = given or values["languages"]
    if not all(tags):
        raise InputError("the translator does not say its languages: give --languages en-fr")
    details = values["details"]
    expected = lines(details.get("expected", {}), (tags[0], tags[1]))
    return {
        "languages": list(tags),
        "title": f"Translator {tags[0]}-{tags[1]}",
        "Space": details.get("space", ""),
        "Seed pairs": f"{details.get('seeds', 0)}; they are in the translator, as given",
        "Scorers": ", ".join(one["name"] for one in values["scorers"]),
        "Vectors": ", ".join(_without_folders(details.get("vectors", {}).get("files", []))),
        "Precision": "; ".join(expected) or "not measured: no seed pair was held out",
        "use": "blicer translate {name} WORD",
    }


def _dictionary_facts(path: Path, given: tuple[str, str] | None) -> dict[str, Any]:
    if given is None:
        raise InputError("a dictionary does not say its languages: give --languages en-fr")
    lexicon = Lexicon.load(path, lowercase=False)
    return {
        "languages": list(given),
        "title": f"Dictionary {given[0]}-{given[1]}",
        "Entries": f"{len(lexicon):,} pairs of {len(lexicon.targets):,} words",
        "use": f"blicer export {{name}}/{_safe_name(path)} -o dictionary.tmx",
    }


def _card(name: str, about: str, licence: str, facts: Mapping[str, Any]) -> str:
    source, target = facts["languages"]
    rows = {"Languages": f"{source}, {target}", "Licence": licence}
    rows |= {key: str(one) for key, one in facts.items() if key[0].isupper() and one}
    listed = "\n".join(f"- {key}: {' '.join(one.split())}" for key, one in rows.items())
    text = " ".join(about.split()).rstrip(".")
    return f"# {name}\n\n{text}.\n\n{listed}\n\n    {facts['use'].format(name=name)}\n"


def _without_folders(value: Any) -> Any:
    """The same JSON with file names instead of paths, which may be private."""
    if isinstance(value, dict):
        return {
            key: one if key in ("seeds", "wrong") else _without_folders(one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_without_folders(one) for one in value]
    if isinstance(value, str) and re.match(r"(/|~|[A-Za-z]:[\\/]).", value):
        return re.split(r"[\\/]", value.rstrip("\\/"))[-1]
    return value
