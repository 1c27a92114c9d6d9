"""A benchmark's results as one frame of cells, and how often systems win in it.

A *cell* is one system in one direction of one setup, its training seeds together. Reports and
their tables are made of this frame.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from blicer.benchmark import paper
from blicer.benchmark.plan import SYSTEMS, WITHOUT_SEEDS, ZERO_SHOT
from blicer.benchmark.results import DONE, LEVEL, load_units, table
from blicer.config import PRESETS, Config
from blicer.errors import InputError, needed
from blicer.multilingual import METHOD_WITHOUT_SEEDS
from blicer.pages import NOTHING, fill
from blicer.templates import TEMPLATES

with needed("pandas", "a benchmark report", "bench"):
    import pandas as pd

TUNED = "tuned"
SAME = 1e-10  # points of P@1 below which two systems are level; one word weighs far more

SPACE_OF = ["dataset", "setup", "space", "space_mode"]
VARIANT = ["encoder", "template", "alpha", "max_words", "settings"]
PLACE = [*SPACE_OF, "pivot", "pair", "direction"]
CELL = [*PLACE, *VARIANT, "data"]
SCORES = ["p@1", "p@5", "mrr", "p@1_all", "gain"]
DATASETS = {"xling": "XLING", "panlex": "PanLex-BLI", "muse": "MUSE"}
SPACES = {**paper.SPACES, "procrustes": "Procrustes", "twoview": "Two views"}


# Order and names


def _listed(known: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    """A sort key: place in a list; what is not in it comes last, by name."""
    return lambda name: (known.index(name) if name in known else len(known), name)


def setup_order(setup: str) -> tuple[Any, ...]:
    """5k before 1k before unsupervised before zero-shot."""
    if found := re.fullmatch(r"(\d+)(k?)", setup, re.ASCII):
        return (0, -int(found[1]) * (1000 if found[2] else 1), setup)
    return (1, *_listed(WITHOUT_SEEDS)(setup))


ORDER: dict[str, Callable[[str], Any]] = {
    "dataset": _listed(list(DATASETS)),
    "setup": setup_order,
    "space": _listed(list(SPACES)),
    "system": _listed(list(SYSTEMS)),
    "template": _listed(list(TEMPLATES)),
}


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Make groups come out, and rows sort, in the report's order."""
    ordered = {
        name: pd.Categorical(frame[name], sorted(frame[name].unique(), key=order), ordered=True)
        for name, order in ORDER.items()
        if name in frame
    }
    return frame.assign(**ordered)


