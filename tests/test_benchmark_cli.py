"""``blicer benchmark``: from files to a table, a second run that does nothing."""

from __future__ import annotations

import shutil
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from benchmark_world import (
    SETTINGS,
    TEST,
    made_up,
    make_world,
    plan,
    write_dictionaries,
    write_vectors,
)
from blicer.benchmark import run
from blicer.benchmark.plan import Dataset, Unit
from blicer.benchmark.report import summary as shown_summary
from blicer.benchmark.results import Result, Results
from blicer.benchmark.run import failed
from blicer.cli import app
from blicer.errors import FileError, InputError
from blicer.files import write_json
from tiny_models import tiny_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_world(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


class InThisProcess:
    """A pool that runs a unit when it is submitted."""

    capacity = 1

    def __init__(self, run: Any) -> None:
        self.run = run

    def submit(self, unit: Unit) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_result(self.run(unit))
        return future

    def close(self) -> None: ...


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["benchmark", *map(str, arguments)], catch_exceptions=False)


def asked(command: str, dataset: Dataset, encoder: Path, out: Path, *more: str) -> list[Any]:
    settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    where = ("--data", dataset.folder, "-o", out, "--encoders", encoder)
    return [command, dataset.name, *where, *settings, "--setups", "5k", *more]


def test_from_files_to_a_table(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # en-fi is not there: it is said, and the rest is done.
    options = asked("run", dataset, encoder, out, "--pairs", "en-fr,fr-fi,en-ru")
    options += ["--spaces", "procrustes", "--jobs", "2"]
    result = call(*options)
    assert result.exit_code == 1
    assert "1 failed" in result.stdout
    assert "blicer data get xling fr-fi" in result.stdout
    assert "of 4 won" in result.stdout
    assert "mean gain at 5k" in result.stdout
    table = (out / "results.tsv").read_text()
    rows = pd.read_csv(out / "results.tsv", sep="\t")
    assert set(rows["direction"]) == {"en-fr", "fr-en", "en-ru", "ru-en"}
    assert (out / "work" / ".gitignore").read_text() == "*\n"

    # Again, without the pair that is not there: nothing is computed.
    shutil.rmtree(out / "work")
    options[options.index("en-fr,fr-fi,en-ru")] = "en-fr,en-ru"
    again = call(*options)
    assert again.exit_code == 0
    assert not list((out / "work").glob("space-*"))
    assert (out / "results.tsv").read_text() == table
    shown = call(*options, "--dry-run")
    assert shown.stdout.splitlines()[-1] == "2 units, 2 done, 0 to do"


def test_a_folder_of_ones_own(encoder: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine"
    write_vectors(own, "en", "fr")
    write_dictionaries(own, "en-fr", "own", "60")
    result = call(
        *("run", "--dry-run", own, "-o", tmp_path / "out", "--pairs", "fr-en", "--setups", "60"),
        *("--encoders", encoder, "--spaces", "vecmap"),
    )
    assert result.exit_code == 0
    key, state, label, systems = result.stdout.splitlines()[0].split("\t")
    assert (len(key), state, systems) == (16, "to do", "space,tuned")
    assert label.startswith("fr-en 60 vecmap")
    assert not (tmp_path / "out").exists()


def test_what_fails_is_listed_with_its_sentence(
    dataset: Dataset, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlucky(task: Unit) -> Result:
        bad = task.target == "ru"
        return failed(task, "the moon was full") if bad else made_up(task)

    monkeypatch.setattr(run, "LocalPool", lambda *_: InThisProcess(unlucky))
    arguments = asked("run", dataset, encoder, tmp_path, "--pairs", "en-fr,en-ru")
    result = call(*arguments, "--spaces", "procrustes")
    assert result.exit_code == 1
    assert "2 of 2 won, 2 significantly" in result.stdout
    assert "en-ru 5k procrustes" in result.stdout
    assert "the moon was full" in result.stdout
    result = call("report", tmp_path)
    assert result.exit_code == 0
    assert (tmp_path / "report.md").is_file()
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize("missing", ["source", "target"])
def test_a_test_dictionary_of_other_words_is_found_before_the_work(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    dataset = make_world(tmp_path / "data")
    test = tmp_path / "data" / TEST["xling"].format(pair="en-fr")
    pairs = [line.split("\t") for line in test.read_text().splitlines()]
    others = [("zzz", b) if missing == "source" else (a, "zzz") for a, b in pairs]
    test.write_text("".join(f"{a}\t{b}\n" for a, b in others))

    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("something was fitted")

    monkeypatch.setattr(run, "prepare", work)
    alone = partial(run.attempt, dataset=dataset, work=tmp_path / "out" / "work")
    monkeypatch.setattr(run, "LocalPool", lambda *_: InThisProcess(alone))
    arguments = asked("run", dataset, encoder, tmp_path / "out", "--pairs", "en-fr")
    result = call(*arguments, "--spaces", "procrustes")
    assert result.exit_code == 1
    assert "no word of the test dictionary" in " ".join(result.stdout.split())
    assert "something was fitted" not in result.stdout
    assert not [*(tmp_path / "out").rglob("space-*")]


def test_a_failure_that_leaves_earlier_figures_is_listed_too(
    dataset: Dataset, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LocalPool", lambda *_: InThisProcess(made_up))
    arguments = asked("run", dataset, encoder, tmp_path, "--pairs", "en-fr")
    assert call(*arguments, "--systems", "tuned").exit_code == 0
    unlucky = InThisProcess(lambda task: failed(task, "the moon was full"))
    monkeypatch.setattr(run, "LocalPool", lambda *_: unlucky)
    result = call(*arguments, "--systems", "untuned")
    assert result.exit_code == 1
    assert "the moon was full" in result.stdout
    assert result.stdout.count("failed") == 1


def test_units_go_to_a_ray_cluster(
    dataset: Dataset, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    class Cluster(InThisProcess):
        def __init__(self, run: Any, address: str, **needs: float) -> None:
            super().__init__(made_up)
            seen.update({"run": run, "address": address, **needs})

    monkeypatch.setattr("blicer.benchmark.run.RayPool", Cluster)
    arguments = asked("run", dataset, encoder, tmp_path, "--pairs", "en-fr")
    options = ("--ray", "auto", "--cpus-per-unit", "2", "--gpus-per-unit", "0.5")
    assert call(*arguments, *options).exit_code == 0
    job = seen.pop("run").keywords
    assert seen == {"address": "auto", "cpus": 2.0, "gpus": 0.5}
    assert (job["threads"], job["home"], job["work"]) == (2, Path.cwd(), tmp_path / "work")
    assert job["dataset"].folder.is_absolute()


def test_an_output_that_is_a_file_is_one_sentence(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FileError, match="cannot be made"):
        call(*asked("run", dataset, encoder, tmp_path / "out", "--pairs", "en-fr"))


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--alphas", "0,half", "--alphas '0,half': expected numbers with commas between"),
        ("--setups", "test", "setup 'test': expected a number of seed pairs"),
        ("--set", "alhpa=1", "did you mean 'alpha'"),
        ("--systems", "X", "there is no system 'X'"),
    ],
)
def test_bad_options_are_one_sentence(
    dataset: Dataset, encoder: Path, tmp_path: Path, option: str, value: str, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        call(*asked("run", dataset, encoder, tmp_path, "--pairs", "en-fr", option, value))


def summary(folder: Path, results: list[Result]) -> list[str]:
    """What the command prints about these results."""
    for result in results:
        write_json(folder / "units" / f"{result['key']}.json", result)
    keys = {result["key"] for result in results}
    return shown_summary(folder, keys).splitlines()


def test_the_summary_by_hand(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    results = [made_up(unit) for unit in plan(dataset, encoder, setups=["5k", "1k"])]
    gains = [(0.10, 0.01), (-0.02, 0.5), (0.03, 0.2), (0.05, 0.04)]
    for at, (difference, p_value) in enumerate(gains):
        scores = results[at // 2]["systems"]["tuned"][("forward", "backward")[at % 2]]
        scores["gain"] = {**scores["gain"], "difference": difference, "p_value": p_value}
    results[1]["remarks"] = ["2 of 12 test pairs are seed pairs too"]
    shown = summary(tmp_path, results)
    assert [line.split() for line in shown[2:6]] == [
        ["en-fr", "5k", "Procrustes", "tuned", "50.0", "50.0", "10.0", "*", "-5.0", "20.0"],
        ["fr-en", "5k", "Procrustes", "tuned", "50.0", "50.0", "-2.0", "-5.0", "20.0"],
        ["en-fr", "1k", "Procrustes", "tuned", "50.0", "50.0", "3.0", "-5.0", "20.0"],
        ["fr-en", "1k", "Procrustes", "tuned", "50.0", "50.0", "5.0", "*", "-5.0", "20.0"],
    ]
    assert "10 to 10 a direction, 83 to 83 %" in shown[6]
    assert "fewer than 200 words" in shown[7]
    assert shown[8:11] == [
        "3 of 4 won, 2 significantly (p < 0.05)",
        "mean gain at 5k: +4.00 points over 2",
        "mean gain at 1k: +4.00 points over 2",
    ]
    assert shown[11:] == ["en-fr 1k Procrustes: 2 of 12 test pairs are seed pairs too"]
    # A second training seed is averaged in (where seeds disagree there is no claim); another α is
    # shown but not counted.
    (again,) = (made_up(unit) for unit in plan(dataset, encoder, training_seeds=[34]))
    again["systems"]["tuned"]["forward"]["gain"]["difference"] = -0.04
    others = [made_up(unit) for unit in plan(dataset, encoder, setups=["1k"], alphas=[0.923])]
    shown = summary(tmp_path, [*results, again, *others])
    assert [line.split()[-4:] for line in shown if line.split()[:2] == ["en-fr", "5k"]] == [
        ["50.0", "3.0", "-5.0", "20.0"]
    ]
    assert "3 of 4 won, 1 significantly (p < 0.05)" in shown
    assert "other templates, alphas or settings, see the report: 2 rows" in shown


def test_a_summary_of_spaces_alone(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    results = [made_up(unit) for unit in plan(dataset, encoder, systems=["space"])]
    shown = summary(tmp_path, results)
    assert shown[2].split()[:5] == ["en-fr", "5k", "Procrustes", "space", "50.0"]
    assert "won" not in " ".join(shown)


def test_the_results_of_another_plan_stay(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.prepare()
    for task in plan(dataset, encoder, alphas=[0, 1]):
        results.write(made_up(task))
    arguments = asked("run", dataset, encoder, tmp_path, "--pairs", "en-fr")
    result = call(*arguments, "--spaces", "procrustes", "--alphas", "0", "--max-words", "200000")
    assert result.exit_code == 0
    assert "of 2 won" in result.stdout
    assert set(pd.read_csv(results.table, sep="\t")["alpha"]) == {0.0, 1.0}


def test_shards_and_their_merge(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    pairs = ("--pairs", "en-fr,en-ru", "--spaces", "procrustes", "--dry-run")
    listed = []
    for part in ("1/2", "2/2"):
        shown = call(*asked("run", dataset, encoder, tmp_path / "x", *pairs, "--shard", part))
        listed += [line.split("\t")[0] for line in shown.stdout.splitlines() if "\t" in line]
    units = plan(dataset, encoder, pairs=["en-fr", "en-ru"])
    assert len(listed) == len(set(listed)) == len(units) == 2
    for place, unit in enumerate(units):
        results = Results(tmp_path / str(place))
        results.prepare()
        results.write(made_up(unit))
    merged = call("merge", tmp_path / "0", tmp_path / "1", "-o", tmp_path / "all")
    assert merged.exit_code == 0
    rows = pd.read_csv(tmp_path / "all" / "results.tsv", sep="\t")
    assert set(rows["key"]) == {unit.key for unit in units}
    assert (tmp_path / "all" / "report.html").exists()


def test_slurm_needs_a_time_and_no_ray(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    options = asked("run", dataset, encoder, tmp_path, "--pairs", "en-fr", "--slurm")
    with pytest.raises(InputError, match="time="):
        call(*options)
    with pytest.raises(InputError, match="not both"):
        call(*options, "--ray", "local")
