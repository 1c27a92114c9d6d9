"""Worker processes for units on this machine; one that dies takes nothing else with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from blicer.benchmark.dataset import Dataset
from blicer.benchmark.unit import Task, failed

THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",  # tokenizers
)
# Threads that spin while they wait for each other starve when the machine has other work: scoring
# with two threads took 16 times as long on two cores with a load of five.
PATIENCE = {"OMP_WAIT_POLICY": "PASSIVE"}
Outcome = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What a worker needs to run a unit: a picklable function of a task."""

    dataset: Dataset
    work: Path
    threads: int = 1
    keep_rerankers: bool = False
    home: Path | None = None
    """Where the command was given, for workers that start elsewhere: encoders may be folders."""

    def __call__(self, task: Task) -> Outcome:
        """The outcome; an error becomes the outcome of a failed unit, the traceback its log."""
        with logged(self.work / "logs" / f"{task.key}.txt"):
            try:
                if self.home is not None and self.home.is_dir():
                    os.chdir(self.home)
                limit_threads(self.threads)
                from blicer.benchmark.execution import run_task  # after the limit: torch reads it

                return run_task(task, self.dataset, self.work, keep_rerankers=self.keep_rerankers)
            except Exception as error:
                traceback.print_exc()
                return failed(task, error)


class Pool(Protocol):
    """Where units run: processes of this machine, or a Ray cluster."""

    @property
    def capacity(self) -> int:
        """Units that run at a time."""
        ...

    def start(self, task: Task) -> None: ...

    def wait(self) -> list[tuple[Task, Outcome | None]]:
        """Block until a unit ends; None stands for one whose worker died."""
        ...

    def close(self) -> None:
        """Stop whatever still runs."""
        ...


class LocalPool:
    """Spawned processes, started as they are needed, each with its share of the cores."""

    def __init__(self, run: Callable[[Task], Outcome], jobs: int = 1, threads: int = 1) -> None:
        self.run, self.jobs, self.threads = run, jobs, threads
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, Task] = {}

    @property
    def capacity(self) -> int:
        return self.jobs

    def start(self, task: Task) -> None:
        worker = self._idle.pop() if self._idle else _Worker(self.run, self.threads)
        self._busy[worker] = task
        worker.send(task)

    def wait(self) -> list[tuple[Task, Outcome | None]]:
        by_connection = {worker.connection: worker for worker in self._busy}
        ended: list[tuple[Task, Outcome | None]] = []
        for ready in connection.wait(list(by_connection)):
            worker = by_connection[ready]  # type: ignore[index]
            task, outcome = self._busy.pop(worker), worker.receive()
            if outcome is None:
                worker.stop()
            else:
                self._idle.append(worker)
            ended.append((task, outcome))
        return ended

    def close(self) -> None:
        for worker in [*self._idle, *self._busy]:
            worker.stop()
        self._idle, self._busy = [], {}


class _Worker:
    def __init__(self, run: Callable[[Task], Outcome], threads: int) -> None:
        context = get_context("spawn")  # a fork would copy torch's threads in an unusable state
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, run))
        # Libraries read these when they are imported, so they must be there before.
        with environment(worker_environment(threads)):
            self.process.start()
        theirs.close()  # or its end would not be noticed here when the process dies

    def send(self, task: Task) -> None:
        with suppress(OSError):  # it has just died: receive() tells
            self.connection.send(task)

    def receive(self) -> Outcome | None:
        try:
            outcome: Outcome = self.connection.recv()
        except (EOFError, OSError):
            return None
        return outcome

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _work(tasks: Connection, run: Callable[[Task], Outcome]) -> None:
    """The life of a worker: unit after unit until nobody asks for more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = tasks.recv()
        except (EOFError, OSError):
            return
        tasks.send(run(task))


def _end_with_parent() -> None:
    """A worker whose parent was killed would compute on for nobody."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def worker_environment(threads: int) -> dict[str, str]:
    """What a worker's libraries should find; what the user set about waiting stands."""
    numbers = {name: str(threads) for name in THREAD_SETTINGS}
    return numbers | {name: os.environ.get(name, value) for name, value in PATIENCE.items()}


def limit_threads(threads: int) -> None:
    """For a process that was not started with ``worker_environment``, such as Ray's."""
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)  # is read when torch is imported
    import torch

    torch.set_num_threads(threads)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a moment."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Everything that this process says goes to ``path``, notes and libraries' warnings too."""
    from blicer import progress

    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [os.dup(1), os.dup(2)]
    was_enabled = progress.enabled()
    with path.open("ab") as log:
        _flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        progress.enable()
        try:
            yield
        finally:
            progress.enable(was_enabled)
            _flush()
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
