"""What a report makes of units run again, of several variants of one setup, and of zero-shot."""

from __future__ import annotations

from report_outcomes import failure, outcome, report, tables
from test_report import HEADLINE

SYSTEMS = {"space": (0.4, 0.4), "tuned": (0.5, 0.5)}


def test_mended_data_take_the_place_of_the_old() -> None:
    """A file was broken, then wrong, then right: three keys, one setup."""
    broken = failure("no vector in line 7") | {"key": "1", "ended": "2026-01-01"}
    wrong = outcome({"space": (0.4, 0.4), "tuned": (0.3, 0.3)}, default="tuned")
    right = outcome({"space": (0.4, 0.4), "tuned": (0.6, 0.6)}, default="tuned")
    wrong |= {"key": "2", "ended": "2026-01-02", "data": {"seeds": "w" * 64}}
    right |= {"key": "3", "ended": "2026-01-03", "data": {"seeds": "r" * 64}}
    outcomes = [right, broken, wrong]
    text = report(outcomes)
    assert "2 units set aside" in text
    assert "No unit failed." in text
    assert tables(outcomes, "XLING, 5k seed pairs")[0].by_label["+ BLICEr"][0].startswith("60.00")
    rows = tables(outcomes, HEADLINE)[0].by_label
    assert rows["tuned, the paper's method and the default"][0] == "2 of 2"
    # A failure after the success is news.
    late = failure("the disk is full") | {"key": "4", "ended": "2026-01-04"}
    assert "the disk is full" in report([*outcomes, late])


def test_each_space_has_the_variant_that_was_run_of_it() -> None:
    outcomes = [outcome(SYSTEMS, target=target) for target in ("fr", "ru", "fi")]
    outcomes.append(outcome(SYSTEMS, space="c1", max_words=200_000))
    rows = tables(outcomes, HEADLINE)[0].by_label
    assert rows["tuned, the paper's method"][0] == "8 of 8"


def test_zero_shot_is_of_the_space_that_is_reranked() -> None:
    by_c2 = outcome(
        *(SYSTEMS,), setup="zero-shot", space="c2", source="it", target="fr", pivot="en"
    )
    by_c2["config"]["preset"] = "zero_shot"
    (table,) = tables([by_c2], "XLING, no seeds of the pair, zero-shot")
    labels = list(table.by_label)
    assert labels == ["Two views (taught by c2)", "+ BLICEr"]
    column = table.head.index("it→fr") - 1
    assert (
        table.by_label["Two views (taught by c2)"][column] == "40.00"
    )  # the paper has VecMap here


def test_controls_are_not_set_against_the_papers_method() -> None:
    systems = {**SYSTEMS, "untuned": (0.45, 0.45)}
    outcomes = [outcome(systems, encoder="xlm-roberta-large", template="T15", alpha=0.7)]
    rows = tables(outcomes, "The same directions and spaces as in the paper")[0].by_label
    assert list(rows) == ["tuned, the paper's method"]


def test_coverage_and_remarks_stand_at_the_top() -> None:
    few = outcome(SYSTEMS)
    assert "1,000 to 1,000 a direction, 80 to 80 % of the dictionaries." in report([few])
    assert "tell little" not in report([few])
    for system in few["systems"].values():
        system["backward"] |= {"queries": 12}
    few["remarks"] = ["7 of 9 test pairs are seed pairs too"]
    text = report([few])
    head = text.split("## The paper's tables")[0]
    assert "12 to 1,000 a direction, 1 to 80 % of the dictionaries. Fewer than 200" in head
    assert "7 of 9 test pairs are seed pairs too (en-fr 5k VecMap)." in head
