"""What a benchmark measures: systems, a data set's files, a matrix of lists, the units in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from blicer import lite
from blicer.align import aligner_class
from blicer.config import AUTO, Config, part_of, preset_for
from blicer.embeddings import Embeddings
from blicer.encoders.loading import local_files
from blicer.errors import FileError, InputError
from blicer.files import digest, file_sha256
from blicer.lexicon import Lexicon
from blicer.multilingual import METHOD_WITHOUT_SEEDS
from blicer.pipeline import make_aligner
from blicer.scorers import NEED_ENCODER, make_scorer, needs_seeds

SPACE = "space"
SYSTEMS: dict[str, tuple[str, ...]] = {
    SPACE: (),
    "use": ("use-cosine",),
    "use+spelling": ("use-cosine", "spelling"),
    "untuned": ("untuned",),
    "tuned": ("cross-encoder",),
    "tuned+endings": ("endings", "cross-encoder"),
    "no encoder": ("endings", "way-back"),
    "blicer": ("endings", "way-back", "cross-encoder"),
    "blicer+transducer": ("endings", "transducer", "way-back", "cross-encoder"),
    "blicer+static": ("endings", "static", "way-back", "cross-encoder"),
    "blicer+match": ("endings", "way-back", "frequency-match", "cross-encoder"),
    "all": (
        *("endings", "transducer", "static"),
        *("way-back", "frequency-match", "cross-encoder"),
    ),
}
"""The scorers that each system mixes with CSLS. ``tuned`` is the paper's method; ``use`` and
``use+spelling`` are controls that learn nothing but their weights; ``blicer`` is the default;
``all`` has every scorer that needs no extra and holds for rarer words than the seeds."""
RENAMED = {"A": "use", "B": "use+spelling"}  # in results and commands of before 0.2
WITHOUT_SEEDS = UNSUPERVISED, ZERO_SHOT = ("unsupervised", "zero-shot")
OWN = "own"  # the layout of a folder of the user's own
TEST = "test"
BUILT_FROM = {"c2": ("c1",)}  # methods whose space starts from another method's
# Settings that other options give.
_OPTIONS = {"encoder": "--encoders", "seed": "--training-seeds", "scorers": "--systems"}
_OPTIONS |= {"space": "--spaces", "space_mode": "--spaces"}
_OPTIONS |= {"alpha": "--alphas", "template": "--templates"}


class CannotRun(InputError):
    """One point of the matrix cannot run; the others can."""


def check_systems(names: Iterable[str], setup: str = "") -> tuple[str, ...]:
    """The systems in the order of ``SYSTEMS``, always with the space; unknown ones raise.

    Zero-shot has no seeds of the pair, and so no system with a scorer that learns from them.
    """
    asked = {SPACE, *(RENAMED.get(name, name) for name in names)}
    if unknown := sorted(asked.difference(SYSTEMS)):
        raise InputError(f"there is no system {unknown[0]!r}; there are {', '.join(SYSTEMS)}")
    if setup == ZERO_SHOT:
        asked = {name for name in asked if not any(map(needs_seeds, SYSTEMS[name]))}
    return tuple(name for name in SYSTEMS if name in asked)


def default_system(config: Config) -> str:
    """The system that ``blicer train`` builds with this configuration."""
    scorers = set(config.for_training(0).scorers)
    return next((name for name, parts in SYSTEMS.items() if set(parts) == scorers), "tuned")


# -- where the files of a data set are


_WIKI = ("wiki.{language}.vec", "wiki.{language}.vec.gz")
_CRAWL = ("cc.{language}.300.vec", "cc.{language}.300.vec.gz", "cc.{language}.300.bin")
_ENDINGS = (".npy", ".vec", ".vec.gz", ".vec.xz", ".vec.zst", ".txt", ".txt.gz", ".bin", "")
_PLAIN = tuple("{language}" + ending for ending in _ENDINGS)


class Layout(NamedTuple):
    """File names of a collection; ``{pair}`` is en-fr, ``{size}`` as the collection writes it."""

    train: str
    test: str
    sizes: dict[str, str] | None = None  # setup to {size}; None: any size that has a file
    fetched_by: str = ""  # the collection of vectors that `blicer data get` has for it
    vectors: tuple[str, ...] = (*_PLAIN, *_WIKI, *_CRAWL)  # the first that exists is taken


LAYOUTS = {
    "xling": Layout(
        "{pair}/yacle.train.freq.{size}.{pair}.tsv",
        "{pair}/yacle.test.freq.2k.{pair}.tsv",
        {"5k": "5k", "3k": "3k", "1k": "1k", "500": "500"},
        "fasttext-wiki",
    ),
    "panlex": Layout(
        "{pair}/{pair}.train.{size}.cc.trans",
        "{pair}/{pair}.test.2000.cc.trans",
        {"5k": "5000", "2k": "2000", "1k": "1000", "500": "500"},
        "fasttext-cc",
        (*_PLAIN, *_CRAWL, *_WIKI),
    ),
    "muse": Layout("{pair}.0-{size}.txt", "{pair}.5000-6500.txt", {"5k": "5000"}, "fasttext-wiki"),
    OWN: Layout("{pair}/train.{size}.tsv", "{pair}/test.tsv"),
}


@dataclass(frozen=True)
class Dataset:
    """A collection's name, and the folder that its files and ``vectors/`` are in."""

    name: str
    folder: Path

    @classmethod
    def find(cls, name_or_folder: str, data: Path) -> Dataset:
        """xling, panlex or muse below ``data``, or a folder of the user's own."""
        collections = [name for name in LAYOUTS if name != OWN]
        if (name := name_or_folder.lower()) in collections:
            if not data.is_dir():
                raise FileError(data, f"is not a folder; expected one with {name}/ and vectors/")
            return cls(name, data)
        folder = Path(name_or_folder)
        if not folder.is_dir():
            known = ", ".join(collections)
            raise InputError(f"{name_or_folder!r} is neither a folder nor one of {known}")
        own = folder.resolve().name
        return cls(f"my-{own}" if own in LAYOUTS else own, folder)

    @property
    def layout(self) -> Layout:
        return LAYOUTS.get(self.name, LAYOUTS[OWN])

    def dictionary(self, source: str, target: str, setup: str) -> tuple[Path, bool]:
        """The seeds of a setup such as 5k, or ``TEST``, and whether the file is target-source."""
        sizes = self.layout.sizes or {setup: setup}
        if setup not in (*sizes, TEST):
            known = ", ".join([*sizes, UNSUPERVISED, ZERO_SHOT])
            raise CannotRun(f"{self.name} has no setup {setup!r}; it has {known}")
        pattern = self.layout.test if setup == TEST else self.layout.train
        pattern = pattern.replace("{size}", sizes.get(setup, ""))
        folder = self.folder / self.name if self.name in LAYOUTS else self.folder
        pairs = (f"{source}-{target}", f"{target}-{source}")
        paths = [folder / pattern.replace("{pair}", pair) for pair in pairs]
        for swapped, path in enumerate(paths):
            if path.exists():
                if not path.stat().st_size:
                    raise CannotRun(f"{path} is empty")
                return path, bool(swapped)
        problem = f"{pairs[0]}: there is neither {paths[0]} nor {paths[1]}"
        raise CannotRun(problem + self._how_to_fetch(self.name, pairs[0]))

    def lexicon(self, source: str, target: str, setup: str) -> Lexicon:
        path, swapped = self.dictionary(source, target, setup)
        return Lexicon.load(path).reverse() if swapped else Lexicon.load(path)

    def vectors(self, language: str) -> Path:
        """The vector file of a language."""
        names = [name.format(language=language) for name in self.layout.vectors]
        folder = self.folder / "vectors"
        if found := [name for name in names if (folder / name).exists()]:
            return folder / found[0]
        problem = f"there are no vectors of {language} in {folder} (none of {', '.join(names)})"
        raise CannotRun(problem + self._how_to_fetch(self.layout.fetched_by, language))

    def embeddings(self, language: str, max_words: int) -> Embeddings:
        return _load_vectors(self.vectors(language), language, max_words)

    def _how_to_fetch(self, collection: str, wanted: str) -> str:
        if not self.layout.fetched_by:
            return ""
        return f"; fetch it with: blicer data get {collection} {wanted} -o {self.folder}"


