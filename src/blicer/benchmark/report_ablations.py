"""The paper's ablations: off-the-shelf encoder, no template, encoders, templates, α.

Rows of one table are means over the same directions: those that all of its rows have.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from blicer.benchmark import paper
from blicer.benchmark.report_cells import (
    SPACE,
    TUNED,
    UNTUNED,
    Cell,
    Place,
    main_cells,
)
from blicer.benchmark.report_document import (
    NOTHING,
    Block,
    Group,
    Heading,
    Item,
    Row,
    Table,
    Text,
    percent,
    plural,
    points,
)
from blicer.benchmark.report_layout import dataset_name, space_name, space_order
from blicer.benchmark.report_runs import Variant
from blicer.benchmark.report_tally import (
    Choice,
    column_order,
    encoders_in_order,
    system,
    the_default,
)
from blicer.templates import TEMPLATES

NO_TEMPLATE, PAPERS_TEMPLATE = "T1", "T15"
_HUB = "en"  # the paper's averages are of directions from and to English
Key = tuple[str, str, str, str]  # data set, setup, space and its mode
Published = Callable[[str], float | None]  # by en-*, *-en or average


def _nothing(direction: str) -> float | None:
    return None


@dataclass(frozen=True)
class Contender:
    """One row to be."""

    label: str
    cells: Sequence[Cell]
    choose: Choice
    published: Published = _nothing
    extra: Sequence[str] = field(default=())

    def figures(self) -> dict[Place, float]:
        found = {}
        for cell in self.cells:
            scores = self.choose(cell)
            mean = scores.mean("p1") if scores else None
            if mean is not None:
                found[cell.place] = mean
        return found


def common_places(figures: Iterable[dict[Place, float]]) -> set[Place]:
    """The places that all have; those of none are left out of the comparison by the caller."""
    several = [set(found) for found in figures]
    return set.intersection(*several) if several else set()


def ablations(cells: Sequence[Cell]) -> tuple[list[Block], list[str]]:
    """The sections for which there are figures of ours, and the names of the others."""
    blocks: list[Block] = []
    missing = []
    for title, make, text in (
        ("Off-the-shelf encoder and no template", _parts, _PARTS_TEXT),
        ("Encoders", _encoders, _ENCODERS_TEXT),
        ("Templates", _templates, _TEMPLATES_TEXT),
        ("α, how far the labels are polarised", _alphas, _ALPHAS_TEXT),
    ):
        table = make(cells)
        if table is None:
            missing.append(title[0].lower() + title[1:])
        else:
            blocks += [Heading(title, 3), table, Text(text, soft=True)]
    return blocks, missing


_PARTS_TEXT = (
    "P@1, per cent; in brackets what the paper has (XLM-R-large, XLING, 14 directions). "
    "Off-the-shelf: the encoder before any training; without template: the bare word (T1)."
)
_ENCODERS_TEXT = "P@1, per cent, of CSLS mixed with the tuned encoder; in brackets the paper's."
_TEMPLATES_TEXT = (
    "P@1, per cent, of CSLS mixed with the tuned encoder. The paper's figures are for XLM-R-large "
    "over C2, XLING 5k, 14 directions."
)
_ALPHAS_TEXT = (
    "P@1, per cent, of CSLS mixed with the tuned encoder; α = 0: labels 0 and 1, α = 1: the scaled "
    "CSLS itself. The paper shows P@1 over α as a picture only; its λ (XLM-R-large) is printed."
)


def _places(cells: Sequence[Cell]) -> list[tuple[Key, list[Cell]]]:
    """Cells by data set, setup, space and its mode, in the order of the report."""
    groups: dict[Key, list[Cell]] = {}
    for cell in cells:
        at = cell.place
        groups.setdefault((at.dataset, at.setup, at.space, at.space_mode), []).append(cell)
    return sorted(
        groups.items(), key=lambda one: (column_order(one[0][:2]), space_order(one[0][2]))
    )


def group_title(key: Key, places: int, *more: str) -> str:
    dataset, setup, space, mode = key
    parts = [f"{dataset_name(dataset)} {setup}", space_name(space, mode, setup), *more]
    return f"{', '.join(parts)}: {plural(places, 'direction')}"


def _parts(cells: Sequence[Cell]) -> Table | None:
    rows: list[Row | Group] = []
    main = {id(cell) for cell in main_cells(cells)}
    for key, own in _places(cells):
        for encoder in encoders_in_order(own):
            chosen = [c for c in own if c.variant.encoder == encoder and id(c) in main]
            bare = _with_template(own, chosen, NO_TEMPLATE)
            dressed: Sequence[Cell] = chosen
            if chosen and chosen[0].variant.template == NO_TEMPLATE:
                dressed = _with_template(own, chosen, PAPERS_TEMPLATE)
            name = dressed[0].variant.template if dressed else ""
            contenders = [
                Contender("The space alone", chosen, system(SPACE), _table(key, SPACE)),
                Contender("+ off-the-shelf", chosen, system(UNTUNED), _table(key, "off-the-shelf")),
                Contender("+ BLICEr, no template", bare, system(TUNED), _table(key, "no-template")),
                Contender(f"+ BLICEr, {name}", dressed, system(TUNED), _table(key, "blicer")),
            ]
            found = [one for one in contenders if one.figures()]
            if len(found) > 2:
                rows += _compared(key, found, encoder)
    return _english_table(rows)


def _table(key: Key, variant: str, table: str = "ablation") -> Published:
    dataset, setup, space, _ = key
    if paper.paper_dataset(dataset) != "xling":
        return _nothing
    return lambda direction: paper.figure(table, setup, space, variant, direction)


def _with_template(cells: Sequence[Cell], chosen: Sequence[Cell], template: str) -> Sequence[Cell]:
    """The cells that differ from the chosen ones in the template alone."""
    wanted = {replace(cell.variant, template=template) for cell in chosen}
    return [cell for cell in cells if cell.variant in wanted]


def _encoders(cells: Sequence[Cell]) -> Table | None:
    rows: list[Row | Group] = []
    for key, own in _places(main_cells(cells)):
        encoders = encoders_in_order(own)
        if len(encoders) < 2:
            continue
        contenders = [Contender("The space alone", own, system(SPACE), _table(key, SPACE))]
        for encoder in sorted(encoders):
            with_it = [cell for cell in own if cell.variant.encoder == encoder]
            variant = paper.paper_encoder(encoder)
            published = _table(key, variant, "encoders") if variant else _nothing
            contenders.append(Contender(f"+ {encoder}", with_it, system(TUNED), published))
        rows += _compared(key, [one for one in contenders if one.figures()])
    return _english_table(rows)


def _english_table(rows: Sequence[Row | Group]) -> Table | None:
    head = ["P@1", f"{_HUB}→*", f"*→{_HUB}", "Avg. of these", "All directions"]
    return Table(head, rows) if rows else None


def _compared(key: Key, contenders: Sequence[Contender], *more: str) -> list[Row | Group]:
    """Rows over the directions that all contenders have; none if there is no such direction."""
    figures = [one.figures() for one in contenders]
    places = common_places(figures)
    if not places:
        return []
    rows: list[Row | Group] = [Group(group_title(key, len(places), *more))]
    for contender, found in zip(contenders, figures, strict=True):
        ours = {place: value for place, value in found.items() if place in places}
        from_hub = [v for place, v in ours.items() if place.direction.startswith(f"{_HUB}-")]
        to_hub = [v for place, v in ours.items() if place.direction.endswith(f"-{_HUB}")]
        rows.append(
            [
                contender.label,
                _item(from_hub, contender.published(f"{_HUB}-*")),
                _item(to_hub, contender.published(f"*-{_HUB}")),
                _item(from_hub + to_hub, contender.published(paper.AVERAGE)),
                _item(list(ours.values()), None),
            ]
        )
    return rows


def _item(values: Sequence[float], published: float | None) -> Item:
    mean = statistics.fmean(values) if values else None
    return Item(percent(mean, 2), "" if published is None else points(published, 2), mean)


def _templates(cells: Sequence[Cell]) -> Table | None:
    def published(template: str) -> list[str]:
        return [TEMPLATES.get(template, ""), points(paper.template(template), 2)]

    return _varied(
        cells,
        lambda variant: replace(variant, template=""),
        lambda key, variant: (variant.template, published(variant.template)),
        ["Template", "Text", "The paper"],
        _template_order,
    )


def _template_order(variant: Variant) -> tuple[int, str]:
    known = list(TEMPLATES)
    name = variant.template
    return (known.index(name) if name in known else len(known), name)


def _alphas(cells: Sequence[Cell]) -> Table | None:
    def row(key: Key, variant: Variant) -> tuple[str, list[str]]:
        encoder = paper.paper_encoder(variant.encoder) or paper.MAIN_ENCODER
        if encoder != paper.MAIN_ENCODER:  # the paper varies α with its main encoder alone
            return f"{variant.alpha:g}", [NOTHING]
        found = paper.lambda_value(*key[:3], alpha=variant.alpha)
        return f"{variant.alpha:g}", [points(found, 2)]

    return _varied(
        cells,
        without_alpha,
        row,
        ["α", "The paper's λ"],
        lambda variant: (0, f"{variant.alpha:020.12f}"),
    )


def _varied(
    cells: Sequence[Cell],
    rest: Callable[[Variant], Variant],
    row: Callable[[Key, Variant], tuple[str, list[str]]],
    head: list[str],
    order: Callable[[Variant], tuple[int, str]],
) -> Table | None:
    """A table of variants that differ in one thing only, in this order."""
    rows: list[Row | Group] = []
    for key, figures, places in comparable(cells, rest):
        ordered = sorted(figures, key=order)
        rows.append(Group(group_title(key, len(places), ordered[0].encoder)))
        for one in ordered:
            label, extra = row(key, one)
            own = [cell for cell in cells if cell.variant == one and cell.place in places]
            rows.append([label, *extra, *_measures(own)])
    columns = [*head, "λ", "Tuned", "Gain", "Default system"]
    return Table(columns, rows, texts=2 if "Text" in head else 1) if rows else None


def without_alpha(variant: Variant) -> Variant:
    return replace(variant, alpha=0.0)


def comparable(
    cells: Sequence[Cell], rest: Callable[[Variant], Variant]
) -> Iterator[tuple[Key, dict[Variant, dict[Place, float]], set[Place]]]:
    """Variants over one space that differ in one thing only, which ``rest`` takes out of them.

    For each: P@1 of the tuned encoder mixed with CSLS by place, and the places that all have.
    """
    for key, own in _places(cells):
        for variants in varying(own, rest):
            figures = {
                one: Contender("", [c for c in own if c.variant == one], system(TUNED)).figures()
                for one in variants
            }
            figures = {one: found for one, found in figures.items() if found}
            places = common_places(figures.values())
            if len(figures) > 1 and places:
                yield key, figures, places


def varying(cells: Sequence[Cell], rest: Callable[[Variant], Variant]) -> list[list[Variant]]:
    """Variants in groups that are the same but for one thing; groups of one are left out."""
    groups: dict[Variant, list[Variant]] = {}
    for variant in dict.fromkeys(cell.variant for cell in cells):
        groups.setdefault(rest(variant), []).append(variant)
    return [found for _, found in sorted(groups.items()) if len(found) > 1]


def _measures(cells: Sequence[Cell]) -> list[Item]:
    """λ, P@1 and gain of the tuned encoder, P@1 of the default system, over these cells."""

    def mean(choose: Choice, name: str) -> float | None:
        values = [
            value
            for cell in cells
            if (scores := choose(cell)) and (value := scores.mean(name)) is not None
        ]
        return statistics.fmean(values) if values else None

    tuned, gain = mean(system(TUNED), "p1"), mean(system(TUNED), "gain")
    usual, lam = mean(the_default, "p1"), mean(system(TUNED), "share")
    return [
        Item(points(lam, 2), value=lam),
        Item(percent(tuned, 2), value=tuned),
        Item(percent(gain, 2, "+"), value=gain),
        Item(percent(usual, 2), value=usual),
    ]
