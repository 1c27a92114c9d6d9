"""Progress bars and notes on standard error: on in consoles, notebooks and the command line.

A script turns them on by ``progress.enable()``.

A bar needs a terminal, and appears only once work has gone on for a moment.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as rich
from rich.console import Console

SHOW_AFTER_SECONDS = 1.0
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

console = Console(stderr=True, highlight=False)
_enabled = hasattr(sys, "ps1")  # somebody is typing
_bars = rich.Progress(
    rich.TextColumn("{task.description}"),
    rich.BarColumn(bar_width=30),
    rich.MofNCompleteColumn(),
    rich.TimeElapsedColumn(),
    rich.TimeRemainingColumn(),
    rich.TextColumn("{task.fields[status]}"),
    console=console,
    transient=True,
)


def enable(on: bool = True) -> None:
    """Turn progress bars and notes on or off for this process."""
    global _enabled
    _enabled = on


def printable(text: str) -> str:
    """The text with control and bidirectional characters escaped, as it may come from any file."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def note(message: str) -> None:
    """Print a note for the user, such as what was dropped or chosen."""
    if _enabled:
        console.print(printable(message), markup=False, soft_wrap=True)


class Task:
    """One piece of work and its progress bar."""

    def __init__(self, label: str, total: int | None) -> None:
        self.done, self._started = 0, time.monotonic()
        self.row = _bars.add_task(label, total=total, visible=False, status="")

    def advance(self, steps: int = 1, status: str = "") -> None:
        self.done += steps
        waited = time.monotonic() - self._started
        if not (_enabled and console.is_terminal) or waited < SHOW_AFTER_SECONDS:
            return
        # Nested tasks share one bar: that of the task that shows it first.
        if not any(bar.visible and bar.id != self.row for bar in _bars.tasks):
            _bars.start()
            _bars.update(self.row, completed=self.done, visible=True, status=status)


@contextmanager
def task(label: str, total: int | None = None) -> Iterator[Task]:
    """Show a progress bar while the block runs; ``total``: how many steps, if known."""
    running = Task(label, total)
    try:
        yield running
    finally:
        _bars.remove_task(running.row)
        if _bars.live.is_started and not any(bar.visible for bar in _bars.tasks):
            _bars.stop()
