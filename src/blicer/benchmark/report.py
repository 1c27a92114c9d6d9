"""The report of a benchmark: data frames of figures, and a template that shows them.

Every function makes the frame of one table; titles, number formats and prose are in
``report.j2``, where a new column is one line. ``report.md.j2`` and ``report.html.j2`` say how
headings, tables and pictures look in either format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from blicer import plots
from blicer.benchmark import paper
from blicer.benchmark.cells import (
    ORDER,
    SPACE_OF,
    TUNED,
    VARIANT,
    arrow,
    dataset_name,
    encoders,
    groups,
    in_order,
    main_cells,
    read,
    tallies,
    tally,
)
from blicer.benchmark.plan import SPACE, SYSTEMS
from blicer.benchmark.results import LEVEL
from blicer.files import atomic_write
from blicer.pages import NOTHING, Strong, fill, plural, render
from blicer.templates import TEMPLATES

SIGNED = "<!-- drawn by blicer benchmark -->\n"  # tells our pictures from others

# Tables


def main_tables(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """For each data set and setup: spaces down, directions across, the paper's in brackets."""
    names = encoders(cells)
    lines = cells[cells["system"].isin([SPACE, TUNED]) | cells["default"]]
    rank = lines["encoder"].map(names.index).where(lines["system"] != SPACE, -1)
    theirs = lines["alone"].where(lines["system"] == SPACE)
    lines = lines.assign(rank=rank, theirs=theirs.mask(lines["system"] == TUNED, lines["reranked"]))
    keys = ["space", "space_mode", "space_name", "rank", "system", "direction"]
    for (dataset, setup), own in groups(lines, ["dataset", "setup"]):
        means = own.groupby(keys, observed=True)[["p@1", "theirs"]].mean()
        ours, theirs = means["p@1"].unstack(), means["theirs"].unstack()
        columns = {"P@1": [_line_label(line, names) for line in ours.index]}
        columns |= {arrow(one): _beside(ours[one], theirs[one], best=True) for one in ours}
        columns["Avg."] = _beside(ours.mean(axis=1))
        if theirs.notna().any(axis=None):
            shared = ours.where(theirs.notna()).mean(axis=1)
            columns["Avg. of both"] = _beside(shared, theirs.mean(axis=1))
        yield {"dataset": dataset, "setup": setup, "table": pd.DataFrame(columns, dtype=object)}


def _line_label(line: tuple[Any, ...], names: Sequence[str]) -> str:
    _, _, space, rank, system = line
    if system == SPACE:
        return Strong(space)
    ending = f" ({names[rank]})" if len(names) > 1 else ""
    return f"+ {'BLICEr' if system == TUNED else system}{ending}"


def _beside(ours: pd.Series, theirs: pd.Series | None = None, *, best: bool = False) -> list[str]:
    """Our figures with the paper's in brackets; ``best``: the highest of several in bold."""
    pairs = zip(ours, ours * np.nan if theirs is None else theirs, strict=True)
    texts = [fill("{ours:.2f} ({theirs:.2f})", {"ours": one, "theirs": two}) for one, two in pairs]
    texts = ["" if text == NOTHING else text for text in texts]
    top = ours.max() if best and len(ours) > 1 else None
    return [Strong(text) if one == top else text for one, text in zip(ours, texts, strict=True)]


