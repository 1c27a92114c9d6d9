"""The report of a benchmark: data frames of figures, and a template that shows them.

A *cell* is one system in one direction of one setup, its training seeds together. The frame of
cells is made once, and the frames of the tables are made of it. Titles, number formats and prose
are in ``report.j2``: a new column is one line there.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from blicer import plots
from blicer.benchmark import paper
from blicer.benchmark.plan import FILES, LAYOUTS, UNSUPERVISED, ZERO_SHOT
from blicer.benchmark.results import DONE, LEVEL, load, load_units
from blicer.benchmark.systems import SPACE
from blicer.config import PRESETS, Config
from blicer.errors import InputError
from blicer.files import atomic_write
from blicer.pages import NOTHING, Strong, fill, needed, plural, render
from blicer.templates import TEMPLATES

with needed("pandas", "a benchmark report", "bench"):
    import pandas as pd

UNTUNED, TUNED = "untuned", "tuned"
CONTROLS = ("A", "B", UNTUNED)  # systems that learn nothing but their weights
SAME = 1e-10  # points of P@1 below which two systems are level; one word weighs far more

SPACE_OF = ["dataset", "setup", "space", "space_mode"]
VARIANT = ["encoder", "template", "alpha", "max_words", "settings"]
PLACE = [*SPACE_OF, "pivot", "pair", "direction"]
CELL = [*PLACE, *VARIANT, "data"]
SCORES = ["p@1", "p@5", "mrr", "p@1_all", "gain"]
TEXTS = [*PLACE, "encoder", "template", "system", "ended", "status", "error"]
NUMBERS = [
    *("alpha", "max_words", "training_seed", "seconds_fit", "seconds_score"),
    *(*SCORES, "gain_low", "gain_high", "p_value", "queries", "all_queries"),
]
DATASETS = {"xling": "XLING", "panlex": "PanLex-BLI", "muse": "MUSE"}
SPACES = {**paper.SPACES, "procrustes": "Procrustes"}
WITHOUT_SEEDS = "vecmap"  # makes the space that zero-shot reranks
SIGNED = "<!-- drawn by blicer benchmark -->\n"  # tells our pictures from others


# Order and names


def setup_order(setup: str) -> tuple[int, float, str]:
    """5k before 1k before unsupervised before zero-shot."""
    digits = setup[:-1] if setup.endswith("k") else setup
    if digits.isascii() and digits.isdigit():
        return (0, -int(digits) * (1000 if setup.endswith("k") else 1), setup)
    known = (UNSUPERVISED, ZERO_SHOT)
    return (1 + known.index(setup) if setup in known else 3, 0, setup)


def _listed(known: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    """A sort key: place in a list; what is not in it comes last, by name."""
    return lambda name: (known.index(name) if name in known else len(known), name)


ORDER: dict[str, Callable[[str], Any]] = {
    "dataset": _listed(list(DATASETS)),
    "setup": setup_order,
    "space": _listed(list(SPACES)),
    "system": _listed((SPACE, *CONTROLS, TUNED)),
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

    ``keys``: read these units only. Of several runs of a unit the newest counts; a failure counts
    unless the unit succeeded later.
    """
    outcomes = {one["key"]: _clean(one) for one in load_units(folder)}
    rows = load(folder).reindex(columns=["key", "default", *TEXTS, *NUMBERS])
    rows = rows[rows["key"].isin(outcomes if keys is None else keys)]
    if not len(rows):
        raise InputError("there is nothing to report: the benchmark has not finished any unit")
    rows[TEXTS] = rows[TEXTS].astype(object).fillna("").map(_clean)
    rows[NUMBERS] = rows[NUMBERS].astype(float)
    rows["outcome"] = rows["key"].map(outcomes)
    settings = (one["unit"].get("settings") for one in rows["outcome"])
    rows["settings"] = [json.dumps(one, sort_keys=True) if one else "" for one in settings]
    rows["data"] = [json.dumps(one["data"], sort_keys=True) for one in rows["outcome"]]
    zero = rows["setup"] == ZERO_SHOT  # the unit's space is that of the pivot's pairs: they teach
    taught = ("taught by " + rows["space"]).where(rows["space"] != WITHOUT_SEEDS, "")
    modes = rows["space_mode"].str.cat(taught, sep=", ").str.strip(", ")
    rows["space_mode"] = rows["space_mode"].mask(zero, modes)
    rows["space"] = rows["space"].mask(zero, WITHOUT_SEEDS)
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
def _defaults(preset: str, encoder: str) -> Config:
    known = preset if preset in PRESETS else "supervised"
    return Config.resolve(known, overrides={"encoder": encoder or NOTHING})


