"""The demonstration on a cut-down vocabulary: runs to the end, and the page says what JSON says."""

from __future__ import annotations

import json
import re
import socket
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from blicer import demo
from blicer.cli import app
from blicer.demo import Plan, moved, run
from blicer.demo_page import page, percent
from blicer.demo_pictures import lambda_picture, reliability_picture
from blicer.errors import FileError
from blicer.starter import load
from blicer.translator import Translator
from tiny_models import tiny_encoder

WORDS = 2_500
PLAN = Plan(
    words=WORDS,
    scorers=("spelling",),
    settings={"n_neg": 5},
    dictionary_words=50,
    bootstrap=100,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "out"


@pytest.fixture(scope="module")
def results(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("the demonstration went to the network")

        patch.setattr(socket.socket, "connect", refuse)
        return run(folder, PLAN)


class Resources(HTMLParser):
    """Collects whatever a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]


def test_page_needs_no_other_file(folder: Path, results: Any) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    parser = Resources()
    parser.feed(text)
    assert parser.found == []
    assert {"svg", "table", "style"} <= parser.tags
    assert not parser.tags & {"script", "link", "img", "iframe", "object", "embed"}
    assert not re.search(r"https?:|//|@import|url\(", text)


def test_page_has_the_numbers_that_the_json_has(folder: Path, results: Any) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    saved = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert saved == json.loads(json.dumps(results))
    assert [system["name"] for system in saved["systems"]] == [
        "Procrustes, CSLS",
        "VecMap, CSLS",
        "VecMap, reranked",
    ]
    for system in saved["systems"]:
        for direction in ("forward", "backward"):
            for metric in ("p@1", "p@5", "mrr"):
                low, high = system[direction][f"{metric}_interval"]
                shown = f"{100 * system[direction][metric]:.1f} <small>{100 * low:.1f}–"
                assert f"{shown}{100 * high:.1f}</small>" in text
    for kind in ("corrected", "spoiled"):
        for row in saved["changes"][kind]:
            assert f"<td>{row['word']}</td>" in text
            assert f">{row['after']}</td>" in text
    share = 1 - saved["mixture"]["weights"]["csls"]
    assert f"λ = {share:.2f}" in text
    for command in saved["next"]:
        assert command in text


def test_scores_are_those_of_the_saved_translator(folder: Path, results: Any) -> None:
    """Counted again with a plain loop over ``translate``."""
    translator = Translator.load(folder / "translator")
    test = load().test
    asked = [
        word
        for word, golds in test.targets.items()
        if word in translator.source and any(gold in translator.target for gold in golds)
    ]
    best = {entry.word: entry.best for entry in translator.translate(asked, 1)}
    right = sum(best[word] in test.targets[word] for word in asked)
    assert results["systems"][-1]["forward"]["p@1"] == pytest.approx(right / len(asked))
    assert results["pair"]["test_words"] == len(asked)


def test_words_shown_really_changed(results: Any) -> None:
    for row in results["changes"]["corrected"]:
        assert row["after"] in row["gold"]
        assert row["before"] not in row["gold"]
    for row in results["changes"]["spoiled"]:
        assert row["before"] in row["gold"]
        assert row["after"] not in row["gold"]
    counts = results["changes"]["counts"]["forward"]
    gain = results["gain"]["forward"]
    moved_words = counts["corrected"] - counts["spoiled"]
    assert gain["p@1"]["difference"] * gain["queries"] == pytest.approx(moved_words)


def test_dictionary_is_written(folder: Path, results: Any) -> None:
    rows = (folder / "dictionary.en-ru.tsv").read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("source\ttarget")
    assert len(rows) - 1 == results["dictionary"]["entries"]
    assert len({row.split("\t")[0] for row in rows[1:]}) == 50


def test_test_words_reach_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    import blicer.pipeline

    seen = []

    def spy(source: Any, target: Any, seeds: Any, *_: Any) -> None:
        seen.append(seeds)

    monkeypatch.setattr(blicer.pipeline, "train", spy)
    pair = load()
    demo.train(pair, PLAN, ("spelling",))
    assert seen == [pair.seeds]


def test_command_runs_again_over_its_output_and_prints_json_alone(
    folder: Path, results: Any
) -> None:
    arguments = ["-q", "demo", "-o", str(folder), "--words", "1500", "--scorers", "spelling"]
    again = CliRunner().invoke(app, [*arguments, "--json"])
    assert again.exit_code == 0, again.output
    printed = json.loads(again.stdout)
    assert printed["pair"]["source_words"] == 1500
    assert printed == json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert sorted(path.name for path in folder.iterdir()) == [
        "dictionary.en-ru.tsv",
        "index.html",
        "results.json",
        "translator",
    ]
    assert len(Translator.load(folder / "translator").source) == 1500


def test_show_prints_scores_words_and_what_comes_next(
    results: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from blicer.cli.demo import show

    show(results)
    text = capsys.readouterr().out
    after = results["systems"][-1]["forward"]
    assert f"{100 * after['p@1']:.1f} (" in text
    for row in results["changes"]["corrected"]:
        assert row["word"] in text
    for command in results["next"]:
        assert command in text


def test_a_trained_encoder_takes_the_same_way(tmp_path: Path) -> None:
    settings = {"epochs": 1, "n_neg": 2, "n_rep": 0, "n_cand": 4, "learning_rate": 1e-3}
    plan = Plan(
        words=800,
        scorers=("cross-encoder", "spelling"),
        settings={**settings, "encoder": str(tiny_encoder(tmp_path / "encoder"))},
        refit=False,
        dictionary_words=20,
        bootstrap=20,
    )
    results = run(tmp_path / "out", plan)
    assert set(results["mixture"]["weights"]) == {"csls", "cross-encoder", "spelling"}
    assert "--scorers" not in results["next"][0]
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "P@1 on held-out seed words as λ" in text
    names = [scorer.name for scorer in Translator.load(tmp_path / "out" / "translator").scorers]
    assert names == ["cross-encoder", "spelling"]


def test_an_output_that_is_a_file_is_refused_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("mine")
    with pytest.raises(FileError, match="is a file"):
        run(path, PLAN)
    assert path.read_text() == "mine"


def test_moved_by_hand() -> None:
    class Result:
        def __init__(self, ranks: list[int]) -> None:
            self.ranks = np.array(ranks)

    before, after = Result([1, 2, 1, 0, 9]), Result([1, 1, 3, 0, 1])
    corrected, spoiled = moved(before, after)  # type: ignore[arg-type]
    assert corrected.tolist() == [1, 4]
    assert spoiled.tolist() == [2]


def test_pictures_by_hand() -> None:
    picture = lambda_picture([(0.0, 0.5), (0.5, 0.6), (1.0, 0.55)], 0.5)
    # λ 0.5 is the middle of 52..424; 0.6 of 0.5..0.65 is two thirds up of 254..16.
    assert 'cx="238.0" cy="95.3"' in picture
    assert "λ = 0.50" in picture
    assert 'cx="238.0" cy="135.0"' in reliability_picture([(0.5, 0.5, 10)])


def test_page_escapes_words_and_shows_several_weights(results: Any) -> None:
    changed = json.loads(json.dumps(results))
    changed["changes"]["corrected"] = [
        {"word": "<script>", "before": "a&b", "after": "c", "gold": ["c"], "confidence": None}
    ]
    changed["mixture"] = {
        "weights": {"csls": 0.5, "spelling": 0.2, "cross-encoder": 0.3},
        "curve": [[0.0, 0.5], [0.5, 0.6], [1.0, 0.55]],
        "queries": 7,
    }
    changed["calibration"] = None
    text = page(changed)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "a&amp;b" in text
    assert "cross-encoder 0.30" in text
    assert percent(-0.0123, "+") == "−1.2"
