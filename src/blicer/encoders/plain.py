"""BERT-like cross-encoders with torch and ``tokenizers`` alone.

Importing transformers and building a tokenizer of half a million pieces takes seconds, which
translating two words need not spend. ``load_plain`` loads a folder that ``Reranker.save`` wrote and
gives the same scores; kinds of models that it does not know are left to transformers.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from blicer.encoders.loading import SIZES, check_folder, first_token_attention
from blicer.errors import FileError
from blicer.files import read_json
from blicer.io.matrices import map_tensors

WEIGHTS, TOKENIZER, PIECES = "model.safetensors", "tokenizer.json", "pieces.safetensors"
TOKENIZER_FACTS = ("pad_token_id", "padding_side", "truncation_side", "model_input_names")
# Attribute of the body, first position after padding, what the head applies to the first token.
_KINDS: dict[str, tuple[str, bool, str]] = {
    "bert": ("bert", False, "pooler"),
    "electra": ("electra", False, "gelu"),
    "roberta": ("roberta", True, "tanh"),
    "xlm-roberta": ("roberta", True, "tanh"),
    "camembert": ("roberta", True, "tanh"),
}


def load_plain(folder: Path, facts: Mapping[str, Any]) -> tuple[PlainModel, PlainTokenizer] | None:
    """Model and tokenizer of a saved cross-encoder; None for unknown kinds of models.

    ``facts``: ``tokenizer_facts`` when it was saved. Weights that do not fit raise ``FileError``.
    """
    check_folder(folder)
    config = read_json(folder / "config.json")
    if not _is_known(config, facts) or not (folder / TOKENIZER).is_file():
        return None
    with torch.device("meta"):
        model = PlainModel(config)
    try:
        weights = load_file(folder / WEIGHTS)
        if any(tensor.dtype != torch.float32 for tensor in weights.values()):
            return None
        model.load_state_dict(weights, strict=True, assign=True)
    except (OSError, SafetensorError) as error:
        raise FileError(folder / WEIGHTS, f"cannot be read ({error})") from error
    except RuntimeError as error:  # missing, unexpected or of another shape
        reason = " ".join(str(error).split()[:24])
        raise FileError(folder / WEIGHTS, f"does not fit config.json ({reason} …)") from error
    return model.eval(), PlainTokenizer(folder, facts)


def _is_known(config: Any, facts: Mapping[str, Any]) -> bool:
    return (
        isinstance(config, dict)
        and set(TOKENIZER_FACTS) <= facts.keys()
        and config.get("model_type") in _KINDS
        and all(key in config for key in SIZES)
        and config["hidden_size"] % config["num_attention_heads"] == 0
        and len(config.get("id2label", ())) == 1
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and isinstance(config.get("layer_norm_eps"), float)
        and not config.get("is_decoder")
    )


# -- the model, with the names of transformers so that saved weights fit --------------------------


class Output(NamedTuple):
    logits: Tensor


class PlainModel(nn.Module):
    """A BERT-like encoder with a head of one logit, for scoring."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.config = config
        self.prefix, self.padded_positions, self.head = _KINDS[config["model_type"]]
        width, hidden = config.get("embedding_size", config["hidden_size"]), config["hidden_size"]
        body = nn.Module()
        body.embeddings = nn.Module()
        tables = ("vocab_size", "max_position_embeddings", "type_vocab_size")
        for name, key in zip(("word", "position", "token_type"), tables, strict=True):
            # Initialising weights on the meta device would import torch's compiler.
            table = nn.Embedding(config[key], width, _weight=torch.empty(config[key], width))
            setattr(body.embeddings, f"{name}_embeddings", table)
        body.embeddings.LayerNorm = nn.LayerNorm(width, config["layer_norm_eps"])
        if width != hidden:
            body.embeddings_project = nn.Linear(width, hidden)
        body.encoder = nn.Module()
        body.encoder.layer = nn.ModuleList(
            Layer(config) for _ in range(config["num_hidden_layers"])
        )
        if self.head == "pooler":
            body.pooler = nn.Module()
            body.pooler.dense = nn.Linear(hidden, hidden)
            self.classifier: Any = nn.Linear(hidden, 1)
        else:
            self.classifier = nn.Module()
            self.classifier.dense = nn.Linear(hidden, hidden)
            self.classifier.out_proj = nn.Linear(hidden, 1)
        setattr(self, self.prefix, body)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Output:
        body: Any = getattr(self, self.prefix)
        kinds = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        hidden = body.embeddings.word_embeddings(input_ids)
        hidden = hidden + body.embeddings.token_type_embeddings(kinds)
        places = self._positions(input_ids)
        hidden = body.embeddings.LayerNorm(hidden + body.embeddings.position_embeddings(places))
        if hasattr(body, "embeddings_project"):
            hidden = body.embeddings_project(hidden)
        mask = attention_mask[:, None, None].bool()
        for layer in body.encoder.layer[:-1]:
            hidden = layer(hidden, mask, layer.attention)
        first = body.encoder.layer[-1](hidden, mask, self._first_token)[:, 0]
        if self.head == "pooler":
            return Output(self.classifier(body.pooler.dense(first).tanh()))
        inner = self.classifier.dense(first)
        inner = F.gelu(inner) if self.head == "gelu" else inner.tanh()
        return Output(self.classifier.out_proj(inner))

    def _first_token(self, hidden: Tensor, mask: Tensor) -> Tensor:
        body: Any = getattr(self, self.prefix)
        return first_token_attention(body.encoder.layer[-1].attention, hidden, mask)[0]

    def _positions(self, ids: Tensor) -> Tensor:
        if not self.padded_positions:
            return torch.arange(ids.shape[1], device=ids.device)[None]
        pad = self.config["pad_token_id"]
        real = (ids != pad).long()
        return real.cumsum(dim=1) * real + pad


