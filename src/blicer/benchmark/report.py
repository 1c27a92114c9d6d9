"""The report of a benchmark: data frames of figures, and a template that shows them.

Every function makes the frame of one table; titles, number formats and prose are in
``report.j2``, where a new column is one line. ``report.md.j2`` and ``report.html.j2`` say how
headings, tables and pictures look in either format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from blicer import plots
from blicer.benchmark import paper
from blicer.benchmark.cells import (
    ORDER,
    PLACE,
    SPACE_OF,
    SPACES,
    TUNED,
    UNTUNED,
    VARIANT,
    arrow,
    controls,
    dataset_name,
    encoders,
    groups,
    in_order,
    main_cells,
    methods,
    read,
    tallies,
    tally,
)
from blicer.benchmark.plan import FILES, SPACE, ZERO_SHOT
from blicer.benchmark.results import LEVEL, Results
from blicer.files import atomic_write
from blicer.pages import NOTHING, Strong, fill, plural, render
from blicer.templates import TEMPLATES

SIGNED = "<!-- drawn by blicer benchmark -->\n"  # tells our pictures from others

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
            # Exact sums: means of the paper's two decimals are often ties.
            sums = (frame[shared].where(both, 0).apply(fsum, axis=1) for frame in (ours, theirs))
            columns["Avg. of both"] = _beside(*(one / both.sum(axis=1) for one in sums))
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
            "missing": [
                SPACES[one] for one in paired["space"].unique() if one not in set(own["space"])
            ],
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
    rows: list[dict[str, Any]] = []
    tuned = cells[cells["system"] == TUNED]
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


def varied(cells: pd.DataFrame, name: str) -> pd.DataFrame:
    """Means of templates or of α over one space, all else being the same.

    Beside them what the paper has: P@1 of the template, λ of its main encoder at that α.
    """
    tuned = cells[cells["system"] == TUNED]
    defaults = cells[cells["default"]].set_index("cell")["p@1"]
    tuned = tuned.assign(default_system=tuned["cell"].map(defaults))
    rows = []
    for _, own in groups(tuned, [*SPACE_OF, *(other for other in VARIANT if other != name)]):
        found = _common({value: part for (value,), part in groups(own, [name])})
        for value, part in found.items() if len(found) > 1 else ():
            one, means = part.iloc[0], part[["lambda", "p@1", "gain", "default_system"]].mean()
            published = None
            if name == "template":
                published = paper.figure("templates", "5k", "c2", value)
            elif paper.paper_encoder(one["encoder"]) in ("", paper.MAIN_ENCODER):
                where = one["dataset"], one["setup"], one["space"]
                published = paper.lambda_value(*where, alpha=value)
            title, text = _title(part, one["encoder"]), TEMPLATES.get(value, "")
            row = {"title": title, "text": text, "published": published, "directions": len(part)}
            rows.append({**one, **means, **row})
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
    outcomes = units["outcome"]
    timed = outcomes.map(lambda one: one["seconds"].get("scorers", {}).get("cross-encoder"))
    found = units.assign(
        total=outcomes.map(lambda one: one["seconds"].get("total")).astype(float) / 3600,
        timed=timed.astype(float),
        scored=outcomes.map(lambda one: one["pairs_scored"]).where(timed > 0),
    )
    found = found.groupby(["encoder", "setup", "space", "space_mode"], observed=True).agg(
        space_name=("space_name", "first"),
        units=("key", "size"),
        untimed=("timed", lambda timed: timed.isna().sum()),
        fit=("seconds_fit", "mean"),
        score=("seconds_score", "mean"),
        hours=("total", "sum"),
        timed=("timed", "sum"),
        scored=("scored", "sum"),
    )
    return found.assign(speed=found["scored"] / found["timed"]).reset_index()


def machines(units: pd.DataFrame) -> pd.DataFrame:
    """Each combination of machine and versions, with the number of its units."""

    def text(known: dict[str, Any] | None) -> str:
        return ", ".join(f"{name} {value}" for name, value in (known or {}).items()) or NOTHING

    return units[["machine", "versions"]].map(text).value_counts().reset_index()


def files(units: pd.DataFrame) -> pd.DataFrame:
    """SHA-256 of the files that were read."""
    found = set()
    for one in units["outcome"]:
        unit, data = one["unit"], one["data"]
        pair, whose = f"{unit['source']}-{unit['target']}", dataset_name(unit["dataset"])
        kind = f"space of files, {pair} {unit['setup']}" if unit["space"] == FILES else "vectors"
        names = {side: f"{kind}, {unit[side]}" for side in ("source", "target", "pivot")}
        names |= {"seeds": f"seeds, {pair} {unit['setup']}", "test": f"test, {pair}"}
        found |= {(whose, names.get(name, name), one) for name, one in data.items() if one}
    return pd.DataFrame(sorted(found), columns=["Data set", "What", "SHA-256"])


def remarks(units: pd.DataFrame) -> pd.Series:
    """What was said of some units, with their names."""
    names = units["pair"] + " " + units["setup"].astype(str) + " " + units["space_name"]
    return units.assign(name=names).explode("remarks").groupby("remarks")["name"].unique()


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


# Pictures


def pictures(
    units: pd.DataFrame, main: pd.DataFrame, alphas: pd.DataFrame
) -> dict[str, list[dict[str, Any]]]:
    """Name, title, SVG, and what it is the mean of, of each picture; by kind."""
    drawn: dict[str, list[dict[str, Any]]] = {"before-after": [], "lambda": [], "alpha": []}
    taken: Counter[str] = Counter()

    def add(kind: str, parts: Sequence[str], title: str, svg: str, of: str) -> None:
        name = re.sub(r"[^a-z0-9.]+", "-", "-".join([kind, *parts]).lower()).strip("-.")[:80]
        taken[name] += 1
        file = f"{name}-{taken[name]}" if taken[name] > 1 else name
        drawn[kind].append({"name": file, "title": title, "svg": svg, "of": of})

    before = main[main["system"] == SPACE].set_index("cell")["p@1"]
    after = main[main["default"] | (main["system"] == TUNED)].sort_values("default")
    after = after.drop_duplicates("cell", keep="last")
    after = after.assign(before=after["cell"].map(before)).dropna(subset="before")
    for key, own in groups(after, ["dataset", "encoder"]):
        title = f"{dataset_name(key[0])}, {key[1]}"
        setups = groups(own, ["setup"])
        dots = {setup: part[["before", "p@1"]].to_numpy() for (setup,), part in setups}
        add("before-after", key, title, plots.before_after(dots, title), plural(len(own), "setup"))

    by = ["dataset", "encoder", "system", "setup"]
    for (dataset, encoder, system, setup), own in groups(_curves(units, main), by):
        key = (dataset, setup, encoder, system)
        title = f"{dataset_name(key[0])} {', '.join(key[1:])}"
        spaces = groups(own, ["space", "space_name"])
        lines = [_mean_curve(name, part["measured"]) for (_, name), part in spaces]
        svg = plots.curves(lines, title, "λ", "P@1 on held-out words, %")
        add("lambda", key, title, svg, plural(len(own), "unit"))

    by = ["dataset", "setup", "encoder", "template"]
    for key, own in groups(alphas, by) if len(alphas) else ():
        title = f"{dataset_name(key[0])} {', '.join(key[1:])}"
        spaces = groups(own, ["space", "title", "space_name"])
        lines = [plots.Curve(name, one["alpha"], one["p@1"]) for (*_, name), one in spaces]
        svg = plots.curves(lines, title, "α", "P@1 on test words, %")
        counts = " or ".join(map(str, sorted(own["directions"].unique())))
        add("alpha", key, title, svg, f"{counts} directions")
    return drawn


def _curves(units: pd.DataFrame, main: pd.DataFrame) -> pd.DataFrame:
    """λ curves of the paper's method and the default: a row for each unit of the main cells."""
    key = [*SPACE_OF, *VARIANT]
    rows = [
        {**unit, "system": name, "measured": found}
        for unit in units.merge(main[key].drop_duplicates(), on=key).to_dict("records")
        for name, found in unit["outcome"]["systems"].items()
        if (name == TUNED or found["default"]) and len(found["curve"]) > 1
    ]
    return in_order(pd.DataFrame(rows, columns=[*units, "measured"]))


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
    values = report_values(*read(folder), Results(folder).commands())
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
    counted = {"tally": tally(main, setups), "others": len(cells) - len(main)}
    values = {"table": table, "main": main, "setups": setups, "remarks": remarks(units)}
    return render("benchmark/summary.j2", **values, **counted).strip()


