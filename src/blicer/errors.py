"""Errors that a user can act on. The message says where, what was found, and what was expected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXIT_FAILURE = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class BlicerError(Exception):
    """Base class of all errors that the user can act on."""

    exit_code = EXIT_FAILURE


class InputError(BlicerError, ValueError):
    """An argument or a file is not what was expected."""

    exit_code = EXIT_BAD_INPUT


class FileError(InputError):
    """A file cannot be used; the message names the file, the line if any, and the problem."""

    def __init__(self, path: str | Path, problem: str, *, line: int | None = None) -> None:
        place = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {problem}")
        self.path = Path(path)
        self.line = line


def expect(name: str, value: object, *kinds: type, hint: str = "") -> None:
    """Raise ``InputError`` if an argument has none of these types."""
    if not isinstance(value, kinds):
        wanted = " or ".join("None" if one is type(None) else one.__name__ for one in kinds)
        found = "None" if value is None else f"a {type(value).__name__}"
        raise InputError(f"{name} is {found}; expected {wanted}{hint and f' ({hint})'}")


class MissingDependency(BlicerError, ImportError):
    """An optional package is missing; the message says how to install it."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs the package '{package}': pip install 'blicer[{extra}]'")


@contextmanager
def needed(package: str, purpose: str, extra: str) -> Iterator[None]:
    """A failed import inside the block raises ``MissingDependency``, which says what to install."""
    try:
        yield
    except ImportError as error:
        raise MissingDependency(package, purpose, extra) from error
