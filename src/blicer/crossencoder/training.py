"""The training loop of the cross-encoder (docs/method.md §3): AdamW on BCE with soft labels.

A run is a pure function of (data, settings, initial weights): the order of an epoch and the dropout
of a step are drawn from ``(seed, epoch)`` and ``(seed, step)``. So a checkpoint needs only weights
and optimiser moments, and a resumed run ends with the same bits as an uninterrupted one.
(sentence-transformers' trainer writes checkpoints in place, with pickles in them, resumes them
whatever has changed since, needs ``datasets`` and tokenises every batch again.)

It is fast because texts are tokenised once; a random batch is sorted by length and cut into
separately padded micro-batches, whose gradients add up to exactly the batch's; and only those rows
of the embedding table that occur are trained (``blicer.encoders.tuning``).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

from blicer.config import TRAINING, Config
from blicer.crossencoder.tokens import PairTokens
from blicer.encoders.loading import Ints, fingerprint, resolve_precision
from blicer.encoders.tuning import (
    Checkpoints,
    check_finite,
    make_optimiser,
    set_step,
    train_rows_only,
)
from blicer.errors import needed
from blicer.files import digest
from blicer.progress import task

CPU_MICRO_BATCH = 64


@dataclass(frozen=True)
class LabelledPairs:
    """Tokenised pairs with a soft label in [0, 1] and a weight each (float32)."""

    tokens: PairTokens
    labels: NDArray[np.float32]
    weights: NDArray[np.float32]

    def digest(self) -> str:
        tokens = self.tokens
        return digest(tokens.ids, tokens.types, tokens.lengths, self.labels, self.weights)


@dataclass
class TrainingReport:
    """The report of a training run."""

    fingerprint: str
    """Hash of all that the final weights depend on."""
    pairs: int
    resumed_from: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    """Of every step."""


class Run:
    """One training run; ``train`` continues from a checkpoint if there is one."""

    def __init__(
        self,
        model: Any,
        data: LabelledPairs,
        config: Config,
        device: torch.device,
        precision: str,
    ) -> None:
        self.model, self.data, self.config = model, data, config
        self.device, self.autocast = device, resolve_precision(precision, device, model)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.autocast == torch.float16)
        pairs = len(data.labels)
        self.steps_per_epoch = -(-pairs // config.batch_size)
        self.total = self.steps_per_epoch * config.epochs
        settings = config.only(TRAINING) | {"encoder": fingerprint(model)}
        where = (str(self.autocast), device.type)
        decisive = digest(settings, data.digest(), where)
        self.report = TrainingReport(decisive, pairs)
        usual = CPU_MICRO_BATCH if device.type == "cpu" else config.batch_size
        self.micro = config.micro_batch_size or usual
        self.mean: dict[str, torch.Tensor] = {}
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    def train(self, checkpoints: Checkpoints | None = None) -> Any:
        """Train, and return the model."""
        started = time.monotonic()
        if self.config.lora_rank:
            self.model = add_lora(self.model, self.config)
        model = self.model.to(self.device)
        padding = np.array([self.data.tokens.tokenizer.pad_token_id])
        restore_table = train_rows_only(model, padding, self.data.tokens.ids)
        try:
            self.optimiser = make_optimiser(model, self.config)
            self.trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
            if checkpoints is not None:
                self._resume(checkpoints)
            with torch.random.fork_rng():
                model.train()
                self._loop(checkpoints)
            with torch.no_grad():
                for name, value in self.mean.items():
                    self.trained[name].copy_(value)
                # No loss is computed after the last step.
                size = sum(float(one.abs().max()) for one in self.trained.values())
                check_finite(
                    size, "the end (the sum of the largest weights)", self.config.learning_rate
                )
        finally:
            restore_table()
            model.eval()
        self.report.seconds = time.monotonic() - started
        return model.merge_and_unload() if self.config.lora_rank else model

    def _loop(self, checkpoints: Checkpoints | None) -> None:
        smooth: float | None = None
        losses = self.report.losses
        with task("Training", self.total) as progress:
            progress.advance(len(losses))
            for step in range(len(losses), self.total):
                loss = self._step(step)
                smooth = loss if smooth is None else 0.95 * smooth + 0.05 * loss
                losses.append(loss)
                self._average(step)
                progress.advance(1, status=f"loss {smooth:.4f}")
                if checkpoints and step + 1 < self.total and checkpoints.due():
                    state = {"report": asdict(self.report), "scaler": self.scaler.state_dict()}
                    checkpoints.save(self.trained, self.optimiser, {"mean": self.mean}, state)

    def _resume(self, checkpoints: Checkpoints) -> None:
        if (found := checkpoints.restore(self.trained, self.optimiser)) is None:
            return
        groups, state = found
        self.mean = {name: value.to(self.device) for name, value in groups.get("mean", {}).items()}
        self.report = TrainingReport(**state["report"])
        self.report.resumed_from = len(self.report.losses)
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])

    def rows(self, step: int) -> Ints:
        """The rows of a step's batch; an epoch's order depends on the seed and the epoch alone."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            generator = np.random.default_rng([self.config.seed, epoch])
            self._epoch, self._order = epoch, generator.permutation(self.report.pairs)
        size = self.config.batch_size
        return self._order[place * size : (place + 1) * size]

    def _step(self, step: int) -> float:
        mixed = np.random.SeedSequence((self.config.seed, step, 0)).generate_state(1, np.uint64)
        torch.manual_seed(int(mixed[0] >> np.uint64(1)))
        set_step(self.optimiser, self.config, step, self.total)
        rows = self.rows(step)
        rows = rows[np.argsort(-self.data.tokens.lengths[rows], kind="stable")]
        # Dividing by the mean weight of all pairs, not of the batch, keeps the gradient unbiased.
        scale = 1 / (len(rows) * float(self.data.weights.mean()))
        total = torch.zeros((), device=self.device)
        for i in range(0, len(rows), self.micro):
            loss = self._loss(rows[i : i + self.micro]) * scale
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self.scaler.unscale_(self.optimiser)
        torch.nn.utils.clip_grad_norm_(self.trained.values(), self.config.max_grad_norm)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        check_finite(float(total), f"step {step + 1}", self.config.learning_rate)
        return float(total)

    def _loss(self, rows: Ints) -> torch.Tensor:
        """Weighted sum of BCEWithLogitsLoss over some rows."""
        with torch.autocast(self.device.type, self.autocast, self.autocast is not None):
            logits = self.model(**self.data.tokens.batch(rows, self.device)).logits[:, 0]
        labels, weights = (
            torch.from_numpy(values[rows]).to(self.device)
            for values in (self.data.labels, self.data.weights)
        )
        return binary_cross_entropy_with_logits(
            logits.float(), labels, weight=weights, reduction="sum"
        )

    def _average(self, step: int) -> None:
        """Update the mean of the weights, which is taken over the last steps."""
        first = self.total - round(self.config.average_last * self.total)
        if step < first:
            return
        for name, parameter in self.trained.items():
            if step == first:
                self.mean[name] = parameter.detach().clone()
            else:
                self.mean[name].lerp_(parameter.detach(), 1.0 / (step - first + 1))


def add_lora(model: Any, config: Config) -> Any:
    """Freeze the model except its head, and add low-rank updates to its linear layers."""
    with needed("peft", "training with LoRA (lora_rank)", "lora"):
        from peft import LoraConfig, TaskType, get_peft_model
    lora = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=config.lora_rank,
        lora_alpha=2 * config.lora_rank,
        lora_dropout=0.0,
        target_modules="all-linear",
    )
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        return get_peft_model(model, lora)
