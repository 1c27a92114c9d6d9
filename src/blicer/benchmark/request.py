"""What the command line says, as texts with commas, turned into a matrix and a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from blicer.benchmark.dataset import Dataset
from blicer.benchmark.machine import cores, free_memory
from blicer.benchmark.memory import jobs_that_fit
from blicer.benchmark.plan import Matrix
from blicer.benchmark.pool import Job, LocalPool, Pool
from blicer.benchmark.results import Results
from blicer.benchmark.unit import Task
from blicer.config import parse_assignments
from blicer.errors import InputError
from blicer.progress import note

LISTS = (
    *("pairs", "setups", "spaces", "encoders", "templates", "alphas", "training_seeds"),
    "systems",
)
_NUMBERS = {"alphas": float, "training_seeds": int}

ABLATIONS: dict[str, dict[str, Any]] = {
    "encoders": {
        "encoders": (
            "xlm-roberta-large",
            "xlm-roberta-base",
            "bert-base-multilingual-uncased",
        )
    },
    "templates": {"templates": tuple(f"T{number}" for number in range(1, 17))},
    "alpha": {"alphas": tuple(step / 10 for step in range(11))},
    "off-the-shelf": {"systems": ("space", "untuned", "tuned")},
    "no-template": {"templates": ("T1", "T15")},
}
"""The paper's ablations: the lists that each of them fills in."""


def read_matrix(options: Mapping[str, Any]) -> Matrix:
    """The lists that were given, those of an ablation where none was, and the settings."""
    lists: dict[str, Any] = {name: split(name, options[name]) for name in LISTS}
    if ablation := options["ablation"]:
        if ablation not in ABLATIONS:
            known = ", ".join(ABLATIONS)
            raise InputError(f"there is no ablation {ablation!r}; there are {known}")
        lists |= {name: lists[name] or values for name, values in ABLATIONS[ablation].items()}
    lists["encoders"] = lists["encoders"] or ("lite",)
    return Matrix(
        **lists,
        max_words=options["max_words"],
        pivot=options["pivot"],
        settings=parse_assignments(options["settings"] or []),
    )


def split(name: str, text: str) -> tuple[Any, ...]:
    """``"0,0.5,1"`` in the kind of values that the list is of."""
    kind = _NUMBERS.get(name, str)
    try:
        return tuple(kind(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        option = name.replace("_", "-")
        raise InputError(f"--{option} {text!r}: expected numbers with commas between") from error


def local_pool(
    dataset: Dataset,
    results: Results,
    tasks: list[Task],
    jobs: int,
    threads: int,
    **options: Any,
) -> Pool:
    """Processes on this machine, no more than its memory holds."""
    fitting = jobs_that_fit(jobs, [task.unit for task in tasks], dataset, free_memory())
    if fitting < jobs:
        note(f"memory suffices for {fitting} of {jobs} jobs at a time")
    each = threads or max(1, cores() // fitting)
    return LocalPool(Job(dataset, results.work.resolve(), each, **options), fitting, each)


def ray_pool(
    dataset: Dataset,
    results: Results,
    address: str,
    cpus: float,
    gpus: float,
    **options: Any,
) -> Pool:
    """A Ray cluster; its nodes find data and results under the same absolute paths."""
    from blicer.benchmark.ray_runner import RayPool

    everywhere = replace(dataset, folder=dataset.folder.resolve())
    job = Job(everywhere, results.work.resolve(), max(1, int(cpus)), home=Path.cwd(), **options)
    return RayPool(job, address, cpus=cpus, gpus=gpus)
