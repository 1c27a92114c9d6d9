"""What held-out seeds tell a user: the expected precision, the weakest part, suspicious seeds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from blicer.calibration import Calibration
from blicer.mixing import Floats, HeldOutView, Mixture, choose_weights

if TYPE_CHECKING:
    from blicer.align.space import Space

POOR = 0.3  # P@1 below which the user gets advice
FEW_SEEDS, MANY_SEEDS = 500, 2_000
NARROW = 200  # dimensions
CONTRADICTED, LEAST = 300.0, 1e-6  # how much surer of another word; the least chance told apart
MOST_SUSPECTS = 5_000
DIRECTIONS = ("forward", "backward")


def expected(view: HeldOutView, mixture: Mixture, seed: int) -> dict[str, dict[str, Any]]:
    """For each direction P@1 with its 95 % interval, P@1 of the space alone, and recall.

    Weights that were chosen on these very words would flatter them. So the words are cut in two,
    and each half is ranked with weights chosen on the other half.
    """
    half = np.random.default_rng(seed).permutation(len(view.parts)) % 2 == 0
    first = np.empty(len(view.parts), dtype=np.int64)
    for part in (half, ~half):
        weights = mixture
        if mixture.precision is not None and (~part).any():  # chosen, not given by the user
            parts, is_gold, way = (one[~part] for one in (view.parts, view.is_gold, view.backward))
            weights = choose_weights(parts, is_gold, mixture.names, backward=way)
        first[part] = weights.combine(view.parts[part]).argmax(axis=1)
    right = view.is_gold[np.arange(len(first)), first]
    report = {}
    for name, rows in zip(DIRECTIONS, (~view.backward, view.backward), strict=True):
        if rows.any():
            report[name] = {
                "words": int(rows.sum()),
                "precision": float(right[rows].mean()),
                "interval": list(wilson(int(right[rows].sum()), int(rows.sum()))),
                "space_alone": float(view.is_gold[rows, 0].mean()),
                "among_candidates": float(view.is_gold[rows].any(axis=1).mean()),
            }
    return report


def wilson(right: int, words: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.96
    share, spread = right / words, z * z / words
    centre = (share + spread / 2) / (1 + spread)
    reach = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def lines(report: dict[str, dict[str, Any]], names: tuple[str, str]) -> list[str]:
    """The report as sentences; ``names`` of the two languages."""
    said = []
    for name, (one, other) in zip(DIRECTIONS, (names, names[::-1]), strict=True):
        if name in report:
            found = report[name]
            low, high = found["interval"]
            said.append(
                f"expected P@1 {one} to {other}: {100 * found['precision']:.0f} % "
                f"({100 * low:.0f} to {100 * high:.0f}; the space alone "
                f"{100 * found['space_alone']:.0f} %, right word among the candidates "
                f"{100 * found['among_candidates']:.0f} %), for words like the {found['words']} "
                "seed words held out; rarer words do worse"
            )
    return said


def advice(report: dict[str, dict[str, Any]], space: Space, seeds: int) -> str:
    """What would help most if the expected precision is poor; empty if it is not."""
    found = list(report.values())
    if not found or np.mean([one["precision"] for one in found]) >= POOR:
        return ""
    if np.mean([one["among_candidates"] for one in found]) >= 2 * POOR:
        return (
            "the right words are found but not ranked first: an encoder that knows both languages "
            "would help (--encoder), or more seed pairs"
        )
    weak = "the weakest part is the space"
    if seeds < FEW_SEEDS:
        return f"{weak}: more seed pairs help most (some {MANY_SEEDS // 4} to {MANY_SEEDS})"
    if space.dim < NARROW:
        return f"{weak}: its vectors have {space.dim} dimensions; vectors of 300 would help"
    return f"{weak}: vectors from more or more similar text would help, or another --space"


def suspects(
    view: HeldOutView, mixture: Mixture, calibration: Calibration, space: Space
) -> list[dict[str, Any]]:
    """Seed pairs that the model, without having seen them, contradicts in both directions.

    In either one it prefers a word that is no seed of the one asked. On (geometric) average of both
    it is at least ``CONTRADICTED`` times as sure of that word. The clearest come first.
    """
    mixed: Floats = mixture.combine(view.parts)
    confidence = calibration.confidence(mixture.scored(view))
    best = mixed.argmax(axis=1)
    told: dict[tuple[int, int], dict[str, tuple[int, float, float]]] = {}
    for row in np.flatnonzero(~view.is_gold[np.arange(len(best)), best]).tolist():
        backward, query = bool(view.backward[row]), int(view.queries[row])
        rather, sure = int(view.candidates[row, best[row]]), float(confidence[row, best[row]])
        for gold in map(int, view.golds[row]):
            chance = confidence[row, view.candidates[row] == gold].sum()  # 0: no candidate
            ratio = math.log(max(sure, LEAST)) - math.log(max(chance, LEAST))
            pair = (gold, query) if backward else (query, gold)
            told.setdefault(pair, {})[DIRECTIONS[backward]] = (rather, sure, ratio)
    found = []
    for (x, y), ways in told.items():
        ratio = sum(ratio for _, _, ratio in ways.values()) / 2
        if len(ways) == 2 and ratio >= math.log(CONTRADICTED):
            said: dict[str, Any] = {
                "source": space.source.words[x],
                "target": space.target.words[y],
            }
            for way, side in zip(DIRECTIONS, (space.target, space.source), strict=True):
                said[way], said[f"{way}_confidence"] = side.words[ways[way][0]], ways[way][1]
            found.append((-ratio, x, said))
    found.sort(key=lambda one: one[:2])
    return [said for _, _, said in found[:MOST_SUSPECTS]]
