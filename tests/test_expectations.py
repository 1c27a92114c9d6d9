"""What held-out seeds tell: contradicted seed pairs, by hand and with planted errors."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import blicer
from blicer.align.space import Space
from blicer.calibration import Absent, Calibration
from blicer.cli import app
from blicer.embeddings import Embeddings
from blicer.expectations import suspects
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, HeldOutView, Mixture

# The confidence is the logistic of 20 times the score less 10: 0.9 to nearly 1, 0.1 to nearly 0.
SURELY = (60.0, (0.0,) * 5)
STEEP = Calibration(
    (-10.0, (0.0, *(20.0, *[0.0] * 8) * 2)), SURELY, (Absent(), Absent()), ((0.0, 0.0, 9.0),) * 2
)


def view(rows: list[tuple[bool, int, list[int], list[int], list[float]]]) -> HeldOutView:
    """Held-out words: (backward, word, its golds, candidates, scores)."""
    backward, queries, golds, candidates, scores = zip(*rows, strict=True)
    is_gold = [np.isin(some, gold) for some, gold in zip(candidates, golds, strict=True)]
    return HeldOutView(
        np.array(scores)[..., None],
        np.array(is_gold),
        np.array(queries),
        np.array(candidates),
        np.array(backward),
        [np.array(gold) for gold in golds],
    )


@pytest.fixture
def space() -> Space:
    sides = [
        Embeddings([f"{side}{n}" for n in range(5)], np.eye(5, dtype=np.float32)) for side in "xy"
    ]
    return Space(sides[0], sides[1])


def test_a_pair_is_suspicious_if_both_directions_contradict_it(space: Space) -> None:
    rows = [
        (False, 0, [0], [1, 0], [0.9, 0.1]),  # x0 = y0: both prefer another word
        (True, 0, [0], [2, 3], [0.8, 0.7]),  # y0 does not even have x0 among its candidates
        (False, 1, [1], [0, 1], [0.9, 0.1]),  # x1 = y1: backward it is on top
        (True, 1, [1], [1, 0], [0.9, 0.1]),
        (False, 2, [2, 3], [2, 0], [0.9, 0.1]),  # x2 = y2, y3: y2 is found
        (True, 3, [2], [0, 2], [0.9, 0.1]),
        (False, 4, [4], [0, 4], [0.6, 0.5]),  # x4 = y4: contradicted, but hardly
        (True, 4, [4], [0, 4], [0.6, 0.5]),
    ]
    found = suspects(view(rows), Mixture({CSLS: 1.0}), STEEP, space)
    assert [(one["source"], one["target"]) for one in found] == [("x0", "y0")]
    assert (found[0]["forward"], found[0]["backward"]) == ("y1", "x2")
    assert found[0]["forward_confidence"] == pytest.approx(1 / (1 + np.exp(-8)), rel=1e-3)
    assert found[0]["backward_confidence"] == pytest.approx(1 / (1 + np.exp(-6)), rel=1e-3)


def test_planted_errors_come_first(tmp_path: Path) -> None:
    """A tenth of the starter pair's seeds are exchanged among each other."""
    from blicer import starter

    pair = starter.load()
    source, target = pair.source.head(4000), pair.target.head(4000)
    known = [one for one in pair.seeds if one[0] in source and one[1] in target][:400]
    wrong = [(known[n][0], known[(n + 10) % 400][1]) for n in range(0, 400, 10)]
    seeds = Lexicon([one for n, one in enumerate(known) if n % 10] + wrong)
    for data, name in ((source, "en.vec"), (target, "ru.vec"), (seeds, "seeds.tsv")):
        data.save(tmp_path / name)
    command = [
        *("train", str(tmp_path / "en.vec"), str(tmp_path / "ru.vec")),
        *("--seeds", str(tmp_path / "seeds.tsv"), "--space", "procrustes", "--scorers", "endings"),
        *("--suspects", str(tmp_path / "suspects.tsv"), "-o", str(tmp_path / "out")),
    ]
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code == 0, outcome.output
    with (tmp_path / "suspects.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    listed = [(row["source"], row["target"]) for row in rows]
    planted = [one in set(wrong) for one in listed]
    assert len(set(listed)) == len(listed)
    assert sum(planted) >= 0.7 * len(wrong)
    first = planted[: len(planted) // 2]
    assert sum(first) > sum(planted[len(first) :])
    assert blicer.Translator.load(tmp_path / "out").details["suspects"]
