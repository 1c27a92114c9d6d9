"""What tells two versions of an encoder apart: its files, whatever its folder is called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from blicer import lite
from blicer.errors import FileError, InputError
from blicer.files import read_json

# === crossencoder.first_token ===
READ_FIRST_TOKEN = ("bert", "camembert", "electra", "roberta", "xlm-roberta")


def spare_the_last_layer(model: Any) -> None:
    """Make the model's last layer compute its first token only, if that is all that is read."""
    if model.config.model_type in READ_FIRST_TOKEN:
        attention = model.base_model.encoder.layer[-1].attention
        attention.forward = MethodType(_first_token_attention, attention)


def _first_token_attention(
    attention: Any, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: Any
) -> tuple[Tensor, None]:
    """Takes the place of the attention block's forward: (n, length, d) to (n, 1, d)."""
    own, first = attention.self, hidden_states[:, :1]
    count, heads, size = len(first), own.num_attention_heads, own.attention_head_size
    query = own.query(first).view(count, heads, size)
    plain = type(own.key) is nn.Linear and type(own.value) is nn.Linear
    keys = None if plain else _by_head(own.key(hidden_states), heads)
    if keys is None:
        folded = torch.einsum("nhs,hsd->nhd", query, _weights_by_head(own.key, heads))
        scores = folded @ hidden_states.transpose(1, 2)
        if own.key.bias is not None:  # moves all tokens alike, but keeps its place in the graph
            scores = scores + (query * own.key.bias.view(heads, size)).sum(dim=2, keepdim=True)
    else:  # an adapter stands between: its tokens are projected as usual
        scores = (query[:, :, None] @ keys.transpose(2, 3))[:, :, 0]
    scores = scores * own.scaling
    if attention_mask is not None:
        mask = attention_mask[:, :, 0]
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + mask
    shares = own.dropout(scores.softmax(dim=-1))
    if plain:
        mean = shares @ hidden_states.to(shares.dtype)
        read = torch.einsum("nhd,hsd->nhs", mean, _weights_by_head(own.value, heads))
        if own.value.bias is not None:
            read = read + shares.sum(dim=2, keepdim=True) * own.value.bias.view(heads, size)
    else:
        values = _by_head(own.value(hidden_states), heads)
        read = (shares[:, :, None] @ values.to(shares.dtype))[:, :, 0]
    return attention.output(read.reshape(count, 1, heads * size), first), None


def _by_head(rows: Tensor, heads: int) -> Tensor:
    """(n, length, heads · size) to (n, heads, length, size)."""
    count, length, _ = rows.shape
    return rows.view(count, length, heads, -1).transpose(1, 2)


def _weights_by_head(linear: nn.Linear, heads: int) -> Tensor:
    """(heads · size, d) to (heads, size, d)."""
    return linear.weight.view(heads, -1, linear.in_features)


# === crossencoder.encoder ===
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


# === encoder_files ===
_BLOCK = 1 << 20


def encoder_version(name: str | Path) -> str:
    """A digest that changes with what an encoder computes; empty for a name on the Hub."""
    if str(name) == lite.NAME:
        return lite.version()
    files = local_files(name)
    states = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return _digest(states) if files else ""


def local_files(name: str | Path) -> list[Path]:
    """The files of a folder that make up its encoder; none where there is no such folder."""
    folder = Path(name).expanduser()
    if not str(name) or not folder.is_dir():
        return []
    kinds = ("*.safetensors", "*.bin", "*.json", "*.model", "*.txt")
    return sorted(path for kind in kinds for path in folder.glob(kind) if path.is_file())


@lru_cache(maxsize=16)
def _digest(states: tuple[tuple[str, int, int], ...]) -> str:
    """Of names and contents; taken once while sizes and times stay the same."""
    digest = hashlib.sha256()
    for path, _, _ in states:
        digest.update(Path(path).name.encode())
        with Path(path).open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()
