"""Scoring without transformers gives what transformers gives."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from blicer import lite
from blicer.crossencoder.model import Reranker
from blicer.encoders.plain import PIECES, TOKENIZER, Pieces, PlainModel, write_pieces
from blicer.errors import FileError
from sealing import reseal
from tiny_models import tiny_encoder, toy_pairs

WORDS = ["house", "дом", "a b", "naïve", "ʻōlelo", "学校", "", "[CLS] x", "very" * 9]
LEFT, RIGHT = [one for one in WORDS for _ in WORDS], WORDS * len(WORDS)


@pytest.fixture(scope="module", params=["bert", "xlmr", "electra"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("plain")
    folder = root / "saved"
    Reranker(tiny_encoder(root / "encoder", request.param), device="cpu").save(folder)
    # Large weights, so that every part of the net shows in the scores.
    draw = torch.Generator().manual_seed(0)
    weights = {
        name: tensor + 0.3 * torch.randn(tensor.shape, generator=draw)
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    reseal(folder, "blicer.json")
    return folder


def by_transformers(folder: Path, left: list[str], right: list[str]) -> Any:
    slow = Reranker.load(folder, device="cpu")
    _ = slow.model
    assert slow.net is slow.model
    return slow.score(left, right)


def test_scores_are_those_of_transformers(saved: Path) -> None:
    fast = Reranker.load(saved, device="cpu")
    assert type(fast.net) is PlainModel
    scores = fast.score(LEFT, RIGHT)
    assert np.ptp(scores) > 0.1
    np.testing.assert_allclose(scores, by_transformers(saved, LEFT, RIGHT), atol=1e-6, rtol=0)


def test_lite_scores_are_those_of_transformers(tmp_path: Path) -> None:
    Reranker("lite", device="cpu", max_length=20).save(tmp_path / "saved")
    assert (tmp_path / "saved" / PIECES).is_file()
    fast = Reranker.load(tmp_path / "saved", device="cpu")
    scores = fast.score(LEFT, RIGHT)
    slow = by_transformers(tmp_path / "saved", LEFT, RIGHT)
    np.testing.assert_allclose(scores, slow, atol=1e-6, rtol=0)


def test_transformers_is_not_imported(saved: Path) -> None:
    program = f"""
import sys
from blicer.crossencoder.model import Reranker
print(Reranker.load({str(saved)!r}, device="cpu").score(["house"], ["maison"]))
assert "transformers" not in sys.modules and "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_loaded_model_can_be_trained_and_saved_again(saved: Path, tmp_path: Path) -> None:
    again = Reranker.load(saved, device="cpu")
    before = again.score(LEFT, RIGHT)
    again.save(tmp_path / "copy")
    np.testing.assert_array_equal(Reranker.load(tmp_path / "copy").score(LEFT, RIGHT), before)
    left, right, labels = toy_pairs()
    again.fit(left, right, labels)
    assert np.abs(again.score(LEFT, RIGHT) - before).max() > 1e-4


@pytest.mark.parametrize("change", ["missing", "extra", "shape", "layers"])
@pytest.mark.parametrize("facts", [True, False])
def test_a_saved_model_has_exactly_its_weights(
    saved: Path, tmp_path: Path, change: str, facts: bool
) -> None:
    folder = shutil.copytree(saved, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.startswith("classifier"))
    if change == "missing":
        for other in [other for other in weights if other.startswith("classifier")]:
            del weights[other]
    elif change == "extra":
        weights["another.weight"] = weights[name].clone()
    elif change == "shape":
        weights[name] = weights[name].repeat(2, *[1] * (weights[name].ndim - 1))
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    reseal(folder, "blicer.json", **({} if facts else {"tokenizer": None}))
    with pytest.raises(FileError, match=r"model|copy"):
        Reranker.load(folder, device="cpu")


# -- a part of the vocabulary ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole() -> Tokenizer:
    return Tokenizer.from_file(str(lite.HERE / TOKENIZER))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Pieces:
    folder: Path = tmp_path_factory.mktemp("pieces")
    shutil.copyfile(lite.HERE / TOKENIZER, folder / TOKENIZER)
    write_pieces(folder)
    return Pieces(folder / PIECES)


def test_the_same_vocabulary_is_the_same_file(tmp_path: Path) -> None:
    """Or a training that was killed and went on would end with another folder."""
    written = set()
    for name in "abcd":
        (tmp_path / name).mkdir()
        shutil.copyfile(lite.HERE / TOKENIZER, tmp_path / name / TOKENIZER)
        write_pieces(tmp_path / name)
        written.add((tmp_path / name / PIECES).read_bytes())
    assert len(written) == 1


@settings(max_examples=150)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
        | st.text("abcdeilnorst ▁-'ßéабвгдеиност学校水日本٣ﬁ<0x>", max_size=16),
        max_size=6,
    )
)
def test_a_part_of_the_vocabulary_gives_the_same_tokens(
    whole: Tokenizer, pieces: Pieces, texts: list[str]
) -> None:
    part = pieces.tokenizer(texts)
    assert part is not None
    for text in texts:
        assert part[1][part[0].encode(text).ids].tolist() == whole.encode(text).ids


def test_special_tokens_in_a_text_need_the_whole_vocabulary(pieces: Pieces) -> None:
    assert pieces.tokenizer(["a [MASK]"]) is None
    assert pieces.tokenizer(["a [mask"]) is not None
