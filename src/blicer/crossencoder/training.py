"""The training loop of the cross-encoder (docs/method.md §3): AdamW on BCE with soft labels.

A run is a pure function of (data, settings, initial weights): the order of an epoch and the dropout
of a step are drawn from ``(seed, epoch)`` and ``(seed, step)``. So a checkpoint holds weights and
optimiser moments and nothing else, and a resumed run ends with the same bits as an uninterrupted
one. (sentence-transformers' trainer writes checkpoints in place, with pickles in them, resumes them
whatever has changed since, needs ``datasets`` and tokenises every batch again.)

What makes it cheap: texts are tokenised once; a random batch is sorted by length and cut into
micro-batches padded on their own, whose gradients add up to exactly the batch's; of the embedding
table only the rows that occur are trained (``blicer.encoders.tuning``).
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
from blicer.encoders.loading import Ints, batch_cost, fingerprint, resolve_precision, token_batches
from blicer.encoders.tuning import Checkpoints, make_optimiser, set_step, train_rows_only
from blicer.errors import MissingDependency
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
    """How a training run went."""

    fingerprint: str
    """Hash of everything that decides the final weights."""
    pairs: int
    planned_steps: int
    resumed_from: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    """Of every step."""
    held_out_losses: list[float] = field(default_factory=list)
    """Of every look at the held-out pairs."""

    @property
    def looks_without_gain(self) -> int:
        """Looks since the lowest held-out loss (the earlier of equals)."""
        losses = self.held_out_losses
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0


class Run:
    """One training run; ``train`` takes it to the end from wherever a checkpoint is."""

    def __init__(
        self,
        model: Any,
        data: LabelledPairs,
        held_out: LabelledPairs | None,
        config: Config,
        device: torch.device,
        precision: str,
    ) -> None:
        self.model, self.data, self.config, self.held_out = model, data, config, held_out
        self.device, self.autocast = device, resolve_precision(precision, device, model)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.autocast == torch.float16)
        pairs = len(data.labels)
        self.steps_per_epoch = -(-pairs // config.batch_size)
        self.total = self.steps_per_epoch * config.epochs
        settings = config.only(TRAINING) | {"encoder": fingerprint(model)}
        where = (str(self.autocast), device.type)
        decisive = digest(settings, data.digest(), held_out and held_out.digest(), where)
        self.report = TrainingReport(decisive, pairs, self.total)
        usual = CPU_MICRO_BATCH if device.type == "cpu" else config.batch_size
        self.micro = config.micro_batch_size or usual
        self.mean: dict[str, torch.Tensor] = {}
        self.best: dict[str, torch.Tensor] = {}
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    def train(self, checkpoints: Checkpoints | None = None) -> Any:
        """Returns the trained model."""
        started = time.monotonic()
        if self.config.lora_rank:
            self.model = add_lora(self.model, self.config)
        model = self.model.to(self.device)
        tokens = [data.tokens for data in (self.data, self.held_out) if data is not None]
        padding = np.array([tokens[0].tokenizer.pad_token_id])
        restore_table = train_rows_only(model, padding, *(some.ids for some in tokens))
        try:
            self.optimiser = make_optimiser(model, self.config)
            self.trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
            if checkpoints is not None:
                self._resume(checkpoints)
            with torch.random.fork_rng():
                model.train()
                self._loop(checkpoints)
            with torch.no_grad():
                for name, value in (self.best or self.mean).items():
                    self.trained[name].copy_(value)
        finally:
            restore_table()
            model.eval()
        self.report.seconds = time.monotonic() - started
        return model.merge_and_unload() if self.config.lora_rank else model

    def _loop(self, checkpoints: Checkpoints | None) -> None:
        smooth: float | None = None
        losses, patience = self.report.losses, self.config.early_stopping
        with task("Training", self.total) as progress:
            progress.advance(len(losses))
            for step in range(len(losses), self.total):
                if patience and self.report.looks_without_gain >= patience:
                    break
                loss = self._step(step)
                smooth = loss if smooth is None else 0.95 * smooth + 0.05 * loss
                losses.append(loss)
                self._average(step)
                self._look(step)
                progress.advance(1, status=f"loss {smooth:.4f}")
                if checkpoints and step + 1 < self.total and checkpoints.due():
                    groups = {"mean": self.mean, "best": self.best}
                    state = {"report": asdict(self.report), "scaler": self.scaler.state_dict()}
                    checkpoints.save(self.trained, self.optimiser, groups, state)

    def _resume(self, checkpoints: Checkpoints) -> None:
        if (found := checkpoints.restore(self.trained, self.optimiser)) is None:
            return
        groups, state = found
        self.mean, self.best = (
            {name: value.to(self.device) for name, value in groups.get(group, {}).items()}
            for group in ("mean", "best")
        )
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
        # Dividing by the mean weight of all pairs, not of this batch, keeps the gradient unbiased.
        scale = 1 / (len(rows) * float(self.data.weights.mean()))
        total = torch.zeros((), device=self.device)
        for i in range(0, len(rows), self.micro):
            loss = self._loss(self.data, rows[i : i + self.micro]) * scale
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self.scaler.unscale_(self.optimiser)
        torch.nn.utils.clip_grad_norm_(self.trained.values(), self.config.max_grad_norm)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        return float(total)

    def _loss(self, data: LabelledPairs, rows: Ints) -> torch.Tensor:
        """Weighted sum of BCEWithLogitsLoss over some rows."""
        with torch.autocast(self.device.type, self.autocast, self.autocast is not None):
            logits = self.model(**data.tokens.batch(rows, self.device)).logits[:, 0]
        labels, weights = (
            torch.from_numpy(values[rows]).to(self.device) for values in (data.labels, data.weights)
        )
        return binary_cross_entropy_with_logits(
            logits.float(), labels, weight=weights, reduction="sum"
        )

    def _average(self, step: int) -> None:
        """In the last part of the steps: keep the mean of the weights."""
        first = self.total - round(self.config.average_last * self.total)
        if step < first:
            return
        for name, parameter in self.trained.items():
            if step == first:
                self.mean[name] = parameter.detach().clone()
            else:
                self.mean[name].lerp_(parameter.detach(), 1.0 / (step - first + 1))

    @torch.inference_mode()
    def _look(self, step: int) -> None:
        """Where it is time: measure the held-out loss, and keep the weights if it is the best."""
        data, looks = self.held_out, self.config.looks_per_epoch
        place = step % self.steps_per_epoch
        due = (place + 1) * looks // self.steps_per_epoch > place * looks // self.steps_per_epoch
        if data is None or not due:
            return
        self.model.eval()
        batches = token_batches(data.tokens.lengths, batch_cost(self.device)[0])
        loss = sum(float(self._loss(data, rows)) for rows in batches)
        self.model.train()
        self.report.held_out_losses.append(loss / float(data.weights.sum()))
        if self.config.early_stopping and self.report.looks_without_gain == 0:
            self.best = {n: p.detach().clone() for n, p in self.trained.items()}


def add_lora(model: Any, config: Config) -> Any:
    """Freeze the model and add low-rank updates to its linear layers; the head trains whole."""
    try:
        from peft import LoraConfig, TaskType, get_peft_model
    except ImportError as error:
        raise MissingDependency("peft", "training with LoRA (lora_rank)", extra="lora") from error
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
