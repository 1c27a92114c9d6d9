"""The training loop of the cross-encoder (METHOD.md §3): BCE with logits on soft labels, AdamW.

Why not sentence-transformers' CrossEncoderTrainer: it stands on the Trainer of transformers, whose
checkpoints are written in place (a kill in the middle leaves half a folder that a resume then
picks) with pickles in them, which does not know whether data or settings have changed since, and
which needs the ``datasets`` package and re-tokenises every batch. Here a run is a pure function of
(data, settings, initial weights): the order of an epoch and the dropout of a step are drawn from
``(seed, epoch)`` and ``(seed, step)``, so a checkpoint holds weights and optimiser moments and
nothing else, and a resumed run ends with the same bits as an uninterrupted one. The saved model is
the same plain folder that the trainer would have written.

What makes it cheap: texts are tokenised once; a random batch is sorted by length and cut into
micro-batches padded on their own, whose gradients add up to exactly the batch's; of the embedding
table only the rows that occur are trained (see :mod:`blicer.crossencoder.embedding_rows`).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

from blicer.crossencoder.scoring import CPU_TOKENS, GPU_TOKENS, token_batches
from blicer.crossencoder.settings import TrainingSettings
from blicer.crossencoder.tokens import Ints, PairTokens
from blicer.encoders.checkpoints import Checkpoints
from blicer.encoders.loading import input_names
from blicer.encoders.optimiser import (
    make_optimiser,
    optimiser_tensors,
    restore_optimiser,
    rows_in_use,
    set_step,
    train_rows_only,
)
from blicer.progress import note, task


# === crossencoder.parallel ===
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


# === crossencoder.training ===
CPU_MICRO_BATCH = 64


@dataclass(frozen=True)
class LabelledPairs:
    """Tokenised pairs with a soft label in [0, 1] and a weight each (float32)."""

    tokens: PairTokens
    labels: NDArray[np.float32]
    weights: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        whole = hashlib.sha256()
        tokens = self.tokens
        for array in (tokens.ids, tokens.types, tokens.offsets, self.labels, self.weights):
            whole.update(np.ascontiguousarray(array).data)
        return whole.hexdigest()


@dataclass
class TrainingReport:
    """What happened: losses by step, and where training stopped."""

    fingerprint: str
    steps: int = 0
    planned_steps: int = 0
    resumed_from: int = 0
    seconds: float = 0.0
    losses: list[tuple[int, float]] = field(default_factory=list)
    held_out_losses: list[tuple[int, float]] = field(default_factory=list)
    best_step: int | None = None


def run_fingerprint(
    settings: TrainingSettings,
    data: LabelledPairs,
    held_out: LabelledPairs | None,
    initial: str,
    *conditions: object,
) -> str:
    """A digest of everything that decides the final weights."""
    parts = [
        settings.to_dict(),
        data.digest(),
        held_out.digest() if held_out else None,
        initial,
        [str(condition) for condition in conditions],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Run:
    """One training run; :meth:`train` takes it to the end from wherever a checkpoint is."""

    def __init__(
        self,
        model: Any,
        data: LabelledPairs,
        settings: TrainingSettings,
        *,
        device: torch.device,
        autocast: torch.dtype | None = None,
        fingerprint: str = "",
        checkpoint_folder: str | Path | None = None,
        checkpoint_steps: int | None = None,
        held_out: LabelledPairs | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.model, self.data, self.settings = model, data, settings
        self.device, self.autocast, self.held_out = device, autocast, held_out
        self.workers = workers or Workers()
        self.steps_per_epoch = -(-len(data) // settings.batch_size)
        self.total = self.steps_per_epoch * settings.epochs
        self.checkpoint_steps = checkpoint_steps
        self.report = TrainingReport(fingerprint, planned_steps=self.total)
        self.store = Checkpoints(checkpoint_folder, fingerprint) if checkpoint_folder else None
        self.names = input_names(model)
        self.micro = settings.micro_batch_size or (
            CPU_MICRO_BATCH if device.type == "cpu" else settings.batch_size
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=autocast == torch.float16)
        self.mean_weight = float(data.weights.mean())
        self.mean: dict[str, torch.Tensor] = {}
        self.best: dict[str, torch.Tensor] = {}
        self.looks_without_gain = 0
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    # -- the run -----------------------------------------------------------------------------

    def train(self) -> TrainingReport:
        started = time.monotonic()
        model = self.model.to(self.device)
        used = [self.data.tokens.ids] + ([self.held_out.tokens.ids] if self.held_out else [])
        restore_table = train_rows_only(model, rows_in_use(used, self.data.tokens.pad_id))
        try:
            self.optimiser = make_optimiser(model, self.settings)
            self.trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
            start = self._resume()
            self.wrapped = self.workers.wrap(model)
            with torch.random.fork_rng(), task("Training", self.total) as progress:
                progress.advance(start)
                model.train()
                self._loop(start, progress)
            self._take_result()
        finally:
            restore_table()
            model.eval()
        self.report.seconds = time.monotonic() - started
        return self.report

    def _loop(self, start: int, progress: Any) -> None:
        smooth: float | None = None
        for step in range(start, self.total):
            if self._out_of_patience():
                break
            loss = self._step(step)
            smooth = loss if smooth is None else 0.95 * smooth + 0.05 * loss
            self.report.losses.append((step, loss))
            self.report.steps = step + 1
            self._average(step)
            if self._look_due(step):
                self._look(step)
            progress.advance(1, status=f"loss {smooth:.4f}")
            if step + 1 < self.total and self._save_due(step + 1):
                self._save(step + 1)

    def rows(self, step: int) -> Ints:
        """The rows of a step's batch; an epoch's order depends on the seed and the epoch alone."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            generator = np.random.default_rng([self.settings.seed, epoch])
            self._epoch, self._order = epoch, generator.permutation(len(self.data))
        size = self.settings.batch_size
        return self._order[place * size : (place + 1) * size]

    def _step(self, step: int) -> float:
        torch.manual_seed(_mix_seed(self.settings.seed, step, self.workers.rank))
        frozen = set_step(self.optimiser, self.settings, step, self.total)
        if self.workers.count == 1 and self.settings.freeze_embeddings:
            # Saves the backward pass into the table; with several processes it must stay wired.
            for parameter in self.trained.values():
                parameter.requires_grad_(not any(parameter is other for other in frozen))
        rows = self.rows(step)
        rows = rows[np.argsort(-self.data.tokens.lengths[rows], kind="stable")]
        # Dividing by the mean weight of all pairs, not of this batch, keeps the gradient unbiased.
        scale = self.workers.count / (len(rows) * self.mean_weight)
        chunks = [rows[i : i + self.micro] for i in range(0, len(rows), self.micro)]
        total = torch.zeros((), device=self.device)
        for i, chunk in enumerate(chunks):
            mine, counted = self.workers.share(chunk)
            with self.workers.hold_back(self.wrapped, i + 1 < len(chunks)):
                loss = self._loss(self.wrapped, self.data, mine, counted) * scale
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self.scaler.unscale_(self.optimiser)
        for parameter in frozen:
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(self.trained.values(), self.settings.max_grad_norm)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        return self.workers.mean(total)

    def _loss(self, model: Any, data: LabelledPairs, rows: Ints, counted: bool) -> torch.Tensor:
        """Weighted sum of BCEWithLogitsLoss over some rows."""
        inputs = {k: v for k, v in data.tokens.batch(rows, self.device).items() if k in self.names}
        with torch.autocast(
            self.device.type, dtype=self.autocast, enabled=self.autocast is not None
        ):
            logits = model(**inputs).logits[:, 0]
        labels = torch.from_numpy(data.labels[rows]).to(self.device)
        weights = torch.from_numpy(data.weights[rows]).to(self.device) * float(counted)
        return binary_cross_entropy_with_logits(
            logits.float(), labels, weight=weights, reduction="sum"
        )

    # -- which weights are the result ----------------------------------------------------------

    def _average(self, step: int) -> None:
        first = self.total - round(self.settings.average_last * self.total)
        if self.settings.average_last == 0 or step < first:
            return
        for name, parameter in self.trained.items():
            if name not in self.mean:
                self.mean[name] = parameter.detach().clone()
            else:
                self.mean[name].lerp_(parameter.detach(), 1.0 / (step - first + 1))

    def _look_due(self, step: int) -> bool:
        if self.held_out is None:
            return False
        looks = self.settings.looks_per_epoch
        place = step % self.steps_per_epoch + 1
        return place * looks // self.steps_per_epoch > (place - 1) * looks // self.steps_per_epoch

    @torch.inference_mode()
    def _look(self, step: int) -> None:
        """Measure the loss on held-out pairs, and keep the weights when it is the best so far."""
        data = self.held_out
        if data is None:
            return
        self.model.eval()
        tokens = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        batches = token_batches(data.tokens.lengths, tokens)
        loss = sum(float(self._loss(self.model, data, rows, True)) for rows in batches)
        loss /= float(data.weights.sum())
        self.model.train()
        better = all(loss < other for _, other in self.report.held_out_losses)
        self.report.held_out_losses.append((step + 1, loss))
        self.looks_without_gain = 0 if better else self.looks_without_gain + 1
        if better:
            self.report.best_step = step + 1
            if self.settings.early_stopping:
                self.best = {n: p.detach().clone() for n, p in self.trained.items()}

    def _out_of_patience(self) -> bool:
        patience = self.settings.early_stopping
        return bool(patience and self.looks_without_gain >= patience)

    @torch.no_grad()
    def _take_result(self) -> None:
        for name, value in (self.best or self.mean).items():
            self.trained[name].copy_(value)

    # -- checkpoints ---------------------------------------------------------------------------

    def _save_due(self, step: int) -> bool:
        if self.checkpoint_steps:
            return step % self.checkpoint_steps == 0
        return self.store is not None and self.store.due()

    def _save(self, step: int) -> None:
        if self.store is None or not self.workers.is_main:
            return
        tensors: dict[str, dict[str, torch.Tensor]] = {
            "weights": {n: p.detach() for n, p in self.trained.items()},
            "optimiser": optimiser_tensors(self.optimiser, self.trained),
        }
        tensors |= {k: v for k, v in (("mean", self.mean), ("best", self.best)) if v}
        state = {
            "losses": self.report.losses,
            "held_out_losses": self.report.held_out_losses,
            "best_step": self.report.best_step,
            "looks_without_gain": self.looks_without_gain,
            "scaler": self.scaler.state_dict(),
        }
        self.store.save(step, tensors, state)

    @torch.no_grad()
    def _resume(self) -> int:
        if self.store is None:
            return 0
        if self.workers.is_main:
            self.store.clear_unfinished()
        found = self.store.load()
        if found is None:
            return 0
        step, tensors, state = found
        for name, value in tensors["weights"].items():
            self.trained[name].copy_(value)
        restore_optimiser(self.optimiser, self.trained, tensors["optimiser"])
        self.mean = {k: v.to(self.device) for k, v in tensors.get("mean", {}).items()}
        self.best = {k: v.to(self.device) for k, v in tensors.get("best", {}).items()}
        self.report.losses = [(int(s), float(v)) for s, v in state["losses"]]
        self.report.held_out_losses = [(int(s), float(v)) for s, v in state["held_out_losses"]]
        self.report.best_step = state["best_step"]
        self.looks_without_gain = int(state["looks_without_gain"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.report.steps = self.report.resumed_from = step
        note(f"going on from the checkpoint at step {step} of {self.total}")
        return step


def _mix_seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
