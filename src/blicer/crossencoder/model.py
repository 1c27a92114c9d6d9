"""``Reranker``: the cross-encoder that scores whether two words are translations.

A Hugging Face model with one logit. ``sentence_transformers.CrossEncoder`` loads what is saved
here, and the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from blicer.config import TRAINING, Config
from blicer.crossencoder.scoring import Scores, distinct_pairs, score_tokens
from blicer.crossencoder.tokens import PairEncoder
from blicer.crossencoder.training import LabelledPairs, Run, TrainingReport
from blicer.devices import resolve_device
from blicer.encoders.loading import (
    Ints,
    check_one_label,
    load_encoder,
    quiet_transformers,
    resolve_precision,
)
from blicer.encoders.plain import load_plain, tokenizer_facts, write_pieces
from blicer.encoders.tuning import Checkpoints
from blicer.errors import FileError, InputError
from blicer.files import (
    atomic_folder,
    check_replaceable,
    check_writable,
    read_json,
    verify,
    write_marker,
)
from blicer.progress import note

CONFIG_FILE, FORMAT = "blicer.json", 3
Texts = Sequence[str]


class Reranker:
    """A cross-encoder over text pairs. ``fit`` trains it, ``score`` gives sigmoids in [0, 1].

    ``encoder``: ``lite``, a name on the Hugging Face Hub, or a folder. ``config``: the settings to
    train with; by default those of the paper. ``overrides``: settings of the cross-encoder
    (``blicer config`` lists them) that override ``config``. ``device``: ``auto``, ``cpu``,
    ``cuda``, ``cuda:1`` or ``mps``. ``precision``: ``auto``, ``fp32``, ``bf16`` or ``fp16``.
    ``report_``: the report of the training. The model is loaded on first use.
    """

    def __init__(
        self,
        encoder: str | Path = "xlm-roberta-large",
        *,
        config: Config | None = None,
        device: str | torch.device = "auto",
        precision: str = "auto",
        **overrides: Any,
    ) -> None:
        self.config = (config or Config()).replace(**overrides, encoder=str(encoder))
        if strange := overrides.keys() - self.config.only(TRAINING).keys():
            raise InputError(f"{min(strange)} is not a setting of the cross-encoder")
        self.device, self.precision = resolve_device(device), precision
        self.report_: TrainingReport | None = None
        self._source = encoder
        self._saved = False  # whether ``save`` wrote it, so that all weights must be there
        self._facts: dict[str, Any] | None = None  # of its tokenizer

    @cached_property
    def model(self) -> Any:
        """The Hugging Face model."""
        model, self._tokenizer = load_encoder(
            self._source, seed=self.config.seed, complete=self._saved
        )
        return model.to(self.device)

    @property
    def tokenizer(self) -> Any:
        _ = self.model
        return self._tokenizer

    @cached_property
    def _plain(self) -> tuple[Any, Any] | None:
        """The saved model and its tokenizer without transformers; None if that is not possible."""
        if self._facts is None:
            return None
        found = load_plain(Path(self._source), self._facts)
        return found and (found[0].to(self.device), found[1])

    @property
    def net(self) -> Any:
        """The model to score with: the Hugging Face one if it is loaded, else the plain one."""
        if "model" in self.__dict__ or self._plain is None:
            return self.model
        return self._plain[0]

    @cached_property
    def pair_encoder(self) -> PairEncoder:
        plain = None if "model" in self.__dict__ else self._plain
        return PairEncoder(plain[1] if plain else self.tokenizer, self.config.max_length)

    @property
    def autocast(self) -> torch.dtype | None:
        return resolve_precision(self.precision, self.device, self.net)

    # -- training ----------------------------------------------------------------------------------

    def fit(
        self,
        left: Texts,
        right: Texts,
        labels: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        output_dir: str | Path | None = None,
    ) -> Reranker:
        """Train on text pairs with soft labels (BCE with logits, method §3).

        ``weights``: how often each example counts. ``output_dir``: where the model is saved. Until
        it is trained, ``<output_dir>.checkpoint.safetensors`` has the newest state: the same call
        after a kill continues from there and ends with the same weights. Once the model is
        trained, the same call only loads it.
        """
        data = self._labelled(left, right, labels, weights)
        run = Run(self.model, data, self.config, self.device, self.precision)
        checkpoints = None
        if output_dir is not None:
            output_dir = Path(output_dir)
            check_replaceable(output_dir, CONFIG_FILE, "a saved cross-encoder")
            check_writable(output_dir)
            if self._finished(output_dir, run.report.fingerprint):
                return self
            checkpoints = Checkpoints(output_dir, run.report.fingerprint)
        # If training fails, half-trained weights must not be used: the model is loaded again.
        del self.model
        self.model, self.report_ = run.train(checkpoints), run.report
        if output_dir is not None and checkpoints is not None:
            self.save(output_dir, fast_start=False)
            checkpoints.clear()
        return self

    def _labelled(
        self, left: Texts, right: Texts, labels: ArrayLike, weights: ArrayLike | None
    ) -> LabelledPairs:
        soft = np.asarray(labels, dtype=np.float32)
        counts = np.asarray(np.ones(len(left)) if weights is None else weights, dtype=np.float32)
        shapes = {(len(right),), soft.shape, counts.shape}
        if len(left) == 0 or shapes != {(len(left),)}:
            raise InputError(
                f"{len(left)} left texts, {len(right)} right texts, labels {soft.shape}, weights "
                f"{counts.shape}; expected as many of each, and at least one"
            )
        for i in np.flatnonzero(~((soft >= 0) & (soft <= 1))).tolist():
            raise InputError(
                f"label {soft[i]} of pair {i + 1} ({left[i]!r}, {right[i]!r}) is outside [0, 1]"
            )
        if not (np.isfinite(counts).all() and (counts >= 0).all() and counts.sum() > 0):
            raise InputError("weights must be finite, at least 0, and not all 0")
        return LabelledPairs(self.pair_encoder.encode(left, right), soft, counts)

    def _finished(self, folder: Path, goal: str) -> bool:
        """Load the folder if the same training has already written it."""
        try:
            if read_json(folder / CONFIG_FILE)["training"]["fingerprint"] != goal:
                return False
        except (FileError, KeyError, TypeError):  # nothing there, or another file
            return False
        note(f"{folder}: was already trained with this data and these settings; loaded")
        done = Reranker.load(folder, device=self.device, precision=self.precision)
        self.model, self.report_ = done.model, done.report_
        return True

    # -- scoring -----------------------------------------------------------------------------------

    def score(self, left: Texts, right: Texts) -> Scores:
        """Sigmoid of the logit for each ``(left[i], right[i])`` in this order, float32."""
        one, other, inverse = distinct_pairs(left, right)
        pairs = self.pair_encoder.encode(one, other)
        return score_tokens(self.net, pairs, self.device, self.autocast)[inverse]

    def score_both_orders(self, left: Texts, right: Texts) -> Scores:
        """Mean of the scores of the two orders (method §4)."""
        scores = self.score([*left, *right], [*right, *left])
        return (scores[: len(left)] + scores[len(left) :]) / np.float32(2)

    def score_parts(self, sources: Texts, targets: Texts, reverse: Ints) -> Scores:
        """One order of each pair (0: source first, 1: target first), for early exit."""
        triples = zip(sources, targets, reverse, strict=True)
        pairs = [(two, one) if swap else (one, two) for one, two, swap in triples]
        return self.score([one for one, _ in pairs], [two for _, two in pairs])

    # -- saving and loading ------------------------------------------------------------------------

    def save(self, path: str | Path, *, fast_start: bool = True) -> None:
        """Write the whole model folder, or nothing.

        ``fast_start``: also write a copy of a large vocabulary that loads in parts. That takes
        seconds, so cached stages go without.
        """
        check_replaceable(path, CONFIG_FILE, "a saved cross-encoder")
        model, tokenizer = self.model, self.tokenizer
        limit = tokenizer.model_max_length
        try:
            with atomic_folder(path) as folder, quiet_transformers():
                # CrossEncoder takes its maximum length from the tokenizer.
                tokenizer.model_max_length = self.config.max_length
                model.save_pretrained(folder)
                try:
                    tokenizer.save_pretrained(folder)
                except Exception as error:  # the package tokenizers has no type for a full disk
                    raise OSError(str(error)) from error
                card = model_card(self.config.only(TRAINING), self.report_)
                (folder / "README.md").write_text(card, encoding="utf-8")
                if fast_start:
                    write_pieces(folder)
                saved = {
                    "format": FORMAT,
                    "tokenizer": tokenizer_facts(tokenizer),
                    "config": self.config.to_dict(),
                    "training": asdict(self.report_) if self.report_ else None,
                }
                write_marker(folder, CONFIG_FILE, saved)
        finally:
            tokenizer.model_max_length = limit

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Reranker:
        """Load a saved reranker, or a folder that ``sentence_transformers.CrossEncoder`` saved.

        ``options``: device and precision.
        """
        folder = Path(path)
        file = folder / CONFIG_FILE
        loaded = cls(folder, **options)
        if not file.is_file():
            check_one_label(folder)
            # Models like RoBERTa reserve two positions for padding.
            positions = getattr(loaded.model.config, "max_position_embeddings", 512) - 2
            limit = min(loaded.tokenizer.model_max_length, positions)
            loaded.config = loaded.config.replace(max_length=int(limit))
            return loaded
        saved = read_json(file)
        if isinstance(saved, dict):
            verify(folder, CONFIG_FILE, saved)
        try:
            if saved["format"] != FORMAT:
                raise ValueError(f"format {saved['format']!r}; this version reads {FORMAT}")
            loaded.config = Config.from_dict(saved["config"])
            loaded.report_ = TrainingReport(**saved["training"]) if saved["training"] else None
            loaded._saved, facts = True, saved.get("tokenizer")
            loaded._facts = facts if isinstance(facts, dict) else None
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FileError(file, f"is damaged, or of another version ({error})") from error
        _ = loaded.net  # load now, so that a damaged folder raises here
        return loaded


def model_card(settings: Mapping[str, Any], report: TrainingReport | None) -> str:
    """Markdown with the front matter that the Hub reads."""
    training = "Not trained on any pairs yet. Its settings:"
    if report:
        steps = len(report.losses)
        training = f"Trained on {report.pairs} text pairs with soft labels in {steps} steps, with:"
    rows = [f"| {name} | {value} |" for name, value in settings.items()]
    template = Path(__file__).with_name("model_card.md").read_text(encoding="utf-8")
    return template.format(training=training, settings="\n".join(rows), **settings)
