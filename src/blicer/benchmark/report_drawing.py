"""Drawing with matplotlib: SVG that looks right as a file and inside the report's page.

Colours of lines are in the middle of the scale, so that they show on white and on black; ink and
grid take the page's colours when a picture stands in it.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

_INK, _SOFT, _GRID = "#1c2331", "#5b6676", "#d9dee7"  # odd enough to be nobody else's
_PAGE_COLOURS = {_INK: "var(--ink)", _SOFT: "var(--soft)", _GRID: "var(--line)"}
_LINES = ("#2f7de1", "#e07b22", "#1f9d63", "#a45fd6", "#d6485c", "#1b9aaa", "#8d7a2e", "#7c8796")
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
_SIZE = (5.2, 3.7)


Legend = list[tuple[Any, str]]  # lines with their names


@dataclass(frozen=True)
class Curve:
    label: str
    xs: Sequence[float]
    ys: Sequence[float]  # fractions
    chosen: float | None = None  # a place on it that is marked


def draw_curves(curves: Sequence[Curve], title: str, across: str, up: str, *, marks: bool) -> str:
    def lines(axes: Any) -> Legend:
        legend = []
        for place, curve in enumerate(curves):
            colour, mark = _LINES[place % len(_LINES)], _MARKS[place % len(_MARKS)]
            ys = [100 * value for value in curve.ys]
            style = "-" if place < len(_LINES) else "--"
            (line,) = axes.plot(
                *(curve.xs, ys, style),
                color=colour,
                linewidth=2,
                marker=mark if marks else "",
                markersize=5,
            )
            legend.append((line, curve.label))
            if curve.chosen is not None:
                at = float(np.interp(curve.chosen, curve.xs, ys))
                axes.plot([curve.chosen], [at], mark, color=colour, markersize=7)

        return legend

    return _figure(lines, title, across, up)


def draw_dots(setups: dict[str, list[tuple[float, float]]], title: str) -> str:
    def dots(axes: Any) -> Legend:
        legend = []
        every = [100 * value for found in setups.values() for pair in found for value in pair]
        low, high = min(every) - 2, max(every) + 2
        axes.plot([low, high], [low, high], "--", color=_SOFT, linewidth=1.2)
        for place, (setup, found) in enumerate(setups.items()):
            (line,) = axes.plot(
                [100 * before for before, _ in found],
                [100 * after for _, after in found],
                _MARKS[place % len(_MARKS)],
                color=_LINES[place % len(_LINES)],
                alpha=0.75,
                markersize=6,
            )
            legend.append((line, setup))
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)

        return legend

    return _figure(dots, title, "P@1 of the space alone, %", "P@1 of the default system, %")


def _figure(fill: Callable[[Any], Legend], title: str, across: str, up: str) -> str:
    with _settings():
        from matplotlib.figure import Figure

        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot(facecolor="none")
        axes.grid(color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        legend = fill(axes)
        axes.set_title(title if len(title) < 60 else f"{title[:57]}…", color=_INK, fontsize=10)
        axes.set_xlabel(across, color=_SOFT)
        axes.set_ylabel(up, color=_SOFT)
        axes.tick_params(colors=_SOFT, length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        # Matplotlib leaves labels that begin with an underscore out of a legend.
        labels = [f"\u200b{label}" for _, label in legend]
        handles = [line for line, _ in legend]
        axes.legend(handles, labels, frameon=False, labelcolor=_INK, fontsize=9)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return _tidy(file.getvalue())


@contextmanager
def _settings() -> Iterator[None]:
    """Text stays text, names are never read as formulas, the same picture is the same file."""
    import matplotlib

    chosen = {"svg.fonttype": "none", "svg.hashsalt": "blicer", "text.parse_math": False}
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    with matplotlib.rc_context(chosen), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that the measuring font lacks
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)


_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"


def _tidy(svg: str) -> str:
    """Without the prologue and the metadata, which refer to other places."""
    root = ElementTree.fromstring(svg[svg.index("<svg") :])
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        style = element.get("style")
        if style:
            element.set("style", re.sub(r"'DejaVu Sans'[^;]*", "system-ui, sans-serif", style))
    return _written(root)


def for_page(svg: str, prefix: str) -> str:
    """The picture inside a page: the page's colours, and names that no other picture there has."""
    root = ElementTree.fromstring(svg)
    for parent in root.iter():
        for element in list(parent):
            if element.get("id") == "patch_1":  # the white ground
                parent.remove(element)
    for element in root.iter():
        for name, value in element.attrib.items():
            changed = value.replace("url(#", f"url(#{prefix}")
            if name == "id":
                changed = prefix + value
            elif name in ("href", f"{{{_XLINK}}}href") and value.startswith("#"):
                changed = f"#{prefix}{value[1:]}"
            for colour, variable in _PAGE_COLOURS.items():
                changed = changed.replace(colour, variable)
            element.set(name, changed)
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    return _written(root)


def _written(root: ElementTree.Element) -> str:
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(root, encoding="unicode") + "\n"
