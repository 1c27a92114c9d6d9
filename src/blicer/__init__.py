"""blicer: word vectors and a seed dictionary in, a bilingual dictionary out.

>>> translator = blicer.train(english, french, seeds)  # doctest: +SKIP

The public names are in ``__init__.pyi``. They load on first use, so that ``import blicer`` does not
import torch.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_MODULES = {
    name.name: line.module
    for line in _STUB.body
    if isinstance(line, ast.ImportFrom) and line.module
    for name in line.names
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'blicer' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*_MODULES, "__version__"]
