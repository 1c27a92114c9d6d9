"""The paper's main tables in the paper's layout: spaces down, directions across, both figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from blicer.benchmark import paper
from blicer.benchmark.dataset import ZERO_SHOT
from blicer.benchmark.report_cells import SPACE, TUNED, Cell
from blicer.benchmark.report_document import (
    Block,
    Heading,
    Item,
    Row,
    Table,
    Text,
    percent,
    points,
)
from blicer.benchmark.report_runs import Run
from blicer.benchmark.report_tally import column_order, encoders_in_order
from blicer.pipeline import usual_mode

BOTH = "Avg. of both"
_SPACE_NAMES = {**paper.SPACES, "procrustes": "Procrustes"}
_DATASET_NAMES = {"xling": "XLING", "panlex": "PanLex-BLI", "muse": "MUSE"}
_SEEDS = {"unsupervised": "no seeds, unsupervised", "zero-shot": "no seeds of the pair, zero-shot"}


def space_name(space: str, mode: str = "", setup: str = "") -> str:
    name = _SPACE_NAMES.get(space, space)
    return f"{name} ({mode})" if mode and mode != setup else name


def space_order(space: str) -> tuple[int, str]:
    known = list(_SPACE_NAMES)
    return (known.index(space) if space in known else len(known), space)


def dataset_name(dataset: str) -> str:
    return _DATASET_NAMES.get(dataset.casefold(), dataset)


def setup_title(setup: str) -> str:
    return _SEEDS.get(setup, f"{setup} seed pairs")


def arrow(direction: str) -> str:
    """``en-fr`` as en→fr; left alone where a language's own name has a hyphen."""
    return direction.replace("-", "→") if direction.count("-") == 1 else direction


@dataclass
class Line:
    """A row to be: our mean fraction and the paper's per cent, by direction."""

    label: str
    space: str
    variant: str  # space, blicer, or a system of ours
    ours: dict[str, float]
    published: dict[str, float]


def by_direction(cells: Iterable[Cell], system: str) -> dict[str, float]:
    """P@1 of a system, the mean where a direction has several cells."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        scores = cell.get(system)
        mean = scores.mean("p1") if scores else None
        if mean is not None:
            found.setdefault(cell.place.direction, []).append(mean)
    return {direction: statistics.fmean(values) for direction, values in found.items()}


def main_tables(cells: Sequence[Cell]) -> list[Block]:
    """One table for each data set and setup of ours."""
    blocks: list[Block] = []
    keys = {(cell.place.dataset, cell.place.setup) for cell in cells}
    for dataset, setup in sorted(keys, key=column_order):
        own = [cell for cell in cells if (cell.place.dataset, cell.place.setup) == (dataset, setup)]
        blocks += _main_table(own, dataset, setup)
    return blocks


def _main_table(cells: Sequence[Cell], dataset: str, setup: str) -> list[Block]:
    lines = _lines(cells, dataset, setup)
    if not lines:
        return []
    title = f"{dataset_name(dataset)}, {setup_title(setup)}"
    blocks: list[Block] = [Heading(title, 3), _table(lines, dataset, setup)]
    text = "P@1, per cent; in bold the best of ours."
    if len({frozenset(line.ours) for line in lines}) > 1:
        text += " Averages are over the directions that a row has: not the same in all rows."
    if any(line.published for line in lines):
        text += (
            " In brackets what the paper has; directions that only it has stand at the end. "
            f"{BOTH}: over the directions that both have."
        )
    missing = [
        name
        for space, name in paper.SPACES.items()
        if _published_line(dataset, setup, space, "alone")
        and space not in {cell.place.space for cell in cells}
    ]
    if missing:
        text += f" Spaces of the paper's that were not run: {', '.join(missing)}."
    blocks.append(Text(text, soft=True))
    if paper.paper_dataset(dataset) == "panlex":
        blocks += _groups(lines, setup)
    return blocks


def _lines(cells: Sequence[Cell], dataset: str, setup: str) -> list[Line]:
    encoders = encoders_in_order(cells)
    lines = []
    for space, mode in sorted(
        {(cell.place.space, cell.place.space_mode) for cell in cells},
        key=lambda key: (space_order(key[0]), key[1]),
    ):
        own = [cell for cell in cells if (cell.place.space, cell.place.space_mode) == (space, mode)]
        alone = _published_line(dataset, setup, space, "alone")
        reranked = _published_line(dataset, setup, space, "reranked")
        name = space_name(space, mode, setup)
        lines.append(Line(name, space, SPACE, by_direction(own, SPACE), alone))
        for encoder in encoders:
            with_it = [cell for cell in own if cell.variant.encoder == encoder]
            ending = f" ({encoder})" if len(encoders) > 1 else ""
            tuned = by_direction(with_it, TUNED)
            lines.append(Line(f"+ BLICEr{ending}", space, "blicer", tuned, reranked))
            for name in sorted({cell.default for cell in with_it} - {"", TUNED}):
                of_default = [cell for cell in with_it if cell.default == name]
                figures = by_direction(of_default, name)
                lines.append(Line(f"+ {name}{ending}", space, name, figures, {}))
    return [line for line in lines if line.ours]


def _published_line(dataset: str, setup: str, space: str, which: str) -> dict[str, float]:
    found = {}
    for direction in paper.directions(dataset, setup):
        one = paper.paired_setup(dataset, setup, space, direction)
        if one is not None:
            found[direction] = one.alone if which == "alone" else one.reranked
    return found


def _table(lines: Sequence[Line], dataset: str, setup: str) -> Table:
    """The paper's directions that we have too, ours alone, averages, the paper's alone."""
    known = {direction for line in lines for direction in line.published}
    published = [one for one in paper.directions(dataset, setup) if one in known]
    measured = {direction for line in lines for direction in line.ours}
    ours = [one for one in published if one in measured]
    ours += sorted(measured.difference(published))
    others = [one for one in published if one not in measured]
    averages = ["Avg.", BOTH] if published else ["Avg."]
    head = ["P@1", *map(arrow, ours), *averages, *map(arrow, others)]
    best = {one: max(line.ours[one] for line in lines if one in line.ours) for one in ours}
    rows: list[Row] = []
    for line in lines:
        row = [
            _item(
                line.ours.get(one),
                line.published.get(one),
                best=len(lines) > 1 and line.ours.get(one) == best[one],
            )
            for one in ours
        ]
        row += _averages(line, dataset, setup)[: len(averages)]
        row += [_item(None, line.published.get(one)) for one in others]
        rows.append([_label(line), *row])
    return Table(head, rows)


def _averages(line: Line, dataset: str, setup: str) -> list[Item]:
    """Over each one's own directions, and over those that both have."""
    average = _mean(line.published.values())
    if average is not None:
        printed = paper.average(dataset, setup, line.space, line.variant)
        average = average if printed is None else printed
    both = [one for one in line.ours if one in line.published]
    return [
        _item(_mean(line.ours.values()), average),
        _item(_mean(line.ours[one] for one in both), _mean(line.published[one] for one in both)),
    ]