def groups(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    yield from frame.groupby(list(by), observed=True, dropna=False)


def dataset_name(dataset: str) -> str:
    return DATASETS.get(dataset.casefold(), dataset)


def space_name(space: str, mode: str, setup: str) -> str:
    name = SPACES.get(space, space)
    return f"{name} ({mode})" if mode and mode != setup else name


def arrow(direction: str) -> str:
    """``en-fr`` as en→fr; left alone where a language's own name has a hyphen."""
    return direction.replace("-", "→") if direction.count("-") == 1 else direction


# What was run


def read(
    folder: str | Path, keys: set[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, int, pd.DataFrame]:
    """Finished units, failed units, how many were replaced by a later run, and the cells.

    ``keys``: read these units only (default: all). Of several runs of a unit the newest counts; a
    failure counts unless the unit succeeded later.
    """
    results = [_clean(one) for one in load_units(folder) if keys is None or one["key"] in keys]
    if not results:
        raise InputError("there is nothing to report: the benchmark has not finished any unit")
    rows = table(results)
    rows = rows.astype(dict.fromkeys(rows.select_dtypes("Int64"), float))
    rows["outcome"] = rows["key"].map({one["key"]: one for one in results})
    for name in ("settings", "data"):
        rows[name] = [json.dumps(one, sort_keys=True) if one else "" for one in rows[name]]
    zero = rows["setup"] == ZERO_SHOT  # the unit's space is that of the pivot's pairs: they teach
    taught = ("taught by " + rows["space"]).where(rows["space"] != METHOD_WITHOUT_SEEDS, "")
    modes = rows["space_mode"].str.cat(taught, sep=", ").str.strip(", ")
    rows["space_mode"] = rows["space_mode"].mask(zero, modes)
    rows["space"] = rows["space"].mask(zero, METHOD_WITHOUT_SEEDS)
    rows["space_name"] = list(map(space_name, rows["space"], rows["space_mode"], rows["setup"]))
    rows["dataset_name"] = rows["dataset"].map(dataset_name)
    rows["failed"] = rows["status"] != DONE
    rows["unknown"] = rows["key"].where(rows["dataset"] == "", "")  # files that cannot be read
    every = rows.drop_duplicates("key")
    same = [*SPACE_OF, "pivot", "pair", *VARIANT, "training_seed", "unknown"]
    newest = every.sort_values(["ended", "failed", "key"], ascending=[True, False, True])
    newest = newest.drop_duplicates([*same, "failed"], keep="last")
    kept = newest[~(newest["failed"] & newest.duplicated(same, keep="last"))]
    kept = in_order(kept).sort_values(["dataset", "pair", *same, "key"])
    cells = make_cells(rows[rows["key"].isin(kept["key"]) & ~rows["failed"]])
    return kept[~kept["failed"]], kept[kept["failed"]], len(every) - len(kept), cells


def _clean(value: Any) -> Any:
    """Texts without line breaks and without letters that cannot be printed."""
    if isinstance(value, dict):
        return {_clean(name): _clean(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_clean(one) for one in value]
    if not isinstance(value, str):
        return value
    return "".join(letter if letter.isprintable() else " " for letter in value).strip()


@lru_cache
def usual_variant(preset: str, encoder: str) -> tuple[str, float]:
    """The template and α that an encoder has by default."""
    known = preset if preset in PRESETS else "supervised"
    config = Config.resolve(known, overrides={"encoder": encoder or NOTHING})
    return config.template, config.alpha


def make_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each direction, variant, data and system: means over training seeds, in per cent.

    Spreads (``_sd``) are standard deviations over the seeds. The test words of all seeds are the
    same, so their p-values are not independent: ``p`` is the largest of them, which holds whatever
    their dependence, or 1 where the seeds do not agree on the sign. Beside them stand the paper's
    figures for the same direction, space and setup.
    """
    rows = rows[rows["p@1"].notna()].sort_values("training_seed")
    rows["default"] = rows["default"] == 1
    known = [(one or {}).get("csls") for one in rows["weights"]]
    rows["lambda"] = 1 - np.array(known, dtype=float)
    variants = rows[["settings", "template", "alpha", "config", "encoder"]]
    rows["usual"] = [
        not settings and (template, alpha) == usual_variant(config.get("preset", ""), encoder)
        for settings, template, alpha, config, encoder in variants.itertuples(index=False)
    ]
    percent = [*SCORES, "gain_low", "gain_high"]
    cells = rows.groupby([*CELL, "system"], sort=False, dropna=False).agg(
        **{name: (name, "mean") for name in (*percent, "lambda")},
        **{f"{name}_sd": (name, "std") for name in SCORES},
        **{name: (name, "first") for name in ("usual", "queries", "all_queries")},
        **{name: (name, "first") for name in ("space_name", "dataset_name")},
        default=("default", "any"),
        seeds=("training_seed", tuple),
        gains=("gain", tuple),
        p=("p_value", lambda one: one.max(skipna=False)),
    )
    cells = cells.reset_index()
    cells[[*percent, *(f"{name}_sd" for name in SCORES)]] *= 100
    agree = cells["gains"].map(lambda gains: min(gains) > 0 or max(gains) < 0)
    cells["p"] = cells["p"].where(agree | cells["p"].isna(), 1.0)
    cells["arrow"] = cells["direction"].map(arrow)
    cells["coverage"] = 100 * cells["queries"] / cells["all_queries"]
    cells["p_text"] = ["< 0.001" if p < 0.001 else fill("{p:.3f}", {"p": p}) for p in cells["p"]]
    cells["system_name"] = cells["system"] + cells["default"].map({True: " (default)", False: ""})
    cells["place"] = cells.groupby(PLACE, dropna=False).ngroup()
    cells["cell"] = cells.groupby(CELL, dropna=False).ngroup()
    cells["paper"] = cells["dataset"].map(paper.paper_dataset)
    published = paper.paired_setups().rename(columns={"dataset": "paper", "gain": "paper_gain"})
    cells = cells.merge(published, on=["paper", "setup", "space", "direction"], how="left")
    order = ["dataset", "setup", "pivot", "pair", "direction", *CELL, "system"]
    return in_order(cells).sort_values(order, ignore_index=True)


def main_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that stand for a setup when several variants of it were run.

    For each data set, setup, space and encoder: the template, α and settings that most of its
    cells have; of equally many, what the encoder has by default.
    """
    key = [*SPACE_OF, *VARIANT]
    variants = cells.drop_duplicates("cell").groupby(key, observed=True, dropna=False)["usual"]
    found = variants.agg(["size", "first"]).reset_index()
    found = found.sort_values(["size", "first"], ascending=False, kind="stable")
    return cells.merge(found.drop_duplicates([*SPACE_OF, "encoder"])[key], on=key)


# Setups won


def holm(p: pd.Series) -> pd.Series:
    """Holm's step-down correction: below ``LEVEL`` means significant among all of them."""
    known = p.dropna().sort_values()
    return (known * range(len(known), 0, -1)).clip(upper=1).cummax().reindex(p.index)


def tally(rows: pd.DataFrame, setups: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """How often systems win against their space alone, and how sure that is.

    For the first of ``setups`` (data set and setup) ``gain0`` is the mean gain, ``gain0_sd`` its
    standard deviation over the training seeds where all cells have the same ones, ``cells0`` the
    number of cells and ``paper0`` the paper's mean gain on them; likewise for the others.
    """
    rows = rows[rows["gain"].notna()]
    won, lost, sure = rows["gain"] > SAME, rows["gain"] < -SAME, rows["p"] < LEVEL
    found = {
        "all": len(rows),
        "won": won.sum(),
        "lost": lost.sum(),
        "level": (~won & ~lost).sum(),
        "significant": (won & sure).sum(),
        "holm": (won & (holm(rows["p"]) < LEVEL)).sum(),
        "worse": (lost & sure).sum(),
        "paper_won": (rows["paper_gain"] > 0).sum(),
    }
    for at, (dataset, setup) in enumerate(setups):
        own = rows[(rows["dataset"] == dataset) & (rows["setup"] == setup)]
        found |= {f"gain{at}": own["gain"].mean(), f"paper{at}": own["paper_gain"].mean()}
        found |= {f"cells{at}": len(own), f"gain{at}_sd": np.nan}
        if own["seeds"].nunique() == 1 and len(own["seeds"].iloc[0]) > 1:
            found[f"gain{at}_sd"] = 100 * np.mean(list(own["gains"]), axis=0).std(ddof=1)
    return found


def encoders(cells: pd.DataFrame) -> list[str]:
    """The encoder with most cells first: it is the one that the head of the report speaks of."""
    counts = Counter(cells.drop_duplicates("cell")["encoder"])
    return sorted(counts, key=lambda name: (-counts[name], name))


def tallies(cells: pd.DataFrame, setups: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """The tally of each encoder and system; of an encoder the default first, then the paper's."""
    names, rows = encoders(cells), []
    for (encoder, system), own in groups(cells[cells["gain"].notna()], ["encoder", "system"]):
        titles = ["the paper's method"] if system == TUNED else []
        default = own["default"].mean() >= 0.5  # in zero-shot it is another one
        titles += ["the default"] if default else []
        label = f"{system}, {' and '.join(titles)}" if titles else system
        place = (names.index(encoder), not default, system != TUNED)
        rows.append({"label": label, "encoder": encoder, "place": place, **tally(own, setups)})
    return sorted(rows, key=lambda row: row["place"])
