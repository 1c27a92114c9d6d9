"""Runs units: one at a time, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blicer import progress
from blicer.benchmark.plan import FILES, TEST, UNSUPERVISED, ZERO_SHOT, Dataset, Unit, label
from blicer.benchmark.results import DONE, FAILED, NO_SEEDS, Result, Results
from blicer.benchmark.systems import (
    DIRECTIONS,
    SPACE,
    SYSTEMS,
    choose_mixture,
    default_system,
    measure,
    missing_packages,
    scorers_for,
)
from blicer.errors import BlicerError, MissingDependency
from blicer.lexicon import Lexicon
from blicer.pipeline import Recipe, Workshop, prepare
from blicer.progress import note
from blicer.stage_cache import remove_stages, watch

if TYPE_CHECKING:
    from blicer.mixing import Scorer
    from blicer.pipeline import Prepared

GIGABYTE = 1 << 30
ATTEMPTS = 2  # at a unit whose worker dies
WORKER_DIED = "worker died (killed from outside, most often because memory ran out)"
ZERO_SHOT_WORDS = 2_000  # pivot words of either dictionary (docs/method.md §3)


# -- one unit


def run_unit(
    unit: Unit, dataset: Dataset, work: Path, *, keep_rerankers: bool = False
) -> Result:
    """Fit the space and the scorers, choose the weights, and only then test.

    ``work`` caches stages that other units share; trained rerankers serve no other unit and are
    removed at the end unless ``keep_rerankers``.
    """
    started = time.perf_counter()
    dropped = missing_packages(unit.systems)
    systems = {name: SYSTEMS[name] for name in unit.systems if name not in dropped}
    with watch() as stages:
        prepared = prepare_unit(unit, dataset, work, scorers_for(systems))
    dropped |= {
        name: NO_SEEDS for name, parts in systems.items() if set(parts) - set(prepared.scorers)
    }
    mixtures = {
        name: (parts, choose_mixture(prepared, parts))
        for name, parts in systems.items()
        if name not in dropped
    }
    fit_seconds = time.perf_counter() - started + stages.spared
    # From here on the test dictionary is read; nothing is chosen any more.
    scoring_started = time.perf_counter()
    test = dataset.lexicon(unit.source, unit.target, TEST)
    default = default_system(unit.config)
    default = "tuned" if default in dropped else default
    figures: dict[str, dict[str, Any]] = {
        name: {
            "scorers": list(parts),
            "default": name == default,
            "weights": mixture.weights,
            "curve": [list(point) for point in mixture.curve],
        }
        for name, (parts, mixture) in mixtures.items()
    }
    timed = [TimedScorer(scorer) for scorer in prepared.fitted.scorers]
    prepared = replace(prepared, fitted=replace(prepared.fitted, scorers=[*timed]))
    scored = 0
    for direction in DIRECTIONS:
        found, count = measure(prepared, mixtures, test, reverse=direction == "backward")
        scored += count
        for name, values in found.items():
            figures[name][direction] = values
    if not keep_rerankers:
        remove_stages(place for place in stages.places if "reranker-" in place.name)
    ended = time.perf_counter()
    return {
        **describe(unit, DONE),
        "seconds": {
            "fit": round(fit_seconds, 2),
            "score": round(ended - scoring_started, 2),
            "total": round(ended - started, 2),
            "scorers": {scorer.name: round(scorer.seconds, 2) for scorer in timed},
        },
        "pairs_scored": scored,
        "seeds_used": prepared.seeds,
        "held_out": len(prepared.held_out.parts) if prepared.held_out is not None else 0,
        "vocabularies": {
            side: len(getattr(prepared.fitted.space, side)) for side in ("source", "target")
        },
        "remarks": _remarks(unit, dataset, prepared, test),
        "dropped": dropped,
        "systems": figures,
    }


def prepare_unit(unit: Unit, dataset: Dataset, work: Path, scorers: tuple[str, ...]) -> Prepared:
    """Fit as the unit's setup asks: with seeds of the pair, without any, or through a pivot."""
    from blicer.multilingual import prepare_zero_shot, without_shared_pivots
    from blicer.unsupervised import AUTO, prepare_unsupervised

    seeds = [dataset.lexicon(*one) for one in unit.seed_dictionaries]
    space: Any = unit.space
    if unit.space == FILES:
        space = dataset.space(unit.source, unit.target, unit.setup)
        sides = [space.source, space.target]
    else:
        languages = (unit.source, unit.target)
        sides = [dataset.embeddings(language, unit.max_words) for language in languages]
    recipe = Recipe(space=space, space_mode=unit.method_mode)
    recipe = recipe.resolved(unit.config, len(seeds[0]) if len(seeds) == 1 else 0)
    recipe = replace(recipe, scorers=scorers)
    start = unit.space_mode or AUTO
    if unit.setup == ZERO_SHOT:
        pivot = dataset.embeddings(unit.pivot, unit.max_words)
        seeds = [first_words(one, ZERO_SHOT_WORDS) for one in without_shared_pivots(*seeds)]
        return prepare_zero_shot(
            pivot, *sides, *seeds, unit.config, recipe, init=start, work_dir=work
        )
    workshop = Workshop(*sides, unit.config, recipe, work)
    if unit.setup == UNSUPERVISED:
        return prepare_unsupervised(workshop, init=start)
    return prepare(workshop, workshop.usable(seeds[0]))


