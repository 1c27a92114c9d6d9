"""Pair tokens against the tokenizer's own, scores against one forward pass a pair."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.crossencoder.model import Reranker
from blicer.crossencoder.scoring import distinct_pairs, score_tokens
from blicer.crossencoder.tokens import PairEncoder, longest_first
from blicer.encoders.loading import load_encoder, resolve_precision, token_batches
from blicer.errors import InputError
from tiny_models import tiny_encoder, toy_pairs

CPU = torch.device("cpu")
KINDS = ("bert", "xlmr", "electra")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    return {kind: tiny_encoder(root / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def loaded(folders: dict[str, Path]) -> dict[str, tuple[Any, Any]]:
    return {kind: load_encoder(folder, seed=1) for kind, folder in folders.items()}


@given(st.integers(0, 30), st.integers(0, 30), st.integers(2, 40))
def test_longest_first_is_cutting_one_token_at_a_time(first: int, second: int, room: int) -> None:
    a, b = first, second
    while a + b > room:  # the tokenizer's rule, said as a loop
        if a > b or (a == b and first > second):
            a -= 1
        else:
            b -= 1
    # Of equally long texts the loop above would cut either; an odd place goes to the longer.
    if first + second > room and min(first, second) > room // 2:
        a, b = (room - room // 2, room // 2) if first > second else (room // 2, room - room // 2)
    ours = longest_first(np.array([first]), np.array([second]), room)
    assert (int(ours[0][0]), int(ours[1][0])) == (a, b)


TEXTS = st.lists(st.text("abcчé (!)'`漢", max_size=24), min_size=2, max_size=6)


@pytest.mark.parametrize("kind", KINDS)
@given(texts=TEXTS, max_length=st.integers(7, 24))
@settings(max_examples=20)
def test_assembled_pairs_are_the_tokenizers_own(
    loaded: dict[str, tuple[Any, Any]], kind: str, texts: list[str], max_length: int
) -> None:
    tokenizer = loaded[kind][1]
    encoder = PairEncoder(tokenizer, max_length)
    assert encoder._layout
    left = [a for a in texts for _ in texts]
    right = [b for _ in texts for b in texts]
    ours = encoder._assemble(left, right)
    rows = np.arange(len(left))
    theirs = tokenizer(
        left, right, truncation=True, max_length=max_length, padding=True, return_tensors="pt"
    )
    batch = ours.batch(rows, CPU)
    assert set(batch) == set(theirs)
    for name, value in theirs.items():
        assert torch.equal(batch[name], value), name


def test_falls_back_to_the_tokenizer_when_it_cannot_assemble(
    loaded: dict[str, tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = loaded["bert"][1]
    left, right, _ = toy_pairs(20)
    straight = PairEncoder(tokenizer, 20).encode(left, right)
    monkeypatch.setattr(PairEncoder, "_agrees", lambda _: False)
    odd = PairEncoder(tokenizer, 20)
    indirect = odd.encode(left, right)
    assert not odd._layout
    assert np.array_equal(straight.ids, indirect.ids)
    assert np.array_equal(straight.types, indirect.types)
    monkeypatch.setattr(tokenizer, "truncation_side", "left")
    assert not PairEncoder(tokenizer, 20)._layout


def test_padding_on_the_left(
    loaded: dict[str, tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = loaded["bert"][1]
    monkeypatch.setattr(tokenizer, "padding_side", "left")
    left, right, _ = toy_pairs(6)
    ours = PairEncoder(tokenizer, 20).encode(left, right).batch(np.arange(6), CPU)
    theirs = tokenizer(
        left, right, truncation=True, max_length=20, padding=True, return_tensors="pt"
    )
    assert torch.equal(ours["input_ids"], theirs["input_ids"])
    assert torch.equal(ours["attention_mask"], theirs["attention_mask"])


def test_max_length_without_room_for_words(loaded: dict[str, tuple[Any, Any]]) -> None:
    with pytest.raises(InputError, match="max_length is 4"):
        PairEncoder(loaded["bert"][1], 4)


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 100), st.integers(0, 50))
def test_token_batches_hold_every_row_once_and_the_budget(
    lengths: list[int], tokens: int, pass_cost: int
) -> None:
    batches = list(token_batches(np.array(lengths, dtype=np.int64), tokens, pass_cost))
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        widest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or widest * len(batch) <= tokens


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 12))
def test_token_batches_are_the_cheapest(lengths: list[int], pass_cost: int) -> None:
    roomy = 1000
    batches = list(token_batches(np.array(lengths, dtype=np.int64), roomy, pass_cost))
    cost = sum(max(lengths[i] for i in b) * len(b) + pass_cost for b in batches)
    falling = sorted(lengths, reverse=True)
    every = []
    for mask in range(2 ** (len(falling) - 1)):  # every way to cut the sorted rows
        groups, group = [], [falling[0]]
        for i, length in enumerate(falling[1:]):
            if mask >> i & 1:
                groups.append(group)
                group = []
            group.append(length)
        groups.append(group)
        every.append(sum(g[0] * len(g) + pass_cost for g in groups))
    assert cost == min(every)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_one_pass_a_pair(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    reranker = Reranker(folders[kind], device="cpu", precision="fp32")
    model, tokenizer = reranker.model, reranker.tokenizer
    left, right, _ = toy_pairs(25)
    left, right = left + left[:5], right + right[:5]
    expected = []
    with torch.no_grad():
        for one, other in zip(left, right, strict=True):
            inputs = tokenizer(one, other, truncation=True, max_length=20, return_tensors="pt")
            expected.append(torch.sigmoid(model(**inputs).logits[0, 0]).item())
    monkeypatch.setattr("blicer.encoders.loading.CPU_BATCH", (64, 32))
    found = reranker.score(left, right)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert len(reranker.score([], [])) == 0


def test_equal_pairs_are_scored_once(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = Reranker(folders["bert"], device="cpu")
    rows: list[int] = []
    real = reranker.model.forward

    def counted(*args: Any, **inputs: Any) -> Any:
        rows.append(len(inputs["input_ids"]))
        return real(*args, **inputs)

    monkeypatch.setattr(reranker.model, "forward", counted)
    reranker.score(["a", "b", "a", "a"], ["b", "a", "b", "c"])
    assert sum(rows) == 3
    assert distinct_pairs(["a", "b", "a"], ["b", "a", "b"])[2].tolist() == [0, 1, 0]


def test_unequal_numbers_of_texts() -> None:
    with pytest.raises(InputError, match="2 left texts and 1 right"):
        distinct_pairs(["a", "b"], ["c"])


def test_half_precision_only_where_it_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = (SimpleNamespace(config=SimpleNamespace(hidden_size=n)) for n in (1024, 256))
    monkeypatch.setattr("blicer.encoders.loading._cpu_has_bf16", lambda: False)
    assert resolve_precision("auto", CPU, large) is None
    monkeypatch.setattr("blicer.encoders.loading._cpu_has_bf16", lambda: True)
    assert resolve_precision("auto", CPU, large) == torch.bfloat16
    assert resolve_precision("auto", CPU, small) is None
    assert resolve_precision("bf16", CPU, small) == torch.bfloat16
    assert resolve_precision("fp32", CPU, large) is None
    with pytest.raises(InputError, match="precision is 'int8'"):
        resolve_precision("int8", CPU, large)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_that_the_weights_lack_are_a_sentence(
    loaded: dict[str, tuple[Any, Any]], kind: str
) -> None:
    """A damaged tokenizer may have ids beyond the embedding table."""
    model, tokenizer = loaded[kind]
    pairs = PairEncoder(tokenizer, 20).encode(["cat"], ["dog"])
    pairs.ids[-1] = model.config.vocab_size
    with pytest.raises(InputError, match="pieces that its weights lack"):
        score_tokens(model, pairs, CPU, None)