def varied(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """Means of templates or of α over one space, all else being the same.

    The means are over the directions that all values have. Beside a template stands the paper's
    P@1 of it.
    """
    tuned = cells[cells["system"] == TUNED]
    defaults = cells[cells["default"]].set_index("cell")["p@1"]
    tuned = tuned.assign(default_system=tuned["cell"].map(defaults))
    rows = []
    for _, own in groups(tuned, [*SPACE_OF, *(other for other in VARIANT if other != name)]):
        everywhere = own.groupby("place")[name].nunique() == own[name].nunique()
        common = own[own["place"].map(everywhere)]
        for (value,), part in groups(common, [name]) if own[name].nunique() > 1 else ():
            one, means = part.iloc[0], part[["lambda", "p@1", "gain", "default_system"]].mean()
            where = f"{one['dataset_name']} {one['setup']}, {one['space_name']}, {one['encoder']}"
            row = {
                "title": f"{where}: {plural(part['place'].nunique(), 'direction')}",
                "text": TEMPLATES.get(value, ""),
                "published": paper.template_figure(value),
            }
            rows.append({**one, **means, **row})
    return pd.DataFrame(rows)


def remarks(units: pd.DataFrame) -> pd.Series:
    """What was said of some units, with their names."""
    names = units["pair"] + " " + units["setup"].astype(str) + " " + units["space_name"]
    return units.assign(name=names).explode("remarks").groupby("remarks")["name"].unique()


# Pictures


def pictures(units: pd.DataFrame, main: pd.DataFrame) -> list[dict[str, Any]]:
    """λ curves of the paper's method and the default: name, title, SVG, and number of units."""
    key = [*SPACE_OF, *VARIANT]
    rows = [
        {**unit, "system": name, "measured": found}
        for unit in units.merge(main[key].drop_duplicates(), on=key).to_dict("records")
        for name, found in unit["outcome"]["systems"].items()
        if (name == TUNED or found["default"]) and len(found["curve"]) > 1
    ]
    measured = in_order(pd.DataFrame(rows, columns=[*units, "measured"]))
    drawn: list[dict[str, Any]] = []
    taken: Counter[str] = Counter()
    by = ["dataset", "encoder", "system", "setup"]
    for (dataset, encoder, system, setup), own in groups(measured, by):
        parts = (dataset, setup, encoder, system)
        name = re.sub(r"[^a-z0-9.]+", "-", f"lambda-{'-'.join(parts)}".lower()).strip("-.")[:80]
        taken[name] += 1
        file = f"{name}-{taken[name]}" if taken[name] > 1 else name
        title = f"{dataset_name(dataset)} {', '.join(parts[1:])}"
        spaces = groups(own, ["space", "space_name"])
        lines = [_mean_curve(label, part["measured"]) for (_, label), part in spaces]
        svg = plots.curves(lines, title, "λ", "P@1 on held-out words, %")
        drawn.append({"name": file, "title": title, "svg": svg, "of": plural(len(own), "unit")})
    return drawn


def _mean_curve(label: str, measured: pd.Series) -> plots.Curve:
    """The mean of the units' curves, each read off at every λ that any of them has."""
    curves = [np.array(sorted(one["curve"])).T for one in measured]
    grid = np.unique(np.concatenate([lams for lams, _ in curves]).round(6))
    mean = np.mean([np.interp(grid, *curve) for curve in curves], axis=0)
    chosen = [1 - one["weights"]["csls"] for one in measured]
    return plots.Curve(label, grid, 100 * mean, float(np.mean(chosen)))


# Files


def write_report(folder: str | Path) -> tuple[Path, Path]:
    """Write ``report.md`` (with ``pictures/``) and ``report.html`` about a folder of results."""
    folder = Path(folder)
    values = report_values(*read(folder))
    drawn = {one["name"]: one["svg"] for one in values["pictures"]}
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


def summary(folder: str | Path, keys: set[str]) -> str:
    """What the terminal shows: P@1 before and after reranking in each direction, and the tally.

    ``keys``: of the units. "After" is the encoder's default system if it was measured, else the
    last one that was.
    """
    units, _, _, cells = read(folder, keys)
    alone = cells[cells["system"] == SPACE].set_index("cell")["p@1"]
    sure = (cells["p"] < LEVEL).map({True: "*", False: ""})
    cells = cells.assign(before=cells["cell"].map(alone), sure=sure)
    cells = cells.sort_values(["default", "system"]).drop_duplicates("cell", keep="last")
    varying = [name for name in VARIANT if cells[name].nunique() > 1]
    heads = {"direction": "direction", "setup": "setup", "space_name": "space"}
    heads |= {name: name.replace("_", " ") for name in (*varying, "system", "before")}
    heads |= {"p@1": "after", "gain": "gain", "sure": "", "gain_low": "95 %:", "gain_high": "to"}
    shown = cells.sort_index()[[*heads]].rename(columns=heads)
    table = shown.to_string(index=False, float_format="{:.1f}".format, na_rep="-")
    main = main_cells(cells)
    setups = [key for key, _ in groups(main, ["dataset", "setup"])]
    values = {"main": main, "setups": setups, "tally": tally(main, setups)}
    values |= {"others": len(cells) - len(main), "remarks": remarks(units)}
    return render("benchmark/summary.j2", table=table, **values).strip()


def report_values(
    units: pd.DataFrame, failed: pd.DataFrame, replaced: int, cells: pd.DataFrame
) -> dict[str, Any]:
    """Everything that ``report.j2`` shows."""
    everything = pd.concat([units, failed])
    known = everything[everything["dataset"] != ""]
    values = {
        "units": units,
        "failed": failed,
        "replaced": replaced,
        "cells": cells,
        "datasets": sorted(known["dataset"].unique(), key=ORDER["dataset"]),
        "versions": Counter(
            ", ".join(f"{name} {value}" for name, value in one["versions"].items())
            for one in everything["outcome"]
        ),
        "pictures": [],
        "variant": VARIANT,
        "dataset_name": dataset_name,
    }
    if not len(cells):
        return values
    main = main_cells(cells)
    setups = [key for key, _ in groups(main, ["dataset", "setup"])]
    shared = main[main["paper_gain"].notna() & (main["encoder"] == encoders(main)[0])]
    ours = shared[shared["default"] | (shared["system"] == TUNED)]
    return values | {
        "main": main,
        "setups": setups,
        "tallies": tallies(main, setups),
        "shared": tallies(ours, setups),
        "paper_setups": paper.paired_setups(),
        "paper_gains": [paper.setups_of(*key)["gain"].mean() for key in setups],
        "remarks": remarks(units),
        "mixed": {name: SYSTEMS[name] for name in cells["system"].unique() if SYSTEMS.get(name)},
        "main_tables": list(main_tables(main)),
        "templates": varied(cells, "template"),
        "alphas": varied(cells, "alpha"),
        "pictures": pictures(units, main),
    }