def first_words(lexicon: Lexicon, words: int) -> Lexicon:
    """The pairs of the first ``words`` source words."""
    kept = set(list(lexicon.targets)[:words])
    return Lexicon(pair for pair in lexicon.listed() if pair[0] in kept)


def _remarks(unit: Unit, dataset: Dataset, prepared: Prepared, test: Lexicon) -> list[str]:
    """What a reader of the figures should know."""
    remarks = []
    if prepared.fitted.space.settings.get("whitened") is False:
        remarks.append("too few seed pairs for VecMap to whiten: the map is orthogonal Procrustes")
    for notes in prepared.notes.values():
        if tried := notes.get("tried"):
            remarks.append(f"the first dictionary came from: {tried[-1]['start']}")
    if not unit.without_seeds:
        seeds = set(dataset.lexicon(unit.source, unit.target, unit.setup))
        if shared := sum(pair in seeds for pair in test):
            remarks.append(f"{shared} of {len(test)} test pairs are seed pairs too")
    return remarks


class TimedScorer:
    """A scorer that adds up how long it takes."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.name, self.seconds = scorer, scorer.name, 0.0

    def score(self, source: Sequence[str], target: Sequence[str], /) -> NDArray[np.float32]:
        started = time.perf_counter()
        scores = self.scorer.score(source, target)
        self.seconds += time.perf_counter() - started
        return scores


def describe(unit: Unit, status: str, error: str = "") -> Result:
    """The part of a result that failed units have too."""
    return {
        "key": unit.key,
        "status": status,
        "error": error,
        "unit": unit.to_dict(),
        "config": unit.config.to_dict(),
        "space_settings": unit.space_settings,
        "encoder_version": unit.encoder_version,
        "data": unit.data,
        "ended": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
        "revision": source_revision(),
        "machine": machine(),
        "dropped": {},
        "systems": {},
    }


def failed(unit: Unit, error: BaseException | str) -> Result:
    """The result of a unit that ended in an error, as one sentence."""
    sentence = next(iter(str(error).strip().splitlines()), "")
    if isinstance(error, MemoryError):
        sentence = "there was not enough memory"
    elif not isinstance(error, (BlicerError, str)):
        sentence = f"{type(error).__name__}: {sentence}".removesuffix(": ")
    return describe(unit, FAILED, sentence)


def attempt(
    unit: Unit,
    dataset: Dataset,
    work: Path,
    *,
    threads: int = 1,
    keep_rerankers: bool = False,
    home: Path | None = None,
) -> Result:
    """``run_unit`` in a worker: output goes to a log, an error becomes the result of a failed unit.

    ``home``: where the command was typed, for workers that start elsewhere (encoders may be
    relative paths).
    """
    with logged(work / "logs" / f"{unit.key}.txt"):
        try:
            if home is not None and home.is_dir():
                os.chdir(home)
            import torch

            torch.set_num_threads(threads)
            return run_unit(unit, dataset, work, keep_rerankers=keep_rerankers)
        except Exception as error:
            traceback.print_exc()
            return failed(unit, error)


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Append all output of this process to ``path``: notes, libraries' warnings, tracebacks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    saved, was_enabled = [os.dup(1), os.dup(2)], progress.enabled()
    with path.open("ab") as log:
        _redirect([log.fileno(), log.fileno()])
        progress.enable()
        try:
            yield
        finally:
            progress.enable(was_enabled)
            _redirect(saved)
            for descriptor in saved:
                os.close(descriptor)


def _redirect(descriptors: Sequence[int]) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)


# -- many units


class Pool(Protocol):
    """Where units run."""

    @property
    def capacity(self) -> int:
        """Units that run at a time."""
        ...

    def start(self, unit: Unit) -> None: ...

    def wait(self) -> list[tuple[Unit, Result | None]]:
        """Block until a unit ends; None: its worker died."""
        ...

    def close(self) -> None:
        """Stop whatever still runs."""
        ...


def next_unit(waiting: Sequence[Unit], running: Iterable[Unit], made: set[str]) -> Unit | None:
    """The first unit that needs no space that a running one is making; None: all have to wait."""
    busy = {group for unit in running for group in unit.space_groups} - made
    return next((unit for unit in waiting if not busy & unit.space_groups), None)


def run_units(units: Sequence[Unit], pool: Pool, results: Results) -> list[Result]:
    """Run all units; returns the results in the order in which they ended.

    Every result is on disk as soon as it is known: an interrupt loses only the running units.
    """
    waiting, running = list(units), dict[str, Unit]()
    made: set[str] = set()
    attempts: Counter[str] = Counter()
    ended: list[Result] = []
    try:
        with progress.task("units", len(units)) as bar:
            while waiting or running:
                while len(running) < pool.capacity and (
                    unit := next_unit(waiting, running.values(), made)
                ):
                    waiting.remove(unit)
                    running[unit.key] = unit
                    attempts[unit.key] += 1
                    pool.start(unit)
                bar.advance(0, "; ".join(unit.label for unit in running.values()))
                for unit, result in pool.wait():
                    del running[unit.key]
                    if result is None and attempts[unit.key] < ATTEMPTS:
                        note(f"{unit.label}: {WORKER_DIED}; trying again")
                        waiting.insert(0, unit)
                        continue
                    result = result or failed(unit, WORKER_DIED)
                    if result["status"] == DONE:
                        made |= unit.space_groups
                    results.write(result)
                    ended.append(result)
                    bar.advance(1)
                    note(f"{len(ended)} of {len(units)}: {summary_line(result)}")
    finally:
        pool.close()
        results.write_table()
    return ended


def summary_line(result: Result) -> str:
    """One unit in one line: P@1 before and after, both directions."""
    if result["status"] != DONE:
        return f"{label(result['unit'])}: failed: {result['error']}"
    systems = result["systems"]
    best = next((name for name, one in systems.items() if one["default"]), list(systems)[-1])
    figures = ", ".join(
        f"{100 * systems[SPACE][side]['p@1']:.1f} > {100 * systems[best][side]['p@1']:.1f}"
        for side in DIRECTIONS
    )
    return f"{label(result['unit'])}: {best} {figures} ({result['seconds']['total']:.0f} s)"


# -- processes of this machine

Run = Callable[[Unit], Result]
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON")  # RAYON: tokenizers


class LocalPool:
    """Spawned processes with ``threads`` threads each; one that dies fails only its own unit."""

    def __init__(self, run: Run, jobs: int = 1, threads: int = 1) -> None:
        self.run, self.capacity, self.threads = run, jobs, threads
        self._idle: list[tuple[Any, Any]] = []  # (process, connection)
        self._busy: dict[Any, tuple[Any, Unit]] = {}  # by connection

    def start(self, unit: Unit) -> None:
        process, ours = self._idle.pop() if self._idle else self._spawn()
        with suppress(OSError):  # it has just died: wait() notices
            ours.send(unit)
        self._busy[ours] = (process, unit)

    def _spawn(self) -> tuple[Any, Any]:
        context = get_context("spawn")  # a fork would copy torch's threads in an unusable state
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.run))
        # Libraries read these when they are imported. Threads that spin while they wait for each
        # other starve when the machine has other work.
        values = {f"{name}_NUM_THREADS": str(self.threads) for name in _THREADS}
        patience = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")
        with environment(values | {"OMP_WAIT_POLICY": patience}):
            process.start()
        theirs.close()  # or the end of the process would not be noticed here
        return process, ours

    def wait(self) -> list[tuple[Unit, Result | None]]:
        ended: list[tuple[Unit, Result | None]] = []
        for ours in connection.wait(list(self._busy)):
            process, unit = self._busy.pop(ours)
            try:
                ended.append((unit, ours.recv()))  # type: ignore[union-attr]
                self._idle.append((process, ours))
            except (EOFError, OSError):
                ended.append((unit, None))
                _stop(process, ours)
        return ended

    def close(self) -> None:
        for process, ours in [*self._idle, *((busy[0], one) for one, busy in self._busy.items())]:
            _stop(process, ours)
        self._idle, self._busy = [], {}


def _stop(process: Any, ours: Any) -> None:
    ours.close()
    process.terminate()
    process.join(5)
    if process.is_alive():
        process.kill()
        process.join()


def _work(units: Any, run: Run) -> None:
    """The life of a worker: unit after unit until the parent closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            units.send(run(units.recv()))


