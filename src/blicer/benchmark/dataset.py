"""Where a benchmark's vectors and dictionaries are: XLING, PanLex-BLI, MUSE, or a user's folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from blicer.embeddings import Embeddings
from blicer.errors import FileError, InputError
from blicer.lexicon import Lexicon

if TYPE_CHECKING:
    from blicer.align.space import Space

UNSUPERVISED, ZERO_SHOT = "unsupervised", "zero-shot"
OWN = "own"
_SIZE = re.compile(r"([1-9]\d*)(k?)")
# Vector files are asked for again by every unit of a process, and no unit needs more languages.
_LANGUAGES_KEPT = 4


class CannotRun(InputError):
    """A point of the matrix that makes no unit; the others can still be measured."""


class MissingData(CannotRun):
    """A file of one pair or language is not there."""


@dataclass(frozen=True)
class Layout:
    """File names of a collection; ``{pair}`` is en-fr, ``{size}`` as the collection writes it."""

    train: str
    test: str
    sizes: dict[str, str] | None  # setup to {size}; None: whatever size there is a file of
    vectors: tuple[str, ...]  # first what the collection's authors used
    fetched_by: str = ""  # the collection of vectors that `blicer data get` has for it


_WIKI = ("wiki.{language}.vec", "wiki.{language}.vec.gz")
_CRAWL = ("cc.{language}.300.vec", "cc.{language}.300.vec.gz", "cc.{language}.300.bin")
_PLAIN = tuple(
    "{language}" + ending
    for ending in (".npy", ".vec", ".vec.gz", ".vec.xz", ".vec.zst", ".txt", ".txt.gz", ".bin", "")
)

LAYOUTS = {
    "xling": Layout(
        train="{pair}/yacle.train.freq.{size}.{pair}.tsv",
        test="{pair}/yacle.test.freq.2k.{pair}.tsv",
        sizes={"5k": "5k", "3k": "3k", "1k": "1k", "500": "500"},
        vectors=(*_PLAIN, *_WIKI, *_CRAWL),
        fetched_by="fasttext-wiki",
    ),
    "panlex": Layout(
        train="{pair}/{pair}.train.{size}.cc.trans",
        test="{pair}/{pair}.test.2000.cc.trans",
        sizes={"5k": "5000", "2k": "2000", "1k": "1000", "500": "500"},
        vectors=(*_PLAIN, *_CRAWL, *_WIKI),
        fetched_by="fasttext-cc",
    ),
    "muse": Layout(
        train="{pair}.0-{size}.txt",
        test="{pair}.5000-6500.txt",
        sizes={"5k": "5000"},
        vectors=(*_PLAIN, *_WIKI, *_CRAWL),
        fetched_by="fasttext-wiki",
    ),
    OWN: Layout(
        train="{pair}/train.{size}.tsv",
        test="{pair}/test.tsv",
        sizes=None,
        vectors=(*_PLAIN, *_WIKI, *_CRAWL),
    ),
}


@dataclass(frozen=True)
class DictionaryFile:
    """A dictionary of the asked pair; ``turned``: the file has the other language first."""

    path: Path
    turned: bool

    def load(self) -> Lexicon:
        lexicon = Lexicon.load(self.path)
        return lexicon.reverse() if self.turned else lexicon


@dataclass(frozen=True)
class Dataset:
    """A collection's name and the folder that its files and ``vectors/`` are in."""

    name: str
    folder: Path

    @classmethod
    def find(cls, name_or_folder: str, data: Path | None = None) -> Dataset:
        """xling, panlex or muse below ``data``, or a folder of the user's own."""
        name = name_or_folder.lower()
        if name in LAYOUTS and name != OWN:
            if data is None:
                raise InputError(f"say with --data in which folder {name} and vectors are")
            if not data.is_dir():
                raise FileError(data, f"is not a folder; expected one with {name}/ and vectors/")
            return cls(name, data)
        folder = Path(name_or_folder)
        if not folder.is_dir():
            raise InputError(
                f"{name_or_folder!r} is neither a folder nor one of "
                f"{', '.join(known for known in LAYOUTS if known != OWN)}"
            )
        own = folder.resolve().name
        return cls(f"my-{own}" if own in LAYOUTS else own, folder)

    @property
    def layout(self) -> Layout:
        return LAYOUTS.get(self.name, LAYOUTS[OWN])

    @property
    def _dictionaries(self) -> Path:
        return self.folder / self.name if self.name in LAYOUTS else self.folder

    def seeds(self, source: str, target: str, setup: str) -> DictionaryFile:
        """The training dictionary of a setup such as 5k."""
        return self._dictionary(self.layout.train, source, target, size=self._size(setup))

    def test(self, source: str, target: str) -> DictionaryFile:
        return self._dictionary(self.layout.test, source, target)

    def _size(self, setup: str) -> str:
        sizes = self.layout.sizes
        if sizes is None:
            return setup
        if setup not in sizes:
            raise CannotRun(
                f"{self.name} has no setup {setup!r}; it has {', '.join(sizes)}, "
                f"{UNSUPERVISED} and {ZERO_SHOT}"
            )
        return sizes[setup]

    def _dictionary(self, pattern: str, source: str, target: str, size: str = "") -> DictionaryFile:
        """The file of the pair as asked, or of the other order, to be turned."""
        places = [
            self._dictionaries / pattern.format(pair=f"{a}-{b}", size=size)
            for a, b in ((source, target), (target, source))
        ]
        for turned, path in enumerate(places):
            if path.is_file():
                if path.stat().st_size == 0:
                    raise MissingData(f"{path} is empty")
                return DictionaryFile(path, bool(turned))
        fetch = ""
        if self.layout.fetched_by:
            command = f"blicer data get {self.name} {source}-{target} -o {self.folder}"
            fetch = f"; fetch it with: {command}"
        raise MissingData(
            f"{self.name} {source}-{target}: there is neither {places[0]} nor {places[1]}{fetch}"
        )

    def vectors(self, language: str) -> Path:
        """The vector file of a language, the first of the layout's names that is there."""
        folder = self.folder / "vectors"
        names = [name.format(language=language) for name in self.layout.vectors]
        for name in names:
            if (folder / name).exists():
                return folder / name
        fetch = ""
        if self.layout.fetched_by:
            fetch = f"; fetch them with: blicer data get {self.layout.fetched_by} {language}"
            fetch += f" -o {self.folder}"
        raise MissingData(
            f"there are no vectors of {language} in {folder} (none of {', '.join(names)}){fetch}"
        )

    def embeddings(self, language: str, max_words: int) -> Embeddings:
        """The vectors of a language, read once in a process."""
        return _load(self.vectors(language), language, max_words)

    def saved_space(self, source: str, target: str, setup: str) -> Path:
        """The folder of a space that was made elsewhere, for the space called ``files``."""
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            folder = self.folder / "spaces" / f"{pair}.{setup}"
            if folder.is_dir():
                return folder
        place = self.folder / "spaces" / f"{source}-{target}.{setup}"
        raise MissingData(
            f"there is no space {place}; make it with: blicer align files SOURCE TARGET -o {place}"
        )

    def space(self, source: str, target: str, setup: str) -> Space:
        """A saved space, its languages in the order asked."""
        from blicer.align.space import Space

        folder = self.saved_space(source, target, setup)
        space = Space.load(folder)
        if folder.name.startswith(f"{source}-{target}."):
            return space
        return Space(space.target, space.source, method=space.method, settings=space.settings)


