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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import lru_cache, partial
from importlib.metadata import version
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from blicer import lite, progress
from blicer.benchmark.plan import (
    FILES,
    LAYOUTS,
    SYSTEMS,
    TEST,
    UNSUPERVISED,
    WITHOUT_SEEDS,
    ZERO_SHOT,
    Dataset,
    Unit,
    default_system,
)
from blicer.benchmark.results import DONE, FAILED, Result, Results, differences, table
from blicer.config import AUTO
from blicer.errors import BlicerError, InputError
from blicer.evaluation import (
    METRICS,
    answerable_queries,
    interval,
    paired_p_values,
    per_query,
    resampled_means,
)
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, HeldOutView, Mixture, gold_marks, score_candidates
from blicer.multilingual import prepare_zero_shot, without_shared_pivots
from blicer.pages import needed
from blicer.pipeline import choose, prepare
from blicer.progress import note
from blicer.stage_cache import log_stages, remove_stages
from blicer.unsupervised import prepare_unsupervised

if TYPE_CHECKING:
    from pandas import DataFrame

    from blicer.pipeline import Prepared
    from blicer.scorers import Scorer

Floats = NDArray[np.float64]
BOOTSTRAP = 10_000  # draws of the paired test
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
    systems = {name: SYSTEMS[name] for name in unit.systems}
    with log_stages() as stages:
        prepared = prepare_unit(unit, dataset, work, systems)
    mixtures = {
        name: (parts, choose_mixture(prepared, parts, unit.config.mixing_weight))
        for name, parts in systems.items()
    }
    # From here on the test dictionary is read; nothing is chosen any more.
    chosen = time.perf_counter()
    test = dataset.lexicon(unit.source, unit.target, TEST)
    timed = [TimedScorer(scorer) for scorer in prepared.fitted.scorers]
    prepared = replace(prepared, fitted=replace(prepared.fitted, scorers=[*timed]))
    figures, pairs_scored = measure(prepared, mixtures, test)
    default = default_system(unit.config)
    for name, (parts, mixture) in mixtures.items():
        figures[name] |= {
            "scorers": list(parts),
            "default": name == (default if unit.setup != ZERO_SHOT else "tuned"),
            "weights": mixture.weights,
            "curve": [list(point) for point in mixture.curve],
        }
    if not keep_rerankers:
        remove_stages(folder for folder in stages.folders if "reranker-" in folder.name)
    ended = time.perf_counter()
    space = prepared.fitted.space
    return describe(unit, DONE) | {
        "seconds": {
            "fit": round(chosen - started + stages.saved_seconds, 2),
            "score": round(ended - chosen, 2),
            "total": round(ended - started, 2),
            "scorers": {scorer.name: round(scorer.seconds, 2) for scorer in timed},
        },
        "pairs_scored": pairs_scored,
        "seeds_used": prepared.seeds,
        "held_out": len(prepared.held_out.parts) if prepared.held_out is not None else 0,
        "vocabularies": {"source": len(space.source), "target": len(space.target)},
        "remarks": _remarks(unit, dataset, prepared, test),
        "systems": figures,
    }


def prepare_unit(
    unit: Unit, dataset: Dataset, work: Path, systems: Mapping[str, Sequence[str]]
) -> Prepared:
    """Fit as the unit's setup asks: with seeds of the pair, without any, or through a pivot."""
    # No scorer would mean those of the encoder; this one needs no training. A fixed λ is for
    # systems with one scorer (``choose_mixture``).
    scorers = tuple(dict.fromkeys(scorer for parts in systems.values() for scorer in parts))
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
    start: dict[str, Any] = {"init": unit.space_mode or AUTO, "work_dir": work}
    if unit.setup == UNSUPERVISED:
        return prepare_unsupervised(source, target, config, space=space, **start)
    if unit.setup == ZERO_SHOT:
        pivot = dataset.embeddings(unit.pivot, unit.max_words)
        one, other = (first_words(one, ZERO_SHOT_WORDS) for one in without_shared_pivots(*seeds))
        return prepare_zero_shot(pivot, source, target, one, other, config, **start)
    return prepare(source, target, seeds[0], config, space=space, work_dir=work)


def first_words(lexicon: Lexicon, words: int) -> Lexicon:
    """The pairs of the first ``words`` source words."""
    kept = set(list(lexicon.targets)[:words])
    return Lexicon(pair for pair in lexicon.listed() if pair[0] in kept)