def changed(outcome: Mapping[str, Any], name: str) -> bool:
    """Whether a unit's template or α is other than what its encoder has by default."""
    unit, preset = outcome["unit"], outcome["config"].get("preset", "")
    usual = getattr(_defaults(preset, unit["encoder"]), name)
    return bool(abs(unit[name] - usual) > 1e-9 if name == "alpha" else unit[name] != usual)


def make_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each direction, variant, data and system: means over training seeds, in per cent.

    Spreads (``_sd``) are standard deviations over the seeds. The test words of all seeds are the
    same, so their p-values are not independent: ``p`` is the largest of them, which holds whatever
    their dependence, or 1 where the seeds do not agree on the sign. Beside them stand the paper's
    figures for the same direction, space and setup.
    """
    rows = rows[rows["p@1"].notna()].sort_values("training_seed")
    alone = rows[rows["system"] == SPACE].set_index(["key", "direction"])["p@1"]
    before = alone.reindex(pd.MultiIndex.from_frame(rows[["key", "direction"]])).to_numpy()
    gain = rows["gain"].fillna(rows["p@1"] - before).where(rows["system"] != SPACE)
    rows = rows.assign(gain=gain, default=rows["default"].astype(bool))
    percent = [*SCORES, "gain_low", "gain_high"]
    found = zip(rows["outcome"], rows["system"], strict=True)
    weights = [(one["systems"][system].get("weights") or {}).get("csls") for one, system in found]
    rows["lambda"] = 1 - np.array(weights, dtype=float)
    usual = [not any(changed(one, name) for name in VARIANT[1:3]) for one in rows["outcome"]]
    rows["usual"] = (rows["settings"] == "") & np.array(usual, dtype=bool)
    cells = rows.groupby([*CELL, "system"], sort=False, dropna=False).agg(
        **{name: (name, "mean") for name in (*percent, "lambda")},
        **{f"{name}_sd": (name, "std") for name in SCORES},
        **{name: (name, "first") for name in ("usual", "queries", "all_queries")},
        **{name: (name, "first") for name in ("space_name", "dataset_name")},
        default=("default", "any"),
        seeds=("training_seed", tuple),
        gains=("gain", tuple),
        lambdas=("lambda", tuple),
        p=("p_value", lambda one: one.max(skipna=False)),
    )
    cells = cells.reset_index()
    spreads = [f"{name}_sd" for name in SCORES]
    cells[[*percent, *spreads]] *= 100
    agree = cells["gains"].map(lambda gains: min(gains) > 0 or max(gains) < 0)
    cells["p"] = cells["p"].where(agree | cells["p"].isna(), 1.0)
    cells["arrow"] = cells["direction"].map(arrow)
    cells["coverage"] = 100 * cells["queries"] / cells["all_queries"]
    cells["p_text"] = ["< 0.001" if p < 0.001 else fill("{p:.3f}", {"p": p}) for p in cells["p"]]
    ending = cells["default"].map({True: " (default)", False: ""})
    cells["system_name"] = cells["system"] + ending
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
        "smallest_p": rows["p"].min(),
        "paper_won": (rows["paper_gain"] > 0).sum(),
    }
    for at, (dataset, setup) in enumerate(setups):
        own = rows[(rows["dataset"] == dataset) & (rows["setup"] == setup)]
        found |= {f"gain{at}": own["gain"].mean(), f"paper{at}": own["paper_gain"].mean()}
        found |= {f"cells{at}": len(own), f"gain{at}_sd": np.nan}
        if own["seeds"].nunique() == 1 and len(own["seeds"].iloc[0]) > 1:
            found[f"gain{at}_sd"] = 100 * np.mean(list(own["gains"]), axis=0).std(ddof=1)
    return found


def methods(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The cells of the default and of the paper's method, by a label that says which it is."""
    default, tuned = cells[cells["default"]], cells[cells["system"] == TUNED]
    names = sorted(default["system"].unique())
    labels = {f"{' or '.join(names)}, the default": default, "tuned, the paper's method": tuned}
    if names == [TUNED]:
        labels = {"tuned, the paper's method and the default": default}
    return {label: own for label, own in labels.items() if len(own)}


