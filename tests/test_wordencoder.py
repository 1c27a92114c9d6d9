"""An encoder's own word vectors: the same as asking the model directly, kept part by part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from blicer.encoders import words as wordencoder
from blicer.encoders.words import WordEncoder
from blicer.errors import InputError
from tiny_models import tiny_encoder

WORDS = ["cat", "dog", "maison", "a", "abcdefghijklmnop", "chat", "дом", "", "x y"]


@pytest.fixture(scope="module", params=["bert", "xlmr", "electra"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"), request.param)


@torch.inference_mode()
def one_by_one(folder: Path, words: list[str], max_length: int) -> np.ndarray:
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    model.eval()
    rows = []
    for word in words:
        inputs = tokenizer(word, truncation=True, max_length=max_length, return_tensors="pt")
        rows.append(model(**inputs).last_hidden_state[0, 0].numpy())
    return np.stack(rows)


def test_vectors_are_those_of_the_model_itself(folder: Path) -> None:
    encoder = WordEncoder(folder, device="cpu")
    np.testing.assert_allclose(encoder.encode(WORDS), one_by_one(folder, WORDS, 6), atol=1e-5)
    longer = WordEncoder(folder, max_length=12, device="cpu")
    np.testing.assert_allclose(longer.encode(WORDS), one_by_one(folder, WORDS, 12), atol=1e-5)


def test_a_killed_run_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wordencoder, "PART", 2)
    encoder = WordEncoder(folder, device="cpu")
    whole = encoder.encode(WORDS)
    really, asked = encoder._encode, []

    def dies_after_two(words):  # type: ignore[no-untyped-def]
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(words)
        return really(words)

    monkeypatch.setattr(encoder, "_encode", dies_after_two)
    with pytest.raises(KeyboardInterrupt):
        encoder.encode(WORDS, cache=tmp_path)
    rest: list[str] = []
    monkeypatch.setattr(encoder, "_encode", lambda words: rest.extend(words) or really(words))
    np.testing.assert_array_equal(encoder.encode(WORDS, cache=tmp_path), whole)
    assert rest == WORDS[4:]
    rest.clear()
    np.testing.assert_array_equal(encoder.encode(WORDS, cache=tmp_path), whole)
    assert rest == []


def test_a_damaged_part_is_made_again(folder: Path, tmp_path: Path) -> None:
    encoder = WordEncoder(folder, device="cpu")
    whole = encoder.encode(WORDS, cache=tmp_path)
    (part,) = tmp_path.rglob("*.npy")
    part.write_bytes(part.read_bytes()[:40])
    np.testing.assert_array_equal(encoder.encode(WORDS, cache=tmp_path), whole)


def test_other_weights_or_words_do_not_share_a_cache(folder: Path) -> None:
    encoder = WordEncoder(folder, device="cpu")
    key = encoder.key(WORDS)
    assert encoder.key(WORDS[:-1]) != key
    assert WordEncoder(folder, max_length=7, device="cpu").key(WORDS) != key
    with torch.no_grad():
        next(encoder.model.parameters()).add_(1e-3)
    assert encoder.key(WORDS) != key


def test_no_words(folder: Path) -> None:
    encoder = WordEncoder(folder, device="cpu")
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_a_length_without_room_for_a_word(folder: Path) -> None:
    with pytest.raises(InputError, match="max_length is 2"):
        WordEncoder(folder, max_length=2, device="cpu")
