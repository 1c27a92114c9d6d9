"""The command line: one module a group of commands, which register themselves on ``app``.

Commands import what they need when they run, so that ``blicer --help`` does not import torch.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from typing import Annotated

import typer

from blicer import progress
from blicer.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_TERMINATED, BlicerError

app = typer.Typer(
    name="blicer",
    help="Word vectors of two languages and a small seed dictionary in, a good dictionary out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from blicer import __version__

        typer.echo(f"blicer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")] = False,
) -> None:
    progress.enable(not quiet)


def print_error(message: object) -> None:
    progress.console.print(
        progress.printable(f"blicer: {message}"), markup=False, soft_wrap=True, style="red"
    )


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, so that it ends a command as ctrl-C does."""


def _terminate(*_: object) -> None:
    raise Terminated


def _say_stopped(stopped: KeyboardInterrupt) -> None:
    print_error(str(stopped) or "interrupted; nothing was written")
    sys.exit(EXIT_TERMINATED if isinstance(stopped, Terminated) else EXIT_INTERRUPTED)


def _open_streams() -> None:
    """Replace closed streams, whose numbers the next files would get; output must go somewhere."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    if is_closed := sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if is_closed:
        print_error("standard output is closed: send it to a file, or to /dev/null")
        sys.exit(EXIT_FAILURE)


def main() -> None:
    """Run a command; ``BlicerError`` becomes a message and an exit code, without a traceback."""
    # torch's threads spin while they wait: with another busy process, training takes eight times as
    # long on two cores. torch reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    gc.set_threshold(50_000)  # imports make a million objects that stay
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape letters that the terminal cannot encode
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except BlicerError as error:
        print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as stopped:
        _say_stopped(stopped)
    except SystemExit as ended:
        # Typer turns an interrupt into an exit of its own.
        if isinstance(cause := getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            _say_stopped(cause)
        if isinstance(ended.__context__, BrokenPipeError):
            sys.exit(0)  # the reader of our output (head, less) went away: not an error
        raise
    except (MemoryError, RecursionError) as error:  # where nobody expected it
        what = (
            "memory is full" if isinstance(error, MemoryError) else "something is nested too deep"
        )
        print_error(f"{what} ({error})" if str(error) else what)
        sys.exit(EXIT_FAILURE)
    except OSError as error:
        # Reading and writing files raises FileError; this is a stream, or the system.
        print_error(error)
        sys.exit(EXIT_FAILURE)


# In the order in which help lists the commands.
from blicer.cli import train, translate, serve, data, benchmark  # noqa: E402, F401, I001