def _remarks(unit: Unit, dataset: Dataset, prepared: Prepared, test: Lexicon) -> list[str]:
    """What a reader of the figures should know."""
    remarks = []
    if unit.setup == ZERO_SHOT and (default := default_system(unit.config)) != "tuned":
        remarks.append(
            f"{default}, the default, learns from seeds of the pair: tuned stands for it"
        )
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
    packages = ("blicer", "numpy", "torch", "transformers")
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
        "versions": {"python": platform.python_version()} | {one: version(one) for one in packages},
        "revision": source_revision(),
        "machine": machine(),
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
    (work / "logs").mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    with (work / "logs" / f"{unit.key}.txt").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    progress.enable()
    try:
        if home is not None and home.is_dir():
            os.chdir(home)
        limit_threads(threads)
        return run_unit(unit, dataset, work, keep_rerankers=keep_rerankers)
    except Exception as error:
        traceback.print_exc()
        return failed(unit, error)


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
    now = unit.read_data(dataset)
    if other := [name for name, found in unit.data.items() if now.get(name) != found]:
        raise InputError(f"the data are not those of the row: {', '.join(other)} differ")
    if unit.key != row["key"]:
        note("the method's defaults or the embedded encoder have changed since the row was made")
    limit_threads((row["machine"] or {}).get("threads", 1))
    with tempfile.TemporaryDirectory() as work:
        result = run_unit(replace(unit, data=now), dataset, Path(work))
    return differences(rows, table([result])) if row["status"] == DONE else []


# -- the figures of a unit


def choose_mixture(prepared: Prepared, scorers: Sequence[str], lam: float | None) -> Mixture:
    """The weights of CSLS and some of the scorers, chosen on held-out words alone.

    A fixed ``lam`` applies to systems with one scorer; the weights of the others are chosen.
    """
    if not scorers:
        return Mixture({CSLS: 1.0})
    view = prepared.held_out
    if view is not None:
        view = HeldOutView(view.parts[..., columns(prepared, scorers)], view.is_gold)
    lam = lam if len(scorers) == 1 else None
    return choose(view, prepared.config.replace(scorers=scorers, mixing_weight=lam))[0]


def columns(prepared: Prepared, scorers: Sequence[str]) -> list[int]:
    """Where CSLS and these scorers are among all that were fitted."""
    return [0, *(1 + prepared.config.scorers.index(name) for name in scorers)]


def measure(
    prepared: Prepared, systems: Mapping[str, tuple[Sequence[str], Mixture]], test: Lexicon
) -> tuple[dict[str, dict[str, Any]], int]:
    """Every system's figures in both directions, and how many pairs were scored for them.

    All systems order the same ``n_cand`` candidates: a gold translation that is not among them
    counts as absent for each, in P@5 and MRR too, so that the systems compare. Gains are over the
    first system, which is the space alone.
    """
    fitted, pairs_scored = prepared.fitted, 0
    sides = (fitted.space.source, fitted.space.target)
    figures: dict[str, dict[str, Any]] = {name: {} for name in systems}
    for direction in ("forward", "backward"):
        known, queries, golds = answerable_queries(test, *sides)
        if not len(queries):
            missing = "; ".join(test.coverage(*sides).lines())
            raise InputError(f"no word of the test dictionary can be scored: {missing}")
        parts = (fitted.space, fitted.scaling, fitted.scorers, queries, prepared.config.n_cand)
        scores = score_candidates(*parts, reverse=direction == "backward")
        pairs_scored += int(scores.indices.size)
        is_gold = gold_marks(scores, golds)
        space: Floats | None = None
        for name, (scorers, mixture) in systems.items():
            final = mixture.combine(scores.parts[..., columns(prepared, scorers)])
            values = per_query(gold_ranks(final, is_gold))
            figures[name][direction] = {
                "queries": len(values),
                "all_queries": len(known),
                **dict(zip(METRICS, values.mean(axis=0).tolist(), strict=True)),
                "p@1_all": float(values[:, 0].sum()) / len(known),
                "gain": None if space is None else paired_gain(values[:, :1] - space[:, :1]),
            }
            space = values if space is None else space
        test, sides = test.reverse(), sides[::-1]
    return figures, pairs_scored


