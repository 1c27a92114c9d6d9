"""The paper's published figures (``paper/``: Li et al., Findings of EMNLP 2022), P@1 in per cent.

Names are ours: spaces ``rcsls``, ``vecmap``, ``c1``, ``c2``; directions ``en-de``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path, PureWindowsPath

from blicer.errors import needed

with needed("pandas", "comparing with the paper", "bench"):
    import pandas as pd

SPACES = {"rcsls": "RCSLS", "vecmap": "VecMap", "c1": "C1", "c2": "C2"}  # in the paper's order
AVERAGE = "average"
_MAIN = ("xling", "panlex")
_NO_SEEDS = ("xling-unsupervised", "no-seeds")


@lru_cache(maxsize=1)
def figures() -> pd.Series:
    """Every published P@1, by table, data set, setup, space, variant and direction.

    A variant is ``space``, ``blicer``, ``off-the-shelf``, ``no-template``, an encoder or a
    template.
    """
    keys = ("table", "dataset", "setup", "space", "variant", "direction")
    rows = pd.read_csv(Path(__file__).parent / "paper" / "p_at_1.tsv", sep="\t")
    return rows.set_index(list(keys))["p_at_1"]


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


def template_figure(template: str) -> float | None:
    """The average P@1 of a template, with XLM-R-large over C2 on XLING with 5k seeds."""
    found = figures().get(("templates", "xling", "5k", "c2", template, AVERAGE))
    return None if found is None else float(found)


def paper_dataset(name: str) -> str:
    """``xling`` or ``panlex`` when a data set (a name or a folder) is called so, else ``""``."""
    last = PureWindowsPath(name).name.casefold()  # reads both kinds of slashes
    return next((known for known in _MAIN if known in last), "")
