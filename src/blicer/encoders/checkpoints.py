"""Checkpoints that survive ``kill -9``: whole or absent, checked before they are trusted.

A checkpoint is a folder of safetensors files and a state.json with their digests and the
fingerprint of the run (data, settings, initial weights). It is filled beside its place and moved
there when complete; the one before it is then removed. One whose digest or fingerprint does not
match is ignored, so a changed command never goes on from another run's state.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from blicer.errors import BlicerError, FileError
from blicer.files import atomic_folder, read_json, write_json
from blicer.progress import note

# === crossencoder.checkpoints ===
STATE = "state.json"
# A checkpoint is due after this time, and after 20 times what the last one took (5 % of the work).
SECONDS = 60.0
SHARE = 20.0


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class Checkpoints:
    """The newest state of one training run, in a folder of its own."""

    def __init__(self, folder: str | Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = Path(folder), fingerprint
        self._saved_at, self._saving_took = time.monotonic(), 0.0

    def due(self) -> bool:
        """Whether so much work has been done since the last one that it should be kept."""
        waited = time.monotonic() - self._saved_at
        return waited > max(SECONDS, SHARE * self._saving_took)

    def save(
        self, step: int, tensors: Mapping[str, Mapping[str, torch.Tensor]], state: dict[str, Any]
    ) -> bool:
        """Keep this state instead of the one before. A full disk is said, but stops nothing."""
        started = time.monotonic()
        written = self._write(step, tensors, state)
        self._saved_at = time.monotonic()
        self._saving_took = self._saved_at - started
        return written

    def _write(
        self, step: int, tensors: Mapping[str, Mapping[str, torch.Tensor]], state: dict[str, Any]
    ) -> bool:
        place = self.folder / f"step-{step:09d}"
        try:
            with atomic_folder(place) as new:
                digests = {}
                for name, group in tensors.items():
                    path = new / f"{name}.safetensors"
                    save_file({k: v.detach().contiguous() for k, v in group.items()}, path)
                    digests[path.name] = _digest(path)
                write_json(
                    new / STATE,
                    {
                        "fingerprint": self.fingerprint,
                        "step": step,
                        "files": digests,
                        "state": state,
                    },
                )
        except (BlicerError, SafetensorError) as error:
            note(f"no checkpoint could be written ({error}); training goes on without")
            return False
        for other in self._all():
            if other != place:
                shutil.rmtree(other, ignore_errors=True)
        return True

    def load(self) -> tuple[int, dict[str, dict[str, torch.Tensor]], dict[str, Any]] | None:
        """The newest sound state of this very run, if there is one."""
        for place in sorted(self._all(), reverse=True):
            try:
                info = read_json(place / STATE)
                if info["fingerprint"] != self.fingerprint:
                    note(f"{place}: belongs to another run (other data or settings); not used")
                    continue
                for name, digest in info["files"].items():
                    if _digest(place / name) != digest:
                        raise FileError(place / name, "does not match its digest")
                tensors = {Path(name).stem: load_file(place / name) for name in info["files"]}
                return int(info["step"]), tensors, dict(info["state"])
            except (
                BlicerError, SafetensorError, OSError, KeyError, TypeError, ValueError
            ) as error:  # fmt: skip
                note(f"{place}: the checkpoint is damaged ({error}) and is not used")
        return None

    def clear(self) -> None:
        """Remove every state, and the folder with them unless it holds something else."""
        self.clear_unfinished()
        for path in self._all():
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def clear_unfinished(self) -> None:
        """Remove what a killed process left half-written."""
        for path in self.folder.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _all(self) -> list[Path]:
        return [path for path in self.folder.glob("step-*") if path.is_dir()]
