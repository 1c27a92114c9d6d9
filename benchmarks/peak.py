"""Time and peak memory of a piece of work, for the benchmarks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
EVERY_SECONDS = 0.01


@dataclass(frozen=True)
class Measured(Generic[T]):
    result: T
    seconds: float
    extra_gb: float  # most resident memory above what was in use at the start


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(work: Callable[[], T]) -> Measured[T]:
    """Run ``work`` once; memory is sampled on a thread, as allocations in torch are its own."""
    before, most, done = resident_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(EVERY_SECONDS):
            most = max(most, resident_bytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    try:
        result = work()
    finally:
        seconds = time.perf_counter() - start
        done.set()
        watcher.join()
    return Measured(result, seconds, max(0, max(most, resident_bytes()) - before) / 2**30)