def encoders(cells: pd.DataFrame) -> list[str]:
    """The encoder with most cells first: it is the one that the head of the report speaks of."""
    counts = Counter(cells.drop_duplicates("cell")["encoder"])
    return sorted(counts, key=lambda name: (-counts[name], name))


def tallies(cells: pd.DataFrame, setups: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Of each encoder: the default and the paper's method, then every other system."""
    rows = []
    for encoder in encoders(cells):
        own = cells[cells["encoder"] == encoder]
        shown = {SPACE, TUNED, *own["system"][own["default"]]}
        others = {name: part for (name,), part in groups(own, ["system"]) if name not in shown}
        for label, part in {**methods(own), **others}.items():
            rows.append({"label": label, "encoder": encoder, **tally(part, setups)})
    return [row for row in rows if row["all"]]


def paper_tally(setups: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The paper's counts in its two main tables, as far as it has what ``tally`` counts."""
    published = paper.paired_setups()
    gains = published["gain"][published["main"]]
    row = dict.fromkeys(("encoder", "significant", "holm", "worse"))
    row |= {"label": "The paper, XLM-R-large", "all": len(gains), "won": (gains > 0).sum()}
    row |= {"level": (gains == 0).sum(), "lost": (gains < 0).sum()}
    for at, key in enumerate(setups):
        row |= {f"gain{at}": paper.setups_of(*key)["gain"].mean(), f"gain{at}_sd": None}
    return row


def controls(
    cells: pd.DataFrame, compared: Sequence[tuple[str, str]] | None = None
) -> pd.DataFrame:
    """What training adds to systems that learn nothing but their weights, in points of P@1.

    ``compared``: pairs of systems; by default the default and the paper's method with each control.
    """
    ours = dict.fromkeys([*cells["system"][cells["default"]], TUNED])
    wide = cells.pivot_table("p@1", "cell", "system", observed=True)
    rows = []
    for one, other in compared or [(one, other) for one in ours for other in CONTROLS]:
        if one in wide and other in wide and len(gains := (wide[one] - wide[other]).dropna()):
            better, worse = (gains > SAME).sum(), (gains < -SAME).sum()
            row = {"one": one, "other": other, "all": len(gains), "better": better, "worse": worse}
            level = len(gains) - better - worse
            rows.append({**row, "level": level, "mean": gains.mean(), "worst": gains.min()})
    return pd.DataFrame(rows)


# The paper's tables


def main_tables(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """For each data set and setup: spaces down, directions across, the paper's in brackets."""
    names = encoders(cells)
    lines = cells[cells["system"].isin([SPACE, TUNED]) | cells["default"]]
    rank = lines["encoder"].map(names.index).where(lines["system"] != SPACE, -1)
    keys = ["space", "space_mode", "space_name", "rank", "system"]
    for (dataset, setup), own in groups(lines.assign(rank=rank), ["dataset", "setup"]):
        ours = own.groupby([*keys, "direction"], observed=True)["p@1"].mean().unstack()
        index = ours.index.droplevel(["space_mode", "space_name", "rank"])
        paired = paper.setups_of(dataset, setup)
        placed = paired.set_index(["space", "direction"])
        known = {SPACE: placed["alone"].unstack(), TUNED: placed["reranked"].unstack()}
        theirs = pd.concat(known).reindex(index.swaplevel()).set_axis(ours.index)
        theirs = theirs.dropna(axis=1, how="all")
        directions = [one for one in paired["direction"].unique() if one in theirs]
        shared = [one for one in directions if one in ours]
        measured = [*shared, *sorted(set(ours).difference(shared))]
        variants = [(space, "blicer" if one == TUNED else one) for space, one in index]
        printed = pd.Series([paper.average(dataset, setup, *one) for one in variants], ours.index)
        columns = {"P@1": [_line_label(line, names) for line in ours.index]}
        columns |= {arrow(one): _beside(ours[one], theirs.get(one), best=True) for one in measured}
        columns["Avg."] = _beside(ours.mean(axis=1), printed.fillna(theirs.mean(axis=1)))
        if shared:
            both = ours[shared].notna() & theirs[shared].notna()
            means = (frame[shared].where(both).mean(axis=1) for frame in (ours, theirs))
            columns["Avg. of both"] = _beside(*means)
        alone = [one for one in directions if one not in ours]
        columns |= {arrow(one): _beside(theirs[one] * np.nan, theirs[one]) for one in alone}
        languages = {"P@1": columns["P@1"]}
        for language in dict.fromkeys("-".join([*directions, *measured]).split("-")):
            for pattern in (f"{language}-*", f"*-{language}"):
                regular = re.escape(pattern).replace(r"\*", ".*")
                mine = ours.loc[:, ours.columns.str.fullmatch(regular)].mean(axis=1)
                grouped = [paper.figure("panlex-grouped", setup, *one, pattern) for one in variants]
                languages[arrow(pattern)] = _beside(mine, pd.Series(grouped, ours.index))
        yield {
            "dataset": dataset,
            "setup": setup,
            "table": pd.DataFrame(columns, dtype=object),
            "languages": pd.DataFrame({k: v for k, v in languages.items() if any(v)}, dtype=object),
            "uneven": ours.isna().any(axis=None),
            "published": bool(directions),
            "missing": sorted(set(paired["space"]).difference(own["space"]), key=ORDER["space"]),
        }


def _line_label(line: tuple[Any, ...], names: Sequence[str]) -> str:
    _, _, space, rank, system = line
    if system == SPACE:
        return Strong(space)
    ending = f" ({names[rank]})" if len(names) > 1 else ""
    return f"+ {'BLICEr' if system == TUNED else system}{ending}"


def _beside(ours: pd.Series, theirs: pd.Series | None, *, best: bool = False) -> list[str]:
    """Our figures with the paper's in brackets; ``best``: the highest of several in bold."""
    theirs = ours * np.nan if theirs is None else theirs.astype(float)
    pairs = list(zip(ours, theirs, strict=True))
    texts = [fill("{ours:.2f} ({theirs:.2f})", {"ours": one, "theirs": two}) for one, two in pairs]
    texts = ["" if text == NOTHING else text for text in texts]
    top = ours.max() if best and len(ours) > 1 else None
    return [Strong(text) if one == top else text for one, text in zip(ours, texts, strict=True)]


# Ablations. Rows of one table are means over the same directions: those that all of them have.


def _common(parts: Mapping[Any, pd.DataFrame]) -> dict[Any, pd.DataFrame]:
    """The parts that have cells, cut to the places that all of these have."""
    found = {label: own for label, own in parts.items() if len(own)}
    places = set.intersection(*(set(own["place"]) for own in found.values())) if found else set()
    return {label: own[own["place"].isin(places)] for label, own in found.items() if places}


def _title(cells: pd.DataFrame, *more: str) -> str:
    one = cells.iloc[0]
    names = [f"{one['dataset_name']} {one['setup']}", one["space_name"], *more]
    return f"{', '.join(names)}: {plural(cells['place'].nunique(), 'direction')}"


def _compared(
    table: str, more: Sequence[str], contenders: Mapping[str, tuple[str, pd.DataFrame]]
) -> Iterator[dict[str, Any]]:
    """Means from and to English, as the paper has them; contenders are by label: its variant."""
    found = _common({label: own for label, (_, own) in contenders.items()})
    for label, own in found.items() if len(found) > 2 else ():
        variant, one = contenders[label][0], own.iloc[0]
        row = {"title": _title(own, *more), "label": label, "all": own["p@1"].mean()}
        for name, pattern in (("en-*", "en-"), ("*-en", ".*-en$"), ("average", "en-|.*-en$")):
            where = (table if variant != SPACE else "ablation", one["setup"], one["space"])
            known = paper.figure(*where, variant, name) if one["paper"] == "xling" else None
            mine = own["p@1"][own["direction"].str.match(pattern)].mean()
            row |= {name: mine, f"{name}_paper": np.nan if known is None else known}
        yield row


def ablations(cells: pd.DataFrame, main: pd.DataFrame) -> pd.DataFrame:
    """The space alone, the encoder before training, no template, a template."""
    rows, tuned = [], cells[cells["system"] == TUNED]
    rest = [*SPACE_OF, *(name for name in VARIANT if name != "template")]
    for (*_, encoder), own in groups(main, [*SPACE_OF, "encoder"]):
        alike = tuned.merge(own[rest].drop_duplicates(), on=rest)
        template = own["template"].iloc[0] if own["template"].iloc[0] != "T1" else "T15"
        contenders = {
            "The space alone": (SPACE, own[own["system"] == SPACE]),
            "+ off-the-shelf": ("off-the-shelf", own[own["system"] == UNTUNED]),
            "+ BLICEr, no template": ("no-template", alike[alike["template"] == "T1"]),
            f"+ BLICEr, {template}": ("blicer", alike[alike["template"] == template]),
        }
        rows += _compared("ablation", [encoder], contenders)
    return pd.DataFrame(rows)


def encoder_ablation(main: pd.DataFrame) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for _, own in groups(main, SPACE_OF):
        contenders = {"The space alone": (SPACE, own[own["system"] == SPACE])}
        for (name,), part in groups(own[own["system"] == TUNED], ["encoder"]):
            contenders[f"+ {name}"] = (paper.paper_encoder(name), part)
        rows += _compared("encoders", [], contenders)
    return pd.DataFrame(rows)


def varied(cells: pd.DataFrame, name: str) -> Iterator[dict[Any, pd.DataFrame]]:
    """Tuned cells over one space whose variants differ in this one thing only, by its value."""
    tuned = cells[cells["system"] == TUNED]
    defaults = cells[cells["default"]].set_index("cell")["p@1"]
    tuned = tuned.assign(default_system=tuned["cell"].map(defaults))
    for _, own in groups(tuned, [*SPACE_OF, *(other for other in VARIANT if other != name)]):
        found = _common({value: part for (value,), part in groups(own, [name])})
        if len(found) > 1:
            yield found


def varied_means(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """Means of templates or of α, beside what the paper has: P@1 or its λ (main encoder only)."""
    rows = []
    for found in varied(cells, name):
        for value, own in found.items():
            one, means = own.iloc[0], own[["lambda", "p@1", "gain", "default_system"]].mean()
            published = None
            if name == "template":
                published = paper.figure("templates", "5k", "c2", value)
            elif paper.paper_encoder(one["encoder"]) in ("", paper.MAIN_ENCODER):
                published = paper.lambda_value(*one[["dataset", "setup", "space"]], alpha=value)
            text = TEMPLATES.get(value, "") if name == "template" else ""
            row = {name: value, "text": text, "published": published, **means}
            rows.append({"title": _title(own, one["encoder"]), **row})
    return pd.DataFrame(rows)


def lambdas(main: pd.DataFrame) -> pd.DataFrame:
    """λ of the paper's method, ours chosen on held-out seeds, beside the paper's."""
    own = main[(main["system"] == TUNED) & (main["direction"] == main["pair"])]  # both have one λ
    own = own.explode("lambdas").dropna(subset="lambdas").astype({"lambdas": float})
    by = [*SPACE_OF, "encoder", "space_name", "dataset_name"]
    found = own.groupby(by, observed=True)["lambdas"].agg(["mean", "min", "max", "size"])
    found = found.reset_index()
    known = [paper.paper_encoder(name) or paper.MAIN_ENCODER for name in found["encoder"]]
    places = zip(found["dataset"], found["setup"], found["space"], known, strict=True)
    found["published"] = pd.Series([paper.lambda_value(*one) for one in places], dtype=float)
    names = pd.Series([paper.ENCODERS[name] for name in known], dtype=object)
    found["paper_encoder"] = names.where(found["published"].notna(), NOTHING)
    return found


# What it all was measured on


def times(units: pd.DataFrame) -> pd.DataFrame:
    """Means a unit, and the speed of the cross-encoder in the units that timed it alone."""
    seconds = [one.get("seconds") or {} for one in units["outcome"]]
    timed = [(one.get("scorers") or {}).get("cross-encoder") for one in seconds]
    scored = [one.get("pairs_scored") for one in units["outcome"]]
    found = units.assign(total=[one.get("total") for one in seconds], timed=timed, scored=scored)
    found = found.astype({"total": float, "timed": float, "scored": float})
    found["scored"] = found["scored"].where(found["timed"].notna())
    by = ["encoder", "setup", "space", "space_mode", "space_name"]
    found = found.groupby(by, observed=True).agg(
        units=("key", "size"),
        untimed=("timed", lambda timed: timed.isna().sum()),
        fit=("seconds_fit", "mean"),
        score=("seconds_score", "mean"),
        hours=("total", lambda total: total.sum() / 3600),
        timed=("timed", "sum"),
        scored=("scored", "sum"),
    )
    return found.assign(speed=found["scored"] / found["timed"]).reset_index()


def machines(units: pd.DataFrame) -> pd.DataFrame:
    """Each combination of machine and versions, with the number of its units."""
    counts = Counter(
        tuple(
            ", ".join(f"{key} {value}" for key, value in (one.get(name) or {}).items()) or NOTHING
            for name in ("machine", "versions")
        )
        for one in units["outcome"]
    )
    rows = [(*key, f"{count:,}") for key, count in counts.most_common()]
    return pd.DataFrame(rows, columns=["Machine", "Versions", "Units"])


def files(units: pd.DataFrame) -> pd.DataFrame:
    """SHA-256 of the files that were read."""
    found = set()
    for one in units["outcome"]:
        unit = one["unit"]
        pair = f"{unit['source']}-{unit['target']}"
        names = {side: f"vectors, {unit[side]}" for side in ("source", "target", "pivot")}
        if unit["space"] == FILES:
            names = {
                side: f"space of files, {pair} {unit['setup']}, {unit[side]}" for side in names
            }
        names["seeds"] = f"seeds, {pair} {unit['setup']}"
        for name, digest in one["data"].items():
            found.add((dataset_name(unit["dataset"]), names.get(name, f"{name}, {pair}"), digest))
    rows = sorted(row for row in found if row[-1])
    return pd.DataFrame(rows, columns=["Data set", "What", "SHA-256"])


def remarks(units: pd.DataFrame) -> pd.Series:
    """What was said of some units, with their names."""
    names = units["pair"] + " " + units["setup"].astype(str) + " " + units["space_name"]
    said = units.assign(name=names, remark=[one.get("remarks") or [] for one in units["outcome"]])
    return said.explode("remark").groupby("remark")["name"].unique()


def unlike_paper(units: pd.DataFrame) -> list[str]:
    """Where a space of ours that stands beside the paper's is not made as the paper's is."""
    said = set()
    for outcome in units["outcome"][units["setup"] != ZERO_SHOT]:
        unit, settings = outcome["unit"], outcome.get("space_settings") or {}
        encoder = settings.get("encoder", "lite")
        if unit["space"] == "c2" and paper.paper_encoder(encoder) != "mbert":
            said.add(f"C2 mixes in {encoder} here, mBERT in the paper")
        few_seeds = outcome["config"].get("preset") == "semi_supervised"
        if unit["space"] == "vecmap" and few_seeds and settings.get("self_learning") is False:
            what = f"VecMap with {unit['setup']}"
            said.add(f"{what} is the closed form, self-learning in the paper")
    return sorted(said)


LISTS = ["pairs", "setups", "spaces", "encoders", "templates", "alphas", "training-seeds"]


def commands(units: pd.DataFrame) -> list[str]:
    """A few commands that make the units of this report and no others.

    A template or α that the encoder has by default is an empty text, and joins no list: it could
    not be told apart there.
    """
    rows = []
    for one in units["outcome"]:
        unit = one["unit"]
        own = unit["dataset"].removeprefix("my-")  # a folder that is called as a collection is
        named = f"./{own}" if own != unit["dataset"] and own in LAYOUTS else unit["dataset"]
        data = ["--data", "DATA"] if unit["dataset"] in DATASETS else []
        fixed = [("--systems", ",".join(unit["systems"])), ("--max-words", unit["max_words"])]
        fixed += [("--pivot", unit["pivot"])]
        for name, value in sorted(unit["settings"].items()):
            text = value if isinstance(value, str) else json.dumps(value)
            fixed += [("--set", f"{name}={text}")]
        values = [
            f"{unit['source']}-{unit['target']}",
            unit["setup"],
            ":".join(filter(None, (unit["space"], unit["space_mode"]))),
            unit["encoder"],
            unit["template"] if changed(one, "template") else "",
            f"{unit['alpha']:g}" if changed(one, "alpha") else "",
            str(unit["training_seed"]),
        ]
        start = ["blicer", "benchmark", "run", named, *data]
        end = [str(part) for option in fixed if option[1] for part in option]
        rows.append([shlex.join(start), *((value,) for value in values), shlex.join(end)])
    frame = pd.DataFrame(rows, columns=["start", *LISTS, "end"], dtype=object).drop_duplicates()
    for name in LISTS:
        order = ORDER.get(name.removesuffix("s"), str)
        frame = frame.assign(empty=frame[name] == ("",))
        found = frame.groupby([other for other in frame if other != name], sort=False)[name]
        frame = found.agg(lambda one, key=order: tuple(sorted(sum(one, ()), key=key))).reset_index()
    lines = []
    for row in frame.sort_values(["start", "end", *LISTS]).to_dict("records"):
        lists = [f"--{name} {shlex.quote(','.join(row[name]))}" for name in LISTS if any(row[name])]
        lines.append(" ".join([row["start"], *lists, row["end"], "-o OUT"]))
    return lines


# Pictures


def pictures(
    units: pd.DataFrame, cells: pd.DataFrame, main: pd.DataFrame
) -> dict[str, list[dict[str, Any]]]:
    """Name, title, SVG, and what it is the mean of, of each picture; by kind."""
    drawn: dict[str, list[dict[str, Any]]] = {"before-after": [], "lambda": [], "alpha": []}

    def add(kind: str, parts: Sequence[str], title: str, svg: str, of: str) -> None:
        name = re.sub(r"[^a-z0-9.]+", "-", "-".join([kind, *parts]).lower()).strip("-.")[:80]
        taken = sum(one["slug"] == name for one in drawn[kind])
        file = f"{name}-{taken + 1}" if taken else name
        drawn[kind].append({"slug": name, "name": file, "title": title, "svg": svg, "of": of})

    before = main[main["system"] == SPACE].set_index("cell")["p@1"]
    after = main[main["default"] | (main["system"] == TUNED)].sort_values("default")
    after = after.drop_duplicates("cell", keep="last")
    after = after.assign(before=after["cell"].map(before)).dropna(subset="before")
    for key, own in groups(after, ["dataset", "encoder"]):
        title = f"{dataset_name(key[0])}, {key[1]}"
        pairs = own.assign(pair=list(zip(own["before"], own["p@1"], strict=True)))
        dots = {setup: list(part["pair"]) for (setup,), part in groups(pairs, ["setup"])}
        svg = plots.before_after(dots, title)
        add("before-after", key, title, svg, plural(len(own), "setup"))

    by = ["dataset", "encoder", "system", "setup"]
    for (dataset, encoder, system, setup), own in groups(_curves(units, main), by):
        title = f"{dataset_name(dataset)} {setup}, {encoder}, {system}"
        lines = [_mean_curve(name, one) for (_, name), one in groups(own, ["space", "space_name"])]
        svg = plots.curves(lines, title, "λ", "P@1 on held-out words, %")
        parts = (dataset, setup, encoder, system)
        add("lambda", parts, title, svg, plural(len(own), "unit"))

    spaces = defaultdict(list)
    for found in varied(cells, "alpha"):
        one, means = next(iter(found.values())), [own["p@1"].mean() for own in found.values()]
        key = tuple(one.iloc[0][["dataset", "setup", "encoder", "template"]])
        curve = plots.Curve(one["space_name"].iloc[0], list(found), means)
        spaces[key].append((curve, len(one)))
    for key, curves in spaces.items():
        title = f"{dataset_name(key[0])} {', '.join(key[1:])}"
        svg = plots.curves([curve for curve, _ in curves], title, "α", "P@1 on test words, %")
        counts = " or ".join(str(count) for count in sorted({count for _, count in curves}))
        add("alpha", key, title, svg, f"{counts} directions")
    return drawn


def _curves(units: pd.DataFrame, main: pd.DataFrame) -> pd.DataFrame:
    """λ curves of the paper's method and the default: a row for each unit of the main cells."""
    key = [*SPACE_OF, *VARIANT]
    rows = [
        {**unit, "system": name, "curve": sorted(found["curve"]), "weights": found.get("weights")}
        for unit in units.merge(main[key].drop_duplicates(), on=key).to_dict("records")
        for name, found in unit["outcome"]["systems"].items()
        if (name == TUNED or found.get("default")) and len(found.get("curve") or ()) > 1
    ]
    return in_order(pd.DataFrame(rows, columns=[*units, "curve", "weights"]))


def _mean_curve(label: str, rows: pd.DataFrame) -> plots.Curve:
    """The mean of the units' curves, each read off at every λ that any of them has."""
    grid = sorted({round(lam, 6) for curve in rows["curve"] for lam, _ in curve})
    values = [100 * np.interp(grid, *zip(*curve, strict=True)) for curve in rows["curve"]]
    chosen = [1 - weights["csls"] for weights in rows["weights"] if weights]
    mean = float(np.mean(chosen)) if chosen else None
    return plots.Curve(label, grid, np.mean(values, axis=0).tolist(), mean)


# Files


def write_report(folder: str | Path) -> tuple[Path, Path]:
    """Write ``report.md`` (with ``pictures/``) and ``report.html`` about a folder of results."""
    folder = Path(folder)
    values = report_values(*read(folder))
    drawn = {one["name"]: one["svg"] for found in values["pictures"].values() for one in found}
    for old in (folder / "pictures").glob("*.svg"):
        if old.stem not in drawn and old.read_bytes().startswith(SIGNED.encode()):
            old.unlink()
    for name, svg in drawn.items():
        with atomic_write(folder / "pictures" / f"{name}.svg") as file:
            file.write(SIGNED + svg)
    paths = (folder / "report.md", folder / "report.html")
    for path in paths:
        text = render("benchmark/report.j2", macros=f"benchmark/{path.name}.j2", **values)
        if path.suffix == ".md":  # the template leaves more blank lines than Markdown needs
            text = re.sub(r"\n\s*\n", "\n\n", re.sub(r"^ +", "", text, flags=re.MULTILINE))
        with atomic_write(path) as file:
            file.write(text.strip() + "\n")
    return paths


def report_values(
    units: pd.DataFrame, failed: pd.DataFrame, replaced: int, cells: pd.DataFrame
) -> dict[str, Any]:
    """Everything that ``report.j2`` shows."""
    everything = pd.concat([units, failed])
    known = everything[everything["dataset"] != ""]
    dropped = Counter(item for one in units["outcome"] for item in one["dropped"].items())
    values = {
        "units": units,
        "failed": failed,
        "replaced": replaced,
        "cells": cells,
        "datasets": sorted(known["dataset"].unique(), key=ORDER["dataset"]),
        "machines": machines(everything),
        "commands": commands(known),
        "pictures": {},
        **{name: globals()[name] for name in ("VARIANT", "SPACES", "dataset_name")},
    }
    if not len(cells):
        return values
    main = main_cells(cells)
    setups = [key for key, _ in groups(main, ["dataset", "setup"])]
    shared = main[main["paper_gain"].notna() & (main["encoder"] == encoders(main)[0])]
    ours = set(zip(cells["paper"], cells["setup"], strict=True))
    tables = groups(in_order(paper.paired_setups()), ["dataset", "setup"])
    mixed = {
        name: system["scorers"]
        for outcome in units["outcome"]
        for name, system in outcome["systems"].items()
    }
    return values | {
        "main": main,
        "setups": setups,
        "tallies": tallies(main, setups),
        "shared": [
            {"label": label, **tally(own, setups)} for label, own in methods(shared).items()
        ],
        "published": paper_tally(setups),
        "remarks": remarks(units),
        "mixed": sorted(mixed.items(), key=lambda item: ORDER["system"](item[0])),
        "controls": controls(main),
        "main_tables": list(main_tables(main)),
        "unlike_paper": unlike_paper(units),
        "ablations": ablations(cells, main),
        "encoders": encoder_ablation(main),
        "templates": varied_means(cells, "template"),
        "alphas": varied_means(cells, "alpha"),
        "lambdas": lambdas(main),
        "not_run": [key for key, _ in tables if key not in ours],
        "twice": cells.drop_duplicates("cell").duplicated([*PLACE, *VARIANT]).sum(),
        "dropped": sorted(dropped.items()),
        "times": times(units),
        "files": files(units),
        "pictures": pictures(units, cells, main),
    }
