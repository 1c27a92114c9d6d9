"""The paper's published figures (``paper/``: Li et al., Findings of EMNLP 2022), P@1 in per cent.

Names are ours: spaces ``rcsls``, ``vecmap``, ``c1``, ``c2``; directions ``en-de``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path, PureWindowsPath

from blicer.pages import needed

with needed("pandas", "comparing with the paper", "bench"):
    import pandas as pd

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


def _read(name: str, *keys: str) -> pd.DataFrame:
    rows = pd.read_csv(Path(__file__).parent / "paper" / name, sep="\t")
    return rows.fillna({"alpha": -1.0}).set_index([*keys])


@lru_cache(maxsize=1)
def figures() -> pd.Series:
    """Every published P@1, by table, data set, setup, space, variant and direction.

    A variant is ``space``, ``blicer``, ``off-the-shelf``, ``no-template``, an encoder or a
    template.
    """
    keys = ("table", "dataset", "setup", "space", "variant", "direction")
    return _read("p_at_1.tsv", *keys)["p_at_1"]


@lru_cache(maxsize=1)
def lambdas() -> pd.Series:
    """Every published λ, by data set, setup, space, encoder, variant and α (-1: not varied)."""
    keys = ("dataset", "setup", "space", "encoder", "variant", "alpha")
    return _read("lambda.tsv", *keys)["lambda"]


@lru_cache(maxsize=1)
def paired_setups() -> pd.DataFrame:
    """Each direction, space and setup without and with BLICEr, in the paper's order.

    ``main`` marks the 232 setups of the two main tables; the other 26 have no seeds.
    """
    named = figures().rename({"space": "alone", "blicer": "reranked"}, level="variant")
    wide = named.unstack("variant", sort=False)[["alone", "reranked"]]
    both = wide.dropna().reset_index().rename_axis(columns=None)
    both = both[both["table"].isin(_MAIN + _NO_SEEDS) & (both["direction"] != AVERAGE)]
    gain = (both["reranked"] - both["alone"]).round(2)  # two decimals are published
    return both.assign(gain=gain, main=both["table"].isin(_MAIN)).drop(columns="table")


def setups_of(dataset: str, setup: str) -> pd.DataFrame:
    """The paper's paired setups of one of our data sets, by whatever name, and setup."""
    both = paired_setups()
    return both[(both["dataset"] == paper_dataset(dataset)) & (both["setup"] == setup)]


def figure(
    table: str, setup: str, space: str, variant: str, direction: str = AVERAGE
) -> float | None:
    """A P@1 of a table by name (``ablation``, ``encoders``, ``panlex-grouped`` …)."""
    dataset = "panlex" if table.startswith("panlex") else "xling"
    found = figures().get((table, dataset, setup, space, variant, direction))
    return None if found is None else float(found)


def average(dataset: str, setup: str, space: str, variant: str) -> float | None:
    """The printed average of a row of the main tables (of its directions before rounding)."""
    tables = {"xling": ("xling", *_NO_SEEDS), "panlex": ("panlex-grouped",)}
    names = tables.get(paper_dataset(dataset), ())
    found = (figure(name, setup, space, variant) for name in names)
    return next((value for value in found if value is not None), None)


def lambda_value(
    dataset: str, setup: str, space: str, encoder: str = MAIN_ENCODER, alpha: float | None = None
) -> float | None:
    """The paper's λ; with ``alpha``, the one of the labels of that α."""
    what = ("blicer", -1.0) if alpha is None else ("alpha", round(alpha, 6))
    found = lambdas().get((paper_dataset(dataset), setup, space, encoder, *what))
    return None if found is None else float(found)


def paper_dataset(name: str) -> str:
    """``xling`` or ``panlex`` when a data set (a name or a folder) is called so, else ``""``."""
    last = PureWindowsPath(name).name.casefold()  # reads both kinds of slashes
    return next((known for known in _MAIN if known in last), "")


def paper_encoder(name: str) -> str:
    """Our short name of one of the paper's encoders given as Hugging Face has it, else ``""``."""
    return _ENCODER_NAMES.get(PureWindowsPath(name).name.casefold(), "")
