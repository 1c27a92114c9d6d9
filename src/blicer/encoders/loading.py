"""Loads Hugging Face encoders (a name on the Hub, a folder, or ``lite``) and runs them cheaply."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from blicer import lite
from blicer.errors import FileError, InputError, needed
from blicer.files import digest, file_sha256, read_json

Ints = NDArray[np.int64]

# -- loading ---------------------------------------------------------------------------------------

SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "max_position_embeddings", "type_vocab_size"),
)
LARGEST_SIZE = 1 << 24  # no such size of a real model is larger
_TOKENIZER = ("tokenizer.json", "vocab.*", "*.model")  # any of these files
_HEAD = "ForSequenceClassification"


def load_encoder(
    name: str | Path, *, seed: int = 0, head: bool = True, complete: bool = False
) -> tuple[Any, Any]:
    """Load the model (fp32, in evaluation mode) and the tokenizer.

    ``head``: add a head of one logit, initialised from ``seed`` if the checkpoint has none; False
    gives the bare encoder. Either way only the first token of the last layer is computed.
    ``complete``: missing, superfluous or misshapen weights raise ``FileError``.
    """
    with needed("transformers", "an encoder", "train"):
        from transformers import AutoModel, AutoModelForSequenceClassification

    source = _source(name)
    kind = AutoModelForSequenceClassification if head else AutoModel
    options = {"num_labels": 1, "ignore_mismatched_sizes": True} if head else {}
    tokenizer = _tokenizer(source, encoder_version(name))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model, loaded = _from_pretrained(
            kind, source, dtype=torch.float32, output_loading_info=True, **options
        )
    wrong = [str(name) for names in loaded.values() for name in names]
    if complete and wrong:
        raise FileError(
            Path(source),
            f"is damaged: {len(wrong)} weights are missing, of another shape or of another model "
            f"({min(wrong)} …)",
        )
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    # Some tokenizers return token types that their model does not accept.
    taken = inspect.signature(model.forward).parameters
    tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name in taken]
    if model.config.model_type in _READ_FIRST_TOKEN:
        attention = model.base_model.encoder.layer[-1].attention
        attention.forward = MethodType(first_token_attention, attention)
    return model.eval(), tokenizer


def check_encoder(name: str | Path) -> None:
    """Raise unless the encoder can be had; its tokenizer is fetched and kept for later."""
    _tokenizer(_source(name), encoder_version(name))


def check_one_label(folder: Path) -> None:
    """Raise unless the folder has a head of one logit; any other would be randomly replaced."""
    with needed("transformers", "an encoder", "train"):
        from transformers import AutoConfig

    check_folder(folder)
    config = _from_pretrained(AutoConfig, folder)
    kind = (config.architectures or ["no model"])[0]
    if not kind.endswith(_HEAD) or config.num_labels != 1:
        raise FileError(
            folder, f"holds {kind} with {config.num_labels} labels; a cross-encoder has one"
        )


@lru_cache(maxsize=2)
def _tokenizer(source: str | Path, version: str) -> Any:
    """The tokenizer, cached because each fold of a training loads the encoder again."""
    with needed("transformers", "an encoder", "train"):
        from transformers import AutoTokenizer

    return _from_pretrained(AutoTokenizer, source)


def _source(name: str | Path) -> str | Path:
    """The folder of the encoder, or its name on the Hub."""
    if name == lite.NAME:
        return lite.path()
    path = Path(name).expanduser()
    if path.exists():
        check_folder(path)
        return path
    text = str(name)
    if isinstance(name, Path) or text.startswith((".", "/", "~", "\\")) or text.count("/") > 1:
        raise FileError(path, "there is no such folder; expected an encoder's name or folder")
    return text


def check_folder(folder: Path) -> None:
    """Raise unless the folder looks like that of an encoder of plausible size."""
    # Without these files transformers would build a tokenizer without a vocabulary.
    if not any(path.is_file() for pattern in _TOKENIZER for path in folder.glob(pattern)):
        raise FileError(folder, "has no tokenizer; expected a folder with a Hugging Face encoder")
    # We do not need a sentence encoder's pooling module, but we would need a separate head.
    modules = folder / "modules.json"
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise FileError(folder / "config.json", "is not the configuration of an encoder")
    _check_sizes(folder, config)
    kind = str((config.get("architectures") or [""])[0])
    if modules.is_file() and kind.endswith(_HEAD) and (count := len(read_json(modules))) > 1:
        raise FileError(
            modules, f"lists {count} modules; expected a cross-encoder that is one transformer"
        )


def _check_sizes(folder: Path, config: dict[str, Any]) -> None:
    """Raise if the configuration has sizes that do not fit the weights, before building a model."""
    for name in SIZES:
        value = config.get(name, 1)
        if type(value) is not int or not 0 < value <= LARGEST_SIZE:
            raise FileError(folder / "config.json", f"{name} is {value!r}, which no encoder has")
    weights = folder / "model.safetensors"
    if not weights.is_file():
        return
    width = config.get("hidden_size", 1)
    least = max(config.get("vocab_size", 1), width * (config.get("num_hidden_layers", 1) + width))
    if weights.stat().st_size < least:
        raise FileError(folder / "config.json", f"describes a larger model than {weights.name} is")


def _from_pretrained(kind: Any, source: str | Path, **options: Any) -> Any:
    """``kind.from_pretrained`` without remote code.

    Failures raise ``FileError`` for a folder and ``InputError`` for a name on the Hub.
    """
    try:
        with quiet_transformers():
            return kind.from_pretrained(str(source), trust_remote_code=False, **options)
    except Exception as error:  # a damaged folder may raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        if "trust_remote_code" in str(error):
            reason = "it needs code of its own, and blicer runs no code that comes with a model"
        if isinstance(source, Path):
            raise FileError(source, f"cannot be loaded as an encoder ({reason})") from error
        raise InputError(
            f"encoder '{source}' could not be fetched from the Hugging Face Hub ({reason}); check "
            "the name and the network and run the same command again, or give a local folder"
        ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence load reports and progress bars; a new head is expected here."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


# -- identity --------------------------------------------------------------------------------------


def encoder_version(name: str | Path) -> str:
    """Hash of the files of a local encoder or of ``lite``; empty for a name on the Hub."""
    if name == lite.NAME:
        return lite.version()
    files = local_files(name)
    states = tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return _files_digest(states) if files else ""


def local_files(name: str | Path) -> list[Path]:
    """The files of an encoder in a local folder; none for other names."""
    folder = Path(name).expanduser()
    if name in ("", lite.NAME) or not folder.is_dir():
        return []
    kinds = ("*.safetensors", "*.bin", "*.json", "*.model", "*.txt")
    return sorted(path for kind in kinds for path in folder.glob(kind) if path.is_file())


@lru_cache(maxsize=16)
def _files_digest(states: tuple[tuple[Path, int, int], ...]) -> str:
    """Hash of names and contents, cached while sizes and times stay the same."""
    return digest([(path.name, file_sha256(path)) for path, _, _ in states])


def fingerprint(model: Any, *extra: object) -> str:
    """Hash of every weight, the model's configuration, and ``extra``."""
    config = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_")}
    for key in ("transformers_version", "architectures", "dtype", "use_cache", "name_or_path"):
        config.pop(key, None)
    weights = []
    for name, tensor in sorted(model.state_dict().items()):
        # One by one, because they may be on a GPU; as bytes, because NumPy has no bf16.
        content = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        weights.append(digest(name, str(tensor.dtype), list(tensor.shape), content))
    return digest([str(item) for item in extra], config, weights)


