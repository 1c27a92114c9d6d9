"""Getting the files of a collection into a folder, one after the other, whatever fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from blicer import progress
from blicer.datasets.answers import DownloadError
from blicer.datasets.archive import extract
from blicer.datasets.catalogue import Item
from blicer.datasets.download import Downloader, copy
from blicer.datasets.mirror import Mirror, places_of
from blicer.datasets.part import Part, Version
from blicer.datasets.plan import find_collection, plan
from blicer.datasets.vectors import Source, first_name, said_words, write_first
from blicer.datasets.watch import Watch, WordVectors
from blicer.errors import BlicerError, FileError, InputError
from blicer.files import check_writable

FETCHED, THERE, FAILED = "fetched", "there already", "failed"


@dataclass(frozen=True)
class Outcome:
    """What became of one file."""

    file: Path
    url: str
    status: str  # FETCHED, THERE or FAILED
    size: int = 0
    words: int | None = None  # of a vector file
    verified: bool = False  # against a known SHA-256
    problem: str | None = None

    def to_dict(self) -> dict[str, object]:
        facts: dict[str, object] = {"file": str(self.file), "url": self.url, "status": self.status}
        if self.status == FAILED:
            return facts | {"problem": self.problem}
        if self.words is not None:
            facts["words"] = self.words
        return facts | {"bytes": self.size, "checksum_verified": self.verified}


def get(
    collection: str,
    wanted: Iterable[str],
    folder: str | Path,
    *,
    first: int | None = None,
    sizes: Iterable[str | int] = (),
    mirror: str | None = None,
    replace: bool = False,
    downloader: Downloader | None = None,
    tell: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Fetch what is not there yet; a file that fails does not stop the others.

    ``first`` takes that many words of each vector file, ``sizes`` some of the training
    dictionaries, ``mirror`` an address or a folder instead of the publishers, and ``replace``
    fetches anew what is there but is not known to be the published file. ``tell`` hears
    of each file as soon as it is done.
    """
    if first is not None and not find_collection(collection).vectors:
        raise InputError(f"{collection} has dictionaries; --first is for vectors")
    if first is not None and first < 1:
        raise InputError(f"the number of first words must be 1 or more, not {first}")
    planned = plan(collection, wanted, sizes)
    for note in planned.notes:
        progress.note(note)
    folder = Path(folder)
    check_writable(folder / collection)
    getter = _Getter(
        folder,
        first,
        None if mirror is None else Mirror(mirror),
        replace,
        downloader or Downloader(),
        find_collection(collection).page,
    )
    outcomes: list[Outcome] = []
    for outcome in (outcome for item in planned.items for outcome in getter.get(item)):
        outcomes.append(outcome)
        if tell is not None:
            tell(outcome)
    return outcomes


