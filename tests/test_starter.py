"""The starter pair: what it holds, and that its split keeps test words out of the seeds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from blicer import starter
from blicer.errors import FileError
from blicer.starter import FOLDER, Starter

TOOLS = Path(__file__).resolve().parent.parent / "tools"


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    if spec is None or spec.loader is None:
        pytest.fail(f"tools/{name}.py is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pair() -> Starter:
    return starter.load()


def lines(name: str) -> list[list[str]]:
    """Read apart from the project's own reader."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]


def test_vectors_are_finite_and_words_distinct_and_lower_case(pair: Starter) -> None:
    for side, language, alphabet in (
        (pair.source, "en", set("abcdefghijklmnopqrstuvwxyz")),
        (pair.target, "ru", set("абвгдежзийклмнопрстуфхцчшщъыьэюяё")),
    ):
        assert side.language == language
        assert side.vectors.shape == (30_000, 100)
        assert side.vectors.dtype == np.float32
        assert np.isfinite(side.vectors).all()
        assert (np.linalg.norm(side.vectors, axis=1) > 0).all()
        assert len(set(side.words)) == len(side.words)
        assert all(set(word) <= alphabet for word in side.words)


def test_frequent_words_come_first(pair: Starter) -> None:
    assert {"the", "of", "to"} <= set(pair.source.words[:10])
    assert {"и", "в", "не"} <= set(pair.target.words[:10])


def test_vectors_mean_something(pair: Starter) -> None:
    """Real vectors, not noise: near in meaning is near in the space."""
    for side, word, near, far in (
        (pair.source, "mother", "daughter", "engine"),
        (pair.target, "мать", "дочь", "двигатель"),
    ):
        unit = side.vectors - side.vectors.mean(axis=0)
        unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
        here = unit[side.lookup[word]]
        assert here @ unit[side.lookup[near]] > 0.4 > here @ unit[side.lookup[far]]


def test_every_dictionary_word_has_a_vector(pair: Starter) -> None:
    for source, target in lines("en-ru.tsv"):
        assert source in pair.source
        assert target in pair.target


def test_seeds_and_test_are_read_whole(pair: Starter) -> None:
    assert [list(entry) for entry in pair.seeds] == lines("en-ru.seeds.tsv")
    assert [list(entry) for entry in pair.test] == lines("en-ru.test.tsv")
    assert len(pair.seeds.targets) >= 1_500
    assert len(pair.test.targets) >= 500


def test_no_test_word_is_in_the_seeds(pair: Starter) -> None:
    assert not set(pair.seeds.targets) & set(pair.test.targets)
    assert not set(pair.seeds) & set(pair.test)
    # Nor is a test word's translation any seed word's main translation.
    main = {targets[0] for targets in pair.seeds.targets.values()}
    assert not main & {target for _, target in pair.test}


def test_the_split_is_what_the_script_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool("split_starter").main(["--check"]) == 0
    assert "is not what" not in capsys.readouterr().out


def test_quantising_is_off_by_half_a_step_at_most() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 7))
    codes, scales = tool("build_starter").quantise(rows)
    assert codes.dtype == np.int8
    assert (np.abs(codes).max(axis=1) == 127).all()
    assert (np.abs(codes * scales[:, None] - rows) <= 0.5001 * scales[:, None]).all()


def test_chosen_words_are_the_needed_and_the_most_frequent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build = tool("build_starter")
    monkeypatch.setattr(build, "WORDS", 4)
    words = ["the", ",", "cat", "e5", "dog", "sun", "rare", "rarer"]
    chosen = build.choose(words, {"rarer"}, build.ALPHABET["en"])
    assert [words[row] for row in chosen] == ["the", "cat", "dog", "rarer"]
    with pytest.raises(SystemExit, match="unicorn"):
        build.choose(words, {"unicorn"}, build.ALPHABET["en"])


def test_narrowed_rows_keep_the_products_when_nothing_is_cut() -> None:
    rows = np.random.default_rng(1).normal(size=(40, 6))
    narrow = tool("build_starter").narrow(rows, 6)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    unit = unit - unit.mean(axis=0)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    np.testing.assert_allclose(narrow @ narrow.T, unit @ unit.T, atol=1e-12)


def test_a_damaged_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "FOLDER", tmp_path)
    with pytest.raises(FileError, match=r"en\.safetensors.*cannot be read"):
        starter.read_side("en")
    (tmp_path / "en.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(FileError, match=r"en\.safetensors.*damaged"):
        starter.read_side("en")