# -- running ---------------------------------------------------------------------------------------

_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_WIDE = 512  # columns from which bf16 pays on a CPU; `lite` (256) scores 2.4 times slower in it
# Tokens of a batch, and the fixed cost of a pass in tokens. Measured on a CPU: larger batches are
# no faster, and a pass costs 20 tokens (12 layers, 768 wide) to 60 (3 layers, 256 wide) extra.
CPU_BATCH, GPU_BATCH = (1024, 32), (32768, 4096)


def resolve_precision(precision: str, device: torch.device, model: Any) -> torch.dtype | None:
    """The autocast type, or None for plain fp32.

    ``auto`` takes half precision only where it is faster: not on a CPU without bf16 units, and not
    for a small model, which spends more time on conversions than it saves on products.
    """
    if precision in _DTYPES:
        return _DTYPES[precision]
    if precision != "auto":
        raise InputError(f"precision is {precision!r}; expected auto, {', '.join(_DTYPES)}")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    config = model.config if isinstance(model.config, dict) else vars(model.config)
    wide = config.get("hidden_size", 0) >= _WIDE
    return torch.bfloat16 if device.type == "cpu" and wide and _cpu_has_bf16() else None


def _cpu_has_bf16() -> bool:
    checks = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)


def batch_cost(device: torch.device) -> tuple[int, int]:
    """The arguments ``tokens`` and ``pass_cost`` of ``token_batches``."""
    return CPU_BATCH if device.type == "cpu" else GPU_BATCH


