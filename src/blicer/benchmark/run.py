"""Runs units: one at a time, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from blicer import progress
from blicer.benchmark.plan import (
    FILES,
    LAYOUTS,
    TEST,
    UNSUPERVISED,
    WITHOUT_SEEDS,
    ZERO_SHOT,
    Dataset,
    Digests,
    Unit,
)
from blicer.benchmark.results import DONE, FAILED, NO_SEEDS, Result, Results, differences, table
from blicer.benchmark.systems import (
    SYSTEMS,
    choose_mixture,
    default_system,
    measure,
    missing_packages,
    scorers_for,
)
from blicer.config import AUTO
from blicer.errors import BlicerError, InputError, MissingDependency
from blicer.lexicon import Lexicon
from blicer.multilingual import prepare_zero_shot, without_shared_pivots
from blicer.pipeline import prepare
from blicer.progress import note
from blicer.stage_cache import log_stages, remove_stages
from blicer.unsupervised import prepare_unsupervised

if TYPE_CHECKING:
    from pandas import DataFrame

    from blicer.pipeline import Prepared
    from blicer.scorers import Scorer

GIGABYTE = 1 << 30
ATTEMPTS = 2  # at a unit whose worker dies
WORKER_DIED = "worker died (killed from outside, most often because memory ran out)"
ZERO_SHOT_WORDS = 2_000  # pivot words of either dictionary (docs/method.md §3)


# -- one unit


def run_unit(unit: Unit, dataset: Dataset, work: Path, *, keep_rerankers: bool = False) -> Result:
    """Fit the space and the scorers, choose the weights, and only then test.

    ``work`` caches stages that other units share; trained rerankers serve no other unit and are
    removed at the end unless ``keep_rerankers``.
    """
    started = time.perf_counter()
    dropped = missing_packages(unit.systems)
    systems = {name: SYSTEMS[name] for name in unit.systems if name not in dropped}
    with log_stages() as stages:
        prepared = prepare_unit(unit, dataset, work, scorers_for(systems))
    fitted = set(prepared.config.scorers)
    dropped |= {name: NO_SEEDS for name, parts in systems.items() if set(parts) - fitted}
    lam = unit.config.mixing_weight
    mixtures = {
        name: (parts, choose_mixture(prepared, parts, lam))
        for name, parts in systems.items()
        if name not in dropped
    }
    fit_seconds = time.perf_counter() - started + stages.saved_seconds
    # From here on the test dictionary is read; nothing is chosen any more.
    scoring_started = time.perf_counter()
    test = dataset.lexicon(unit.source, unit.target, TEST)
    timed = [TimedScorer(scorer) for scorer in prepared.fitted.scorers]
    prepared = replace(prepared, fitted=replace(prepared.fitted, scorers=[*timed]))
    default = default_system(unit.config)
    figures, pairs_scored = measure(prepared, mixtures, test)
    for name, (parts, mixture) in mixtures.items():
        figures[name] = {
            "scorers": list(parts),
            "default": name == ("tuned" if default in dropped else default),
            "weights": mixture.weights,
            "curve": [list(point) for point in mixture.curve],
            **figures[name],
        }
    if not keep_rerankers:
        remove_stages(folder for folder in stages.folders if "reranker-" in folder.name)
    ended = time.perf_counter()
    space = prepared.fitted.space
    return describe(unit, DONE) | {
        "seconds": {
            "fit": round(fit_seconds, 2),
            "score": round(ended - scoring_started, 2),
            "total": round(ended - started, 2),
            "scorers": {scorer.name: round(scorer.seconds, 2) for scorer in timed},
        },
        "pairs_scored": pairs_scored,
        "seeds_used": prepared.seeds,
        "held_out": len(prepared.held_out.parts) if prepared.held_out is not None else 0,
        "vocabularies": {"source": len(space.source), "target": len(space.target)},
        "remarks": _remarks(unit, dataset, prepared, test),
        "dropped": dropped,
        "systems": figures,
    }


def prepare_unit(unit: Unit, dataset: Dataset, work: Path, scorers: Sequence[str]) -> Prepared:
    """Fit as the unit's setup asks: with seeds of the pair, without any, or through a pivot."""
    # No scorer would mean those of the encoder; this one needs no training. A fixed λ is for
    # systems with one scorer (``choose_mixture``).
    config = unit.config.replace(scorers=scorers or ("spelling",))
    if len(config.scorers) > 1:
        config = config.replace(mixing_weight=None)
    seeds = [dataset.lexicon(*one) for one in unit.seed_dictionaries]
    space = None
    if config.space == FILES:
        space = dataset.space(unit.source, unit.target, unit.setup)
        source, target = space.source, space.target
    else:
        source, target = (
            dataset.embeddings(one, unit.max_words) for one in (unit.source, unit.target)
        )
    start = unit.space_mode or AUTO
    if unit.setup == UNSUPERVISED:
        return prepare_unsupervised(source, target, config, space=space, init=start, work_dir=work)
    if unit.setup == ZERO_SHOT:
        pivot = dataset.embeddings(unit.pivot, unit.max_words)
        one, other = (first_words(one, ZERO_SHOT_WORDS) for one in without_shared_pivots(*seeds))
        return prepare_zero_shot(
            pivot, source, target, one, other, config, init=start, work_dir=work
        )
    return prepare(source, target, seeds[0], config, space=space, work_dir=work)


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
    if unit.setup not in WITHOUT_SEEDS:
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
    sentence = error if isinstance(error, str) else first_line(error)
    if isinstance(error, MemoryError):
        sentence = "there was not enough memory"
    elif not isinstance(error, (BlicerError, str)):
        sentence = f"{type(error).__name__}: {sentence}".removesuffix(": ")
    return describe(unit, FAILED, sentence)


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def attempt(
    unit: Unit,
    dataset: Dataset,
    work: Path,
    *,
    threads: int = 1,
    keep_rerankers: bool = False,
    home: Path | None = None,
) -> Result:
    """``run_unit`` in a worker process: output goes to a log, errors into the result.

    ``home``: where the command was typed, for workers that start elsewhere (an encoder may be a
    relative path).
    """
    log_output(work / "logs" / f"{unit.key}.txt")
    try:
        if home is not None and home.is_dir():
            os.chdir(home)
        limit_threads(threads)
        return run_unit(unit, dataset, work, keep_rerankers=keep_rerankers)
    except Exception as error:
        traceback.print_exc()
        return failed(unit, error)


