"""blicer: word vectors and a seed dictionary in, a bilingual dictionary out.

Names load on first use, so that ``import blicer`` does not import torch.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("blicer")

if TYPE_CHECKING:
    from blicer.align import RCSLS, Contrastive, Procrustes, Space, VecMap
    from blicer.crossencoder.model import Reranker
    from blicer.embeddings import Embeddings
    from blicer.errors import BlicerError
    from blicer.evaluation import evaluate
    from blicer.lexicon import Lexicon
    from blicer.translator import Translator

_HOME = {
    "BlicerError": "blicer.errors",
    "Contrastive": "blicer.align",
    "Embeddings": "blicer.embeddings",
    "Lexicon": "blicer.lexicon",
    "Procrustes": "blicer.align",
    "RCSLS": "blicer.align",
    "Reranker": "blicer.crossencoder.model",
    "Space": "blicer.align",
    "Translator": "blicer.translator",
    "VecMap": "blicer.align",
    "evaluate": "blicer.evaluation",
}

__all__ = [
    "RCSLS",
    "BlicerError",
    "Contrastive",
    "Embeddings",
    "Lexicon",
    "Procrustes",
    "Reranker",
    "Space",
    "Translator",
    "VecMap",
    "evaluate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'blicer' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