def token_batches(lengths: Ints, tokens: int, pass_cost: int = 0) -> Iterator[Ints]:
    """Rows from the longest to the shortest, in batches of at most ``tokens`` padded tokens.

    Each batch costs ``pass_cost`` tokens extra. The batches are the cheapest partition by length,
    found by dynamic programming over the distinct lengths.
    """
    order = np.argsort(-lengths, kind="stable")
    widths, counts = np.unique(-lengths, return_counts=True)
    widths = -widths
    ends = np.concatenate([[0], np.cumsum(counts)])
    cheapest, cut = np.zeros(len(ends)), np.zeros(len(ends), dtype=np.int64)
    for i in range(1, len(ends)):
        # A group of the lengths j … i-1 is as wide as its first; it may need several passes.
        padded = (ends[i] - ends[:i]) * widths[:i]
        costs = cheapest[:i] + padded + pass_cost * np.ceil(padded / tokens)
        cut[i] = costs.argmin()
        cheapest[i] = costs[cut[i]]
    bounds = [len(widths)]
    while bounds[-1] > 0:
        bounds.append(int(cut[bounds[-1]]))
    for last, first in zip(bounds[-2::-1], bounds[:0:-1], strict=True):
        count = max(1, tokens // int(widths[first]))
        for start in range(int(ends[first]), int(ends[last]), count):
            yield order[start : min(start + count, int(ends[last]))]


_READ_FIRST_TOKEN = ("bert", "camembert", "electra", "roberta", "xlm-roberta")


def first_token_attention(
    attention: Any, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: Any
) -> tuple[Tensor, None]:
    """The last attention block's forward for the first token only: (n, length, d) to (n, 1, d).

    Models of the kinds ``_READ_FIRST_TOKEN`` use nothing else of the last layer. With one query a
    head it is cheaper to apply the key matrix to the query and the value matrix to the mean than to
    project every token. With an adapter (LoRA) every token is projected.
    """
    own, first = attention.self, hidden_states[:, :1]
    count, heads, size = len(first), own.num_attention_heads, own.attention_head_size
    query = own.query(first).view(count, heads, size)
    plain = type(own.key) is nn.Linear and type(own.value) is nn.Linear
    if plain:
        folded = torch.einsum("nhs,hsd->nhd", query, own.key.weight.view(heads, size, -1))
        # The bias changes all scores alike, but must stay in the graph.
        moved = (query * own.key.bias.view(heads, size)).sum(dim=2, keepdim=True)
        scores = folded @ hidden_states.transpose(1, 2) + moved
    else:
        keys = own.key(hidden_states).unflatten(2, (heads, size)).transpose(1, 2)
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
        read = torch.einsum("nhd,hsd->nhs", mean, own.value.weight.view(heads, size, -1))
        read = read + shares.sum(dim=2, keepdim=True) * own.value.bias.view(heads, size)
    else:
        values = own.value(hidden_states).unflatten(2, (heads, size)).transpose(1, 2)
        read = (shares[:, :, None] @ values.to(shares.dtype))[:, :, 0]
    return attention.output(read.reshape(count, 1, heads * size), first), None
