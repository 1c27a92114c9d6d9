"""The shipped figures of the paper, counted again by plain loops over the files."""

from __future__ import annotations

from pathlib import Path

import pytest

import blicer.benchmark
from blicer.benchmark import paper

FOLDER = Path(blicer.benchmark.__file__).parent / "paper"


def lines(name: str) -> list[dict[str, str]]:
    head, *rest = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    names = head.split("\t")
    rows = []
    for line in rest:
        values = line.split("\t")
        assert len(values) == len(names), line
        rows.append(dict(zip(names, values, strict=True)))
    return rows


def looped_pairs(*tables: str) -> list[tuple[str, str, str, str, float, float]]:
    found = []
    rows = lines("p_at_1.tsv")
    for alone in rows:
        if alone["table"] in tables and alone["variant"] == "space":
            for other in rows:
                same = all(
                    alone[name] == other[name]
                    for name in ("table", "dataset", "setup", "space", "direction")
                )
                if same and other["variant"] == "blicer" and alone["direction"] != "average":
                    found.append(
                        (
                            alone["dataset"],
                            alone["setup"],
                            alone["space"],
                            alone["direction"],
                            float(alone["p_at_1"]),
                            float(other["p_at_1"]),
                        )
                    )
    return found


def test_there_are_232_paired_setups_and_231_gain():
    pairs = paper.paired_setups().query("main")
    looped = looped_pairs("xling", "panlex")
    assert len(pairs) == len(looped) == 232
    assert (pairs["dataset"] == "xling").sum() == 14 * 4 * 2
    assert (pairs["dataset"] == "panlex").sum() == 30 * 4 * 1
    assert (pairs["gain"] > 0).sum() == 231
    assert sum(1 for row in looped if row[5] > row[4]) == 231
    columns = ["dataset", "setup", "space", "direction", "alone", "reranked"]
    assert sorted(pairs[columns].itertuples(index=False, name=None)) == sorted(looped)


def test_each_paired_setup_is_there_once():
    pairs = paper.paired_setups()
    assert not pairs.duplicated(["dataset", "setup", "space", "direction"]).any()
    assert len(pairs) == 232 + 14 + 6 + 6


@pytest.mark.parametrize(("setup", "published"), [("5k", 7.76), ("1k", 7.35)])
def test_mean_gains_are_the_ones_in_the_papers_text(setup, published):
    gains = [row[5] - row[4] for row in looped_pairs("xling") if row[1] == setup]
    assert len(gains) == 56
    assert round(sum(gains) / len(gains), 2) == published
    assert round(paper.setups_of("xling", setup)["gain"].mean(), 2) == published


def test_panlex_mean_gain_and_data_sets_the_paper_does_not_have():
    mean = paper.setups_of("panlex", "1k")["gain"].mean()
    assert round(mean, 1) == 10.4  # section "Performance over Languages"
    assert not len(paper.setups_of("panlex", "5k"))
    assert not len(paper.setups_of("muse", "5k"))


def test_averages_are_the_means_of_the_directions():
    """The printed averages, which nothing here computes, agree with the printed directions."""
    rows = lines("p_at_1.tsv")
    checked = 0
    for average in rows:
        if average["direction"] != "average" or average["table"] not in (
            "xling",
            "xling-unsupervised",
            "no-seeds",
        ):
            continue
        values = [
            float(row["p_at_1"])
            for row in rows
            if row["direction"] != "average"
            and all(row[name] == average[name] for name in ("table", "setup", "space", "variant"))
        ]
        assert sum(values) / len(values) == pytest.approx(float(average["p_at_1"]), abs=0.0101)
        checked += 1
    assert checked == 16 + 2 + 4


def test_the_groups_of_panlex_are_the_means_of_its_directions():
    rows = lines("p_at_1.tsv")
    checked = 0
    for group in rows:
        if group["table"] != "panlex-grouped" or group["direction"] == "average":
            continue
        source, target = group["direction"].split("-")
        values = [
            float(row["p_at_1"])
            for row in rows
            if row["table"] == "panlex"
            and (row["space"], row["variant"]) == (group["space"], group["variant"])
            and row["direction"].split("-")[source == "*"] == (target if source == "*" else source)
        ]
        assert len(values) == 5
        assert sum(values) / 5 == pytest.approx(float(group["p_at_1"]), abs=0.0101), group
        checked += 1
    assert checked == 12 * 8


def test_templates():
    values = {name: paper.template_figure(name) for name in (f"T{n}" for n in range(1, 18))}
    assert values.pop("T17") is None
    assert all(values.values())
    assert max(values, key=lambda name: values[name] or 0) == "T15"
    key = ("xling", "xling", "5k", "c2", "blicer", "average")
    assert values["T15"] == paper.figures()[key]


def test_directions_in_the_papers_order():
    def directions(dataset: str, setup: str) -> list[str]:
        return list(paper.setups_of(dataset, setup)["direction"].unique())

    assert directions("data/XLING", "5k")[:4] == ["en-de", "de-en", "en-fi", "fi-en"]
    assert len(directions("xling", "unsupervised")) == 20
    assert len(directions("xling", "zero-shot")) == 6
    assert len(directions("panlex", "1k")) == 30


def test_names_of_data_sets():
    assert paper.paper_dataset("data/XLING/") == "xling"
    assert paper.paper_dataset("PanLex-BLI") == "panlex"
    assert paper.paper_dataset("xling/my-own") == ""