@lru_cache(maxsize=4)  # the units of one process share few languages
def _load_vectors(path: Path, language: str, max_words: int) -> Embeddings:
    return Embeddings.load(path, max_words=max_words, language=language)


def content_digest(paths: Sequence[Path]) -> str:
    """One SHA-256 of the contents of files and folders; of several, a hash of theirs."""
    files = [file for path in paths for file in sorted(path.rglob("*")) or [path]]
    found = [_file_digest(file, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return found[0] if len(found) == 1 else digest(found) if paths else ""


@lru_cache(maxsize=1024)
def _file_digest(file: Path, changed: int) -> str:
    return file_sha256(file)


# -- units of work

_PLACE = ("dataset", "source", "target", "setup", "pivot", "space_mode")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One unit of work: a pair, a setup, a space, a configuration; both directions, all systems.

    It holds everything that its figures depend on. ``key`` is a hash of that, so nothing that is
    finished is computed twice.
    """

    dataset: str
    source: str
    target: str
    setup: str
    pivot: str = ""
    space_mode: str = ""
    """The mode of the space; without seeds, where self-learning starts (encoder, identical, …)."""
    max_words: int
    config: Config
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of ``config`` that the user changed with ``--set``."""
    systems: tuple[str, ...] = ()
    data: dict[str, str] = field(default_factory=dict)
    """Digests of the files that the unit reads."""

    def to_dict(self) -> dict[str, Any]:
        """The ``unit`` of a result file."""
        config = self.config
        return {
            **{name: getattr(self, name) for name in _PLACE},
            **{name: getattr(config, name) for name in ("space", "encoder", "template", "alpha")},
            "training_seed": config.seed,
            "max_words": self.max_words,
            "systems": list(self.systems),
            "settings": self.settings,
        }

    @cached_property
    def key(self) -> str:
        """Hash of everything except ``systems``: several runs share one result file.

        The method's defaults and the embedded encoder count too: a new release may change them.
        """
        config = self.config.to_dict()
        if "encoder" in self.data:  # a local encoder is known by its files, wherever they are
            config["encoder"] = Path(config["encoder"]).name
        place = [getattr(self, name) for name in _PLACE]
        code = (self.space_settings, self.encoder_version)
        return digest(place, self.max_words, config, self.data, code, length=16)

    @property
    def label(self) -> str:
        return label(self.to_dict())

    @property
    def space_settings(self) -> dict[str, Any]:
        """All settings of the space's method, as they are today."""
        return make_aligner(self.config).settings

    @property
    def encoder_version(self) -> str:
        """Version of the embedded encoder, if the figures depend on it."""
        encoders = [self.config.encoder]
        if self.config.space in BUILT_FROM or self.setup in WITHOUT_SEEDS:
            encoders.append(self.space_settings.get("encoder", ""))
        return lite.version() if lite.NAME in encoders else ""

    @property
    def spaces(self) -> set[str]:
        """Names of the spaces that it needs; units that need the same one share it on disk."""
        place = [getattr(self, name) for name in _PLACE]
        methods = (*BUILT_FROM.get(self.config.space, ()), self.config.space)
        return {f"{place} {self.max_words} {method}" for method in methods}

    @property
    def seed_dictionaries(self) -> list[tuple[str, str, str]]:
        """(source, target, size) of the training dictionaries that it reads."""
        if self.setup == UNSUPERVISED:
            return []
        if self.setup == ZERO_SHOT:
            return [(self.pivot, self.source, "5k"), (self.pivot, self.target, "5k")]
        return [(self.source, self.target, self.setup)]

    def vectors(self, dataset: Dataset) -> dict[str, Path]:
        """The vector files of its languages."""
        names = {"source": self.source, "target": self.target, "pivot": self.pivot}
        return {side: dataset.vectors(language) for side, language in names.items() if language}

    def read_data(self, dataset: Dataset) -> dict[str, str]:
        """Digests of the files that it reads; of the encoder too, if that is a local folder."""
        files = {
            side: [path, path.with_suffix(".vocab.txt")]
            for side, path in self.vectors(dataset).items()
        }
        files["test"] = [dataset.dictionary(self.source, self.target, TEST)[0]]
        files["seeds"] = [dataset.dictionary(*one)[0] for one in self.seed_dictionaries]
        if own := local_files(self.config.encoder):
            files["encoder"] = own
        return {name: content_digest(paths) for name, paths in files.items()}


def label(unit: Mapping[str, Any]) -> str:
    """One line for people, from the ``unit`` of a result."""
    if not unit:
        return "unknown unit"
    mode = f":{unit['space_mode']}" if unit["space_mode"] else ""
    return (
        f"{unit['source']}-{unit['target']} {unit['setup']} {unit['space']}{mode} "
        f"{Path(unit['encoder']).name} {unit['template']} alpha {unit['alpha']:g} "
        f"seed {unit['training_seed']}"
    )


def shard(units: Sequence[Unit], part: str) -> list[Unit]:
    """Part I of N, from ``I/N``; neighbours stay together, because they share spaces."""
    return list(units[part_of(len(units), part)])


# -- from lists to units


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """What the user listed; empty lists follow the encoder and the setup."""

    pairs: tuple[str, ...]
    setups: tuple[str, ...] = ("5k", "1k")
    spaces: tuple[str, ...] = ("vecmap",)
    """Methods, each with an optional mode (``vecmap:semi_supervised``)."""
    encoders: tuple[str, ...] = (lite.NAME,)
    templates: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    training_seeds: tuple[int, ...] = (33,)
    systems: tuple[str, ...] = ()
    max_words: int = 200_000
    pivot: str = "en"
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, lists: Mapping[str, str], **values: Any) -> Matrix:
        """From texts with commas, as the command line has them."""
        kinds = {"alphas": float, "training_seeds": int}
        for name, text in lists.items():
            try:
                words = [part.strip() for part in text.split(",") if part.strip()]
                values |= {name: tuple(map(kinds.get(name, str), words))} if words else {}
            except ValueError as error:
                option = f"--{name.replace('_', '-')} {text!r}"
                raise InputError(f"{option}: expected numbers with commas between") from error
        setups = (one.lower().replace("_", "-") for one in values.get("setups", cls.setups))
        return cls(**{**values, "setups": tuple(setups)})


LISTS = [one.name for one in fields(Matrix) if str(one.type).startswith("tuple")]


def make_units(matrix: Matrix, dataset: Dataset) -> tuple[list[Unit], list[str]]:
    """Every unit of the matrix, and a sentence for each point that cannot run.

    Units that share a space come one after the other. What is wrong with the request raises here,
    before hours of work.
    """
    for name in matrix.settings:
        if name in _OPTIONS:
            raise InputError(f"the setting {name} is given by {_OPTIONS[name]} here")
    units: dict[str, Unit] = {}
    problems: dict[str, None] = {}
    for pair, setup, space in product(check_pairs(matrix.pairs), matrix.setups, matrix.spaces):
        try:
            for unit in _variants(matrix, dataset, pair, setup, space):
                unit = replace(unit, data=unit.read_data(dataset))
                units.setdefault(unit.key, unit)
        except CannotRun as reason:
            problems[str(reason)] = None
    if not units:
        nothing = "there is nothing to run: give at least one pair, setup and space"
        raise InputError(next(iter(problems), nothing))
    systems = {name for unit in units.values() for name in unit.systems}
    for scorer in {scorer for name in systems for scorer in SYSTEMS[name]} - set(NEED_ENCODER):
        make_scorer(scorer)  # raises if it needs a package that is not installed
    return list(units.values()), list(problems)


def _variants(
    matrix: Matrix, dataset: Dataset, pair: tuple[str, str], setup: str, space: str
) -> Iterator[Unit]:
    """All encoders, training seeds, templates and alphas over one space."""
    method, _, mode = space.replace("-", "_").partition(":")
    pivot = matrix.pivot if setup == ZERO_SHOT else ""
    _check_space(pair, setup, pivot, method, mode)
    preset, fixed = setup.replace("-", "_"), {"space": method, "space_mode": ""}
    if setup not in WITHOUT_SEEDS:
        preset, fixed["space_mode"] = preset_for(len(dataset.lexicon(*pair, setup))), mode
    for encoder, seed in product(matrix.encoders, matrix.training_seeds):
        given = {**matrix.settings, **fixed, "encoder": encoder, "seed": seed}
        config = Config.resolve(overrides=given, defaults={"preset": preset})
        templates, alphas = matrix.templates or [config.template], matrix.alphas or [config.alpha]
        for template, alpha in product(templates, alphas):
            yield Unit(
                dataset=dataset.name,
                source=pair[0],
                target=pair[1],
                setup=setup,
                pivot=pivot,
                space_mode=mode,
                max_words=matrix.max_words,
                config=config.replace(template=template, alpha=alpha),
                settings=matrix.settings,
                systems=check_systems(matrix.systems or ("tuned", default_system(config)), setup),
            )


def _check_space(pair: tuple[str, str], setup: str, pivot: str, method: str, mode: str) -> None:
    """Setups, methods, modes and starts that do not exist raise before anything is computed."""
    if setup not in WITHOUT_SEEDS and not re.fullmatch(r"\d+k?", setup):
        expected = f"a number of seed pairs such as 5k or 500, {' or '.join(WITHOUT_SEEDS)}"
        raise InputError(f"setup {setup!r}: expected {expected}")
    if pivot in pair:
        raise CannotRun(f"{'-'.join(pair)} {setup}: the pivot {pivot} is one of the two languages")
    if setup not in WITHOUT_SEEDS:
        make_aligner(Config(space=method, space_mode=mode))
        return
    presets = aligner_class(method).presets
    if setup == UNSUPERVISED and UNSUPERVISED not in presets:
        raise CannotRun(
            f"{setup}: {method} needs seed pairs; without any take twoview, vecmap, c1, c2"
        )
    # In zero-shot the method makes the spaces of the pivot's pairs, which have seeds.
    alone = method if setup == UNSUPERVISED else METHOD_WITHOUT_SEEDS
    make_aligner(Config(space=alone).seedless(mode or AUTO))


def check_pairs(given: Iterable[str]) -> list[tuple[str, str]]:
    """Source and target of each pair; what is no pair, or the same pair twice, raises."""
    pairs = [tuple(pair.strip().split("-")) for pair in given]
    for pair in pairs:
        if len(pair) != 2 or len(set(pair)) != 2 or not all(pair):
            raise InputError(f"pair {'-'.join(pair)!r}: expected two languages such as en-fr")
        if pair[::-1] in pairs:
            both = f"{'-'.join(pair)} and {'-'.join(pair[::-1])}"
            raise InputError(f"{both} are one pair, measured in both directions: name one of them")
    return [(source, target) for source, target in pairs]