def log_output(path: Path) -> None:
    """Append all output of this process to ``path``: notes, libraries' warnings, tracebacks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    with path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    progress.enable()


def limit_threads(threads: int) -> None:
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # for libraries that come later
        os.environ[name] = str(threads)
    torch.set_num_threads(threads)
    threadpool_limits(threads)


def rerun(rows: DataFrame, data: Path) -> list[str]:
    """Run the unit of some rows again and say what differs; of a failed unit nothing can."""
    row: Any = rows.to_dict("records")[0]
    unit = Unit.from_row(row)
    # An own folder may be called like a collection; its whole path is not.
    dataset = Dataset.find(unit.dataset if unit.dataset in LAYOUTS else str(data.resolve()), data)
    now = unit.data_digests(dataset, Digests())
    if other := [name for name, found in unit.data.items() if now.get(name) != found]:
        raise InputError(f"the data are not those of the row: {', '.join(other)} differ")
    then = {**(row["space_settings"] or {}), "embedded encoder": row["encoder_version"]}
    today = {**unit.space_settings, "embedded encoder": unit.encoder_version}
    if changed := [name for name in today if today[name] != then.get(name)]:
        note(f"{row['space']} has other defaults now than the row: {', '.join(changed)}")
    limit_threads((row["machine"] or {}).get("threads", 1))
    with tempfile.TemporaryDirectory() as work:
        result = run_unit(replace(unit, data=now), dataset, Path(work))
    return differences(rows, table([result])) if row["status"] == DONE else []


# -- many units


def next_unit(waiting: Sequence[Unit], running: Iterable[Unit], made: set[str]) -> Unit | None:
    """The first unit that needs no space that a running one is making; None: all have to wait."""
    busy = {space for unit in running for space in unit.spaces} - made
    return next((unit for unit in waiting if not busy & unit.spaces), None)


def run_units(units: Sequence[Unit], pool: LocalPool | RayPool, results: Results) -> list[Result]:
    """Run all units; returns the results in the order in which they ended.

    Every result is on disk as soon as it is known: an interrupt loses only the running units.
    """
    waiting, running = list(units), dict[Future[Result], Unit]()
    made: set[str] = set()
    attempts: Counter[str] = Counter()
    ended: list[Result] = []
    try:
        with progress.task("units", len(units)) as bar:
            while waiting or running:
                while len(running) < max(1, pool.capacity) and (
                    unit := next_unit(waiting, running.values(), made)
                ):
                    waiting.remove(unit)
                    attempts[unit.key] += 1
                    running[pool.submit(unit)] = unit
                bar.advance(0, "; ".join(unit.label for unit in running.values()))
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    unit = running.pop(future)
                    if (death := future.exception()) is not None:
                        note(f"{unit.label}: {WORKER_DIED}: {first_line(death)}")
                        if attempts[unit.key] < ATTEMPTS:
                            waiting.insert(0, unit)
                            continue
                    result = failed(unit, WORKER_DIED) if death else future.result()
                    made |= unit.spaces if result["status"] == DONE else set()
                    results.write(result)
                    ended.append(result)
                    bar.advance(1)
                    how = result["error"] or f"{result['seconds']['total']:.0f} s"
                    note(f"{len(ended)} of {len(units)} {result['status']}: {unit.label}: {how}")
    except KeyboardInterrupt:
        note("interrupted; what is finished is kept, and the same command goes on from there")
        raise
    finally:
        pool.close()
        results.write_table()
    return ended


# -- where units run

Run = Callable[[Unit], Result]


class LocalPool:
    """A process for each of ``capacity`` jobs; one that dies fails only its own unit."""

    def __init__(self, run: Run, capacity: int = 1) -> None:
        self.run, self.capacity = run, capacity
        self._last: dict[ProcessPoolExecutor, Future[Result]] = {}
        self._processes: set[Any] = set()

    def submit(self, unit: Unit) -> Future[Result]:
        before = set(active_children())
        idle = [one for one, last in self._last.items() if last.done() and not last.exception()]
        # A fork would copy torch's threads in an unusable state.
        worker = idle[0] if idle else ProcessPoolExecutor(1, get_context("spawn"), _begin)
        self._last[worker] = worker.submit(self.run, unit)
        self._processes |= set(active_children()) - before
        return self._last[worker]

    def close(self) -> None:
        """Stop whatever still runs."""
        for process in self._processes:
            process.kill()
        for worker in self._last:
            worker.shutdown(cancel_futures=True)


def _begin() -> None:
    """In a new worker: the parent handles Ctrl-C, and the worker ends if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


