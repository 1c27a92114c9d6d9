"""The report of a benchmark: Markdown, and one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blicer.benchmark.report_ablations import ablations
from blicer.benchmark.report_cells import Cell, dataset_order, main_cells, make_cells
from blicer.benchmark.report_command import commands
from blicer.benchmark.report_details import (
    digests,
    dropped,
    every_cell,
    failures,
    lambda_table,
    machines,
    remarks,
    systems_text,
    times,
)
from blicer.benchmark.report_document import (
    Block,
    Code,
    Document,
    Heading,
    Pictures,
    Text,
    markdown,
    plural,
)
from blicer.benchmark.report_headline import headline, vectors_text
from blicer.benchmark.report_html import page
from blicer.benchmark.report_layout import dataset_name, main_tables, not_run, other_spaces
from blicer.benchmark.report_pictures import (
    alpha_pictures,
    before_and_after,
    distinct_names,
    lambda_pictures,
)
from blicer.benchmark.report_runs import Run, newest, not_mended, read_outcomes
from blicer.errors import InputError
from blicer.files import atomic_write

PICTURES = "pictures"
SIGNED = "<!-- drawn by blicer benchmark -->\n"  # tells our pictures from others


def write_report(folder: str | Path, outcomes: Sequence[dict[str, Any]]) -> tuple[Path, Path]:
    """Write ``report.md`` (with ``pictures/``) and ``report.html`` of these units of work."""
    folder = Path(folder)
    document = make_document(outcomes)
    paths = (folder / "report.md", folder / "report.html")
    pictures = document.pictures()
    _write_pictures(folder / PICTURES, {f"{one.name}.svg": one.svg for one in pictures})
    for path, text in zip(paths, (markdown(document, PICTURES), page(document)), strict=True):
        with atomic_write(path) as file:
            file.write(text)
    return paths


def _write_pictures(folder: Path, drawn: dict[str, str]) -> None:
    """Each picture, and away with those of an earlier report; a file of the user's own stays."""
    for old in folder.glob("*.svg"):
        if old.name not in drawn and old.read_bytes().startswith(SIGNED.encode()):
            old.unlink()
    for name, svg in drawn.items():
        with atomic_write(folder / name) as file:
            file.write(SIGNED + svg)


def make_document(outcomes: Sequence[dict[str, Any]]) -> Document:
    if not outcomes:
        raise InputError("there is nothing to report: the benchmark has not finished any unit")
    found, failed = read_outcomes(outcomes)
    runs, older = newest(found), len(found) + len(failed)
    failed = not_mended(failed, runs)
    older -= len(runs) + len(failed)
    cells = make_cells(runs)
    main = main_cells(cells)
    datasets = {run.dataset for run in [*runs, *failed] if run.dataset}
    everything = [dataset_name(one) for one in sorted(datasets, key=dataset_order)]
    blocks: list[Block] = [Text(_summary(runs, failed, cells), soft=True)]
    if older:
        why = "run before, with other data or defaults or without success, and run again."
        blocks.append(Text(f"{plural(older, 'unit')} set aside: {why}"))
    if cells:
        blocks += [Heading("Setups won, and by how much"), *headline(main), *remarks(runs)]
        if what := systems_text(runs):
            blocks.append(Text(what, soft=True))
        blocks += _pictures(before_and_after(main))
        blocks += _papers_tables(cells, main, runs)
        blocks += [Heading("Every cell"), *every_cell(cells), *dropped(runs)]
    else:
        blocks.append(Text("No unit finished, so there are no figures."))
    if took := times(runs):
        blocks += [Heading("Time"), *took]
    blocks += [Heading("Failures"), *failures(failed)]
    blocks += _how(runs, failed)
    title = "Bilingual lexicon induction with and without reranking"
    return Document(f"{title}: {', '.join(everything)}" if everything else title, blocks)


def _summary(runs: Sequence[Run], failed: Sequence[Run], cells: Sequence[Cell]) -> str:
    pairs = list(dict.fromkeys(run.pair for run in runs))
    text = f"{plural(len(runs), 'unit')} of work finished, {len(failed):,} failed."
    if pairs:
        shown = ", ".join(pairs) if len(pairs) <= 12 else f"{len(pairs)} pairs"
        seeds = sorted({run.training_seed for run in runs})
        text += (
            f" Language pairs, in both directions: {shown}. Cells: {len(cells):,}. Training "
            f"{'seed' if len(seeds) == 1 else 'seeds'}: {', '.join(map(str, seeds))}. The "
            "weights of each system were chosen on held-out words, unless a λ was given; the test "
            "dictionaries were read after that."
        )
    return text


def _pictures(pictures: Sequence[Any]) -> list[Block]:
    return [Pictures(distinct_names(pictures))] if pictures else []


def _papers_tables(cells: Sequence[Cell], main: Sequence[Cell], runs: Sequence[Run]) -> list[Block]:
    """What the paper's tables hold, with our figures in them."""
    intro = (
        "Li, Liu, Vulić and Korhonen, Findings of EMNLP 2022. The paper has fastText vectors, "
        f"200,000 a language; here it is {vectors_text(main)}. Where they differ, compare gains "
        "rather than figures. + BLICEr is the paper's method: CSLS mixed with the tuned "
        "cross-encoder."
    )
    blocks: list[Block] = [Heading("The paper's tables"), Text(intro), *main_tables(main)]
    if other := other_spaces(runs):
        blocks.append(Text(other, soft=True))
    found, missing = ablations(cells)
    blocks += found
    chosen = {(cell.place.dataset, cell.place.setup, cell.variant) for cell in main}
    of_main = [run for run in runs if (run.dataset, run.setup, run.variant) in chosen]
    table = lambda_table(of_main)
    if table is not None:
        text = (
            "Ours are chosen for each unit on held-out words of the seeds (without seeds: on words "
            "that two views agree on; zero-shot: on seeds of the pivot's pairs); the paper's for "
            "all pairs on the test set of one (en-tr for XLING, hu-ka for PanLex-BLI)."
        )
        blocks += [Heading("λ, the weight of the cross-encoder", 3), table, Text(text, soft=True)]
    else:
        missing.append("λ")
    curves = distinct_names([*lambda_pictures(of_main), *alpha_pictures(cells)])
    if curves:
        blocks += [Heading("Curves", 3), *_pictures(curves)]
    left_out = [*not_run(cells), *missing]
    if left_out:
        blocks.append(Text(f"Not run, of what the paper has: {'; '.join(left_out)}.", soft=True))
    return blocks


def _how(runs: Sequence[Run], failed: Sequence[Run]) -> list[Block]:
    """Machine, versions, data, and the commands that make it again."""
    blocks: list[Block] = [Heading("Machine, versions, data"), machines([*runs, *failed])]
    if (files := digests(runs)) is not None:
        blocks.append(files)
    again = commands([run for run in [*runs, *failed] if run.source])
    if again:
        text = (
            "DATA is the folder of dictionaries and vectors (a collection of your own is named by "
            "its last folder), OUT that of the results. What is "
            "finished is not computed again; results.tsv has a key for each row, and blicer "
            "benchmark rerun OUT KEY --data DATA computes that one anew."
        )
        blocks += [Heading("The same again"), Code("\n".join(again)), Text(text, soft=True)]
    return blocks
