"""The newest state of an iterative fit, on disk: after a kill the same call continues from it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from blicer.errors import FileError
from blicer.files import atomic_write, digest
from blicer.progress import note
from blicer.stage_cache import stage_folder

SECONDS = 10.0  # between two writes


class Checkpoint:
    """Tensors and JSON values of a run, in a file of ``work`` named after a hash of ``inputs``.

    ``work``: None saves nothing. The file is complete or absent; one that does not match its own
    hash is ignored.
    """

    def __init__(self, work: Path | None, *inputs: Any) -> None:
        self.file: Path | None = None
        if work is not None:
            parts = [one.cpu().numpy() if isinstance(one, Tensor) else one for one in inputs]
            self.file = stage_folder(work, "rounds", *parts).with_suffix(".progress")
        self._saved_at = time.monotonic()

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The saved state; None if there is none, or if it is damaged."""
        if self.file is None or not self.file.is_file():
            return None
        try:
            with safe_open(self.file, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                about = file.metadata()
            if about["hash"] != _hash(tensors, about["values"]):
                raise ValueError("it does not match its hash")
            values = json.loads(about["values"])
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            note(f"{self.file}: the kept state is damaged ({error}) and is not used")
            return None
        note(f"going on from {self.file}")
        return tensors, values

    def save(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Replace the saved state if ``SECONDS`` have passed. A full disk is noted, not raised."""
        if self.file is None or time.monotonic() - self._saved_at < SECONDS:
            return
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        text = json.dumps(values)
        try:
            with atomic_write(self.file, "wb") as file:
                file.write(save(whole, {"values": text, "hash": _hash(whole, text)}))
        except FileError as error:
            note(f"no state could be kept ({error}); the work goes on without")
        self._saved_at = time.monotonic()

    def delete(self) -> None:
        """Delete the state once the result is complete."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)


def _hash(tensors: Mapping[str, Tensor], values: str) -> str:
    arrays = [digest(name, np.asarray(tensors[name].numpy())) for name in sorted(tensors)]
    return digest(arrays, values)
