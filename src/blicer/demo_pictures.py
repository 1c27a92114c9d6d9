"""The page's pictures as inline SVG; colours are the page's, so that dark mode has its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 16, 46


class Axes:
    """From values to places in the picture."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high  # of the vertical axis; the horizontal one is 0 to 1

    def x(self, value: float) -> float:
        return LEFT + value * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def frame(self, across: str, up: str, step: float) -> list[str]:
        """Grid lines, numbers and names; the vertical axis in per cent."""
        parts = []
        count = round((self.high - self.low) / step)
        for at in range(count + 1):
            value = self.low + at * step
            y = self.y(value)
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                'stroke="var(--line)"/>'
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * value:.0f}</text>'
            )
        for at in range(6):
            x = self.x(at / 5)
            parts.append(
                f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
                f"{at / 5:.1f}</text>"
            )
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{across}</text>')
        centre = (TOP + HEIGHT - BOTTOM) / 2
        parts.append(
            f'<text transform="translate(14 {centre}) rotate(-90)" text-anchor="middle">{up}</text>'
        )
        return parts


def _svg(parts: Sequence[str], label: str, height: int = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def lambda_picture(curve: Sequence[Sequence[float]], chosen: float) -> str:
    """P@1 on held-out words over λ, CSLS alone as a dashed line, the chosen λ as a dot."""
    values = [value for _, value in curve]
    step = 0.05 if max(values) - min(values) < 0.3 else 0.1
    low = math.floor(min(values) / step + 1e-9) * step
    high = min(1.0, (math.floor(max(values) / step + 1e-9) + 1) * step)
    axes = Axes(low, max(high, low + step))
    line = " ".join(f"{axes.x(lam):.1f},{axes.y(value):.1f}" for lam, value in curve)
    alone = axes.y(curve[0][1])
    at, best = min(curve, key=lambda point: abs(point[0] - chosen))
    x, y = axes.x(at), axes.y(best)
    side = "end" if at > 0.6 else "start"
    parts = [
        *axes.frame("λ", "P@1, per cent", step),
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{alone:.1f}" y2="{alone:.1f}" '
        'stroke="var(--old)" stroke-width="1.5" stroke-dasharray="5 4"/>',
        f'<polyline points="{line}" fill="none" stroke="var(--new)" stroke-width="2.5" '
        'stroke-linejoin="round"/>',
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{HEIGHT - BOTTOM}" '
        'stroke="var(--new)" stroke-dasharray="2 3"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="var(--new)"/>',
        f'<text class="strong" x="{x + (-8 if side == "end" else 8):.1f}" '
        f'y="{HEIGHT - BOTTOM - 8}" text-anchor="{side}">λ = {at:.2f}</text>',
        f'<text x="{WIDTH - RIGHT - 4}" y="{alone - 6:.1f}" text-anchor="end">CSLS alone</text>',
    ]
    return _svg(parts, f"P@1 on held-out words over lambda; {at:.2f} is chosen")


def reliability_picture(bins: Sequence[Sequence[float]]) -> str:
    """Share right over stated confidence; on the diagonal the two are the same."""
    axes = Axes(0.0, 1.0)
    most = max(count for _, _, count in bins)
    points = sorted((confidence, share, count) for confidence, share, count in bins)
    line = " ".join(f"{axes.x(stated):.1f},{axes.y(share):.1f}" for stated, share, _ in points)
    parts = [
        *axes.frame("stated confidence", "right, per cent", 0.2),
        f'<line x1="{axes.x(0)}" y1="{axes.y(0)}" x2="{axes.x(1)}" y2="{axes.y(1)}" '
        'stroke="var(--old)" stroke-width="1.5" stroke-dasharray="5 4"/>',
        f'<polyline points="{line}" fill="none" stroke="var(--new)" stroke-opacity=".5" '
        'stroke-width="1.5"/>',
    ]
    for stated, share, count in points:
        radius = 2.5 + 7 * (count / most) ** 0.5
        parts.append(
            f'<circle cx="{axes.x(stated):.1f}" cy="{axes.y(share):.1f}" r="{radius:.1f}" '
            f'fill="var(--new)"><title>{100 * share:.1f} % of {count} words</title></circle>'
        )
    return _svg(parts, "Share of right translations over stated confidence")
