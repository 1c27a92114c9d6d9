"""Runs a row of a table again, from nothing but that row, and compares the figures."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from blicer.benchmark.dataset import LAYOUTS, Dataset, Digests
from blicer.benchmark.pool import Job, LocalPool
from blicer.benchmark.results import Results
from blicer.benchmark.setups import data_digests
from blicer.benchmark.table import Row, differences, read_table, recorded_task, rows, unit_rows
from blicer.benchmark.unit import DONE, Task
from blicer.errors import BlicerError, InputError
from blicer.progress import note


def find_rows(place: Path, key: str) -> list[Row]:
    """The rows of a unit, from a folder of results or a ``results.tsv`` alone."""
    table = read_table(place) if place.is_file() else rows(Results(place).outcomes())
    return unit_rows(table, key)


def run_again(before: Sequence[Row], data: Path) -> list[str]:
    """What differs from the rows of a unit when it is run anew, a sentence each; of one that had
    failed nothing can."""
    row = before[0]
    recorded = recorded_task(row)
    dataset = _dataset(recorded, data)
    now = data_digests(recorded.unit, dataset, Digests())
    if other := [name for name, digest in recorded.data.items() if now.get(name) != digest]:
        raise InputError(f"the data are not those of the row: {', '.join(other)} differ")
    task = replace(recorded, data=now)
    _say_what_changed(row, task)
    outcome = _run(task, dataset, threads=int((row["machine"] or {}).get("threads", 1)))
    return differences(before, rows([outcome])) if row["status"] == DONE else []


def _dataset(task: Task, data: Path) -> Dataset:
    # An own folder may be called as a collection is; its whole path is not.
    name = task.unit.dataset
    return Dataset.find(name if name in LAYOUTS else str(data.resolve()), data)


def _say_what_changed(row: Row, task: Task) -> None:
    """Defaults of a method and the encoder that comes with blicer are those of today."""
    then, today = row["space_settings"] or {}, task.space_settings
    if then and (other := sorted(name for name in today if today[name] != then.get(name))):
        note(f"{task.unit.space} has other settings now than the row: {', '.join(other)}")
    if row["encoder_version"] and row["encoder_version"] != task.encoder_version:
        note(f"{task.unit.encoder} is another version now than the row's")


def _run(task: Task, dataset: Dataset, threads: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as work:
        pool = LocalPool(Job(dataset, Path(work), threads), threads=threads)
        try:
            pool.start(task)
            ((_, outcome),) = pool.wait()
        finally:
            pool.close()
    if outcome is None or outcome["status"] != DONE:
        raise BlicerError(outcome["error"] if outcome is not None else "the worker died")
    return outcome
