"""Plots as SVG by matplotlib: of evaluations, the demonstration and benchmark reports.

The background is transparent and all colours are of medium brightness, so that a picture is legible
on white and on black.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from blicer.errors import needed
from blicer.metrics import PROMISED

with needed("matplotlib", "drawing", "demo"):
    import matplotlib
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from blicer.evaluation import Evaluation

logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it lists missing fonts
_INK, _GRID = "#737d8c", "#8b96a540"
_COLOURS = ("#2f7de1", "#e07b22", "#1f9d63", "#a45fd6", "#d6485c", "#1b9aaa", "#8d7a2e", "#7c8796")
_TITLE_LENGTH = 60
_SIZE = (5.2, 3.7)


@dataclass(frozen=True)
class Curve:
    label: str
    xs: Any  # numbers, in a list or an array
    ys: Any  # per cent
    chosen: float | None = None  # an x that is marked


def curves(
    lines: Sequence[Curve],
    title: str,
    across: str,
    up: str,
    *,
    baseline: tuple[str, float] | None = None,
    log: bool = False,
) -> str:
    """Lines over a common axis, logarithmic if ``log``; ``baseline``: a named level, dashed."""

    def draw(axes: Any) -> None:
        if log:
            axes.set_xscale("log")
        for place, curve in enumerate(lines):
            colour = _COLOURS[place % len(_COLOURS)]
            label = curve.label
            if curve.chosen is not None:
                label = f"{label}, {across} = {curve.chosen:.2f}"
                at = float(np.interp(curve.chosen, curve.xs, curve.ys))
                axes.plot([curve.chosen], [at], "o", color=colour, markersize=7)
            _line(axes, curve.xs, curve.ys, "-", label, color=colour, lw=2)
        if baseline is not None:
            xs = (min(lines[0].xs), max(lines[0].xs))
            _line(axes, xs, [baseline[1]] * 2, "--", baseline[0], color=_INK, lw=1.2)

    return _svg(draw, title, across, up)


def reliability(bins: Sequence[tuple[float, float, int]], title: str) -> str:
    """Dots of (stated confidence, share right, words), and the diagonal."""
    stated, right, words = np.array(sorted(bins)).T * [[100], [100], [1]]

    def draw(axes: Any) -> None:
        axes.plot([0, 100], [0, 100], "--", color=_INK, lw=1.2)
        axes.plot(stated, right, "-", color=_COLOURS[0], alpha=0.5, lw=1.5)
        sizes = 20 + 180 * words / words.max()
        axes.scatter(stated, right, s=sizes, color=_COLOURS[0], zorder=3)

    return _svg(draw, title, "stated confidence, %", "right, %")


def risk_coverage(lines: Mapping[str, Any], title: str, *, promised: bool = True) -> str:
    """Precision by coverage, surest words first.

    ``lines``: by name, rows of coverage, precision and confidence (fractions), as in
    ``DirectionResult.risk_coverage``. A dot shows where the mean confidence of the answered words
    promises 95 %, unless ``promised`` is false: then the third column is not a confidence.
    """

    def draw(axes: Any) -> None:
        for place, (label, rows) in enumerate(lines.items()):
            coverage, precision, confidence = np.asarray(rows).T
            colour = _COLOURS[place % len(_COLOURS)]
            stated = np.cumsum(np.diff(coverage, prepend=0.0) * confidence) / coverage
            kept = int((stated >= PROMISED).sum())
            if promised and kept:
                at = (100 * coverage[kept - 1], 100 * precision[kept - 1])
                axes.plot(*at, "o", color=colour, markersize=8)
                label = f"{label}: {at[1]:.1f} % right where 95 % is promised"
            _line(axes, 100 * coverage, 100 * precision, "-", label, color=colour, lw=2)
        _line(axes, (0, 100), [100 * PROMISED] * 2, "--", "95 %", color=_INK, lw=1.2)
        axes.set_xlim(0, 100)
        axes.set_ylim(top=100.5)

    return _svg(draw, title, "words answered, surest first, %", "of them right, %")


def of_evaluation(result: Evaluation) -> dict[str, str]:
    """Pictures of ``blicer.evaluate``'s result, by file name; none without candidates."""
    pictures, lines = {}, {}
    calibrated = True
    for name, direction in result.directions():
        if len(direction.risk_coverage):
            lines[name] = direction.risk_coverage
            calibrated = bool(direction.reliability)
        if direction.reliability:
            drawn = reliability(direction.reliability, f"Reliability, {name}")
            pictures[f"reliability.{name}.svg"] = drawn
    if lines:
        drawn = risk_coverage(lines, "Risk and coverage", promised=calibrated)
        pictures["risk-coverage.svg"] = drawn
    return pictures


def _line(axes: Any, xs: Any, ys: Any, style: str, label: str, **look: Any) -> None:
    # Matplotlib leaves labels that begin with an underscore out of the legend.
    axes.plot(xs, ys, style, label=f"\u200b{label}", **look)


def _svg(draw: Callable[[Any], None], title: str, across: str, up: str) -> str:
    # Keep text as text, do not parse formulas, and make equal pictures equal files.
    chosen = {"svg.fonttype": "none", "svg.hashsalt": "blicer", "text.parse_math": False}
    with matplotlib.rc_context(chosen), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that the measuring font lacks
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot(facecolor="none")
        axes.grid(color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        draw(axes)
        short = title if len(title) < _TITLE_LENGTH else f"{title[: _TITLE_LENGTH - 3]}…"
        axes.set_title(short, color=_INK, fontsize=10)
        axes.set_xlabel(across, color=_INK)
        axes.set_ylabel(up, color=_INK)
        axes.tick_params(colors=_INK, length=0)
        axes.spines[:].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, labelcolor=_INK, fontsize=9)
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    return text[text.index("<svg") :]