@dataclass(frozen=True)
class _Getter:
    folder: Path
    first: int | None
    mirror: Mirror | None
    replace: bool
    downloader: Downloader
    page: str

    def get(self, item: Item) -> Iterator[Outcome]:
        if item.members:
            yield from self._archive(item)
        elif item.vectors:
            yield self._guarded(item, item.file, lambda: self._vectors(item))
        else:
            yield self._guarded(item, item.file, lambda: self._plain(item))

    def _guarded(self, item: Item, file: str, work: Callable[[], Outcome]) -> Outcome:
        """Whatever goes wrong with this file, the next one has its turn."""
        target = self.folder / file
        try:
            return work()
        except BlicerError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{target}: {error.strerror or error}"
        return Outcome(target, item.url, FAILED, problem=problem)

    def _archive(self, item: Item) -> Iterator[Outcome]:
        """The archive stays, since its other pairs may be wanted later."""
        missing = []
        for name, file in item.members:
            if (self.folder / file).exists() and not self.replace:
                yield self._outcome(item, self.folder / file, THERE, verified=False)
            else:
                missing.append((name, file))
        if not missing:
            return
        archive = self._guarded(item, item.file, lambda: self._plain(item))
        yield archive
        if archive.status == FAILED:
            return
        for name, file in missing:
            yield self._guarded(item, file, partial(self._member, item, name, file))

    def _member(self, item: Item, name: str, file: str) -> Outcome:
        extract(self.folder / item.file, name, self.folder / file)
        return self._outcome(item, self.folder / file, FETCHED)

    def _plain(self, item: Item) -> Outcome:
        target = self.folder / item.file
        if target.exists() and self._is_published(target, item):
            return self._outcome(item, target, THERE)
        with Part(target) as part:
            self._receive(item, part)
            part.become_target()
        return self._outcome(item, target, FETCHED)

    def _is_published(self, target: Path, item: Item) -> bool:
        """As far as is known; a file that is not ours to overwrite is an error."""
        if not target.is_file():
            raise _not_ours(target, "is no file")
        if item.sha256 is None:
            return not self.replace
        if _sha256(target) == item.sha256:
            return True
        if not self.replace:
            raise _not_ours(target, "is not the published file (its SHA-256 differs)")
        return False

    def _vectors(self, item: Item) -> Outcome:
        whole = self.folder / item.file
        target = whole if self.first is None else self.folder / first_name(item.file)
        for file in dict.fromkeys((target, whole)):
            words = self._enough_words(file)
            if words is not None:
                return self._outcome(item, file, THERE, words or None)
        watch = WordVectors(item.file.endswith(".gz"), self.first)
        with Part(whole) as part:
            version = self._receive(item, part, watch)
            complete = watch.ended and self._whole_there(item, version.url)
            if not complete and (self.first is None or watch.words < self.first):
                part.discard()
                raise DownloadError(version.url, f"has only the first {watch.words} words")
            if self.first is None:
                part.become_target()
                words = watch.words
                self._remove_first_words(item)
            else:
                words = write_first(part, target, watch)
                part.discard()
        self._tell(watch, target, words)
        source = Source(
            version.url,
            words,
            whole=complete,
            size=target.stat().st_size,
            etag=version.etag,
            modified=version.modified,
        )
        source.save(target)
        return self._outcome(item, target, FETCHED, words)

    def _remove_first_words(self, item: Item) -> None:
        """What `--first` fetched earlier would be taken for all, beside the packed file."""
        short = self.folder / first_name(item.file)
        if short != self.folder / item.file and Source.load(short) is not None:
            short.unlink(missing_ok=True)
            Source.forget(short)
            progress.note(f"{short.name}: removed, for all its words and more are there now")

    def _whole_there(self, item: Item, url: str) -> bool:
        """Whether a web mirror's file is all that was published; a folder of ours says so of it."""
        if self.mirror is None or urlsplit(url).scheme not in ("http", "https"):
            return True
        with Part(self.folder / f"{item.file}.mirrored") as part:
            try:
                self.downloader.fetch(f"{url}.source.json", part, None)
                said = json.loads(b"".join(part.pieces()))
            except DownloadError as error:
                if not error.absent:
                    raise
                return True
            except ValueError:
                return True  # not of ours
            finally:
                part.discard()
        return not isinstance(said, dict) or said.get("whole") is not False

    def _enough_words(self, file: Path) -> int | None:
        """How many words are there, 0 if unknown; None when the file must be fetched."""
        if not file.exists():
            return None
        source = Source.load(file)
        if source is not None:
            # Fewer words of ours may be replaced: the new file begins with them.
            return source.words if _enough(source, self.first) else None
        if self.replace:
            return None
        words = said_words(file) if file.suffix == ".vec" else 0
        if words is None or (self.first is not None and 0 < words < self.first):
            said = "has no header" if words is None else f"has only {words} words"
            raise _not_ours(file, f"{said} and was not fetched by this command")
        return words

    def _tell(self, watch: WordVectors, target: Path, words: int) -> None:
        said = watch.header[0] if watch.header else words
        if self.first is not None and words == self.first:
            progress.note(
                f"{target.name}: the first {words} of {said} words; its first line was changed to "
                "say so"
            )
        elif self.first is not None:
            progress.note(f"{target.name}: all {words} words that there are")
        if watch.ended and said != watch.words:
            progress.note(
                f"{target.name}: the publisher's header says {said} words, but {watch.words} "
                "are in the file"
            )

    def _receive(self, item: Item, part: Part, watch: Watch | None = None) -> Version:
        """Fill ``part`` from the first place that has the file, and check it."""
        resumed = part.size > 0
        for place in places_of(item, self.mirror):
            try:
                self._fetch(place, part, watch)
                break
            except DownloadError as error:
                if not error.absent:
                    raise
                absence = error
        else:
            raise self._nowhere(item, absence)
        if item.sha256 is not None and part.sha256() != item.sha256:
            found = part.sha256()
            part.discard()
            if resumed:  # perhaps what an earlier run left was bad
                return self._receive(item, part, watch)
            raise DownloadError(
                str(place),
                f"is not the published file: its SHA-256 is {found}, expected {item.sha256}; "
                "nothing was kept: try again later, or from elsewhere (--mirror)",
            )
        assert part.version is not None
        return part.version

    def _nowhere(self, item: Item, absence: DownloadError) -> BlicerError:
        if self.mirror is None:
            return DownloadError(item.url, f"{absence.problem}; what is published: {self.page}")
        published = urlsplit(item.url).path.lstrip("/")
        return InputError(f"the mirror {self.mirror.place} has neither {item.file} nor {published}")

    def _fetch(self, place: str | Path, part: Part, watch: Watch | None) -> None:
        if isinstance(place, str):
            self.downloader.fetch(place, part, watch)
            return
        if not place.is_file():
            raise DownloadError(str(place), "is not there", absent=True)
        source = Source.load(place)
        if source is not None and not _enough(source, self.first):
            raise FileError(place, f"has only the first {source.words} words")
        copy(place, part, watch)

    def _outcome(
        self,
        item: Item,
        file: Path,
        status: str,
        words: int | None = None,
        *,
        verified: bool | None = None,
    ) -> Outcome:
        if verified is None:
            verified = item.sha256 is not None
        return Outcome(file, item.url, status, file.stat().st_size, words, verified)


def _enough(source: Source, first: int | None) -> bool:
    return source.whole or (first is not None and source.words >= first)


def _not_ours(file: Path, problem: str) -> FileError:
    return FileError(file, f"is there, but {problem}; move it away, or say --replace")


def _sha256(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise FileError(file, f"cannot be read ({error.strerror or error})") from error
