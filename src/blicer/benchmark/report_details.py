"""Every cell, λ, times, failures, and what it all was measured on."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from blicer.benchmark import paper
from blicer.benchmark.report_cells import SPACE, TUNED, Cell, Scores, setup_order, share
from blicer.benchmark.report_document import (
    NOTHING,
    Block,
    Folded,
    Group,
    Item,
    Row,
    Table,
    Text,
    p_text,
    percent,
    plural,
    points,
    with_spread,
)
from blicer.benchmark.report_layout import arrow, dataset_name, space_name, space_order
from blicer.benchmark.report_runs import Run, Variant, clean
from blicer.benchmark.report_tally import column_order
from blicer.benchmark.significance import LEVEL

CROSS_ENCODER = "cross-encoder"
_SCORERS = {"untuned": "the encoder before training", CROSS_ENCODER: "the tuned encoder"}
_SYSTEM_ORDER = (SPACE, "A", "B", "untuned", TUNED)


def varying_names(variants: Sequence[Variant]) -> list[str]:
    """The parts of a variant that are not the same everywhere, and so must be shown."""
    return [
        name
        for name in ("encoder", "template", "alpha", "max_words", "settings")
        if len({getattr(variant, name) for variant in variants}) > 1
    ]


_VARIANT_TITLES = {
    "encoder": "Encoder",
    "template": "Template",
    "alpha": "α",
    "max_words": "Words",
    "settings": "Settings",
}


def variant_texts(variant: Variant, names: Sequence[str]) -> list[str]:
    shown = {
        "encoder": variant.encoder,
        "template": variant.template,
        "alpha": f"{variant.alpha:g}",
        "max_words": f"{variant.max_words:,}",
        "settings": variant.settings,
    }
    return [shown[name] for name in names]


def every_cell(cells: Sequence[Cell]) -> list[Block]:
    """A row for each cell and system; what all cells share is said once, above."""
    names = varying_names([cell.variant for cell in cells])
    several = len({cell.place.dataset for cell in cells}) > 1
    pivots = len({cell.place.pivot for cell in cells if cell.place.pivot}) > 1
    words = ["Direction", "Setup", "Space", "System"]
    words += ["Data set"] * several + ["Pivot"] * pivots
    words += [_VARIANT_TITLES[name] for name in names]
    numbers = ["P@1", "Gain", "95 % low", "95 % high", "p", "P@5", "MRR", "P@1 of all"]
    numbers += ["Words", "Coverage", "λ"]
    rows: list[Row] = []
    for cell in sorted(cells, key=_cell_order):
        place = cell.place
        for system in sorted(cell.systems, key=_system_order):
            row: list[Item | str] = [
                arrow(place.direction),
                place.setup,
                space_name(place.space, place.space_mode, place.setup),
                Item(system, "default" if system == cell.default else ""),
            ]
            row += [dataset_name(place.dataset)] * several + [place.pivot] * pivots
            row += variant_texts(cell.variant, names)
            rows.append([*row, *_figures(cell.systems[system])])
    fixed = [name for name in _VARIANT_TITLES if name not in names]
    shared = ", ".join(
        f"{_VARIANT_TITLES[name].lower()} {text}"
        for name in fixed
        if (text := variant_texts(cells[0].variant, [name])[0])
    )
    intro = (
        "P@1, P@5 and MRR in per cent, over the test words that are in the vocabularies; P@1 of "
        "all: over all test words; coverage: the share of them in the vocabularies. Gain: points "
        "of P@1 over the space alone, with its 95 % interval and p-value (paired bootstrap). "
        "All systems order the same candidates; what is not among them counts as absent in P@5 "
        "and MRR."
    )
    if shared:
        intro += f" The same in all rows: {shared}."
    if any(len(one.by_seed) > 1 for cell in cells for one in cell.systems.values()):
        intro += " ±: standard deviation over the training seeds; intervals are their means."
    table = Table([*words, *numbers], rows, texts=len(words), sortable=True)
    return [Text(intro, soft=True), table, *_other_data(cells)]


def _other_data(cells: Sequence[Cell]) -> list[Block]:
    counts = Counter((cell.place, cell.variant) for cell in cells)
    twice = sum(count > 1 for count in counts.values())
    if not twice:
        return []
    what = plural(twice, "cell is", "cells are")
    return [Text(f"{what} there more than once, measured on data files of different contents.")]


def _cell_order(cell: Cell) -> tuple[object, ...]:
    place = cell.place
    return (
        *(column_order((place.dataset, place.setup)), place.pivot, place.pair, place.direction),
        *(space_order(place.space), place.space_mode, cell.variant, cell.data),
    )


def _system_order(name: str) -> tuple[int, str]:
    known = name in _SYSTEM_ORDER
    return (_SYSTEM_ORDER.index(name) if known else len(_SYSTEM_ORDER), name)


def _figures(scores: Scores) -> list[Item | str]:
    first, gain, p = scores.first, scores.gain, scores.p_value
    low, high = scores.mean("low"), scores.mean("high")
    tone = "" if gain is None or p is None or p >= LEVEL else "good" if gain > 0 else "bad"
    coverage = first.queries / first.all_queries if first.all_queries else None
    lam = scores.mean("share")

    def shown(name: str, sign: str = "") -> Item:
        mean = scores.mean(name)
        text = with_spread(percent(mean, 1, sign), scores.spread(name))
        return Item(text, value=mean, tone=tone if name == "gain" else "")  # type: ignore[arg-type]

    return [
        shown("p1"),
        shown("gain", "+"),
        Item(percent(low, 1, "+"), value=low),
        Item(percent(high, 1, "+"), value=high),
        Item(p_text(p), value=p),
        shown("p5"),
        shown("mrr"),
        shown("p1_all"),
        Item(f"{first.queries:,}", value=first.queries),
        Item(percent(coverage), value=coverage),
        Item(points(lam, 2), value=lam),
    ]


def systems_text(runs: Sequence[Run]) -> str:
    """What each system is, in a sentence."""
    found: dict[str, str] = {}
    for run in runs:
        for name, system in run.systems.items():
            scorers = system.get("scorers")
            if isinstance(scorers, list | tuple) and scorers:
                found[name] = " and ".join(_SCORERS.get(one, one) for one in map(clean, scorers))
    shown = "; ".join(f"{name}: {found[name]}" for name in sorted(found, key=_system_order))
    return f"What each system mixes with CSLS: {shown}." if shown else ""


def lambda_table(runs: Sequence[Run]) -> Table | None:
    """λ of the paper's method, ours chosen on held-out seeds, beside the paper's."""
    groups: dict[tuple[str, str, str, str, str], list[float]] = {}
    for run in runs:
        lam = share(run.systems.get(TUNED, {}).get("weights"))
        if lam is not None:
            key = (run.dataset, run.setup, run.space, run.space_mode, run.variant.encoder)
            groups.setdefault(key, []).append(lam)
    rows: list[Row | Group] = []
    last = ("", "")
    for key in sorted(groups, key=lambda key: (column_order(key[:2]), space_order(key[2]))):
        dataset, setup, space, mode, encoder = key
        if (dataset, setup) != last:
            rows.append(Group(f"{dataset_name(dataset)} {setup}"))
            last = (dataset, setup)
        found = groups[key]
        known = paper.paper_encoder(encoder) or paper.MAIN_ENCODER
        published = paper.lambda_value(dataset, setup, space, known)
        rows.append(
            [
                space_name(space, mode, setup),
                encoder,
                points(statistics.fmean(found), 2),
                f"{min(found):.2f} to {max(found):.2f}" if len(found) > 1 else NOTHING,
                f"{len(found):,}",
                Item(points(published, 2), "" if published is None else paper.ENCODERS[known]),
            ]
        )
    head = ["Space", "Encoder", "λ, mean", "Lowest to highest", "Units", "The paper's λ"]
    return Table(head, rows, texts=2) if rows else None


def times(runs: Sequence[Run]) -> list[Block]:
    """Seconds a unit: space and training, scoring of the test words."""
    groups: dict[tuple[str, str, str, str], list[Run]] = {}
    for run in runs:
        if run.seconds:
            key = (run.variant.encoder, run.setup, run.space, run.space_mode)
            groups.setdefault(key, []).append(run)
    if not groups:
        return []
    rows: list[Row] = []
    for key in sorted(groups, key=lambda key: (key[0], setup_order(key[1]), space_order(key[2]))):
        encoder, setup, space, mode = key
        found = groups[key]
        fit, score = (sum(run.seconds.get(name, 0) for run in found) for name in ("fit", "score"))
        known = [run for run in found if run.scorer_seconds.get(CROSS_ENCODER)]
        scored = sum(run.scorer_seconds[CROSS_ENCODER] for run in known)
        speed = sum(run.pairs_scored for run in known) / scored if scored else None
        rows.append(
            [
                encoder,
                setup,
                space_name(space, mode, setup),
                f"{len(found):,}",
                f"{fit / len(found):,.1f}",
                f"{score / len(found):,.1f}",
                NOTHING if not speed else f"{speed:,.0f}",
                f"{sum(run.seconds.get('total', 0) for run in found) / 3600:.2f}",
            ]
        )
    total = sum(run.seconds.get("total", 0) for run in runs) / 3600
    head = ["Encoder", "Setup", "Space", "Units", "Space and training, s", "Scoring, s"]
    head += ["Cross-encoder, pairs/s", "All units, h"]
    text = (
        "Seconds are means a unit (both directions); space and training: with the folds that λ is "
        "chosen on, and as if nothing had been there before; scoring: of the test words, by all "
        f"systems that were asked for. All units together: {total:.2f} hours of computing. The "
        "paper gives 10 minutes of training and 3 of evaluation for XLM-R-large on one A100 GPU."
    )
    if earlier := sum(not run.scorer_seconds for run in runs):
        text += (
            f" In {plural(earlier, 'unit')} scorers were not timed one by one, and C2's time may "
            "be without that of the C1 under it."
        )
    return [Table(head, rows, texts=3), Text(text, soft=True)]


def failures(failed: Sequence[Run]) -> list[Block]:
    if not failed:
        return [Text("No unit failed.")]
    names = varying_names([run.variant for run in failed])
    head = ["Data set", "Pair", "Setup", "Space", *(_VARIANT_TITLES[name] for name in names)]
    rows = [
        [
            *(dataset_name(run.dataset), run.pair if run.source or run.target else NOTHING),
            *(run.setup, space_name(run.space, run.space_mode, run.setup)),
            *variant_texts(run.variant, names),
            *(f"{run.training_seed}", run.error),
        ]
        for run in failed
    ]
    head += ["Training seed", "Why"]
    what = plural(len(failed), "unit failed and is", "units failed and are")
    return [Text(f"{what} in no figure of this report."), Table(head, rows, texts=len(head))]


def dropped(runs: Sequence[Run]) -> list[Block]:
    counts = Counter((system, why) for run in runs for system, why in run.dropped.items())
    return [
        Text(f"The system {system} was not measured in {plural(count, 'unit')}: {why}")
        for (system, why), count in sorted(counts.items())
    ]


def remarks(runs: Sequence[Run]) -> list[Block]:
    """What was said of some units, with their names."""
    found: dict[str, list[str]] = {}
    for run in runs:
        name = f"{run.pair} {run.setup} {space_name(run.space, run.space_mode, run.setup)}"
        for remark in run.remarks:
            found.setdefault(remark, []).append(name)
    return [
        Text(f"{remark[0].upper()}{remark[1:]} ({', '.join(dict.fromkeys(units))}).")
        for remark, units in sorted(found.items())
        if remark
    ]


def machines(runs: Sequence[Run]) -> Table:
    """Each combination of machine and versions, with the number of its units."""
    counts = Counter((tuple(run.machine.items()), tuple(run.versions.items())) for run in runs)
    rows: list[Row] = []
    for (machine, versions), count in counts.most_common():
        rows.append(
            [
                ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine)
                or NOTHING,
                ", ".join(f"{name} {value}" for name, value in versions) or NOTHING,
                f"{count:,}",
            ]
        )
    return Table(["Machine", "Versions", "Units"], rows, texts=2)


def digests(runs: Sequence[Run]) -> Folded | None:
    """SHA-256 of the files that were read."""
    found: dict[tuple[str, str, str], None] = {}
    for run in runs:
        languages = {"source": run.source, "target": run.target, "pivot": run.pivot}
        for name, digest in run.data.items():
            what = f"{name}, {run.pair}"
            if name in languages:
                what = f"vectors, {languages[name]}"
                if run.space == "files":
                    what = f"space of files, {run.pair} {run.setup}, {languages[name]}"
            elif name == "seeds":
                what = f"seeds, {run.pair} {run.setup}"
            if digest:
                found[dataset_name(run.dataset), what, digest] = None
    rows = [list(row) for row in sorted(found)]
    if not rows:
        return None
    title = (
        f"SHA-256 of the data, {plural(len(rows), 'file')} (where one is two, as a matrix and its "
        "list of words: of their two SHA-256, a line each)"
    )
    return Folded(title, Table(["Data set", "What", "SHA-256"], rows, texts=3))