def _label(line: Line) -> Item:
    return Item(line.label, tone="strong" if line.variant == SPACE else "")


def _item(ours: float | None, published: float | None, *, best: bool = False) -> Item:
    if ours is None and published is None:
        return Item("")
    note = "" if published is None else points(published, 2)
    return Item(percent(ours, 2), note, ours, "strong" if best else "soft" if ours is None else "")


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.fmean(found) if found else None


def _groups(lines: Sequence[Line], setup: str) -> list[Block]:
    """PanLex-BLI as the paper's main text has it: each language as source and as target."""
    languages = list(
        dict.fromkeys(
            language
            for direction in (*paper.directions("panlex", setup), *_all_directions(lines))
            for language in direction.split("-")
        )
    )
    rows: list[Row] = []
    for line in lines:
        row: list[Item | str] = [_label(line)]
        for language in languages:
            for pattern, matches in _patterns(language):
                ours = _mean(value for place, value in line.ours.items() if matches(place))
                found = paper.figure("panlex-grouped", setup, line.space, line.variant, pattern)
                row.append(_item(ours, found))
        rows.append(row)
    head = ["P@1", *(f"{a}→{b}" for one in languages for a, b in ((one, "*"), ("*", one)))]
    text = (
        "The same by language: the mean over the directions from it and to it; ours over those "
        "that were run, the paper's over its five."
    )
    return [Table(head, rows), Text(text, soft=True)]


def _all_directions(lines: Sequence[Line]) -> list[str]:
    return sorted({direction for line in lines for direction in line.ours})


def _patterns(language: str) -> list[tuple[str, Callable[[str], bool]]]:
    return [
        (f"{language}-*", lambda place: place.startswith(f"{language}-")),
        (f"*-{language}", lambda place: place.endswith(f"-{language}")),
    ]


def other_spaces(runs: Sequence[Run]) -> str:
    """Where a space of ours that stands beside the paper's is not made as the paper's is."""
    said: set[str] = set()
    for run in runs:
        if run.space == "c2" and run.setup != ZERO_SHOT:
            encoder = run.space_settings.get("encoder", "lite")
            if paper.paper_encoder(encoder) != "mbert":
                said.add(f"C2 mixes in {encoder} here, mBERT in the paper")
        mode = run.space_mode or usual_mode(run.space, run.preset)
        if (run.space, run.preset, mode) == ("vecmap", "semi_supervised", "supervised"):
            said.add(f"VecMap with {run.setup} is the closed form, self-learning in the paper")
    return f"Not made alike: {'; '.join(sorted(said))}." if said else ""


def not_run(cells: Sequence[Cell]) -> list[str]:
    """The paper's main tables of which nothing was run."""
    ours = {(paper.paper_dataset(cell.place.dataset), cell.place.setup) for cell in cells}
    tables = [("xling", "5k"), ("xling", "1k"), ("panlex", "1k")]
    tables += [("xling", "unsupervised"), ("xling", "zero-shot")]
    return [
        f"{dataset_name(dataset)} {setup}"
        for dataset, setup in tables
        if (dataset, setup) not in ours
    ]
