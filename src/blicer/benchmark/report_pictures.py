"""The report's pictures: P@1 over λ and over α, and before against after."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from blicer.benchmark.report_ablations import comparable, without_alpha
from blicer.benchmark.report_cells import (
    SPACE,
    TUNED,
    Cell,
    dataset_order,
    setup_order,
    share,
)
from blicer.benchmark.report_document import Picture, plural
from blicer.benchmark.report_drawing import Curve, draw_curves, draw_dots
from blicer.benchmark.report_layout import dataset_name, space_name, space_order
from blicer.benchmark.report_runs import Run, number
from blicer.benchmark.report_tally import the_default


def lambda_pictures(runs: Sequence[Run]) -> list[Picture]:
    """P@1 on held-out words over λ: a picture for each system and setup, a line a space."""
    groups: dict[tuple[str, str, str, str], dict[tuple[str, str], list[Run]]] = {}
    for run in runs:
        for system, found in run.systems.items():
            if system != TUNED and not found.get("default"):
                continue
            if len(_points(found)) > 1:
                key = (run.dataset, run.setup, run.variant.encoder, system)
                spaces = groups.setdefault(key, {})
                spaces.setdefault((run.space, run.space_mode), []).append(run)
    pictures = []
    order = sorted(groups, key=lambda key: (dataset_order(key[0]), key[2:], setup_order(key[1])))
    for dataset, setup, encoder, system in order:
        spaces = groups[dataset, setup, encoder, system]
        curves = [
            _mean_curve(space_name(space, mode, setup), spaces[space, mode], system)
            for space, mode in sorted(spaces, key=lambda key: (space_order(key[0]), key[1]))
        ]
        units = sum(len(found) for found in spaces.values())
        title = f"{dataset_name(dataset)} {setup}, {encoder}, {system}"
        pictures.append(
            Picture(
                _slug("lambda", dataset, setup, encoder, system),
                title,
                partial(draw_curves, curves, title, "λ", "P@1 on held-out words, %", marks=False),
                f"P@1 on held-out words over λ, the share of the score that is not "
                f"CSLS; means of {plural(units, 'unit')}. The mark is the mean of the chosen λ.",
            )
        )
    return pictures


def _points(system: dict[str, Any]) -> list[tuple[float, float]]:
    curve = system.get("curve")
    found = []
    for point in curve if isinstance(curve, list | tuple) else ():
        if isinstance(point, list | tuple) and len(point) == 2:
            lam, value = number(point[0]), number(point[1])
            if lam is not None and value is not None:
                found.append((lam, value))
    return sorted(found)


def _mean_curve(label: str, runs: Sequence[Run], system: str) -> Curve:
    """The mean of the units' curves, each read off at every λ that any of them has."""
    curves = [_points(run.systems[system]) for run in runs]
    grid = sorted({round(lam, 6) for curve in curves for lam, _ in curve})
    values = [
        np.interp(grid, [lam for lam, _ in curve], [value for _, value in curve])
        for curve in curves
    ]
    chosen = [lam for run in runs if (lam := share(run.systems[system].get("weights"))) is not None]
    mean = np.mean(values, axis=0).tolist()
    return Curve(label, grid, mean, statistics.fmean(chosen) if chosen else None)


def alpha_pictures(cells: Sequence[Cell]) -> list[Picture]:
    """P@1 on the test words over α, of the tuned encoder mixed with CSLS."""
    groups: dict[tuple[str, str, str, str], list[Curve]] = {}
    counts: dict[tuple[str, str, str, str], set[int]] = {}
    for (dataset, setup, space, mode), figures, places in comparable(cells, without_alpha):
        ordered = sorted(figures, key=lambda variant: variant.alpha)
        means = [statistics.fmean(figures[one][place] for place in places) for one in ordered]
        alphas = [one.alpha for one in ordered]
        key = (dataset, setup, ordered[0].encoder, ordered[0].template)
        groups.setdefault(key, []).append(Curve(space_name(space, mode, setup), alphas, means))
        counts.setdefault(key, set()).add(len(places))
    pictures = []
    for key in sorted(
        groups, key=lambda key: (dataset_order(key[0]), key[2:], setup_order(key[1]))
    ):
        dataset, setup, encoder, template = key
        title = f"{dataset_name(dataset)} {setup}, {encoder}, {template}"
        places_text = " or ".join(map(str, sorted(counts[key])))
        pictures.append(
            Picture(
                _slug("alpha", dataset, setup, encoder, template),
                title,
                partial(draw_curves, groups[key], title, "α", "P@1 on test words, %", marks=True),
                f"P@1 of the tuned encoder mixed with CSLS on the test words over α; "
                f"means of {places_text} directions. Nothing is chosen by it.",
            )
        )
    return pictures


def before_and_after(cells: Sequence[Cell]) -> list[Picture]:
    """Every setup as a dot: P@1 of the space alone across, of the default system up."""
    groups: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for cell in cells:
        before, after = cell.get(SPACE), the_default(cell) or cell.get(TUNED)
        pair = (before.mean("p1") if before else None, after.mean("p1") if after else None)
        if pair[0] is not None and pair[1] is not None:
            setups = groups.setdefault((cell.place.dataset, cell.variant.encoder), {})
            setups.setdefault(cell.place.setup, []).append((pair[0], pair[1]))
    pictures = []
    for dataset, encoder in sorted(groups, key=lambda key: (dataset_order(key[0]), key[1])):
        setups = groups[dataset, encoder]
        title = f"{dataset_name(dataset)}, {encoder}"
        count = sum(len(found) for found in setups.values())
        ordered = {name: setups[name] for name in sorted(setups, key=setup_order)}
        pictures.append(
            Picture(
                _slug("before-after", dataset, encoder),
                title,
                partial(draw_dots, ordered, title),
                f"{plural(count, 'setup')}, each a dot: P@1 of the space alone, and of "
                "the default system. Above the line the setup is won.",
            )
        )
    return pictures


def _slug(*parts: str) -> str:
    """A file name out of free text; ``distinct_names`` settles what falls together."""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-.")[:80]


def distinct_names(pictures: Sequence[Picture]) -> list[Picture]:
    seen: set[str] = set()
    found = []
    for picture in pictures:
        name, count = picture.name, 1
        while name in seen:
            count += 1
            name = f"{picture.name}-{count}"
        seen.add(name)
        found.append(replace(picture, name=name))
    return found
