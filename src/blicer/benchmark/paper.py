"""The paper's published figures (``paper/``: Li et al., Findings of EMNLP 2022), P@1 in per cent.

Names are ours: spaces ``rcsls``, ``vecmap``, ``c1``, ``c2``; directions ``en-de``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

SPACES = {"rcsls": "RCSLS", "vecmap": "VecMap", "c1": "C1", "c2": "C2"}  # in the paper's order
ENCODERS = {"mbert": "mBERT", "xlm-r-base": "XLM-R-base", "xlm-r-large": "XLM-R-large"}
MAIN_ENCODER = "xlm-r-large"
AVERAGE = "average"

_MAIN = ("xling", "panlex")
_NO_SEEDS = ("xling-unsupervised", "no-seeds")
_ENCODER_NAMES = {
    "bert-base-multilingual-uncased": "mbert",
    "xlm-roberta-base": "xlm-r-base",
    "xlm-roberta-large": "xlm-r-large",
}


@dataclass(frozen=True)
class Figure:
    """One published P@1."""

    table: str
    dataset: str
    setup: str
    space: str
    variant: str  # space, blicer, off-the-shelf, no-template, an encoder or a template
    direction: str
    p_at_1: float


@dataclass(frozen=True)
class Lambda:
    """One published λ; ``alpha`` is set for the variant ``alpha`` only."""

    dataset: str
    setup: str
    space: str
    encoder: str
    variant: str
    alpha: float | None
    value: float


@dataclass(frozen=True)
class PairedSetup:
    """A direction, a space and a setup, without and with BLICEr."""

    dataset: str
    setup: str
    space: str
    direction: str
    alone: float
    reranked: float

    @property
    def gain(self) -> float:
        return round(self.reranked - self.alone, 2)  # two decimals are published


@lru_cache(maxsize=1)
def figures() -> tuple[Figure, ...]:
    """Every published P@1."""
    found = []
    for table, dataset, setup, space, variant, direction, value in _rows("p_at_1.tsv"):
        found.append(Figure(table, dataset, setup, space, variant, direction, float(value)))
    return tuple(found)


@lru_cache(maxsize=1)
def lambdas() -> tuple[Lambda, ...]:
    """Every published λ."""
    found = []
    for dataset, setup, space, encoder, variant, alpha, value in _rows("lambda.tsv"):
        at = float(alpha) if alpha else None
        found.append(Lambda(dataset, setup, space, encoder, variant, at, float(value)))
    return tuple(found)


def _rows(name: str) -> Iterator[list[str]]:
    text = files("blicer.benchmark").joinpath("paper").joinpath(name).read_text(encoding="utf-8")
    for line in text.splitlines()[1:]:
        yield line.split("\t")


@lru_cache(maxsize=1)
def _index() -> dict[tuple[str, str, str, str, str, str], float]:
    return {
        (one.table, one.dataset, one.setup, one.space, one.variant, one.direction): one.p_at_1
        for one in figures()
    }


def paired_setups() -> list[PairedSetup]:
    """The 232 setups of the two main tables."""
    return _paired(_MAIN)


def paired_setups_without_seeds() -> list[PairedSetup]:
    """The 26 setups without seeds: unsupervised and zero-shot, over VecMap."""
    return _paired(_NO_SEEDS)


def _paired(tables: tuple[str, ...]) -> list[PairedSetup]:
    index = _index()
    found = []
    for one in figures():
        if one.table not in tables or one.variant != "space" or one.direction == AVERAGE:
            continue
        place = (one.table, one.dataset, one.setup, one.space, "blicer", one.direction)
        reranked = index[place]
        found.append(
            PairedSetup(one.dataset, one.setup, one.space, one.direction, one.p_at_1, reranked)
        )
    return found


@lru_cache(maxsize=1)
def _pairs_by_place() -> dict[tuple[str, str, str, str], PairedSetup]:
    return {
        (one.dataset, one.setup, one.space, one.direction): one
        for one in (*paired_setups(), *paired_setups_without_seeds())
    }


def paired_setup(dataset: str, setup: str, space: str, direction: str) -> PairedSetup | None:
    """What the paper has for this direction, if anything."""
    return _pairs_by_place().get((paper_dataset(dataset), setup, space, direction))


def directions(dataset: str, setup: str) -> list[str]:
    """The paper's directions of this setup, in its order."""
    name = paper_dataset(dataset)
    wanted = (
        one.direction
        for one in _pairs_by_place().values()
        if (one.dataset, one.setup) == (name, setup)
    )
    return list(dict.fromkeys(wanted))


def mean_gain(dataset: str, setup: str) -> float | None:
    """The paper's mean gain over the spaces and directions of this setup."""
    name = paper_dataset(dataset)
    gains = [
        one.gain for one in _pairs_by_place().values() if (one.dataset, one.setup) == (name, setup)
    ]
    return sum(gains) / len(gains) if gains else None


def figure(
    table: str, setup: str, space: str, variant: str, direction: str = AVERAGE
) -> float | None:
    """A P@1 of a table by name (``ablation``, ``encoders``, ``panlex-grouped`` …)."""
    dataset = "panlex" if table.startswith("panlex") else "xling"
    return _index().get((table, dataset, setup, space, variant, direction))


def average(dataset: str, setup: str, space: str, variant: str) -> float | None:
    """The printed average of a row of the main tables (of its directions before rounding)."""
    tables = {"xling": ("xling", *_NO_SEEDS), "panlex": ("panlex-grouped",)}
    found = (
        figure(table, setup, space, variant) for table in tables.get(paper_dataset(dataset), ())
    )
    return next((value for value in found if value is not None), None)


def template(name: str) -> float | None:
    """P@1 of a template ``T1`` to ``T16``: mean over the 14 directions of XLING 5k, C2 + BLICEr."""
    return figure("templates", "5k", "c2", name)


def lambda_value(
    dataset: str,
    setup: str,
    space: str,
    encoder: str = MAIN_ENCODER,
    variant: str = "blicer",
    alpha: float | None = None,
) -> float | None:
    """The paper's λ; with ``alpha``, the one of that α (``variant`` is then ``alpha``)."""
    if alpha is not None:
        variant, alpha = "alpha", round(alpha, 6)
    wanted = (paper_dataset(dataset), setup, space, encoder, variant, alpha)
    for one in lambdas():
        if (one.dataset, one.setup, one.space, one.encoder, one.variant, one.alpha) == wanted:
            return one.value
    return None


def paper_dataset(name: str) -> str:
    """``xling`` or ``panlex`` when a data set (a name or a folder) is called so, else ``""``."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2].casefold()
    return next((known for known in _MAIN if known in last), "")


def paper_encoder(name: str) -> str:
    """Our short name of one of the paper's encoders given as Hugging Face has it, else ``""``."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2].casefold()
    return _ENCODER_NAMES.get(last, "")
