"""README and docs/results.md say what the files in ``results/`` say."""

from __future__ import annotations

from pathlib import Path

import pytest

from report_outcomes import outcome, write_units
from tools import readme_figures
from tools.readme_figures import PAGE, README, SECTIONS, with_figures


@pytest.mark.parametrize("path", SECTIONS, ids=lambda path: path.name)
def test_figures_are_those_of_the_results(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert with_figures(text, path) == text, "run: python -m tools.readme_figures"


def test_a_lost_section_is_named() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("<!-- /spaces -->", "")
    with pytest.raises(SystemExit, match=r"results.md has no section 'spaces'"):
        with_figures(text, PAGE)


def test_the_readme_fits_two_screens() -> None:
    """Of some sixty lines each."""
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_controls_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two training seeds of one unit: means 0.52 and 0.40 against 0.50 and 0.41."""
    alone = {"space": (0.3, 0.3), "B": (0.5, 0.41), "untuned": (0.4, 0.3)}
    first = {**alone, "tuned": (0.4, 0.31), "tuned+endings": (0.51, 0.39)}
    second = {"space": (0.3, 0.3), "tuned": (0.4, 0.31), "tuned+endings": (0.53, 0.41)}
    far_off = {**alone, "tuned": (0.9, 0.9), "tuned+endings": (0.9, 0.9)}
    outcomes = [
        outcome(first),
        outcome(second, training_seed=34),
        outcome(far_off, space="c2"),  # has lite in it
        outcome(far_off, target="fi"),  # lite does not know it
        outcome(far_off, alpha=0.5),  # of an ablation
        outcome(far_off, template="T15"),
    ]
    write_units(tmp_path / "xling-before", outcomes)
    monkeypatch.setattr(readme_figures, "RESULTS", tmp_path)
    lines = readme_figures.controls().splitlines()
    assert lines[2:5] == [
        "| tuned+endings against use+spelling | 2 | 1 | 0 | 1 | +0.50 | −1.00 |",
        "| tuned+endings against untuned | 2 | 2 | 0 | 0 | +11.00 | +10.00 |",
        "| tuned against untuned | 2 | 1 | 1 | 0 | +0.50 | +0.00 |",
    ]
    # Standard deviation of 51 and 53, and of 39 and 41.
    assert "standard deviation of 1.41 points on average (at most 1.41)" in lines[6]
    # 52 - 30 and 40 - 30; with Finnish 90 - 30 twice. C2 is among them here.
    first = readme_figures.by_language("xling-before", "tuned+endings").splitlines()
    assert first[0] == "- languages that `lite` knows: +38.00 at 5k (4 setups)"
    assert first[1] == "- Finnish on one side: +60.00 at 5k (2 setups)"


def test_the_summary_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [
        outcome({"space": (0.3, 0.4), "blicer": (0.5, 0.4)}),
        outcome({"space": (0.5, 0.6), "blicer": (0.6, 0.8)}, target="ru"),
        outcome({"space": (0.2, 0.2), "blicer": (0.1, 0.3)}, target="fi"),
        outcome({"space": (0.4, 0.4), "blicer": (0.6, 0.7)}, space="twoview"),
    ]
    write_units(tmp_path / "xling", outcomes)
    monkeypatch.setattr(readme_figures, "RESULTS", tmp_path)
    assert readme_figures.units_run().startswith("4 of its 72 units are finished")
    table = readme_figures.summary().splitlines()
    # (30 + 40 + 50 + 60) / 4, and (50 + 40 + 60 + 80) / 4; a tie is not won.
    assert table[2] == "| 5k | English, French, Russian | VecMap | 45.0 | 57.5 | 3 of 4 |"
    name = "Two views, the default"
    assert table[3] == f"| 5k | English, French, Russian | {name} | 40.0 | 65.0 | 2 of 2 |"
    assert table[4] == "| 5k | with Finnish | VecMap | 20.0 | 20.0 | 1 of 2 |"