class Layer(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.attention = Attention(config)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(hidden, inner)})
        self.output = Residual(inner, config)

    def forward(self, hidden: Tensor, mask: Tensor, attention: Any) -> Tensor:
        read = attention(hidden, mask)
        return self.output(F.gelu(self.intermediate["dense"](read)), read)


class Attention(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        size = config["hidden_size"]
        own: Any = nn.Module()
        own.num_attention_heads = config["num_attention_heads"]
        own.attention_head_size = size // own.num_attention_heads
        own.scaling = own.attention_head_size**-0.5
        own.query, own.key, own.value = (nn.Linear(size, size) for _ in range(3))
        own.dropout = nn.Identity()
        self.add_module("self", own)
        self.output = Residual(size, config)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        own: Any = self.get_submodule("self")
        query, key, value = (
            part(hidden).unflatten(2, (own.num_attention_heads, -1)).transpose(1, 2)
            for part in (own.query, own.key, own.value)
        )
        read = F.scaled_dot_product_attention(query, key, value, mask)
        return self.output(read.transpose(1, 2).flatten(2), hidden)


class Residual(nn.Module):
    def __init__(self, size: int, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.dense = nn.Linear(size, config["hidden_size"])
        self.LayerNorm = nn.LayerNorm(config["hidden_size"], config["layer_norm_eps"])

    def forward(self, inner: Tensor, outer: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(inner) + outer)


# -- the tokenizer ---------------------------------------------------------------------------------

FEW_TEXTS = 4096  # for more, loading the whole tokenizer pays
FIRST_PIECES = 16  # in every part of the vocabulary with the same ids; includes special tokens
LARGE_VOCABULARY = 50_000


def tokenizer_facts(tokenizer: Any) -> dict[str, Any] | None:
    """What ``PlainTokenizer`` needs besides ``tokenizer.json``; None for a slow tokenizer."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    return {name: getattr(tokenizer, name) for name in TOKENIZER_FACTS}


class Encoded(dict[str, Any]):
    """Token ids and types, as a Hugging Face tokenizer returns them."""

    sequences: Sequence[Sequence[int | None]] = ()

    def sequence_ids(self, row: int) -> Sequence[int | None]:
        return self.sequences[row]


class PlainTokenizer:
    """The part of a fast Hugging Face tokenizer that scoring needs.

    If there is a ``pieces.safetensors`` (``write_pieces``), a few texts are tokenised with only the
    pieces that occur in them, which gives the same tokens as the whole vocabulary.
    """

    is_fast = True

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self.pad_token_id = facts["pad_token_id"]
        self.padding_side, self.truncation_side = facts["padding_side"], facts["truncation_side"]
        self.model_input_names = facts["model_input_names"]
        self._pieces = Pieces(folder / PIECES) if (folder / PIECES).is_file() else None
        self._whole: Any = None
        self._asked = 0

    @property
    def backend_tokenizer(self) -> PlainTokenizer:
        return self

    def no_truncation(self) -> None:
        """Does nothing: texts are only truncated if a call says so."""

    no_padding = no_truncation

    def num_special_tokens_to_add(self, pair: bool) -> int:
        return int(self._backend([""])[0].num_special_tokens_to_add(pair))

    def encode_batch_fast(
        self, texts: Sequence[Any], add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[Any]:
        """Encodings, with ids of the whole vocabulary."""
        flat = [one for text in texts for one in ([text] if isinstance(text, str) else text)]
        backend, rows = self._backend(flat)
        backend.no_truncation()
        if max_length is not None:
            backend.enable_truncation(max_length, strategy="longest_first")
        found = backend.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        return [
            Tokens(one.ids if rows is None else rows[one.ids].tolist(), one.type_ids, one)
            for one in found
        ]

    def __call__(
        self, left: str | Sequence[str], right: str | Sequence[str], **options: Any
    ) -> Encoded:
        alone = isinstance(left, str)
        pairs = [(left, right)] if alone else list(zip(left, right, strict=True))
        found = self.encode_batch_fast(pairs, max_length=options.get("max_length"))
        columns: dict[str, Any] = {
            "input_ids": [one.ids for one in found],
            "token_type_ids": [one.types for one in found],
        }
        answer = Encoded({name: rows[0] for name, rows in columns.items()} if alone else columns)
        answer.sequences = [one.encoding.sequence_ids for one in found]
        return answer

    def _backend(self, texts: Sequence[str]) -> tuple[Any, Any]:
        """A tokenizer for these texts, and the ids of its pieces in the whole vocabulary."""
        self._asked += len(texts)
        if self._whole is None and self._pieces is not None and self._asked <= FEW_TEXTS:
            part = self._pieces.tokenizer(texts)
            if part is not None:
                return part
        if self._whole is None:
            from tokenizers import Tokenizer

            try:
                self._whole = Tokenizer.from_file(str(self.folder / TOKENIZER))
            except Exception as error:  # the package raises no other type
                raise FileError(
                    self.folder / TOKENIZER, f"is no tokenizer ({str(error)[:200]})"
                ) from error
        return self._whole, None


class Tokens(NamedTuple):
    ids: list[int]
    types: list[int]
    encoding: Any


class Pieces:
    """A sorted, memory-mapped vocabulary, and the rest of its tokenizer."""

    def __init__(self, file: Path) -> None:
        tensors, about = map_tensors(file)
        try:
            self.text, self.ends = tensors["text"].tobytes(), tensors["ends"].tolist()
            self.rows, self.scores = tensors["rows"], tensors["scores"]
            self.rest = json.loads(about["tokenizer"])
            # Pre-releases of 0.2 have them in the metadata.
            always = tensors.get("always")
            self.always = json.loads(about["always"]) if always is None else always.tolist()
            self.specials = [one["content"] for one in self.rest["added_tokens"]]
            self._skeleton = self._build(())[0]
        except Exception as error:  # the package tokenizers raises no other type
            raise FileError(file, f"is damaged ({error})") from error

    def tokenizer(self, texts: Sequence[str]) -> tuple[Any, Any] | None:
        """A tokenizer of all pieces that occur in these texts, and their ids.

        None if a text has special tokens in it.
        """
        if any(special in text for text in texts for special in self.specials):
            return None
        found: set[int] = set()
        done: set[str] = set()
        for text in texts:
            if self._skeleton.normalizer is not None:
                text = self._skeleton.normalizer.normalize_str(text)
            for chunk, _ in self._skeleton.pre_tokenizer.pre_tokenize_str(text):
                if chunk not in done:
                    done.add(chunk)
                    found |= self._inside(chunk)
        return self._build(found)

    def _inside(self, chunk: str) -> set[int]:
        """Places of all pieces that are substrings of ``chunk``."""
        found = set()
        for start in range(len(chunk)):
            low = 0
            for end in range(start + 1, len(chunk) + 1):
                wanted = chunk[start:end].encode()
                low = bisect_left(range(len(self.ends)), wanted, low, key=self._piece)
                piece = self._piece(low) if low < len(self.ends) else b""
                if not piece.startswith(wanted):
                    break
                if piece == wanted:
                    found.add(low)
        return found

    def _piece(self, place: int) -> bytes:
        return self.text[self.ends[place - 1] if place else 0 : self.ends[place]]

    def _build(self, places: Iterable[int]) -> tuple[Any, Any]:
        from tokenizers import Tokenizer

        chosen = np.array(sorted({*self.always, *places}, key=lambda place: self.rows[place]))
        vocabulary = [[self._piece(i).decode(), float(self.scores[i])] for i in chosen.tolist()]
        model = {**self.rest["model"], "vocab": vocabulary}
        return Tokenizer.from_str(json.dumps({**self.rest, "model": model})), self.rows[chosen]


def write_pieces(folder: Path) -> None:
    """Write ``pieces.safetensors`` beside the ``tokenizer.json`` of a large unigram vocabulary."""
    values = read_json(folder / TOKENIZER)
    model = values["model"]
    if model.get("type") != "Unigram" or len(model["vocab"]) < LARGE_VOCABULARY:
        return
    pieces, scores = zip(*model.pop("vocab"), strict=True)
    templates = values.get("post_processor") or {}
    used = [i for one in templates.get("special_tokens", {}).values() for i in one["ids"]]
    kept = {piece: row for row, piece in enumerate(pieces)}  # of equal pieces the last counts
    # Only the first ids stay the same in a part of the vocabulary, and pieces can be found in texts
    # only if nothing but this model cuts texts into pieces.
    plain = templates.get("type") == "TemplateProcessing" and values.get("pre_tokenizer")
    used += [model["unk_id"], *(one["id"] for one in values["added_tokens"])]
    if not plain or max(used) >= FIRST_PIECES or not {*range(FIRST_PIECES)} <= {*kept.values()}:
        return
    order = sorted(kept.values(), key=lambda row: pieces[row].encode())
    lowest = min(order, key=lambda row: scores[row])  # sets the score of unknown characters
    always = {*range(FIRST_PIECES), lowest}
    always |= {kept[name] for name in (f"<0x{byte:02X}>" for byte in range(256)) if name in kept}
    place = {row: at for at, row in enumerate(order)}
    texts = [pieces[row].encode() for row in order]
    save_file(
        {
            "text": np.frombuffer(b"".join(texts), np.uint8),
            "ends": np.cumsum([len(text) for text in texts]),
            "rows": np.array(order, np.int64),
            "scores": np.array([scores[row] for row in order], np.float64),
            "always": np.array(sorted(place[row] for row in always), np.int64),
        },
        folder / PIECES,
        {"tokenizer": json.dumps(values)},  # one key: the order of several is not reproducible
    )
