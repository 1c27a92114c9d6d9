"""The words in a NumPy object array (ContrastiveBLI's ``*_voc.npy``), without unpickling it.

Such a file is a pickle, and a pickle is a program. Here it is only read: its opcodes are walked
with ``pickletools``, which executes nothing; plain containers and strings are built by us, and a
call that the pickle asks for becomes an inert note of what was asked.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blicer.errors import FileError

_HOW_TO_CONVERT = (
    "save the words as text, one a line, in the order of the matrix, and give vocabulary="
)


@dataclass
class Inert:
    """A name or a call that the pickle mentions and that is never looked up or made."""

    name: str
    arguments: Any = None
    state: Any = None


class _Refused(Exception):
    """An opcode that plain words do not need."""


_MARK = object()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERAL_NAMES = """
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8
    UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8
"""
_LITERALS = frozenset(_LITERAL_NAMES.split())
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Walker:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def walk(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return self.stack.pop()
            if opcode.name not in ("PROTO", "FRAME"):
                self._step(opcode.name, argument)
        raise _Refused("no end")

    def _since_mark(self) -> list[Any]:
        items = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in _TUPLES:
            n = _TUPLES[name]
            stack[-n:] = [tuple(stack[-n:])]
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self._since_mark()
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else self._since_mark()
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        else:
            self._note(name, argument)

    def _note(self, name: str, argument: Any) -> None:
        """What would run code in a real unpickler: written down, not done."""
        stack = self.stack
        if name == "GLOBAL":
            stack.append(Inert(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(Inert(f"{module}.{attribute}"))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            if not isinstance(function, Inert):
                raise _Refused("a call of no function")
            stack.append(Inert(function.name, arguments))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], Inert):
                raise _Refused("a state without an object")
            stack[-1].state = state
        else:
            raise _Refused(f"opcode {name}")


def words_from_object_array(path: Path) -> list[str]:
    """The words in the order of the matrix, from an array, a list or a word -> row mapping."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        read_header(file)
        data = file.read()
    try:
        array = _Walker().walk(data)
        return _words(array)
    except _Refused as refused:
        raise FileError(
            path, f"is a pickle of more than words ({refused}); {_HOW_TO_CONVERT}"
        ) from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise FileError(path, f"is a damaged pickle ({error}); {_HOW_TO_CONVERT}") from error


def _words(array: Any) -> list[str]:
    if not isinstance(array, Inert) or not array.name.endswith(".multiarray._reconstruct"):
        found = array.name if isinstance(array, Inert) else type(array).__name__
        raise _Refused(f"found {found}")
    items = array.state[4]
    if len(items) == 1 and isinstance(items[0], (dict, list, tuple)):
        items = items[0]
    if isinstance(items, dict):
        items = _in_order(items)
    words = list(items)
    for word in words:
        if not isinstance(word, str):
            raise _Refused(f"found {type(word).__name__} among the words")
    return words


def _in_order(mapping: dict[Any, Any]) -> list[Any]:
    """word -> row or row -> word; the rows must be 0 … n-1."""
    if all(isinstance(key, str) for key in mapping):
        rows = {_integer(value): key for key, value in mapping.items()}
    else:
        rows = {_integer(key): value for key, value in mapping.items()}
    if len(rows) != len(mapping) or set(rows) != set(range(len(rows))):
        raise _Refused("the row numbers of the words are not 0, 1, 2, …")
    return [rows[row] for row in range(len(rows))]


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, Inert) and value.name.endswith(".multiarray.scalar"):
        data = value.arguments[1]
        if isinstance(data, Inert):  # old pickles write bytes as a call of _codecs.encode
            data = data.arguments[0]
        raw = data.encode("latin-1") if isinstance(data, str) else data
        return int.from_bytes(raw, "little", signed=True)
    raise _Refused(f"found {type(value).__name__} for a row number")
