"""Loads any Hugging Face encoder as a one-logit cross-encoder, and says plainly why it cannot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from blicer.crossencoder.first_token import spare_the_last_layer
from blicer.errors import FileError, InputError
from blicer.files import read_json

PRECISIONS = ("auto", "fp32", "bf16", "fp16")
WIDE = 512  # columns from which bf16 pays on a CPU; `lite` (256) scores 2.4 times slower in it

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
)
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def resolve_precision(precision: str, device: torch.device, model: Any) -> torch.dtype | None:
    """The autocast type, or None for plain fp32. ``auto`` takes half precision only where the
    device computes the model faster in it: a CPU without bf16 units would be slowed down, and so
    would a small model, which spends more on converting its numbers than on multiplying them."""
    if precision not in PRECISIONS:
        raise InputError(f"precision is {precision!r}; expected one of {', '.join(PRECISIONS)}")
    if precision == "bf16":
        return torch.bfloat16
    if precision == "fp16":
        return torch.float16
    if precision == "auto" and device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    wide = getattr(model.config, "hidden_size", 0) >= WIDE
    if precision == "auto" and device.type == "cpu" and wide and _cpu_has_bf16():
        return torch.bfloat16
    return None


def _cpu_has_bf16() -> bool:
    checks = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence load reports and bars: that a head is new is expected here, not worth a warning."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


LITE = "lite"


def load_encoder(name: str | Path, *, seed: int) -> tuple[Any, Any]:
    """The model (fp32, one logit) and the tokenizer of a name on the Hub or of a folder.

    A head that the checkpoint does not have is initialised from ``seed``.
    """
    from transformers import AutoModelForSequenceClassification

    options = {"num_labels": 1, "ignore_mismatched_sizes": True}
    model, tokenizer = _load(name, AutoModelForSequenceClassification, seed, options)
    spare_the_last_layer(model)
    return model, tokenizer


def check_one_label(folder: Path) -> None:
    """Whether a folder holds a trained head of one logit: any other would be a random one here."""
    from transformers import AutoConfig

    _check_folder(folder)
    try:
        config = AutoConfig.from_pretrained(str(folder))
    except (OSError, ValueError, KeyError) as error:
        raise _sentence(folder, folder, error) from error
    kinds = config.architectures or ["no model"]
    if not kinds[0].endswith("ForSequenceClassification"):
        raise FileError(
            folder, f"holds {kinds[0]}, which scores no pairs; it can be trained as an encoder"
        )
    if config.num_labels != 1:
        raise FileError(
            folder, f"holds a classifier of {config.num_labels} labels; a cross-encoder has one"
        )


def load_base(name: str | Path) -> tuple[Any, Any]:
    """The encoder without a head (fp32), of which the first token is read, and the tokenizer."""
    from transformers import AutoModel

    model, tokenizer = _load(name, AutoModel, 0, {})
    spare_the_last_layer(model)
    return model, tokenizer


def _load(name: str | Path, kind: Any, seed: int, options: dict[str, Any]) -> tuple[Any, Any]:
    from transformers import AutoTokenizer

    folder = _as_folder(name)
    if folder is not None:
        _check_folder(folder)
    source = str(folder if folder is not None else name)
    try:
        with quiet_transformers(), torch.random.fork_rng():
            torch.manual_seed(seed)
            tokenizer = AutoTokenizer.from_pretrained(source)
            model = kind.from_pretrained(source, dtype=torch.float32, **options)
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise _sentence(name, folder, error) from error
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    return model.eval(), tokenizer


def _as_folder(name: str | Path) -> Path | None:
    """A folder when the name is one or can only mean one; None for a name on the Hub.

    ``lite`` is the encoder that comes with the package.
    """
    if str(name) == LITE:
        from blicer import lite

        return lite.path()
    path = Path(name).expanduser()
    if path.exists():
        return path
    text = str(name)
    if isinstance(name, Path) or text.startswith((".", "/", "~", "\\")) or text.count("/") > 1:
        raise FileError(path, "there is no such folder; expected an encoder's name or folder")
    return None


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise FileError(folder, "is a file; expected a folder with a Hugging Face encoder")
    if not (folder / "config.json").is_file():
        raise FileError(folder, "has no config.json; expected a folder with a Hugging Face encoder")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise FileError(
            folder,
            "has no tokenizer (no tokenizer.json or vocabulary file); save the encoder's tokenizer "
            "into it with tokenizer.save_pretrained",
        )
    if not any((folder / name).is_file() for name in WEIGHT_FILES):
        raise FileError(folder, "has no weights; expected model.safetensors")
    _check_modules(folder)


def _check_modules(folder: Path) -> None:
    """A cross-encoder whose head is a module of its own would lose it here. What pools the tokens
    of a sentence encoder is not needed."""
    modules, config = folder / "modules.json", folder / "config.json"
    if not modules.is_file():
        return
    count, kinds = len(read_json(modules)), read_json(config).get("architectures") or [""]
    if count > 1 and kinds[0].endswith("ForSequenceClassification"):
        raise FileError(
            modules, f"lists {count} modules; expected a cross-encoder that is one transformer"
        )


def _sentence(name: str | Path, folder: Path | None, error: Exception) -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    if folder is not None:
        return FileError(folder, f"cannot be loaded as an encoder ({reason})")
    return InputError(
        f"encoder '{name}' could not be fetched from the Hugging Face Hub ({reason}); check the "
        "name and the network and run the same command again, or give a local folder"
    )


def input_names(model: Any) -> set[str]:
    """The inputs that the model's forward takes; an adapter around it passes them on."""
    import inspect

    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return set(inspect.signature(inner.forward).parameters)


def fingerprint(model: Any, *extra: object) -> str:
    """A digest of every weight and of what else decides the scores."""
    digest = hashlib.sha256()
    digest.update(json.dumps([str(item) for item in extra]).encode())
    config = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_")}
    for key in ("transformers_version", "architectures", "dtype", "use_cache", "name_or_path"):
        config.pop(key, None)
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
