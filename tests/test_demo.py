"""The demonstration on a cut-down vocabulary: runs to the end, and the page says what JSON says."""

from __future__ import annotations

import json
import re
import socket
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blicer import plots
from blicer.cli import app
from blicer.demo import page, run
from blicer.errors import FileError, MissingDependency
from blicer.pages import render
from blicer.starter import load
from blicer.translator import Translator
from tiny_models import tiny_encoder

WORDS = 2_500
PLAN: dict[str, Any] = {
    "words": WORDS,
    "settings": {"scorers": ["spelling"], "n_neg": 5},
    "dictionary_words": 50,
    "bootstrap": 100,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "out"


@pytest.fixture(scope="module")
def results(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("the demonstration went to the network")

        patch.setattr(socket.socket, "connect", refuse)
        return run(folder, **PLAN)


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
    assert len(parser.found) == 3
    assert all(found.startswith("data:image/svg+xml;base64,") for found in parser.found)
    assert not parser.tags & {"link", "iframe", "object", "embed"}  # scripts are in the page
    assert not re.search(r"https?:|@import|url\(", text)


def test_page_has_the_numbers_that_the_json_has(folder: Path, results: Any) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    saved = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert saved == json.loads(json.dumps(results))
    assert [system["name"] for system in saved["systems"]] == [
        "Procrustes, CSLS",
        "Two views, CSLS",
        "Two views, reranked",
    ]
    for system in saved["systems"]:
        for direction in ("forward", "backward"):
            for metric in ("p@1", "p@5", "mrr"):
                low, high = system[direction][f"{metric}_interval"]
                shown = f"{100 * system[direction][metric]:.1f} <small>({100 * low:.1f}–"
                assert f"{shown}{100 * high:.1f})</small>" in text
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


def test_the_page_holds_the_dictionary_that_was_written(folder: Path, results: Any) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    (embedded,) = re.findall(r'id="entries">(.*?)</script>', text)
    rows = (folder / "dictionary.en-ru.tsv").read_text(encoding="utf-8").splitlines()[1:]
    expected: dict[str, list[list[Any]]] = {}
    for source, target, sure, *_ in (row.split("\t") for row in rows):
        expected.setdefault(source, []).append([target, round(float(sure), 2)])
    assert json.loads(embedded) == expected
    pair = results["pair"]
    assert f"{pair['test_words']:,} English and {pair['test_words_back']:,} Russian words" in text


def test_test_words_reach_no_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import blicer.pipeline

    class Seen(Exception):
        """Carries the arguments of the training."""

    def spy(*arguments: Any, **named: Any) -> None:
        raise Seen(*arguments, *named.values())

    monkeypatch.setattr(blicer.pipeline, "train", spy)
    with pytest.raises(Seen) as seen:
        run(tmp_path / "out", **PLAN)
    pair = load()
    source, target, seeds, config = seen.value.args
    assert (len(source), len(target), list(seeds)) == (WORDS, WORDS, list(pair.seeds))
    assert config.scorers == ("spelling",)


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


def test_the_terminal_shows_scores_words_and_what_comes_next(results: Any) -> None:
    text = render("demo.txt.j2", **results)
    after = results["systems"][-1]["forward"]
    assert f"{100 * after['p@1']:.1f} (" in text
    for row in results["changes"]["corrected"]:
        assert row["word"] in text
    for command in results["next"]:
        assert command in text


def test_a_trained_encoder_takes_the_same_way(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "epochs": 1,
        "n_neg": 2,
        "n_rep": 0,
        "n_cand": 4,
        "learning_rate": 1e-3,
    }
    settings |= {"scorers": ["cross-encoder", "spelling"], "refit": False}
    settings["encoder"] = str(tiny_encoder(tmp_path / "encoder"))
    results = run(tmp_path / "out", words=800, settings=settings, dictionary_words=20, bootstrap=20)
    assert set(results["mixture"]["weights"]) == {"csls", "cross-encoder", "spelling"}
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "P@1 on held-out seed words as λ" in text
    names = [scorer.name for scorer in Translator.load(tmp_path / "out" / "translator").scorers]
    assert names == ["cross-encoder", "spelling"]


def test_an_output_that_is_a_file_is_refused_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("mine")
    with pytest.raises(FileError, match="is a file"):
        run(path, **PLAN)
    assert path.read_text() == "mine"


def test_a_missing_package_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependency, match=r"blicer\[demo\]"):
        run(tmp_path / "out", **PLAN)
    assert not (tmp_path / "out").exists()


def points(svg: str, kind: str) -> list[tuple[float, float]]:
    """Where the marks of a picture stand; y grows upwards."""
    found = re.findall(rf'<use xlink:href="#{kind}[^>]* x="([\d.]+)" y="([\d.]+)"', svg)
    return [(float(x), -float(y)) for x, y in found]


def lines(svg: str) -> list[list[tuple[float, float]]]:
    """The corners of each line of a picture; y grows upwards."""
    paths = re.findall(r'<path d="((?:[ML] [\d.]+ [\d.]+\s*)+)"', svg)
    corners = [re.findall(r"([\d.]+) ([\d.]+)", path) for path in paths]
    return [[(float(x), -float(y)) for x, y in path] for path in corners]


def test_pictures_by_hand() -> None:
    curve = plots.Curve("mixed", [0.0, 0.5, 1.0], [50.0, 60.0, 55.0], 0.5)
    picture = plots.curves([curve], "title", "λ", "P@1", baseline=("CSLS alone", 50.0))
    assert "λ = 0.50" in picture
    assert "CSLS alone" in picture
    (chosen,) = points(picture, "m")[:1]
    first, middle, last = next(line for line in lines(picture) if len(line) == 3)
    assert middle == chosen  # the chosen λ is marked on the curve
    assert first[0] < middle[0] < last[0]
    assert first[1] < last[1] < middle[1]
    assert middle[1] - first[1] == pytest.approx(2 * (last[1] - first[1]), abs=0.01)
    assert "right, %" in plots.reliability([(0.5, 0.5, 10), (0.2, 0.1, 4)], "title")


def test_risk_coverage_by_hand() -> None:
    # Mean confidences of the cuts: 1, 0.98, 0.94: 95 % is promised up to the second.
    rows = [(0.25, 1.0, 1.0), (0.5, 0.5, 0.96), (1.0, 0.75, 0.9)]
    picture = plots.risk_coverage({"forward": rows}, "title")
    assert "forward: 50.0 % right where 95 % is promised" in picture
    (dot,) = points(picture, "m")[:1]
    first, second, last = next(line for line in lines(picture) if len(line) == 3)
    assert second == dot
    assert last[0] - second[0] == pytest.approx(2 * (second[0] - first[0]), abs=0.01)
    assert first[1] - last[1] == pytest.approx(last[1] - second[1], abs=0.01)
    assert "promised" not in plots.risk_coverage({"forward": rows}, "title", promised=False)
    assert "promised" not in plots.risk_coverage({"forward": [(1.0, 0.5, 0.4)]}, "title")


def test_page_escapes_words_and_shows_several_weights(results: Any) -> None:
    changed = json.loads(json.dumps(results))
    changed["changes"]["corrected"] = [
        {"word": "<script>", "before": "a&b", "after": "c", "gold": ["<b>"], "confidence": None}
    ]
    changed["mixture"] = {
        "weights": {"csls": 0.5, "spelling": 0.2, "cross-encoder": 0.3},
        "curve": [[0.0, 0.5], [0.5, 0.6], [1.0, 0.55]],
        "queries": 7,
    }
    changed["calibration"] = None
    text = page(changed, {"</script><b>": [("<i>", 0.5)]})
    (embedded,) = re.findall(r'id="entries">(.*?)</script>', text)
    assert json.loads(embedded) == {"</script><b>": [["<i>", 0.5]]}
    assert "<b>" not in text
    assert text.count("<script>") == 1  # our own
    assert "&lt;script&gt;" in text
    assert "a&amp;b" in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "cross-encoder 0.30" in text
