"""Evaluation results as tables for the terminal, in per cent: a metric a row, 80 columns wide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.table import Table

if TYPE_CHECKING:
    from blicer.evaluation import Comparison, Difference, Evaluation, Scores

METRIC_TITLES = {"p@1": "P@1", "p@5": "P@5", "p@10": "P@10", "mrr": "MRR"}

T = TypeVar("T")


def evaluation_table(evaluation: Evaluation, title: str | None = None) -> Table:
    columns: list[tuple[str, Scores]] = []
    coverage = []
    for name, result in evaluation.directions():
        columns += [
            (f"{name}, in vocabulary", result.in_vocabulary),
            (f"{name}, all", result.all_queries),
        ]
        coverage += [f"{100 * result.coverage:.1f} %", ""]
    table = _table(title, columns, _score)
    table.add_row("queries", *(str(scores.queries) for _, scores in columns))
    table.add_row("coverage", *coverage)
    return table


def comparison_table(comparison: Comparison, title: str | None = None) -> Table:
    columns = [
        ("forward, both can answer", comparison.forward),
        ("forward, all", comparison.forward_all),
        ("backward, both can answer", comparison.backward),
        ("backward, all", comparison.backward_all),
    ]
    table = _table(title or "first minus second, paired bootstrap", columns, _difference)
    table.add_row("queries", *(str(difference.queries) for _, difference in columns))
    return table


def _table(
    title: str | None, columns: Sequence[tuple[str, T]], cell: Callable[[T, str], str]
) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for metric, shown in METRIC_TITLES.items():
        table.add_row(shown, *(cell(values, metric) for _, values in columns))
    return table


def _score(scores: Scores, metric: str) -> str:
    value = f"{100 * scores[metric]:.1f}"
    if metric not in scores.intervals:
        return value
    low, high = scores.intervals[metric]
    return f"{value} ({100 * low:.1f}-{100 * high:.1f})"


def _difference(difference: Difference, metric: str) -> str:
    low, high = difference.intervals[metric]
    p_value = difference.p_values[metric]
    chance = "p<0.001" if p_value < 0.001 else f"p={p_value:.3f}"
    return (
        f"{100 * difference.values[metric]:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) {chance}"
    )
