"""Running a plan: what is skipped, what is kept, what happens when something dies."""

from __future__ import annotations

import csv
import importlib
import json
import os
import sys
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from benchmark_world import DiesOnce, made_up, make_world, plan, quick, sleeper
from blicer.align.rcsls import RCSLS
from blicer.benchmark.plan import Dataset, Unit, shard
from blicer.benchmark.report import write_report
from blicer.benchmark.results import (
    COLUMNS,
    Result,
    Results,
    load_units,
    merge,
)
from blicer.benchmark.run import (
    LocalPool,
    RayPool,
    attempt,
    failed,
    free_memory,
    limit_threads,
    local_pool,
    next_unit,
    run_on_slurm,
    run_unit,
    run_units,
    unit_memory,
)
from blicer.config import Config
from blicer.errors import BlicerError, FileError, InputError, MissingDependency
from blicer.files import write_json
from tiny_models import tiny_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_world(tmp_path_factory.mktemp("data"))


class Here:
    """A pool in this process that counts what it runs."""

    def __init__(self, run: Any = made_up, capacity: int = 1) -> None:
        self.run, self.capacity, self.closed = run, capacity, False
        self.started: list[Unit] = []

    def submit(self, unit: Unit) -> Future[Result]:
        self.started.append(unit)
        future: Future[Result] = Future()
        future.set_result(self.run(unit))
        return future

    def close(self) -> None:
        self.closed = True


def run(tasks: list[Unit], folder: Path, pool: Any) -> Results:
    results = Results(folder)
    results.prepare()
    run_units(left_to_do(tasks, results), pool, results)
    return results


def left_to_do(units: list[Unit], results: Results) -> list[Unit]:
    return [replace(unit, systems=names) for unit in units if (names := results.missing(unit))]


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of ``results.tsv``, with None in empty cells; texts and JSON as they stand there."""
    quoting: Any = csv.QUOTE_NONE
    frame = pd.read_csv(folder / "results.tsv", sep="\t", quoting=quoting).astype(object)
    return frame.where(frame.notna(), None).to_dict("records")


def figures(results: Results) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The table without what differs from run to run, and all figures with their λ curves."""
    rows = [
        {column: row[column] for column in COLUMNS if column != "ended"}
        for row in read(results.folder)
    ]
    return rows, [result["systems"] for result in load_units(results.folder)]


# -- what is skipped -----------------------------------------------------------------------------