def report_values(
    units: pd.DataFrame,
    failed: pd.DataFrame,
    replaced: int,
    cells: pd.DataFrame,
    commands: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything that ``report.j2`` shows; ``commands``: those that the user typed."""
    everything = pd.concat([units, failed])
    known = everything[everything["dataset"] != ""]
    values = {
        "units": units,
        "failed": failed,
        "replaced": replaced,
        "cells": cells,
        "datasets": sorted(known["dataset"].unique(), key=ORDER["dataset"]),
        "machines": machines(everything),
        "commands": commands,
        "pictures": {},
        "variant": VARIANT,
        "dataset_name": dataset_name,
    }
    if not len(cells):
        return values
    main, alphas = main_cells(cells), varied(cells, "alpha")
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
        "paper_setups": paper.paired_setups(),
        "paper_gains": [paper.setups_of(*key)["gain"].mean() for key in setups],
        "remarks": remarks(units),
        "mixed": sorted(mixed.items(), key=lambda item: ORDER["system"](item[0])),
        "controls": controls(main),
        "main_tables": list(main_tables(main)),
        "unlike_paper": unlike_paper(units),
        "ablations": ablations(cells, main),
        "encoders": encoder_ablation(main),
        "templates": varied(cells, "template"),
        "alphas": alphas,
        "lambdas": lambdas(main),
        "not_run": [key for key, _ in tables if key not in ours],
        "twice": cells.drop_duplicates("cell").duplicated([*PLACE, *VARIANT]).sum(),
        "times": times(units),
        "files": files(units),
        "pictures": pictures(units, main, alphas),
    }
