"""Setups won of all, mean gains and how sure they are, beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from blicer.benchmark import paper
from blicer.benchmark.report_cells import SPACE, Cell
from blicer.benchmark.report_document import (
    NOTHING,
    Block,
    Card,
    Cards,
    Heading,
    Item,
    Row,
    Table,
    Text,
    percent,
    plural,
    points,
    with_spread,
)
from blicer.benchmark.report_layout import dataset_name
from blicer.benchmark.report_tally import (
    Column,
    Tally,
    column_of,
    column_order,
    encoders_in_order,
    methods_of,
    systems_of,
    tally,
)
from blicer.benchmark.setups import FILES
from blicer.benchmark.significance import LEVEL
from blicer.benchmark.systems import BOOTSTRAP

FEW_WORDS = 200  # of a test dictionary: an interval of some seven points either way


def headline(cells: Sequence[Cell]) -> list[Block]:
    """``cells``: one variant of each setup (``main_cells``)."""
    encoders = encoders_in_order(cells)
    blocks: list[Block] = []
    rows: list[Row] = []
    columns = sorted({column_of(cell) for cell in cells}, key=column_order)
    notes = []
    for encoder in encoders:
        own = [cell for cell in cells if cell.variant.encoder == encoder]
        for label, choose in systems_of(own):
            found = tally(own, choose)
            if not found.all:
                continue
            name = f"{label} ({encoder})" if len(encoders) > 1 else label
            if not rows:
                blocks.append(_cards(label, encoder, found))
            rows.append(_row(name, found, columns))
            notes += _holm_note(name, found)
    if not rows:
        return [Text("No system was measured beside its space alone, so there are no gains.")]
    rows.append(_paper_row(columns))
    head = ["System", "Won", "Level", "Lost", "p < 0.05", "Holm", "Worse, p < 0.05"]
    head += [_title(column, columns) for column in columns]
    blocks += [
        Table(head, rows),
        Text(_explanation(cells, encoders), soft=True),
        Text(coverage_text(cells)),
        *dict.fromkeys(notes),
        *_shared(cells, encoders[0], columns),
    ]
    return blocks


def _title(column: Column, columns: Sequence[Column]) -> str:
    several = len({dataset for dataset, _ in columns}) > 1
    return f"Gain {_shown(column, several=several)}"


def _shown(column: Column, *, several: bool) -> str:
    return f"{dataset_name(column[0])} {column[1]}" if several else column[1]


def _cards(label: str, encoder: str, found: Tally) -> Cards:
    published = paper.paired_setups()
    won = sum(one.gain > 0 for one in published)
    several = len({dataset for dataset, _ in found.means}) > 1
    cards = [
        Card(
            f"Setups won by {label}, with {encoder}",
            f"{found.won:,} of {found.all:,}",
            [
                f"significant (p < 0.05): {found.significant:,}; "
                f"after Holm's correction: {found.significant_holm:,}",
                f"the paper: {won} of {len(published)}",
            ],
            "good" if found.won > found.lost else "bad",
        )
    ]
    for (dataset, setup), mean in found.means.items():
        beside = paper.mean_gain(dataset, setup)
        lines = [f"mean of {plural(mean.cells, 'setup')}"]
        if mean.spread is not None:
            lines[0] += f", ± {percent(mean.spread, 2)} over {found.seeds} training seeds"
        if beside is not None:
            lines.append(f"the paper: {points(beside, 2, '+')}")
        cards.append(
            Card(
                f"Points of P@1 gained, {_shown((dataset, setup), several=several)}",
                percent(mean.value, 2, "+"),
                lines,
                "good" if mean.value > 0 else "bad",
            )
        )
    return Cards(cards)


def _row(name: str, found: Tally, columns: Sequence[Column]) -> Row:
    means = [found.means.get(column) for column in columns]
    return [
        name,
        Item(f"{found.won:,} of {found.all:,}", tone="strong"),
        f"{found.level:,}",
        f"{found.lost:,}",
        f"{found.significant:,}",
        f"{found.significant_holm:,}",
        f"{found.significant_losses:,}",
        *(
            with_spread(percent(mean.value, 2, "+"), mean.spread, 2) if mean else NOTHING
            for mean in means
        ),
    ]


def _paper_row(columns: Sequence[Column]) -> Row:
    published = paper.paired_setups()
    return [
        Item("The paper, XLM-R-large", tone="soft"),
        f"{sum(one.gain > 0 for one in published)} of {len(published)}",
        f"{sum(one.gain == 0 for one in published)}",
        f"{sum(one.gain < 0 for one in published)}",
        NOTHING,
        NOTHING,
        NOTHING,
        *(points(paper.mean_gain(*column), 2, "+") for column in columns),
    ]


def _explanation(cells: Sequence[Cell], encoders: Sequence[str]) -> str:
    text = (
        "A setup is a direction, a space and a number of seeds. Gains are points of P@1 over the "
        "space alone with CSLS; p from a paired bootstrap over the test words, two-sided; Holm: "
        "p < 0.05 after correction for all setups of the row. The paper's 232 setups are those of "
        "its two main tables; it gives no significance."
    )
    seeds = {
        seed
        for cell in cells
        for name, one in cell.systems.items()
        if name != SPACE
        for seed in one.by_seed
    }
    if len(seeds) > 1:
        text += (
            f" {len(seeds)} training seeds: a setup is won by its mean gain, ± is the standard "
            "deviation over the seeds, and p is the largest of the seeds' (1 where they differ in "
            "sign)."
        )
    if any(cell.place.space == FILES for cell in cells):
        text += (
            " Spaces read from files are taken as they are: if the seeds made them, the weights "
            "were chosen on words that they know, and trust them too much."
        )
    variants = sorted({(cell.variant.template, cell.variant.alpha) for cell in cells})
    shown = ", ".join(f"{template} with α = {alpha:g}" for template, alpha in variants)
    if shown:
        text += f" Template and α counted here: {shown}."
    if len(encoders) > 1:
        text += f" The figures above are those of {encoders[0]}."
    return text


def _holm_note(name: str, found: Tally) -> list[Text]:
    smallest = found.smallest_p
    if smallest is None or smallest * found.all < LEVEL:
        return []
    text = (
        f"{name}: its smallest p-value, {smallest:.4f}, times {found.all} setups is not below "
        "0.05, so none of them can pass Holm's correction"
    )
    at_the_floor = smallest <= 2 / BOOTSTRAP  # as small as that many draws can show
    text += ": more bootstrap draws could tell." if at_the_floor else "."
    return [Text(text, soft=True)]


def _shared(cells: Sequence[Cell], encoder: str, columns: Sequence[Column]) -> list[Block]:
    """Only the setups that the paper has too: the comparison that is nearest to a fair one."""
    both = []
    for cell in cells:
        place = cell.place
        found = paper.paired_setup(place.dataset, place.setup, place.space, place.direction)
        if found and cell.variant.encoder == encoder:
            both.append((cell, found))
    rows: list[Row] = []
    both_cells = [cell for cell, _ in both]
    for label, choose in methods_of(both_cells):
        counted = [
            (cell, one) for cell, one in both if (got := choose(cell)) and got.gain is not None
        ]
        result = tally([cell for cell, _ in counted], choose)
        if not result.all:
            continue
        published = {
            column: [one.gain for cell, one in counted if column_of(cell) == column]
            for column in columns
        }
        won = sum(one.gain > 0 for _, one in counted)
        rows.append(
            [
                label,
                f"{result.won} of {result.all}",
                f"{won} of {len(counted)}",
                *(
                    Item(
                        percent(mean.value, 2, "+"),
                        points(statistics.fmean(published[column]), 2, "+"),
                    )
                    if (mean := result.means.get(column))
                    else NOTHING
                    for column in columns
                ),
            ]
        )
    if not rows:
        return []
    return [
        Heading("The same directions and spaces as in the paper", 3),
        Table(["System", "Won", "The paper won", *(_title(one, columns) for one in columns)], rows),
        Text(
            "In brackets: the paper's mean gain on the same directions and spaces. The paper "
            "has 200,000 fastText vectors a language and XLM-R-large; here it is "
            f"{vectors_text(both_cells)}, and {encoder}.",
            soft=True,
        ),
    ]


def coverage_text(cells: Sequence[Cell]) -> str:
    """How much of the test dictionaries the figures are of."""
    asked = [next(iter(cell.systems.values())).first for cell in cells if cell.systems]
    words = [one.queries for one in asked]
    shares = [one.queries / one.all_queries for one in asked if one.all_queries]
    if not words or not shares:
        return ""
    text = (
        f"Test words in the vocabularies: {min(words):,} to {max(words):,} a direction, "
        f"{percent(min(shares), 0)} to {percent(max(shares), 0)} % of the dictionaries."
    )
    if min(words) < FEW_WORDS:
        text += (
            f" Fewer than {FEW_WORDS} words tell little: read more of the vectors, or take larger "
            "ones."
        )
    return text


def vectors_text(cells: Sequence[Cell]) -> str:
    """Which word vectors, for a sentence that says that ours are not the paper's."""
    sizes = sorted({cell.variant.max_words for cell in cells if cell.variant.max_words})
    shown = " or ".join(f"{size:,}" for size in sizes)
    return f"up to {shown} of the vectors listed below" if shown else "the vectors listed below"