@lru_cache(maxsize=_LANGUAGES_KEPT)
def _load(path: Path, language: str, max_words: int) -> Embeddings:
    words = vocabulary_of(path)
    return Embeddings.load(path, vocabulary=words, max_words=max_words, language=language)


def vocabulary_of(path: Path) -> Path | None:
    """The word list beside a matrix: ``en.vocab.txt`` for ``en.npy``."""
    beside = path.with_suffix(".vocab.txt")
    return beside if path.suffix == ".npy" and beside.is_file() else None


def setup_name(given: str) -> str:
    """A setup as it is written everywhere: 5000 and 5K are 5k."""
    name = given.strip().lower().replace("_", "-")
    if name in (UNSUPERVISED, ZERO_SHOT):
        return name
    found = _SIZE.fullmatch(name)
    if found is None:
        raise InputError(
            f"setup {given!r}: expected a number of seed pairs such as 5k or 500, "
            f"{UNSUPERVISED} or {ZERO_SHOT}"
        )
    size = int(found[1]) * (1000 if found[2] else 1)
    return f"{size // 1000}k" if size % 1000 == 0 else str(size)


class Digests:
    """SHA-256 of files and folders, each taken once while its size and time stay the same."""

    def __init__(self, remembered: dict[str, str] | None = None) -> None:
        self.remembered = remembered if remembered is not None else {}

    def of(self, *paths: Path | None) -> str:
        """One digest of what these files hold, together."""
        parts = [self._one(file) for path in paths if path is not None for file in _files(path)]
        if len(parts) == 1:
            return parts[0]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _one(self, file: Path) -> str:
        state = file.stat()
        known = f"{file.resolve()}|{state.st_size}|{state.st_mtime_ns}"
        if known not in self.remembered:
            with file.open("rb") as stream:
                digest = hashlib.sha256()
                while block := stream.read(1 << 20):
                    digest.update(block)
            self.remembered[known] = digest.hexdigest()
        return self.remembered[known]


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.is_file())
    else:
        yield path