def _end_with_parent() -> None:
    """Without this, a worker whose parent was killed would compute on for nobody."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a moment."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
        os.environ.update(before)


# -- Ray


class RayPool:
    """Units as Ray tasks; Ray finds a node with the CPUs and GPUs that each needs.

    A unit whose worker or node dies is started elsewhere, from the stages in the work folder if
    the nodes share it.
    """

    def __init__(self, run: Run, address: str, *, cpus: float = 1, gpus: float = 0) -> None:
        try:
            import ray
            import ray.exceptions
        except ImportError as error:
            raise MissingDependency("ray", "--ray", extra="ray") from error
        self._ray, self.cpus, self.gpus = ray, cpus, gpus
        self._running: dict[Any, Unit] = {}
        self._started_here = not ray.is_initialized()
        if self._started_here:
            _connect(ray, address)
        # max_calls=0: a worker stays, with the vectors that it has read.
        needs = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 3, "max_calls": 0}
        self._remote = ray.remote(**needs)(_call)
        self._run = ray.put(run)
        if not self._room():
            self.close()
            raise BlicerError(
                f"no node of the Ray cluster can run a unit of {cpus:g} CPUs and {gpus:g} GPUs"
            )
        note(f"Ray: room for {self.capacity} units at a time")

    @property
    def capacity(self) -> int:
        """Of the nodes that are there now: clusters grow and shrink."""
        return max(1, self._room())

    def _room(self) -> int:
        """Units that fit, node by node: a unit cannot use two nodes."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node.get("Alive")]
        needs = [(kind, n) for kind, n in (("CPU", self.cpus), ("GPU", self.gpus)) if n]
        return sum(min(int(node.get(kind, 0) / n) for kind, n in needs) for node in nodes)

    def start(self, unit: Unit) -> None:
        self._running[self._remote.remote(self._run, unit)] = unit

    def wait(self) -> list[tuple[Unit, Result | None]]:
        (reference,), _ = self._ray.wait(list(self._running), num_returns=1)
        unit = self._running.pop(reference)
        try:
            return [(unit, self._ray.get(reference))]
        except self._ray.exceptions.RayError as error:
            note(f"Ray: {str(error).strip().splitlines()[0]}")
            return [(unit, None)]

    def close(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running = {}
        if self._started_here:
            self._ray.shutdown()


def _call(run: Run, unit: Unit) -> Result:
    return run(unit)


def _connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one on this machine alone (``local``)."""
    try:
        check_reachable(address)
        ray.init(
            address=address,
            include_dashboard=False if address == "local" else None,
            log_to_driver=False,
            configure_logging=False,
        )
    except (OSError, RuntimeError, ValueError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise BlicerError(f"no Ray cluster at {address!r} ({reason})") from error


def check_reachable(address: str) -> None:
    """Ray itself would try for many minutes where nobody answers."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


# -- this machine

_BASE = 0.8  # gigabytes of torch, transformers and the like, before any data
_COPIES = 8  # vectors as read, normalised, mapped, and what the methods hold beside them
# Gigabytes of weights, gradients, two moments and the largest batches while training.
_ENCODERS = {
    "lite": 0.8,
    "xlm-roberta-large": 12.0,
    "xlm-roberta-base": 6.0,
    "bert-base-multilingual-uncased": 4.0,
}
_OTHER_ENCODER = 6.0


def unit_memory(unit: Unit, dataset: Dataset) -> int:
    """Bytes that a process running this unit holds at its peak, on the safe side."""
    if unit.space == FILES:
        vectors = _size(dataset.space_folder(unit.source, unit.target, unit.setup)[0])
    else:
        languages = filter(None, (unit.source, unit.target, unit.pivot))
        vectors = sum(vector_bytes(dataset.vectors(one), unit.max_words) for one in languages)
    encoder = Path(unit.config.encoder)
    if encoder.is_dir():
        training = 5 * sum(file.stat().st_size for file in encoder.glob("*.safetensors"))
    else:
        training = int(_ENCODERS.get(unit.config.encoder, _OTHER_ENCODER) * GIGABYTE)
    return int(_BASE * GIGABYTE) + _COPIES * vectors + training


def vector_bytes(path: Path, max_words: int) -> int:
    """Bytes of the vectors in memory: about 7 bytes of text a number, 300 numbers a word."""
    packed = 3 if path.suffix in (".gz", ".xz", ".zst", ".bz2") else 1
    numbers = _size(path) * packed // (4 if path.suffix == ".npy" else 7)
    return 4 * min(numbers, max_words * 300)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def jobs_that_fit(asked: int, units: Iterable[Unit], dataset: Dataset, free: int) -> int:
    """As many jobs as were asked for, or as fit into ``free`` bytes (0: unknown); at least one."""
    largest = max((unit_memory(unit, dataset) for unit in units), default=0)
    return max(1, min(asked, free // largest)) if free and largest else asked


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> tuple[int, int]:
    """(all, free) bytes of the machine, or of the control group; 0: the system does not say."""
    total = free = 0
    with suppress(OSError, KeyError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        total, free = sizes["MemTotal"], sizes["MemAvailable"]
    if not total and "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        total = free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # no control group, or one without a limit ("max")
        limit = int((group / "memory.max").read_text())
        left = limit - int((group / "memory.current").read_text())
        total, free = min(total, limit), min(free, max(left, 0))
    return total, free


def machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": cores(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", 0) or cores()),
        "memory_gb": round(memory()[0] / GIGABYTE, 1),
    }


@lru_cache(maxsize=1)
def processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Python and the packages that decide the figures."""
    found = {"python": platform.python_version()}
    for package in ("blicer", "numpy", "torch", "transformers"):
        found[package] = "unknown"
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


@lru_cache(maxsize=1)
def source_revision() -> str:
    """The commit of an installation from a working copy; empty for a released package."""
    home = Path(__file__).resolve().parents[3]
    # A virtual environment inside somebody's repository is not ours.
    if not (home / ".git").exists() or not (home / "src" / "blicer").is_dir():
        return ""
    command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
