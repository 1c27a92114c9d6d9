"""Progress bars and notes on standard error. Off by default; the command line turns them on.

A bar needs a terminal, and appears only once work has gone on for a moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SHOW_AFTER_SECONDS = 1.0

console = Console(stderr=True, highlight=False)
_enabled = False
_shown: Task | None = None  # of tasks inside tasks only the first shows its bar


def enable(on: bool = True) -> None:
    """Turn progress bars and notes on or off for this process."""
    global _enabled
    _enabled = on


def enabled() -> bool:
    return _enabled


def note(message: str) -> None:
    """Print something that the user should know (what was dropped, what was chosen)."""
    if _enabled:
        console.print(message, markup=False, soft_wrap=True)


class Task:
    """A running piece of work; ``advance`` it and set its ``status``."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total = label, total
        self.done, self._status = 0, ""
        self._started = time.monotonic()
        self._bar: Progress | None = None

    def advance(self, steps: int = 1, status: str | None = None) -> None:
        self.done += steps
        if status is not None:
            self._status = status
        if not (_enabled and console.is_terminal):
            return
        if self._bar is None:
            global _shown
            if _shown is not None or time.monotonic() - self._started < SHOW_AFTER_SECONDS:
                return
            _shown = self
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[status]}"),
                console=console,
                transient=True,
            )
            self._bar.start()
            self._bar.add_task(self._label, total=self._total, status=self._status)
        self._bar.update(self._bar.task_ids[0], completed=self.done, status=self._status)

    def close(self) -> None:
        if self._bar is not None:
            global _shown
            _shown = None
            self._bar.stop()


@contextmanager
def task(label: str, total: int | None = None) -> Iterator[Task]:
    """Show a progress bar while the block runs; ``total``: how many steps, if known."""
    running = Task(label, total)
    try:
        yield running
    finally:
        running.close()
