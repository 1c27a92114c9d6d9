"""Runs units: one at a time, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
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
    SYSTEMS,
    TEST,
    UNSUPERVISED,
    WITHOUT_SEEDS,
    ZERO_SHOT,
    Dataset,
    Unit,
    default_system,
)
from blicer.benchmark.results import DONE, FAILED, Result, Results, load_units
from blicer.config import AUTO
from blicer.errors import BlicerError, InputError, needed
from blicer.evaluation import (
    METRICS,
    answerable_queries,
    interval,
    paired_p_values,
    per_query,
    resampled_means,
)
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, Mixture, gold_marks, score_candidates
from blicer.multilingual import prepare_zero_shot, without_shared_pivots
from blicer.pipeline import choose, prepare
from blicer.progress import note
from blicer.stage_cache import log_stages

if TYPE_CHECKING:
    from blicer.pipeline import Prepared

Floats = NDArray[np.float64]
BOOTSTRAP = 10_000  # draws of the paired test
GIGABYTE = 1 << 30
ATTEMPTS = 2  # at a unit whose worker dies
WORKER_DIED = "worker died (killed from outside, most often because memory ran out)"
ZERO_SHOT_WORDS = 2_000  # pivot words of either dictionary (docs/method.md §3)


# -- one unit


def run_unit(unit: Unit, dataset: Dataset, work: Path) -> Result:
    """Fit the space and the scorers, choose the weights, and only then test.

    ``work`` caches stages that other units share; trained rerankers serve no other unit and are
    removed at the end.
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
    test = dataset.lexicon(unit.source, unit.target, TEST)
    figures = measure(prepared, mixtures, test)
    default = default_system(unit.config)
    for name, (parts, mixture) in mixtures.items():
        figures[name] |= {
            "scorers": list(parts),
            "default": name == (default if unit.setup != ZERO_SHOT else "tuned"),
            "weights": mixture.weights,
            "curve": [list(point) for point in mixture.curve],
        }
    for folder in stages:
        if "reranker-" in folder.name:
            shutil.rmtree(folder, ignore_errors=True)
    return describe(unit, DONE) | {
        "seconds": {"total": round(time.perf_counter() - started, 2)},
        "seeds_used": prepared.seeds,
        "held_out": len(prepared.held_out.parts) if prepared.held_out is not None else 0,
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
    source, target = (dataset.embeddings(one, unit.max_words) for one in (unit.source, unit.target))
    # Nothing is chosen by it, but without a word to score all the work would be for nothing.
    test = dataset.lexicon(unit.source, unit.target, TEST)
    if not len(test.indices(source, target)):
        missing = "; ".join(test.coverage(source, target).lines())
        raise InputError(f"no word of the test dictionary can be scored: {missing}")
    start = unit.space_mode or AUTO
    if unit.setup == UNSUPERVISED:
        return prepare(source, target, None, config.seedless(start), work_dir=work)
    if unit.setup == ZERO_SHOT:
        pivot = dataset.embeddings(unit.pivot, unit.max_words)
        one, other = (first_words(one, ZERO_SHOT_WORDS) for one in without_shared_pivots(*seeds))
        return prepare_zero_shot(
            pivot, source, target, one, other, config, init=start, work_dir=work
        )
    return prepare(source, target, seeds[0], config, work_dir=work)


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
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads",
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
        return run_unit(unit, dataset, work)
    except Exception as error:
        traceback.print_exc()
        return failed(unit, error)


def limit_threads(threads: int) -> None:
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # for libraries that come later
        os.environ[name] = str(threads)
    torch.set_num_threads(threads)
    threadpool_limits(threads)


# -- the figures of a unit


def choose_mixture(prepared: Prepared, scorers: Sequence[str], lam: float | None) -> Mixture:
    """The weights of CSLS and some of the scorers, chosen on held-out words alone.

    A fixed ``lam`` applies to systems with one scorer; the weights of the others are chosen.
    """
    if not scorers:
        return Mixture({CSLS: 1.0})
    view = prepared.held_out
    if view is not None:
        view = replace(view, parts=view.parts[..., columns(prepared, scorers)])
    lam = lam if len(scorers) == 1 else None
    config = prepared.config.replace(scorers=scorers, mixing_weight=lam)
    return choose(view, config, checked=not prepared.notes)


def columns(prepared: Prepared, scorers: Sequence[str]) -> list[int]:
    """Where CSLS and these scorers are among all that were fitted."""
    return [0, *(1 + prepared.config.scorers.index(name) for name in scorers)]


def measure(
    prepared: Prepared, systems: Mapping[str, tuple[Sequence[str], Mixture]], test: Lexicon
) -> dict[str, dict[str, Any]]:
    """Every system's figures in both directions.

    All systems order the same ``n_cand`` candidates: a gold translation that is not among them
    counts as absent for each, in P@5 and MRR too, so that the systems compare. Gains are over the
    first system, which is the space alone.
    """
    fitted = prepared.fitted
    sides = (fitted.space.source, fitted.space.target)
    figures: dict[str, dict[str, Any]] = {name: {} for name in systems}
    for direction in ("forward", "backward"):
        known, queries, golds = answerable_queries(test, *sides)
        if not len(queries):
            missing = "; ".join(test.coverage(*sides).lines())
            raise InputError(f"no word of the test dictionary can be scored: {missing}")
        parts = (fitted.space, fitted.scaling, fitted.scorers, queries, prepared.config.n_cand)
        scores = score_candidates(*parts, reverse=direction == "backward")
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
    return figures


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
    the nodes share it. ``address``: of a cluster, or ``local`` to start one on this machine.
    """

    def __init__(self, run: Run, address: str, *, cpus: float = 1, gpus: float = 0) -> None:
        with needed("ray", "--ray", "ray"):
            import ray
        self.ray, self.needs = ray, {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
        host, _, port = address.removeprefix("ray://").rpartition(":")
        try:
            if host and port.isdigit():  # Ray itself would try for minutes where nobody answers
                socket.create_connection((host, int(port)), timeout=10).close()
            dashboard = False if address == "local" else None
            quiet = {"log_to_driver": False, "configure_logging": False}
            ray.init(address, include_dashboard=dashboard, ignore_reinit_error=True, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise BlicerError(f"no Ray cluster at {address!r} ({first_line(error)})") from error
        # max_calls=0: a worker stays, with the vectors that it has read.
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=3, max_calls=0)
        self._remote, self._run = task(lambda run, unit: run(unit)), ray.put(run)
        if not self.capacity:
            self.close()
            unit = f"a unit of {cpus:g} CPUs and {gpus:g} GPUs"
            raise BlicerError(f"no node of the Ray cluster can run {unit}")
        note(f"Ray: room for {self.capacity} units at a time")

    @property
    def capacity(self) -> int:
        """Units that fit on the nodes that are there now; a unit cannot use two nodes."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node.get("Alive")]
        return sum(
            min(int(node.get(kind, 0) / n) for kind, n in self.needs.items()) for node in nodes
        )

    def submit(self, unit: Unit) -> Future[Result]:
        future: Future[Result] = self._remote.remote(self._run, unit).future()
        return future

    def close(self) -> None:
        """Leave the cluster, which stops whatever still runs for this process."""
        self.ray.shutdown()


# -- a cluster with Slurm


def run_on_slurm(
    units: Sequence[Unit],
    run: Run,
    results: Results,
    *,
    units_per_job: int = 1,
    parameters: Mapping[str, Any] | None = None,
    cluster: str = "slurm",
) -> list[Result]:
    """Run all units as one job array, and wait for it; returns the results of failed units.

    Jobs write their results themselves: if this process ends, they go on. ``parameters``: of
    submitit, such as ``slurm_partition``. ``cluster``: ``local`` runs the jobs on this machine.
    """
    with needed("submitit", "--slurm", "slurm"):
        import submitit
    logs = results.work.resolve() / "slurm"
    chunks = [units[at : at + units_per_job] for at in range(0, len(units), units_per_job)]
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
        executor.update_parameters(name="blicer", **(parameters or {}))
        jobs = executor.map_array(partial(_run_some, run, results.folder.resolve()), chunks)
    except (RuntimeError, TypeError, ValueError, NameError, OSError) as error:
        raise BlicerError(f"Slurm did not take the jobs ({first_line(error)})") from error
    array = jobs[0].job_id.partition("_")[0]
    note(f"{len(jobs)} jobs in the array {array}; logs are in {logs}")
    try:
        with progress.task("jobs", len(jobs)) as bar:
            for job in jobs:
                job.wait()
                bar.advance(1)
    except KeyboardInterrupt:
        note(f"interrupted; the jobs go on (scancel {array} stops them)")
        raise
    left = [unit for unit in units if results.missing(unit)]
    ended = {one["key"]: one for one in load_units(results.folder) if one["status"] != DONE}
    for unit in left:
        if unit.key not in ended:  # the job died, or failed beside figures of an earlier run
            ended[unit.key] = failed(unit, f"the job ended without a result; see {logs}")
            results.write(ended[unit.key])
    return [ended[unit.key] for unit in left]


def _run_some(run: Run, folder: Path, units: Sequence[Unit]) -> None:
    """In a job: measure units one after the other; each result is on disk once it is known."""
    for unit in units:
        Results(folder).write(run(unit))


# -- this machine


def local_pool(
    run: Callable[..., Result], units: Sequence[Unit], dataset: Dataset, jobs: int, threads: int
) -> LocalPool:
    """As many jobs as memory allows, and the cores divided among them unless ``threads`` is set."""
    fitting, free = jobs, free_memory()
    if free:
        fitting = max(1, min(jobs, free // max(unit_memory(unit, dataset) for unit in units)))
    if fitting < jobs:
        note(f"memory suffices for {fitting} of {jobs} jobs at a time")
    return LocalPool(partial(run, threads=threads or max(1, cores() // fitting)), fitting)


def unit_memory(unit: Unit, dataset: Dataset) -> int:
    """Bytes that a process running this unit holds at its peak, on the safe side."""
    # In memory vectors take at most twice their file, which may be compressed, and 300 numbers a
    # word; they are there as read, normalised, mapped, and the methods hold more beside them.
    vectors = 0
    for path in unit.vectors(dataset).values():
        size = sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
        vectors += 8 * min(2 * size, 1200 * unit.max_words)
    # Weights, gradients, two moments and the largest batches while training.
    encoder = unit.config.encoder
    training = 0.8 if encoder == lite.NAME else 12 if "large" in encoder else 6
    return int(vectors + (0.8 + training) * GIGABYTE)  # 0.8: torch and the like


def free_memory() -> int:
    """Free bytes of the machine, or of the control group; 0: the system does not say."""

    def number(path: str, pattern: str) -> int:
        with suppress(OSError):
            if found := re.search(pattern, Path(path).read_text("utf-8")):
                return int(found[1])
        return 0

    free = 1024 * number("/proc/meminfo", r"MemAvailable:\s*(\d+)")
    limit, used = (
        number(f"/sys/fs/cgroup/memory.{name}", r"^(\d+)") for name in ("max", "current")
    )
    return min(free, max(limit - used, 1)) if limit else free


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
