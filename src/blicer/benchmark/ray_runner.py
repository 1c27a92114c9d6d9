"""The same units on a Ray cluster, where one machine is not enough."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from blicer.benchmark.pool import Outcome
from blicer.benchmark.unit import Task
from blicer.errors import BlicerError, MissingDependency
from blicer.progress import note

LOCAL, AUTO = "local", "auto"
CONNECT_SECONDS = 10
RETRIES = 3  # of a unit whose worker or node died, by Ray itself


class RayPool:
    """Units as Ray tasks; Ray finds a node with the CPUs and GPUs that each needs.

    A unit whose worker or node dies is started elsewhere, and goes on from the stages that are in
    the work folder if the nodes share it.
    """

    def __init__(
        self, run: Callable[[Task], Outcome], address: str, *, cpus: float = 1, gpus: float = 0
    ) -> None:
        self._ray = _import_ray()
        self.cpus, self.gpus = cpus, gpus
        self._running: dict[Any, Task] = {}
        self._started_here = not self._ray.is_initialized()
        if self._started_here:
            _connect(self._ray, address)
        needs = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES}
        # A worker that lives on keeps the vectors that it has read.
        self._remote = self._ray.remote(max_calls=0, **needs)(_run)
        self._job = self._ray.put(run)
        most = self._most()
        if most < 1:
            self.close()
            raise BlicerError(
                f"no node of the Ray cluster can run a unit of {cpus:g} CPUs and {gpus:g} GPUs"
            )
        note(f"Ray: room for {most} units at a time")

    @property
    def capacity(self) -> int:
        """By what the nodes have now: clusters grow and shrink."""
        return max(1, self._most())

    def _most(self) -> int:
        """Units that fit, node by node: a unit does not spread over two."""
        return sum(self._fit(node["Resources"]) for node in self._ray.nodes() if node.get("Alive"))

    def _fit(self, resources: dict[str, float]) -> int:
        by_cpu = int(resources.get("CPU", 0) / self.cpus)
        return min(by_cpu, int(resources.get("GPU", 0) / self.gpus)) if self.gpus else by_cpu

    def start(self, task: Task) -> None:
        self._running[self._remote.remote(self._job, task)] = task

    def wait(self) -> list[tuple[Task, Outcome | None]]:
        ready, _ = self._ray.wait(list(self._running), num_returns=1)
        return [(self._running.pop(reference), self._outcome(reference)) for reference in ready]

    def _outcome(self, reference: Any) -> Outcome | None:
        try:
            outcome: Outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            note(f"Ray: {str(error).strip().splitlines()[0]}")
            return None
        return outcome

    def close(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running = {}
        if self._started_here:
            self._ray.shutdown()


def _run(run: Callable[[Task], Outcome], task: Task) -> Outcome:
    return run(task)


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingDependency("ray", "--ray", extra="ray") from error
    return ray


def _check_reachable(address: str) -> None:
    """Ray itself tries for many minutes where nobody answers."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or error
        raise BlicerError(f"no Ray cluster at {address!r} ({reason})") from error


def _connect(ray: Any, address: str) -> None:
    """Join a cluster, or start one on this machine alone."""
    _check_reachable(address)
    try:
        ray.init(
            address=address,
            include_dashboard=False if address == LOCAL else None,
            log_to_driver=False,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BlicerError(f"no Ray cluster at {address!r} ({reason})") from error
