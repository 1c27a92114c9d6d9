"""Several processes (one a GPU) through accelerate; a single process needs none of it.

Start the same command with ``accelerate launch``: every process takes its share of each batch and
the gradients are averaged, so the result is that of one process up to rounding and dropout.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from blicer.crossencoder.pair_tokens import Ints


class Workers:
    """The processes that train together; on its own this is one process without overhead."""

    rank, count = 0, 1

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def wrap(self, model: Any) -> Any:
        return model

    def share(self, rows: Ints) -> tuple[Ints, bool]:
        """This process's rows, and whether they count (a process without any gets a dummy)."""
        return rows, True

    def hold_back(self, model: Any, on: bool) -> AbstractContextManager[Any]:
        """While on, gradients are not exchanged yet."""
        return nullcontext()

    def mean(self, value: torch.Tensor) -> float:
        return float(value)

    def wait(self) -> None:
        pass


class AccelerateWorkers(Workers):
    def __init__(self, device: torch.device) -> None:
        from accelerate import Accelerator, DistributedDataParallelKwargs

        self.accelerator = Accelerator(
            mixed_precision="no",  # autocast is ours, the same as in a single process
            cpu=device.type == "cpu",
            kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
        )
        self.device = self.accelerator.device
        self.rank = self.accelerator.process_index
        self.count = self.accelerator.num_processes

    def wrap(self, model: Any) -> Any:
        return self.accelerator.prepare_model(model)

    def share(self, rows: Ints) -> tuple[Ints, bool]:
        mine = rows[self.rank :: self.count]
        return (mine, True) if len(mine) else (rows[:1], False)

    def hold_back(self, model: Any, on: bool) -> AbstractContextManager[Any]:
        held: AbstractContextManager[Any] = self.accelerator.no_sync(model) if on else nullcontext()
        return held

    def mean(self, value: torch.Tensor) -> float:
        return float(self.accelerator.reduce(value, reduction="mean"))

    def wait(self) -> None:
        self.accelerator.wait_for_everyone()


def find_workers(device: torch.device) -> Workers:
    """accelerate's processes when launched under it (or torchrun), otherwise this one alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return AccelerateWorkers(device)
    return Workers()
