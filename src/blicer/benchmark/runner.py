"""Runs a plan: skips what is finished, keeps whatever finishes, goes on when something fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from blicer.benchmark.pool import Outcome, Pool
from blicer.benchmark.results import Results
from blicer.benchmark.unit import DONE, Task, Unit, failed
from blicer.progress import note
from blicer.progress import task as progress_bar

ATTEMPTS = 2  # of a unit whose worker dies
WORKER_DIED = "worker died (killed from outside, most often because memory ran out)"


class Queue:
    """Units in the order of the plan, but none beside another that makes the same space."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._waiting = list(tasks)
        self._running: Counter[str] = Counter()
        self._made: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def next(self) -> Task | None:
        """A unit that can start now; None if all of them wait for a space in the making."""
        for place, task in enumerate(self._waiting):
            groups = task.unit.space_groups
            if all(group in self._made or not self._running[group] for group in groups):
                self._running.update(groups)
                return self._waiting.pop(place)
        return None

    def ended(self, task: Task, outcome: Outcome | None) -> None:
        self._running.subtract(task.unit.space_groups)
        if outcome is not None and outcome["status"] == DONE:
            self._made.update(task.unit.space_groups)

    def again(self, task: Task) -> None:
        self._waiting.insert(0, task)


def left_to_do(tasks: Sequence[Task], results: Results) -> list[Task]:
    """The units that are not finished, each once, with the systems that are missing of it."""
    distinct = {task.key: task for task in tasks}
    missing = {key: results.missing(task) for key, task in distinct.items()}
    return [task.with_systems(missing[key]) for key, task in distinct.items() if missing[key]]


def run_plan(tasks: Sequence[Task], pool: Pool, results: Results) -> list[Outcome]:
    """Run what is not finished; the outcomes of this run, in the order in which they ended.

    Every outcome is on disk as soon as it is known, so that an interrupted run loses only the
    units that were running.
    """
    queue = Queue(tasks)
    outcomes: list[Outcome] = []
    attempts: Counter[str] = Counter()
    running: dict[str, Task] = {}
    try:
        with progress_bar("units", len(tasks)) as bar:
            while queue or running:
                while len(running) < pool.capacity and (task := queue.next()) is not None:
                    attempts[task.key] += 1
                    running[task.key] = task
                    pool.start(task)
                bar.advance(0, "; ".join(task.unit.label for task in running.values()))
                for task, outcome in pool.wait():
                    del running[task.key]
                    queue.ended(task, outcome)
                    if outcome is None and attempts[task.key] < ATTEMPTS:
                        note(f"{task.unit.label}: {WORKER_DIED}; once more")
                        queue.again(task)
                        continue
                    outcome = outcome if outcome is not None else failed(task, WORKER_DIED)
                    # A failure does not take the figures of an earlier run.
                    if outcome["status"] == DONE or results.done(task.key) is None:
                        results.write(outcome)
                    outcomes.append(outcome)
                    bar.advance(1)
                    note(f"{len(outcomes)} of {len(tasks)}: {summary_line(outcome)}")
    finally:
        pool.close()
        results.write_table()
    return outcomes


def summary_line(outcome: Outcome) -> str:
    """One unit in one line: P@1 before and after, both directions."""
    label = Unit.from_dict(outcome["unit"]).label
    if outcome["status"] != DONE:
        return f"{label}: failed: {outcome['error']}"
    systems: dict[str, Any] = outcome["systems"]
    best = next((name for name, one in systems.items() if one["default"]), list(systems)[-1])
    figures = ", ".join(
        f"{100 * systems['space'][direction]['p@1']:.1f} > "
        f"{100 * systems[best][direction]['p@1']:.1f}"
        for direction in ("forward", "backward")
    )
    return f"{label}: {best} {figures} ({outcome['seconds']['total']:.0f} s)"
