"""``Reranker``: the cross-encoder that says how much two words look like translations.

A plain Hugging Face model with one logit: what is saved here loads in
``sentence_transformers.CrossEncoder``, and what that saved loads here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError

from blicer.config import Config, preset_name
from blicer.crossencoder.scoring import ScoreCache, Scores, score_pairs
from blicer.crossencoder.settings import TrainingSettings
from blicer.crossencoder.tokens import Ints, PairEncoder
from blicer.crossencoder.training import (
    LabelledPairs,
    Run,
    TrainingReport,
    find_workers,
    run_fingerprint,
)
from blicer.devices import resolve_device
from blicer.encoders.loading import (
    check_one_label,
    fingerprint,
    load_encoder,
    quiet_transformers,
    resolve_precision,
)
from blicer.errors import FileError, InputError, MissingDependency
from blicer.files import (
    atomic_folder,
    check_replaceable,
    check_writable,
    read_json,
    write_marker,
)
from blicer.progress import note


# === crossencoder.lora ===
def add_lora(model: Any, settings: TrainingSettings) -> Any:
    """Freeze the model and add low-rank updates to its linear layers; the head trains whole."""
    try:
        from peft import LoraConfig, TaskType, get_peft_model
    except ImportError as error:
        raise MissingDependency("peft", "training with LoRA (lora_rank)", extra="lora") from error
    import torch

    config = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank,
        lora_dropout=0.0,
        target_modules="all-linear",
    )
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        return get_peft_model(model, config)


def merge_lora(model: Any) -> Any:
    """The plain model with the updates added to its weights."""
    return model.merge_and_unload()


# === crossencoder.modelcard ===
def model_card(
    encoder: str,
    settings: TrainingSettings,
    training: dict[str, Any] | None,
    details: dict[str, Any] | None = None,
) -> str:
    """Markdown with the front matter that the Hub reads; ``details`` are added as they are."""
    details = details or {}
    languages = [str(tag) for tag in details.get("languages", ())]
    head = ["---", "library_name: sentence-transformers", "pipeline_tag: text-ranking"]
    if languages:
        head += ["language:", *(f"- {tag}" for tag in languages)]
    head += ["tags:", "- cross-encoder", "- bilingual-lexicon-induction", "- blicer", "---"]
    lines = [
        *head,
        "",
        "# A cross-encoder that judges word translations",
        "",
        f"Started from `{encoder}`. Given two words, each in a short template, it gives one logit; "
        "its sigmoid says how much the words look like translations of each other. It was made by "
        "blicer, after Li et al., *Improving Bilingual Lexicon Induction with Cross-Encoder "
        "Reranking* (Findings of EMNLP 2022).",
        "",
        "## Use",
        "",
        "```python",
        "from sentence_transformers import CrossEncoder",
        "",
        'model = CrossEncoder("this folder")',
        "# each word in the template that the model was trained with, such as T15:",
        'model.predict([("cat (english)!", "chat (français)!")])',
        "```",
        "",
        "or `blicer.Reranker.load(folder)`, which gives the same scores faster. Score both orders "
        "of a pair and take the mean; the scores are meant to be mixed with those of aligned word "
        "vectors, not used alone.",
        "",
        "## Training",
        "",
    ]
    if training:
        pairs, steps = training.get("pairs"), training.get("steps")
        lines += [f"Trained on {pairs} text pairs with soft labels in {steps} steps, with:", ""]
    else:
        lines += ["Not trained on any pairs yet. Its settings:", ""]
    lines += ["| setting | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in settings.to_dict().items()]
    rest = {name: value for name, value in details.items() if name != "languages"}
    if rest:
        lines += ["", "## Details", "", "| what | value |", "|---|---|"]
        lines += [f"| {name} | {_cell(value)} |" for name, value in rest.items()]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


# === reranker ===
CONFIG_FILE = "blicer.json"
FORMAT = 1
# A tokenizer without a limit of its own reports an astronomical one.
NO_LIMIT = 100_000

HeldOut = tuple[Sequence[str], Sequence[str], ArrayLike]


class Reranker:
    """A cross-encoder over text pairs. ``fit`` trains it, ``score`` gives sigmoids in [0, 1].

    ``encoder``: a name on the Hugging Face Hub or a folder. ``preset``: whose numbers to train
    with; any of :class:`TrainingSettings` can be overridden by name. ``score_cache``: a folder to
    keep scores in. Nothing is loaded before it is needed.

    After ``fit``: ``report_`` tells what happened.
    """

    def __init__(
        self,
        encoder: str | Path = "xlm-roberta-large",
        *,
        config: Config | None = None,
        preset: str = "supervised",
        device: str | torch.device = "auto",
        precision: str = "auto",
        score_cache: str | Path | None = None,
        **overrides: Any,
    ) -> None:
        if config is not None:
            names = TrainingSettings.__dataclass_fields__
            preset = config.preset
            overrides = {name: getattr(config, name) for name in names}
        self.encoder = encoder
        self._source = encoder
        self.preset = preset_name(preset)
        self.settings = TrainingSettings.from_preset(preset, **overrides)
        self.precision = precision
        self.score_cache = score_cache
        self.report_: TrainingReport | None = None
        self._training: dict[str, Any] | None = None
        self._details: dict[str, Any] = {}
        self._device_wanted = device
        self._device: torch.device | None = None
        self._model: Any = None
        self._tokenizer: Any = None
        self._pairs: PairEncoder | None = None
        self._cache: ScoreCache | None = None

    # -- what it is made of, loaded on first use -------------------------------------------------

    @property
    def device(self) -> torch.device:
        if self._device is None:
            self._device = resolve_device(self._device_wanted)
        return self._device

    @property
    def model(self) -> Any:
        """The Hugging Face model."""
        if self._model is None:
            model, tokenizer = load_encoder(self._source, seed=self.settings.seed)
            self._model, self._tokenizer = model.to(self.device), tokenizer
        return self._model

    @property
    def tokenizer(self) -> Any:
        _ = self.model
        return self._tokenizer

    @property
    def pair_encoder(self) -> PairEncoder:
        if self._pairs is None:
            self._pairs = PairEncoder(self.tokenizer, self.settings.max_length)
        return self._pairs

    def fingerprint(self) -> str:
        """A digest of all that decides the scores: weights, tokenizer, length, precision."""
        tokenizer = self.tokenizer
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        backend = getattr(tokenizer, "backend_tokenizer", None)
        rules = [str(getattr(backend, part, "")) for part in ("normalizer", "pre_tokenizer")]
        dtype = resolve_precision(self.precision, self.device, self.model)
        return fingerprint(self.model, vocabulary, rules, self.settings.max_length, dtype)

    # -- training ----------------------------------------------------------------------------------

    def fit(
        self,
        left: Sequence[str],
        right: Sequence[str],
        labels: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        output_dir: str | Path | None = None,
        validation: HeldOut | None = None,
        checkpoint_steps: int | None = None,
    ) -> Reranker:
        """Train on text pairs with soft labels (BCE with logits, METHOD.md §3).

        ``weights`` count an example that often without repeating it. With ``output_dir`` the
        model is saved there in the end, and until then the state is kept beside it in
        ``<output_dir>.checkpoint``: the same call after a crash or a kill goes on from there and
        ends with the same weights; once finished it only loads them. ``validation``: held-out
        pairs and labels, whose loss is reported (and stops training with ``early_stopping``).
        """
        data = self._labelled(left, right, labels, weights)
        held_out = self._labelled(*validation, None) if validation is not None else None
        if self.settings.early_stopping and held_out is None:
            raise InputError("early_stopping needs held-out pairs: give validation")
        workers = find_workers(self.device)
        self._device = getattr(workers, "device", self.device)
        autocast = resolve_precision(self.precision, self.device, self.model)
        goal = run_fingerprint(
            self.settings,
            data,
            held_out,
            fingerprint(self.model),
            autocast,
            self.device.type,
            workers.count,
        )
        if output_dir is not None:
            check_replaceable(output_dir, CONFIG_FILE, "a saved cross-encoder")
            check_writable(output_dir)
            if self._finished(Path(output_dir), goal):
                return self
        model = self.model
        if self.settings.lora_rank:
            model = add_lora(model, self.settings)
        run = Run(
            model,
            data,
            self.settings,
            device=self.device,
            autocast=autocast,
            fingerprint=goal,
            checkpoint_folder=checkpoint_folder(output_dir) if output_dir is not None else None,
            checkpoint_steps=checkpoint_steps,
            held_out=held_out,
            workers=workers,
        )
        self._cache = None
        try:
            self.report_ = run.train()
        except BaseException:
            # Half-trained weights must not pass for a model: the next use loads the encoder anew.
            self._model = self._pairs = None
            raise
        self._model = merge_lora(model) if self.settings.lora_rank else model
        self._training = {"pairs": len(data), **dataclasses.asdict(self.report_)}
        if output_dir is not None:
            if workers.is_main:
                self.save(output_dir)
                if run.store is not None:
                    run.store.clear()
            workers.wait()
        return self

    def _labelled(
        self,
        left: Sequence[str],
        right: Sequence[str],
        labels: ArrayLike,
        weights: ArrayLike | None,
    ) -> LabelledPairs:
        soft = _numbers("labels", labels, len(left))
        if len(left) == 0:
            raise InputError("there are no text pairs to train on")
        if len(right) != len(left):
            raise InputError(f"{len(left)} left texts and {len(right)} right texts")
        outside = np.flatnonzero(~((soft >= 0) & (soft <= 1)))
        if len(outside):
            raise InputError(
                f"label {soft[outside[0]]} of pair {outside[0] + 1} ({left[outside[0]]!r}, "
                f"{right[outside[0]]!r}) is outside [0, 1]"
            )
        counts = np.ones(len(left), np.float32)
        if weights is not None:
            counts = _numbers("weights", weights, len(left))
            if not (np.isfinite(counts).all() and (counts >= 0).all() and counts.sum() > 0):
                raise InputError("weights must be finite, at least 0, and not all 0")
        return LabelledPairs(self.pair_encoder.encode(left, right), soft, counts)

    def _finished(self, folder: Path, goal: str) -> bool:
        """Take the weights of a folder that this very training has already filled."""
        if not (folder / CONFIG_FILE).is_file():
            return False
        training = read_json(folder / CONFIG_FILE).get("training") or {}
        if training.get("fingerprint") != goal:
            return False
        note(f"{folder}: was already trained with this data and these settings; loaded")
        done = Reranker.load(folder, device=self.device, precision=self.precision)
        self._model, self._training, self._cache = done.model, training, None
        known = {field.name for field in dataclasses.fields(TrainingReport)}
        self.report_ = TrainingReport(**{k: v for k, v in training.items() if k in known})
        return True

    # -- scoring -----------------------------------------------------------------------------------

    def score(self, left: Sequence[str], right: Sequence[str]) -> Scores:
        """Sigmoid of the logit for each ``(left[i], right[i])`` in this order, float32."""
        if self.score_cache is not None and self._cache is None:
            self._cache = ScoreCache(self.score_cache, self.fingerprint())
        return score_pairs(
            self.model,
            self.pair_encoder,
            left,
            right,
            device=self.device,
            autocast=resolve_precision(self.precision, self.device, self.model),
            cache=self._cache,
        )

    def score_both_orders(self, left: Sequence[str], right: Sequence[str]) -> Scores:
        """Mean of the scores of the two orders (METHOD.md §4)."""
        scores = self.score([*left, *right], [*right, *left])
        mean: Scores = (scores[: len(left)] + scores[len(left) :]) / np.float32(2)
        return mean

    def score_parts(self, sources: Sequence[str], targets: Sequence[str], reverse: Ints) -> Scores:
        """One order of each pair (0: source first, 1: target first), for early exit."""
        turned = np.asarray(reverse, dtype=bool)
        pairs = list(zip(sources, targets, turned, strict=True))
        return self.score(
            [target if swap else source for source, target, swap in pairs],
            [source if swap else target for source, target, swap in pairs],
        )

    # -- saving and loading ----------------------------------------------------------------------

    def save(self, path: str | Path, details: dict[str, Any] | None = None) -> None:
        """Write the whole model folder, or nothing. ``details`` go into its card and config."""
        check_replaceable(path, CONFIG_FILE, "a saved cross-encoder")
        self._details |= details or {}
        model, tokenizer = self.model, self.tokenizer
        limit = tokenizer.model_max_length
        try:
            with atomic_folder(path) as folder, quiet_transformers():
                # CrossEncoder takes its maximum length from the tokenizer.
                tokenizer.model_max_length = self.settings.max_length
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
                card = model_card(str(self.encoder), self.settings, self._training, self._details)
                (folder / "README.md").write_text(card, encoding="utf-8")
                write_marker(folder, CONFIG_FILE, self.to_dict())
                for file in folder.iterdir():
                    file.chmod(0o644)
        except SafetensorError as error:
            raise FileError(path, f"cannot be written ({error})") from error
        finally:
            tokenizer.model_max_length = limit

    def to_dict(self) -> dict[str, Any]:
        """The resolved configuration, as saved."""
        return {
            "format": FORMAT,
            "encoder": str(self.encoder),
            "preset": self.preset,
            "settings": self.settings.to_dict(),
            "training": self._training,
            "details": self._details,
        }

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str | torch.device = "auto",
        precision: str = "auto",
        score_cache: str | Path | None = None,
    ) -> Reranker:
        """A saved reranker, or a folder that ``sentence_transformers.CrossEncoder`` saved."""
        folder = Path(path)
        common: dict[str, Any] = {
            "device": device,
            "precision": precision,
            "score_cache": score_cache,
        }
        if not (folder / CONFIG_FILE).is_file():
            check_one_label(folder)
            loaded = cls(folder, **common)
            limits = (loaded.tokenizer.model_max_length, _positions(loaded.model.config))
            limit = min((n for n in limits if n and n < NO_LIMIT), default=512)
            loaded.settings = dataclasses.replace(loaded.settings, max_length=int(limit))
            return loaded
        saved = read_json(folder / CONFIG_FILE)
        if not isinstance(saved, dict) or saved.get("format") != FORMAT:
            found = saved.get("format") if isinstance(saved, dict) else None
            raise FileError(
                folder / CONFIG_FILE, f"has format {found!r}; this version reads format {FORMAT}"
            )
        try:
            loaded = cls(folder, preset=saved["preset"], **common, **saved["settings"])
            loaded._training, loaded._details = saved["training"], dict(saved["details"])
        except (KeyError, TypeError, InputError) as error:
            raise FileError(folder / CONFIG_FILE, f"is damaged ({error})") from error
        _ = loaded.model  # read now, so that a damaged folder is found here
        loaded.encoder = saved["encoder"]
        return loaded


def checkpoint_folder(output_dir: str | Path) -> Path:
    """Where the state of an unfinished training is kept."""
    output_dir = Path(output_dir)
    return output_dir.with_name(f"{output_dir.name}.checkpoint")


def _numbers(name: str, values: ArrayLike, expected: int) -> NDArray[np.float32]:
    array = np.asarray(values, dtype=np.float32)
    if array.shape != (expected,):
        raise InputError(f"{name} have shape {array.shape}; expected one for each of {expected}")
    return array


def _positions(config: Any) -> int | None:
    """Positions that the encoder has for tokens (RoBERTa's kind spends some on padding)."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions and "roberta" in str(getattr(config, "model_type", "")):
        positions -= (config.pad_token_id or 0) + 1
    return positions if positions and positions > 0 else None
