"""The benchmark's report, on made-up outcomes whose figures are worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from blicer.benchmark.report import write_report
from blicer.errors import InputError
from report_outcomes import failure, outcome, report, tables, two_setups, write_units

HEADLINE = "Setups won, and by how much"


def test_headline_worked_out_by_hand():
    rows = tables(two_setups(), HEADLINE)[0].by_label
    # won, level, lost, p < 0.05, Holm, worse, gain 5k, gain 1k
    default = rows["tuned+endings, the default"]
    assert default == ["4 of 6", "1", "1", "4", "4", "1", "+8.00", "+2.50"]
    tuned = rows["tuned, the paper's method"]
    # 5k: +5, +10, 0, −1 (mean 3.5); 1k: +6, −2 (mean 2)
    assert tuned == ["3 of 6", "1", "2", "3", "3", "2", "+3.50", "+2.00"]
    published = rows["The paper, XLM-R-large"]
    assert published[:3] == ["231 of 232", "1", "0"]
    assert published[-2:] == ["+7.76", "+7.35"]


def test_only_the_papers_own_setups_are_compared_one_to_one():
    rows = tables(two_setups(), "The same directions and spaces as in the paper")[0].by_label
    # The paper's gains: VecMap 5k 6.60 and 2.69, C1 5k 5.70 and 2.64; VecMap 1k 3.05 and 4.04.
    assert rows["tuned+endings, the default"] == [
        "4 of 6",
        "6 of 6",
        "+8.00 (+4.41)",
        "+2.50 (+3.54)",
    ]


def test_the_papers_layout_with_both_figures():
    (table,) = tables(two_setups(), "XLING, 5k seed pairs")
    assert list(table.head) == ["P@1", "en→fr", "fr→en", "Avg.", "Avg. of both"]
    rows = table.rows
    assert [row[0] for row in rows] == [
        *("VecMap", "+ BLICEr", "+ tuned+endings"),
        *("C1", "+ BLICEr", "+ tuned+endings"),
    ]
    assert rows[0][1:5] == ["40.00 (63.10)", "30.00 (62.75)", "35.00", "35.00 (62.92)"]
    assert rows[1][1:3] == ["45.00 (69.70)", "40.00 (65.44)"]
    assert rows[2][1:5] == ["50.00", "50.00", "50.00", ""]


def test_a_space_that_the_paper_does_not_have_stands_alone():
    outcomes = [outcome({"space": (0.4, 0.3), "tuned": (0.5, 0.5)}, space="procrustes")]
    (table,) = tables(outcomes, "XLING, 5k seed pairs")
    assert list(table.head) == ["P@1", "en→fr", "fr→en", "Avg."]
    assert table.by_label == {
        "Procrustes": ["40.00", "30.00", "35.00"],
        "+ BLICEr": ["50.00", "50.00", "50.00"],
    }


def test_training_seeds_mean_and_spread():
    outcomes = [
        outcome({"space": (0.40, 0.40), "tuned": figures}, training_seed=seed, default="tuned")
        for seed, figures in ((33, (0.50, 0.46)), (34, (0.52, 0.38)), (35, (0.54, 0.42)))
    ]
    (row,) = [row for row in tables(outcomes, HEADLINE)[0].rows if row[0].startswith("tuned")]
    # en→fr gains 10, 12, 14; fr→en 6, −2, 2: mean 2, won, but the seeds differ in sign: p = 1.
    assert row[1:6] == ["2 of 2", "0", "0", "1", "1"]
    # Mean over both directions by seed: 8, 5, 8; mean 7, standard deviation 1.732.
    assert row[-1] == "+7.00 ± 1.73"
    cells = tables(outcomes, "Every cell")[0].rows
    there, back = (
        next(c for c in cells if c[0] == d and c[3] != "space") for d in ("en→fr", "fr→en")
    )
    assert there[4:9] == ["52.0 ± 2.0", "+12.0 ± 2.0", "+10.0", "+14.0", "0.001"]
    assert back[5] == "+2.0 ± 4.0"
    assert back[8] == "1.000"


def test_every_cell_has_its_figures():
    (table,) = tables(two_setups()[:1], "Every cell")
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert len(rows) == 6
    best = next(r for r in rows if r["System"].startswith("tuned+") and r["Direction"] == "fr→en")
    assert best["System"] == "tuned+endings (default)"
    assert best["P@1"] == "50.0"
    assert (best["Gain"], best["95 % low"], best["95 % high"]) == ("+20.0", "+18.0", "+22.0")
    assert (best["P@5"], best["MRR"], best["P@1 of all"]) == ("60.0", "55.0", "40.0")
    assert (best["Words"], best["Coverage"], best["λ"]) == ("1,000", "80.0", "0.60")
    alone = next(r for r in rows if r["System"] == "space")
    assert alone["Gain"] == alone["p"] == "–"
    assert alone["λ"] == "0.00"


def test_templates_over_the_directions_that_all_have():
    figures = {"T1": (0.50, 0.40), "T15": (0.60, 0.50)}
    outcomes = [
        outcome({"space": (0.3, 0.3), "tuned": pair}, template=name, space="c2")
        for name, pair in figures.items()
    ]
    # This one T15 alone lacks: it must not move the mean of T1.
    outcomes.append(outcome({"space": (0.1, 0.1), "tuned": (0.9, 0.9)}, target="ru", space="c2"))
    (table,) = tables(outcomes, "Templates")
    assert table.titles[0] == "XLING 5k, C2, lite: 2 directions"
    rows = table.by_label
    assert list(table.head) == [
        *("Template", "Text", "The paper", "λ", "Tuned", "Gain", "Default system"),
    ]
    assert rows["T1"] == ["[w]", "59.85", "0.60", "45.00", "+15.00", "–"]
    assert rows["T15"] == ["[w] ([L])!", "60.31", "0.60", "55.00", "+25.00", "–"]


def test_alpha_table():
    outcomes = [
        outcome({"space": (0.3, 0.3), "tuned": (0.4 + alpha / 10, 0.4)}, alpha=alpha, space="c1")
        for alpha in (0.0, 0.5, 1.0)
    ]
    rows = tables(outcomes, "α, how far the labels are polarised")[0].by_label
    assert {alpha: row[:2] for alpha, row in rows.items()} == {
        "0": ["0.60", "40.00"],
        "0.5": ["0.60", "42.50"],
        "1": ["0.60", "45.00"],
    }


def test_no_outcomes_is_one_sentence(tmp_path: Path):
    with pytest.raises(InputError, match="nothing to report"):
        write_report(write_units(tmp_path, []))
    assert [path.name for path in tmp_path.iterdir()] == ["units"]


def test_failed_units_only(tmp_path: Path):
    paths = write_report(
        write_units(tmp_path, [failure("no seeds | at all"), failure(target="ru")])
    )
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert "No unit finished" in text
        assert "there was not enough memory" in text
        assert "2 units failed" in text
    assert "no seeds \\| at all" in paths[0].read_text(encoding="utf-8")


def test_failures_stand_beside_figures():
    text = report([*two_setups(), failure("why not", target="ka")])
    assert "1 unit failed and is in no figure of this report" in text
    assert "| XLING | en-ka | 5k | VecMap | 33 | why not |" in text


def test_space_missing_and_only_space():
    without = outcome({"tuned": (0.5, 0.5)})
    assert "so there are no gains" in report([without])
    alone = outcome({"space": (0.5, 0.5)})
    assert "so there are no gains" in report([alone])


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"status": "done"},
        {"status": "done", "unit": {}, "systems": []},
        {"status": "done", "unit": {"dataset": "xling"}, "systems": {"space": None}},
        {"unit": None, "status": 3, "error": ["?"]},
        "not a dictionary",
        None,
    ],
)
def test_whatever_a_file_holds(tmp_path: Path, broken: object):
    assert "1 unit failed" in report([*two_setups(), broken])
    paths = write_report(write_units(tmp_path, [broken]))
    assert "1 unit failed" in paths[1].read_text(encoding="utf-8")


def test_values_that_are_missing_or_not_numbers(tmp_path: Path):
    odd = outcome({"space": (0.4, 0.4), "tuned": (0.5, 0.5)})
    odd["systems"]["tuned"]["forward"]["p@1"] = float("nan")
    odd["systems"]["tuned"]["backward"] |= {"gain": None, "p@5": None, "mrr": None}
    odd["systems"]["tuned"] |= {"curve": [], "weights": None}
    odd["seconds"] = {"fit": None}
    odd |= {"versions": {}, "data": {}}
    del odd["machine"]
    paths = write_report(write_units(tmp_path, [odd]))
    text = paths[0].read_text(encoding="utf-8")
    assert "| 50.0 | – | – | – | – | – | – |" in text
    assert "nan" not in text.lower().replace("finance", "")


def test_the_same_outcomes_give_the_same_files(tmp_path: Path):
    first = [path.read_bytes() for path in write_report(write_units(tmp_path / "a", two_setups()))]
    second = [
        path.read_bytes() for path in write_report(write_units(tmp_path / "b", two_setups()[::-1]))
    ]
    assert first == second


def test_a_second_report_takes_the_place_of_the_first(tmp_path: Path):
    write_report(write_units(tmp_path, two_setups()))
    before = {path.name for path in (tmp_path / "pictures").iterdir()}
    mine = {tmp_path / "pictures" / name for name in ("mine.svg", "mine.png")}
    for path in mine:
        path.write_text("<svg/>")
    write_report(write_units(tmp_path, [failure()]))
    assert before
    assert set((tmp_path / "pictures").iterdir()) == mine


def test_of_two_outcomes_of_one_unit_the_later_counts(tmp_path: Path):
    """They differ in what the unit does not say, such as a default of the training."""
    figures = [{"space": (0.4, 0.4), "tuned": (0.5 + step, 0.5 + step)} for step in (0.0, 0.1, 0.2)]
    old, first, last = (outcome(one) for one in figures)
    for one, key, ended in ((old, "f", ""), (first, "e", "2026-01-01"), (last, "a", "2026-02-01")):
        one |= {"key": key, "config": {"max_grad_norm": key}} | ({"ended": ended} if ended else {})
    for order in ([old, first, last], [last, old, first]):
        text = write_report(write_units(tmp_path, order))[0].read_text(encoding="utf-8")
        assert "2 units set aside" in text
        assert "| 70.0 | +30.0 |" in text
        assert "| 60.0 | +20.0 |" not in text
