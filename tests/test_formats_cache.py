"""The cache of parsed vectors: mapped, keyed, atomic, and never trusted when damaged."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from blicer.embeddings import Embeddings
from blicer.files import cache_folder


def write_vectors(path: Path, words: int = 50, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    Embeddings([f"Word{i}" for i in range(words)], rng.standard_normal((words, 8))).save(path)


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "vectors").glob("*.safetensors"))


def test_second_load_is_mapped(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "a.vec"
    write_vectors(path)
    first, second = Embeddings.load(path), Embeddings.load(path)
    assert not isinstance(first.vectors, np.memmap)
    assert isinstance(second.vectors, np.memmap)
    assert second.words == first.words
    assert second.report == first.report
    np.testing.assert_array_equal(second.vectors, first.vectors)
    assert len(entries(own_cache)) == 1


def test_cache_can_be_turned_off(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "a.vec"
    write_vectors(path)
    Embeddings.load(path, cache=False)
    assert not entries(own_cache)
    Embeddings.load(path)
    assert not isinstance(Embeddings.load(path, cache=False).vectors, np.memmap)


def test_cache_tells_options_and_versions_of_a_file_apart(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "a.vec"
    write_vectors(path)
    assert len(Embeddings.load(path)) == 50
    assert len(Embeddings.load(path, max_words=3)) == 3
    assert Embeddings.load(path, lowercase=False).words[0] == "Word0"
    assert len(entries(own_cache)) == 3
    write_vectors(path, seed=1)  # same size or not, written just now
    fresh, uncached = Embeddings.load(path), Embeddings.load(path, cache=False)
    np.testing.assert_array_equal(fresh.vectors, uncached.vectors)
    assert len(entries(own_cache)) == 1  # those of the earlier file are gone


def test_rewriting_within_a_clock_tick(tmp_path: Path) -> None:
    path = tmp_path / "a.vec"
    for i in range(10):
        path.write_text(f"a {i} 1\n")
        assert Embeddings.load(path).vectors.tolist() == [[i, 1]]


def damage_truncate(data: bytes) -> bytes:
    return data[:-10]


def damage_header(data: bytes) -> bytes:
    at = data.index(b'"shape"') + 9
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def damage_empty(data: bytes) -> bytes:
    return b""


def damage_longer(data: bytes) -> bytes:
    return data + b"x"


def damage_noise(data: bytes) -> bytes:
    return np.random.default_rng(0).bytes(len(data))


def damage_length(data: bytes) -> bytes:
    return b"\xff" * 8 + data[8:]


@pytest.mark.parametrize(
    "damage",
    [
        damage_truncate,
        damage_header,
        damage_empty,
        damage_longer,
        damage_noise,
        damage_length,
    ],
)
def test_damaged_cache_is_rebuilt(damage, tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "a.vec"
    write_vectors(path)
    good = Embeddings.load(path)
    (entry,) = entries(own_cache)
    whole = entry.read_bytes()
    assert damage(whole) != whole
    entry.write_bytes(damage(whole))
    mended = Embeddings.load(path)
    assert not isinstance(mended.vectors, np.memmap)
    assert mended.words == good.words
    np.testing.assert_array_equal(mended.vectors, good.vectors)
    assert isinstance(Embeddings.load(path).vectors, np.memmap)
    assert entry.read_bytes() == whole


def test_unwritable_cache_costs_only_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("BLICER_CACHE", str(blocked / "cache"))
    write_vectors(tmp_path / "a.vec")
    assert len(Embeddings.load(tmp_path / "a.vec")) == 50


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLICER_CACHE", "/a/b")
    assert cache_folder() == Path("/a/b")


def _race(path: str, results: object) -> None:
    found = Embeddings.load(path)
    results.put((len(found), float(found.vectors.sum(dtype=np.float64))))  # type: ignore[attr-defined]


def test_two_processes_race(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "a.vec"
    write_vectors(path, words=2000)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    racers = [context.Process(target=_race, args=(str(path), results)) for _ in range(2)]
    for racer in racers:
        racer.start()
    got = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()
    calm = Embeddings.load(path, cache=False)
    assert got == [(2000, float(calm.vectors.sum(dtype=np.float64)))] * 2
    assert len(entries(own_cache)) == 1
    assert not [name for name in os.listdir(own_cache / "vectors") if name.endswith(".part")]