def gold_ranks(final: Floats, is_gold: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rank from 1 of the best gold of each query; 0: not a candidate.

    Candidates come best CSLS first, and that order settles ties, as in ``choose_weights``.
    """
    order = np.argsort(-final, axis=1, kind="stable")
    ordered = np.take_along_axis(is_gold, order, axis=1)
    return np.where(ordered.any(axis=1), 1 + ordered.argmax(axis=1), 0).astype(np.int64)


def paired_gain(differences: Floats) -> dict[str, float]:
    """Mean of (queries, 1) differences, its 95 % interval, and p for "there is none"."""
    means = resampled_means(differences, BOOTSTRAP, seed=0)
    ((low, high),) = interval(means).tolist()
    p_value = float(paired_p_values(differences, means)[0])
    return {"difference": float(differences.mean()), "low": low, "high": high, "p_value": p_value}


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
    parent: Any = parent_process()

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


class RayPool:
    """Units as Ray tasks; Ray finds a node with the CPUs and GPUs that each needs.

    A unit whose worker or node dies is started elsewhere, from the stages in the work folder if
    the nodes share it.
    """

    def __init__(self, run: Run, address: str, *, cpus: float = 1, gpus: float = 0) -> None:
        with needed("ray", "--ray", "ray"):
            import ray
        self.ray, self.cpus, self.gpus = ray, cpus, gpus
        self._references: list[Any] = []
        self._started_here = not ray.is_initialized()
        if self._started_here:
            _connect(ray, address)
        # max_calls=0: a worker stays, with the vectors that it has read.
        needs = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 3, "max_calls": 0}
        self._remote = ray.remote(**needs)(lambda run, unit: run(unit))
        self._run = ray.put(run)
        if not self.capacity:
            self.close()
            unit = f"a unit of {cpus:g} CPUs and {gpus:g} GPUs"
            raise BlicerError(f"no node of the Ray cluster can run {unit}")
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


def _connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one on this machine alone (``local``)."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself would try for minutes where nobody answers
            socket.create_connection((host, int(port)), timeout=10).close()
        dashboard = False if address == "local" else None
        quiet = {"log_to_driver": False, "configure_logging": False}
        ray.init(address=address, include_dashboard=dashboard, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise BlicerError(f"no Ray cluster at {address!r} ({first_line(error)})") from error


# -- this machine


def unit_memory(unit: Unit, dataset: Dataset) -> int:
    """Bytes that a process running this unit holds at its peak, on the safe side."""
    # In memory vectors take at most twice their file, which may be compressed, and 300 numbers a
    # word; they are there as read, normalised, mapped, and the methods hold more beside them.
    paths = unit.vectors(dataset).values()
    vectors = 8 * sum(min(2 * _size(path), 1200 * unit.max_words) for path in paths)
    # Weights, gradients, two moments and the largest batches while training.
    encoder = unit.config.encoder
    training = 0.8 if encoder == lite.NAME else 12 if "large" in encoder else 6
    return int(vectors + (0.8 + training) * GIGABYTE)  # 0.8: torch and the like


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def jobs_that_fit(asked: int, units: Iterable[Unit], dataset: Dataset, free: int) -> int:
    """As many jobs as were asked for, or as fit into ``free`` bytes (0: unknown); at least one."""
    largest = max(unit_memory(unit, dataset) for unit in units)
    return max(1, min(asked, free // largest)) if free else asked


def local_pool(
    run: Callable[..., Result], units: Sequence[Unit], dataset: Dataset, jobs: int, threads: int
) -> LocalPool:
    """As many jobs as memory allows, and the cores divided among them unless ``threads`` is set."""
    fitting = jobs_that_fit(jobs, units, dataset, memory()[1])
    if fitting < jobs:
        note(f"memory suffices for {fitting} of {jobs} jobs at a time")
    return LocalPool(partial(run, threads=threads or max(1, cores() // fitting)), fitting)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> tuple[int, int]:
    """(all, free) bytes of the machine, or of the control group; 0: the system does not say."""
    total, free = (
        1024 * int(_system_file("/proc/meminfo", rf"{name}:\s*(\d+)") or 0)
        for name in ("MemTotal", "MemAvailable")
    )
    limit, used = (
        int(_system_file(f"/sys/fs/cgroup/memory.{name}", r"^(\d+)") or 0)
        for name in ("max", "current")
    )
    return (min(total, limit), min(free, max(limit - used, 1))) if limit else (total, free)


def _system_file(path: str, pattern: str) -> str:
    """What a pattern finds in a file of the system; empty where there is none."""
    with suppress(OSError):
        if found := re.search(pattern, Path(path).read_text("utf-8")):
            return found[1]
    return ""


def machine() -> dict[str, Any]:
    processor = _system_file("/proc/cpuinfo", r"model name\s*: *(.+)") or platform.processor()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor or "unknown",
        "cores": cores(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", 0) or cores()),
        "memory_gb": round(memory()[0] / GIGABYTE, 1),
    }


@lru_cache(maxsize=1)
def source_revision() -> str:
    """The commit of an installation from a working copy; empty for a released package."""
    home = Path(__file__).resolve().parents[3]
    if not (home / ".git").exists():
        return ""
    command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    return ""