def test_a_repeated_run_computes_nothing(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    tasks = plan(dataset, encoder, pairs=["en-fr", "en-ru"], alphas=[0, 1])
    first, second = Here(), Here()
    before = run(tasks, tmp_path, first)
    assert [task.key for task in first.started] == [task.key for task in tasks]
    content = before.table.read_bytes()
    run(tasks, tmp_path, second)
    assert second.started == []
    assert before.table.read_bytes() == content
    run(plan(dataset, encoder, pairs=["en-fr"], alphas=[0, 0.5, 1]), tmp_path, second)
    assert [task.config.alpha for task in second.started] == [0.5]


def test_one_more_system_keeps_the_earlier_ones(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    run(plan(dataset, encoder, systems=["tuned"]), tmp_path, Here())
    again = Here()
    results = run(plan(dataset, encoder, systems=["untuned"]), tmp_path, again)
    assert [task.systems for task in again.started] == [("space", "untuned")]
    (outcome,) = load_units(results.folder)
    assert list(outcome["systems"]) == ["space", "untuned", "tuned"]
    assert outcome["unit"]["systems"] == ["space", "untuned", "tuned"]
    fewer = Here()
    run(plan(dataset, encoder, systems=["tuned"]), tmp_path, fewer)
    assert fewer.started == []


def test_a_failure_does_not_take_finished_figures(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    """A unit that is run again for one more system and dies keeps what it had."""
    run(plan(dataset, encoder, systems=["tuned"]), tmp_path, Here())
    more = plan(dataset, encoder, systems=["untuned"])
    results = run(more, tmp_path, Here(lambda task: failed(task, "no luck")))
    (outcome,) = load_units(results.folder)
    assert (outcome["status"], list(outcome["systems"])) == ("done", ["space", "tuned"])
    again = Here()
    run(more, tmp_path, again)
    assert [task.systems for task in again.started] == [("space", "untuned")]
    (outcome,) = load_units(results.folder)
    assert list(outcome["systems"]) == ["space", "untuned", "tuned"]


def test_two_runs_at_once_do_not_take_each_others_figures(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    """Both look before either has written."""
    results = Results(tmp_path)
    results.prepare()
    (one,), (other,) = (plan(dataset, encoder, systems=[name]) for name in ("tuned", "untuned"))
    first, second = made_up(one), made_up(other)
    results.write(first)
    results.write(second)
    (outcome,) = load_units(results.folder)
    assert outcome["systems"] == {**first["systems"], **second["systems"]}


def test_a_method_that_has_other_settings_since_then_is_run_again(
    dataset: Dataset, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = plan(dataset, encoder, spaces=["rcsls"])
    results = run(units, tmp_path, Here())
    assert left_to_do(plan(dataset, encoder, spaces=["rcsls"]), results) == []
    changed = {**RCSLS.presets, "supervised": {"learning_rate": 1.0}}
    monkeypatch.setattr(RCSLS, "presets", changed)
    assert left_to_do(plan(dataset, encoder, spaces=["rcsls"]), results) == units


def test_another_version_of_lite_is_run_again(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = plan(dataset, "lite")
    results = run(units, tmp_path, Here())
    assert left_to_do(plan(dataset, "lite"), results) == []
    monkeypatch.setattr("blicer.lite.version", lambda: "another")
    assert left_to_do(plan(dataset, "lite"), results) == units


def test_a_failure_is_listed_tried_again_and_stops_nothing(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    tasks = plan(dataset, encoder, alphas=[0, 0.5, 1])
    victim = tasks[1].key
    pool = Here(lambda task: failed(task, "no luck") if task.key == victim else made_up(task))
    results = run(tasks, tmp_path, pool)
    assert Counter(outcome["status"] for outcome in load_units(results.folder)) == {
        "done": 2,
        "failed": 1,
    }
    lines = read(results.folder)
    (bad,) = [row for row in lines if row["status"] == "failed"]
    assert (bad["key"], bad["error"], bad["p@1"], bad["system"]) == (victim, "no luck", None, None)
    assert len(lines) == 1 + 2 * 2 * 2
    again = Here()
    run(tasks, tmp_path, again)
    assert [task.key for task in again.started] == [victim]
    assert all(row["status"] == "done" for row in read(results.folder))


def test_a_unit_file_that_is_cut_off_is_computed_again(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    tasks = plan(dataset, encoder)
    results = run(tasks, tmp_path, Here())
    file = results.units / f"{tasks[0].key}.json"
    file.write_text(file.read_text()[:100])
    again = Here()
    run(tasks, tmp_path, again)
    assert again.started == tasks


def test_a_damaged_file_of_another_plan_is_listed_and_stops_nothing(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    results = Results(tmp_path)
    results.prepare()
    (results.units / "00.json").write_text('{"key": "00", "sta')
    run(plan(dataset, encoder), tmp_path, Here())
    rows = read(results.folder)
    (bad,) = [row for row in rows if row["status"] == "failed"]
    assert (str(bad["key"]).zfill(2), bad["pair"]) == ("00", None)
    assert "is not JSON" in bad["error"]
    assert len(rows) == 1 + 2 * 2
    text = write_report(tmp_path)[0].read_text(encoding="utf-8")
    assert "1 unit failed" in text
    assert "is not JSON" in text


def test_an_interrupt_keeps_what_is_finished(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    tasks = plan(dataset, encoder, alphas=[0, 0.5, 1])

    def interrupted(task: Unit) -> Result:
        if task.key == tasks[1].key:
            raise KeyboardInterrupt
        return made_up(task)

    pool = Here(interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tasks, tmp_path, pool)
    assert pool.closed
    assert {row["key"] for row in read(tmp_path)} == {tasks[0].key}
    again = Here()
    run(tasks, tmp_path, again)
    assert [task.key for task in again.started] == [task.key for task in tasks[1:]]


# -- in which order ------------------------------------------------------------------------------


NEEDED = st.sampled_from([{"a"}, {"b"}, {"c"}, {"a", "b"}, {"b", "c"}])


@given(st.lists(NEEDED, min_size=1, max_size=12), st.integers(1, 4), st.randoms())
def test_no_two_units_make_the_same_space(
    needed: list[set[str]], capacity: int, random: Any
) -> None:
    class Fake:
        def __init__(self, spaces: set[str]) -> None:
            self.spaces = spaces

    waiting: list[Any] = [Fake(spaces) for spaces in needed]
    running: list[Any] = []
    made: set[str] = set()
    while waiting or running:
        while len(running) < capacity and (unit := next_unit(waiting, running, made)) is not None:
            beside = {space for other in running for space in other.spaces}
            assert not beside.intersection(unit.spaces) - made
            waiting.remove(unit)
            running.append(unit)
        made |= running.pop(random.randrange(len(running))).spaces


def test_c2_waits_for_the_c1_that_it_is_made_from(dataset: Dataset, encoder: Path) -> None:
    c1, c2, other = (
        plan(dataset, encoder, spaces=[space], pairs=[pair])[0]
        for space, pair in (("c1", "en-fr"), ("c2", "en-fr"), ("c2", "en-ru"))
    )
    assert next_unit([c2, other], [c1], set()) is other
    assert next_unit([c2], [c1, other], set()) is None
    assert next_unit([c2], [c1, other], c1.spaces | c2.spaces) is c2


# -- the table -----------------------------------------------------------------------------------


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3), st.text(max_size=30))
def test_the_table_holds_the_figures(settings: dict[str, str], error: str) -> None:
    import tempfile

    config = Config.resolve(overrides={"alpha": 0.1, "seed": 3})
    unit = Unit(
        dataset="d",
        source="en",
        target="fr",
        setup="5k",
        max_words=9,
        systems=("space", "tuned"),
        settings=settings,
        config=config,
        data={"seeds": "abc"},
    )
    good, bad = made_up(unit), failed(replace(unit, data={"seeds": "other"}), error)
    with tempfile.TemporaryDirectory() as folder:
        results = Results(folder)
        results.prepare()
        results.write(good)
        results.write(bad)
        results.write_table()
        head, *lines = results.table.read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert head.split("\t") == list(COLUMNS)
    rows = [dict(zip(COLUMNS, line.split("\t"), strict=True)) for line in lines]
    assert len(rows) == 5
    assert {row["error"] for row in rows} == {"", " ".join(bad["error"].split())}
    (done,) = [r for r in rows if (r["system"], r["direction"]) == ("tuned", "fr-en")]
    assert (done["pair"], done["gain"], done["p_value"]) == ("en-fr", "0.1", "0.04")
    assert (done["alpha"], done["training_seed"], done["default"]) == ("0.1", "3", "1")
    assert json.loads(done["settings"]) == settings


def test_folders_and_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="it has no units/"):
        load_units(tmp_path)
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "0.json").write_text("[]")
    (broken,) = load_units(tmp_path)
    assert (broken["key"], broken["status"]) == ("0", "failed")
    assert "is not the result of a unit" in broken["error"]


# -- memory --------------------------------------------------------------------------------------


def test_no_more_jobs_than_memory_holds(
    dataset: Dataset, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = plan(dataset, encoder, pairs=["en-fr", "en-ru"])
    each = unit_memory(units[0], dataset)
    # 0: the system does not tell.
    for free, jobs in ((10 * each, 4), (int(2.5 * each), 2), (each // 2, 1), (0, 4)):
        monkeypatch.setattr("blicer.benchmark.run.free_memory", lambda free=free: free)
        assert local_pool(made_up, units, dataset, 4, 1).capacity == jobs
    monkeypatch.undo()
    # A vector file counts with what it can hold in memory, up to the words that are read.
    large = tmp_path / "vectors" / "en.vec"
    large.parent.mkdir()
    large.write_bytes(b"x" * 10_000_000)
    (tmp_path / "vectors" / "fr.vec").touch()
    own = Dataset("own", tmp_path)
    few, many = (unit_memory(replace(units[0], max_words=n), own) for n in (1, 1_000_000))
    assert many - few == pytest.approx(8 * (20_000_000 - 1200), abs=10)
    assert free_memory() > 0


# -- processes -----------------------------------------------------------------------------------


def tricks(dataset: Dataset, encoder: Path, *names: str) -> list[Unit]:
    (unit,) = plan(dataset, encoder)
    return [replace(unit, settings={"trick": name}, max_words=n) for n, name in enumerate(names)]


@pytest.fixture
def here_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spawned processes import ``benchmark_world`` by its name."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.usefixtures("here_on_the_path")
def test_a_process_that_dies_takes_nothing_with_it(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    tasks = tricks(dataset, encoder, "fine", "dies", f"once {tmp_path / 'marker'}", "fine too")
    results = run(tasks, tmp_path / "out", LocalPool(quick, 2))
    found = {outcome["key"]: outcome for outcome in load_units(results.folder)}
    assert [found[task.key]["status"] for task in tasks] == ["done", "failed", "done", "done"]
    assert found[tasks[1].key]["error"].startswith("worker died")


@pytest.mark.usefixtures("here_on_the_path")
def test_closing_stops_the_processes(dataset: Dataset, encoder: Path) -> None:
    pool = LocalPool(sleeper, 2)
    for unit in tricks(dataset, encoder, "a", "b"):
        pool.submit(unit)
    processes = list(pool._processes)
    assert len(processes) == 2
    pool.close()
    for process in processes:
        process.join(10)
        assert not process.is_alive()


@pytest.mark.usefixtures("here_on_the_path")
def test_an_error_in_a_worker_is_a_result_and_its_traceback_a_log(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    (unit,) = plan(dataset, encoder)
    job = partial(attempt, dataset=Dataset("xling", tmp_path / "none"), work=tmp_path / "work")
    results = run([unit], tmp_path, LocalPool(job))
    (result,) = load_units(results.folder)
    assert result["status"] == "failed"
    assert "yacle.train.freq.5k.en-fr" in result["error"]
    assert "Traceback" in (tmp_path / "work" / "logs" / f"{unit.key}.txt").read_text()


def test_pandas_is_asked_for_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.delitem(sys.modules, "blicer.benchmark.results")
    with pytest.raises(MissingDependency, match=r"pip install 'blicer\[bench\]'"):
        importlib.import_module("blicer.benchmark.results")


def test_threads_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "7")
    before = torch.get_num_threads()
    try:
        limit_threads(1)
        assert torch.get_num_threads() == 1
        assert os.environ["OMP_NUM_THREADS"] == os.environ["RAYON_NUM_THREADS"] == "1"
        assert {pool["num_threads"] for pool in threadpool_info()} <= {1}
    finally:
        limit_threads(before)


@pytest.fixture(scope="module")
def several(dataset: Dataset, encoder: Path) -> list[Unit]:
    return [
        *plan(dataset, encoder, alphas=[0, 1]),
        *plan(dataset, encoder, pairs=["en-ru"]),
    ]


@pytest.fixture(scope="module")
def reference(
    dataset: Dataset, several: list[Unit], tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The figures of a run in this process, one unit after the other."""
    folder = tmp_path_factory.mktemp("reference")
    return figures(
        run(several, folder, Here(lambda unit: run_unit(unit, dataset, folder / "work")))
    )


@pytest.mark.usefixtures("here_on_the_path")
def test_killed_in_the_middle_with_two_jobs_it_ends_the_same(
    dataset: Dataset, several: list[Unit], reference: Any, tmp_path: Path
) -> None:
    results = Results(tmp_path)
    results.prepare()
    job = DiesOnce(dataset, results.work, victim=several[0].key)
    run(several, tmp_path, LocalPool(job, 2))
    assert (results.work / "killed").exists()
    assert figures(results) == reference
    log = (results.work / "logs" / f"{several[0].key}.txt").read_text()
    assert "holding out" in log


@pytest.mark.usefixtures("here_on_the_path")
def test_a_ray_cluster_gives_the_same_table_when_a_worker_is_killed(
    dataset: Dataset, several: list[Unit], reference: Any, tmp_path: Path
) -> None:
    ray = pytest.importorskip("ray")
    # The workers cannot import the tests.
    ray.cloudpickle.register_pickle_by_value(sys.modules["benchmark_world"])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, num_gpus=0)
    try:
        results = Results(tmp_path)
        results.prepare()
        pool = RayPool(DiesOnce(dataset, results.work, victim=several[0].key), "local")
        assert pool.capacity == 2
        run(several, tmp_path, pool)
        assert (results.work / "killed").exists()
        assert figures(results) == reference
        with pytest.raises(BlicerError, match="no node of the Ray cluster can run a unit of 1 CPU"):
            RayPool(made_up, "local", gpus=1)
    finally:
        ray.shutdown()


def test_ray_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"pip install 'blicer\[ray\]'"):
        RayPool(made_up, "local")


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9"])
def test_nobody_waits_for_a_cluster_that_is_not_there(address: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(BlicerError, match=f"no Ray cluster at '{address}'"):
        RayPool(made_up, address)


# Parts of a benchmark on several machines


def test_shards_are_all_units_once(dataset: Dataset, encoder: Path) -> None:
    units = plan(dataset, encoder, pairs=["en-fr", "en-ru"], training_seeds=range(5))
    assert len(units) == 10
    for parts in (1, 2, 3, 4, 10, 13):
        found = [shard(units, f"{part}/{parts}") for part in range(1, parts + 1)]
        assert [unit.key for part in found for unit in part] == [unit.key for unit in units]
        assert max(map(len, found)) - min(map(len, found)) <= 1
    for wrong in ("0/2", "3/2", "1", "a/b", "", "1/0", "-1/2"):
        with pytest.raises(InputError, match="expected I/N"):
            shard(units, wrong)


def test_merged_shards_are_one_run(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    units = plan(dataset, encoder, pairs=["en-fr", "en-ru"], training_seeds=[1, 2, 3])
    whole = Results(tmp_path / "whole")
    whole.prepare()
    outcomes = {unit.key: made_up(unit) for unit in units}
    run_units(units, Here(lambda unit: outcomes[unit.key]), whole)
    folders = [tmp_path / f"part{part}" for part in (1, 2, 3)]
    for part, folder in enumerate(folders, 1):
        results = Results(folder)
        results.prepare()
        run_units(shard(units, f"{part}/3"), Here(lambda unit: outcomes[unit.key]), results)
    (folders[0] / "units" / "damaged.json").write_text("{")
    assert merge(folders, tmp_path / "merged") == 1
    assert load_units(tmp_path / "merged") == load_units(tmp_path / "whole")


def test_of_two_measurements_the_later_counts(
    dataset: Dataset, encoder: Path, tmp_path: Path
) -> None:
    (unit,) = plan(dataset, encoder)
    dates = ["2026-01-02T00:00:00+00:00", "2026-01-01T00:00:00+00:00", "2026-01-03T00:00:00+00:00"]
    found = [made_up(unit), made_up(unit), failed(unit, "no luck")]
    for place, (result, date) in enumerate(zip(found, dates, strict=True)):
        results = Results(tmp_path / str(place))
        results.prepare()
        results.write({**result, "ended": date, "seeds_used": place})
    folders = [tmp_path / str(place) for place in range(3)]
    assert merge(folders, tmp_path / "out") == 0
    (result,) = load_units(tmp_path / "out")
    assert (result["status"], result["seeds_used"]) == ("done", 0)


def test_old_names_of_systems_are_read(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    (unit,) = plan(dataset, encoder)
    results = Results(tmp_path)
    results.prepare()
    made = made_up(unit)
    made["systems"]["A"] = made["systems"].pop("tuned")
    write_json(results.units / f"{unit.key}.json", made)
    (read,) = load_units(tmp_path)
    assert list(read["systems"]) == ["space", "use"]
    assert results.missing(replace(unit, systems=("space", "use"))) == ()


def test_a_job_array(
    dataset: Dataset, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By submitit's own executor for one machine: three units in two jobs, one of which dies."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # jobs find this file
    tricks = ["fine", "dies", "fine"]
    units = [plan(dataset, encoder, training_seeds=[seed])[0] for seed in range(3)]
    units = [replace(u, settings={"trick": t}) for u, t in zip(units, tricks, strict=True)]
    results = Results(tmp_path / "out")
    results.prepare()
    ended = run_on_slurm(units[1:] + units[:1], quick, results, units_per_job=2, cluster="local")
    # The unit that kills its job takes the next one of the same job with it.
    assert [one["key"] for one in ended] == [units[1].key, units[2].key]
    assert all("without a result" in one["error"] for one in ended)
    assert [one["key"] for one in load_units(results.folder) if one["status"] == "done"] == [
        units[0].key
    ]
    again = [replace(units[1], settings={"trick": "fine"}), units[2]]
    assert run_on_slurm(again, quick, results, units_per_job=2, cluster="local") == []
    assert all(results.done(unit.key) for unit in units)


def test_slurm_is_optional_and_must_be_there(
    dataset: Dataset, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units, results = plan(dataset, encoder), Results(tmp_path)
    results.prepare()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BlicerError, match="Slurm did not take the jobs"):
        run_on_slurm(units, quick, results)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MissingDependency, match=r"blicer\[slurm\]"):
        run_on_slurm(units, quick, results)
