"""Evaluation results as tables for the terminal, in per cent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from blicer.evaluation import Comparison, Difference, Evaluation, Scores

METRIC_TITLES = {"p@1": "P@1", "p@5": "P@5", "p@10": "P@10", "mrr": "MRR"}


def _frame(title: str | None, *last: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("direction")
    table.add_column("queries counted")
    for name in (*METRIC_TITLES.values(), *last):
        table.add_column(name, justify="right")
    return table


def evaluation_table(evaluation: Evaluation, title: str | None = None) -> Table:
    table = _frame(title, "queries", "coverage")
    for name, result in evaluation.directions():
        for label, scores in (("in vocabulary", result.in_vocabulary), ("all", result.all_queries)):
            cells = [_score(scores, metric) for metric in METRIC_TITLES]
            first = label == "in vocabulary"
            table.add_row(
                name if first else "",
                label,
                *cells,
                str(scores.queries),
                f"{100 * result.coverage:.1f}" if first else "",
            )
    return table


def _score(scores: Scores, metric: str) -> str:
    value = f"{100 * scores[metric]:.1f}"
    if metric not in scores.intervals:
        return value
    low, high = scores.intervals[metric]
    return f"{value} ({100 * low:.1f}-{100 * high:.1f})"


def comparison_table(comparison: Comparison, title: str | None = None) -> Table:
    table = _frame(title or "first minus second, paired bootstrap", "queries")
    rows: list[tuple[str, str, Difference]] = [
        ("forward", "both can answer", comparison.forward),
        ("", "all", comparison.forward_all),
        ("backward", "both can answer", comparison.backward),
        ("", "all", comparison.backward_all),
    ]
    for name, label, difference in rows:
        cells = [_difference(difference, metric) for metric in METRIC_TITLES]
        table.add_row(name, label, *cells, str(difference.queries))
    return table


def _difference(difference: Difference, metric: str) -> str:
    low, high = difference.intervals[metric]
    p_value = difference.p_values[metric]
    chance = "p<0.001" if p_value < 0.001 else f"p={p_value:.3f}"
    return (
        f"{100 * difference.values[metric]:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) {chance}"
    )