class RayPool:
    """Units as Ray tasks; Ray finds a node with the CPUs and GPUs that each needs.

    A unit whose worker or node dies is started elsewhere, from the stages in the work folder if
    the nodes share it.
    """

    def __init__(self, run: Run, address: str, *, cpus: float = 1, gpus: float = 0) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingDependency("ray", "--ray", extra="ray") from error
        self.ray, self.cpus, self.gpus = ray, cpus, gpus
        self._references: list[Any] = []
        self._started_here = not ray.is_initialized()
        if self._started_here:
            _connect(ray, address)
        # max_calls=0: a worker stays, with the vectors that it has read.
        needs = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 3, "max_calls": 0}
        self._remote, self._run = ray.remote(**needs)(_call), ray.put(run)
        if not self.capacity:
            self.close()
            raise BlicerError(
                f"no node of the Ray cluster can run a unit of {cpus:g} CPUs and {gpus:g} GPUs"
            )
        note(f"Ray: room for {self.capacity} units at a time")

    @property
    def capacity(self) -> int:
        """Units that fit on the nodes that are there now; a unit cannot use two nodes."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node.get("Alive")]
        needs = [(kind, n) for kind, n in (("CPU", self.cpus), ("GPU", self.gpus)) if n]
        return sum(min(int(node.get(kind, 0) / n) for kind, n in needs) for node in nodes)

    def submit(self, unit: Unit) -> Future[Result]:
        self._references.append(self._remote.remote(self._run, unit))
        future: Future[Result] = self._references[-1].future()
        return future

    def close(self) -> None:
        for reference in self._references:  # cancelling a finished one does nothing
            self.ray.cancel(reference, force=True)
        if self._started_here:
            self.ray.shutdown()


def _call(run: Run, unit: Unit) -> Result:
    return run(unit)


def _connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one on this machine alone (``local``)."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself would try for minutes where nobody answers
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(
            address=address,
            include_dashboard=False if address == "local" else None,
            log_to_driver=False,
            configure_logging=False,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise BlicerError(f"no Ray cluster at {address!r} ({first_line(error)})") from error


# -- this machine

_BASE = 0.8  # gigabytes of torch, transformers and the like, before any data
_COPIES = 8  # vectors as read, normalised, mapped, and what the methods hold beside them
# Gigabytes of weights, gradients, two moments and the largest batches while training.
_ENCODERS = {"lite": 0.8, "xlm-roberta-large": 12.0, "bert-base-multilingual-uncased": 4.0}
_OTHER_ENCODER = 6.0


def unit_memory(unit: Unit, dataset: Dataset) -> int:
    """Bytes that a process running this unit holds at its peak, on the safe side."""
    encoder = unit.config.encoder
    paths = unit.vectors(dataset).values()
    vectors = sum(vector_bytes(path, unit.max_words) for path in paths)
    training = _ENCODERS.get(encoder, _OTHER_ENCODER) * GIGABYTE
    if Path(encoder).is_dir():
        training = 5 * sum(file.stat().st_size for file in Path(encoder).glob("*.safetensors"))
    return int(_BASE * GIGABYTE + _COPIES * vectors + training)


def vector_bytes(path: Path, max_words: int) -> int:
    """Bytes of the vectors in memory: about 7 bytes of text a number, 300 numbers a word."""
    files = [file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    size *= 3 if path.suffix in (".gz", ".xz", ".zst", ".bz2") else 1
    numbers = size // (4 if path.is_dir() or path.suffix == ".npy" else 7)
    return 4 * min(numbers, max_words * 300)


def local_pool(
    run: Callable[..., Result], units: Sequence[Unit], dataset: Dataset, jobs: int, threads: int
) -> LocalPool:
    """As many jobs as memory allows, and the cores divided among them unless ``threads`` is set."""
    fitting = jobs_that_fit(jobs, units, dataset, memory()[1])
    if fitting < jobs:
        note(f"memory suffices for {fitting} of {jobs} jobs at a time")
    return LocalPool(partial(run, threads=threads or max(1, cores() // fitting)), fitting)


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


@lru_cache(maxsize=1)
def processor() -> str:
    with suppress(OSError):
        if found := re.search(r"model name\s*: *(.+)", Path("/proc/cpuinfo").read_text("utf-8")):
            return found[1]
    return platform.processor() or "unknown"


def machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": cores(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", 0) or cores()),
        "memory_gb": round(memory()[0] / GIGABYTE, 1),
    }


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
