"""The embedded model loads as an ordinary Hugging Face model and knows its languages."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from blicer import lite
from blicer.errors import FileError
from tools.build_lite.features import pack, quantise

# Pairs in several languages and scripts; none was looked up in a published dictionary.
TRANSLATIONS = [
    *(("house", "maison"), ("water", "eau"), ("bread", "pain"), ("winter", "hiver")),
    *(("house", "дом"), ("water", "вода"), ("bread", "хлеб"), ("winter", "зима")),
    *(("Haus", "casa"), ("Wasser", "acqua"), ("Brot", "pan"), ("Winter", "kış")),
    *(("school", "学校"), ("water", "ماء"), ("friend", "przyjaciel"), ("father", "아버지")),
    *(("letter", "lettre"), ("friend", "vriend"), ("хлеб", "pain"), ("зима", "hiver")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BLICER_CACHE", str(cache))
        yield lite.path()


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_path_is_assembled_once_in_the_cache(folder: Path) -> None:
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BLICER_CACHE", str(folder.parent))
        assert lite.path() == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    names = {path.name for path in folder.parent.iterdir()}
    assert names == {folder.name, "verified"}


def test_an_unwritable_cache_still_gives_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BLICER_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert (lite.path() / "model.safetensors").is_file()


def test_the_artefact_is_small_and_undamaged() -> None:
    lite.check_files()
    names = json.loads((lite.HERE / lite.MANIFEST).read_text())["files"]
    assert sum((lite.HERE / name).stat().st_size for name in names) <= 66_000_000


def test_damage_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (lite.MANIFEST, *lite.COPIED, lite.NET, lite.TABLE, lite.STATIC, lite.PIECES):
        (tmp_path / name).write_bytes((lite.HERE / name).read_bytes())
    damaged = bytearray((tmp_path / lite.TABLE).read_bytes())
    damaged[-1] ^= 1
    (tmp_path / lite.TABLE).write_bytes(damaged)
    monkeypatch.setattr(lite, "HERE", tmp_path)
    with pytest.raises(FileError, match="damaged"):
        lite.check_files()
    (tmp_path / lite.TABLE).unlink()
    with pytest.raises(FileError, match="missing"):
        lite.check_files()


def test_the_table_is_the_codes_made_numbers(folder: Path) -> None:
    from safetensors.numpy import load_file

    stored, weights = load_file(lite.HERE / lite.TABLE), load_file(folder / "model.safetensors")
    for row in (0, 7, 1000, len(stored["codes"]) - 1):
        planes = ["".join(f"{byte:08b}" for byte in plane) for plane in stored["planes"][row]]
        codes = [int("".join(bits), 2) for bits in zip(*planes, strict=True)]
        expected = [*codes, *stored["codes"][row]] * stored["scale"] + stored["low"]
        np.testing.assert_allclose(weights[lite.TABLE_WEIGHT][row], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", [1, 4, 5, 8])
def test_what_is_packed_is_unpacked(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(2**bits, size=(9, 24)).astype(np.uint8)
    planes = pack(codes, bits)
    assert planes.nbytes * 8 == codes.size * bits
    np.testing.assert_array_equal(lite.unpack(planes), codes)


@pytest.mark.parametrize("bits", [5, 8])
def test_the_range_of_a_column_leaves_its_tails_out(bits: int) -> None:
    rng = np.random.default_rng(0)
    table = np.stack([rng.standard_normal(20_000), 9 + rng.standard_t(5, 20_000)], 1)
    codes, scale, low = quantise(table.astype(np.float32), bits)
    assert codes.max() < 2**bits
    errors = np.square(low + codes * scale - table).sum(0)
    step = np.ptp(table, axis=0) / (2**bits - 1)
    naive = np.square(np.rint((table - table.min(0)) / step) * step + table.min(0) - table).sum(0)
    assert np.all(errors < 1.001 * naive)
    if bits < 8:  # eight are enough for the heavy tails of the second column
        assert errors[1] < naive[1] / 2


def test_it_loads_in_transformers_and_scores_as_in_sentence_transformers(
    folder: Path, tokenizer: Any, model: Any
) -> None:
    from transformers import AutoModelForSequenceClassification

    plain = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    left, right = [list(words) for words in zip(*TRANSLATIONS, strict=True)]
    batch = tokenizer(left, right, padding=True, return_tensors="pt")
    assert set(batch) == {"input_ids", "token_type_ids", "attention_mask"}
    with torch.inference_mode():
        logits = plain(**batch).logits[:, 0].sigmoid().numpy()
    np.testing.assert_allclose(model.predict(TRANSLATIONS), logits, atol=1e-5)


@pytest.mark.parametrize("word", ["house", "maison", "хлеб", "Brot", "学校", "tietokone", "xyzzy"])
def test_pieces_of_a_word_spell_the_word(tokenizer: Any, word: str) -> None:
    pieces = tokenizer.tokenize(word)
    assert "".join(pieces).removeprefix("▁") == unicodedata.normalize("NFKC", word).lower()
    assert tokenizer.unk_token not in pieces
    pair = tokenizer(word, "a")
    assert pair["token_type_ids"] == [0] * (2 + len(pieces)) + [1] * (
        len(pair.input_ids) - 2 - len(pieces)
    )


@pytest.mark.parametrize("word", ["tietokone", "ქართული", "አማርኛ", "😀", "ʻōlelo", "ᏣᎳᎩ", "a b"])
def test_any_language_gets_a_finite_score(model: Any, word: str) -> None:
    scores = model.predict([(word, "house"), ("house", word), (word, word)])
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1)).all()


def test_translations_score_above_random_pairs(model: Any) -> None:
    right = [target for _, target in TRANSLATIONS]
    # Another row's target, of another meaning.
    wrong = [
        (source, right[(row + 5) % len(right)]) for row, (source, _) in enumerate(TRANSLATIONS)
    ]
    good, bad = model.predict(TRANSLATIONS), model.predict(wrong)
    assert np.mean(good[:, None] > bad[None, :]) > 0.9


def test_it_is_told_apart_from_other_models() -> None:
    card = (lite.HERE / "README.md").read_text(encoding="utf-8")
    assert "USE-multilingual" in card
    assert "Apache-2.0" in card
