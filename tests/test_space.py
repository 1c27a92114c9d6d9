"""Spaces on disk: what is written comes back, and nothing else is overwritten or trusted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from blicer.align import Procrustes, Space
from blicer.embeddings import Embeddings
from blicer.errors import FileError, InputError
from blicer.lexicon import Lexicon
from blicer.neighbours.kernels import Scan
from sealing import reseal


def small_space(settings: dict | None = None) -> Space:
    random = np.random.default_rng(0)
    source = Embeddings(["cat", "dog", "ice cream"], random.standard_normal((3, 4)), "en")
    target = Embeddings(["Кот", "собака"], random.standard_normal((2, 4)), "ru")
    return Space(source, target, method="vecmap", settings=settings or {})


def test_round_trip(tmp_path: Path) -> None:
    space = small_space({"reweight": np.float64(0.5), "words": np.int64(3), "path": Path("a")})
    space.save(tmp_path / "s")
    again = Space.load(tmp_path / "s")
    assert again.source.words == space.source.words
    assert again.target.words == ["Кот", "собака"]
    np.testing.assert_array_equal(again.source.vectors, space.source.vectors)
    np.testing.assert_array_equal(again.target.vectors, space.target.vectors)
    assert (again.source.language, again.target.language) == ("en", "ru")
    assert again.method == "vecmap"
    assert again.settings == {"reweight": 0.5, "words": 3, "path": "a"}
    assert isinstance(again.source.vectors, np.memmap)


def test_saved_files_are_plain(tmp_path: Path) -> None:
    small_space().save(tmp_path / "s")
    suffixes = {path.suffix for path in (tmp_path / "s").rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors"}
    description = json.loads((tmp_path / "s" / "space.json").read_text())
    assert (description["format"], description["version"]) == ("blicer-space", 1)


def test_a_cached_space_keeps_its_hubness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units of a benchmark share a space: the pass over all pairs is made once."""
    rng = np.random.default_rng(0)
    sides = [Embeddings([f"{s}{i}" for i in range(40)], rng.normal(size=(40, 5))) for s in "ab"]
    seeds = Lexicon((f"a{i}", f"b{i}") for i in range(20))
    passes = []
    usual = Scan.best_both
    monkeypatch.setattr(Scan, "best_both", lambda *a: passes.append(a[1]) or usual(*a))
    aligner = Procrustes()
    pairs = seeds.indices(*sides)
    first = aligner.fit_cached(*sides, pairs, work=tmp_path)
    assert passes == []  # nobody asked
    found = [aligner.fit_cached(*sides, pairs, work=tmp_path, k_csls=k) for k in (3, 3, 5, 5)]
    assert passes == [3, 5]
    for space, k in zip(found, (3, 3, 5, 5), strict=True):
        expected = usual(Scan(first.retriever.source, first.retriever.target), k)[0].mean(dim=1)
        np.testing.assert_allclose(space.retriever.hubness[0], expected, atol=1e-6)


def test_measured_hubness_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over all pairs of words is made once, not at every start; another k is another one."""
    space = small_space({"k_csls": 1})
    space.save(tmp_path / "before")
    assert not (tmp_path / "before" / "hubness.safetensors").exists()
    expected = [side.numpy() for side in space.retriever.hubness]
    space.save(tmp_path / "s")
    again = Space.load(tmp_path / "s")
    again.save(tmp_path / "copy")  # also without its engine having been asked for
    passes = []
    usual = Scan.best_both
    monkeypatch.setattr(Scan, "best_both", lambda *a: passes.append(1) or usual(*a))
    for place in ("s", "copy"):
        found = Space.load(tmp_path / place).retriever.hubness
        for side, kept in zip(expected, found, strict=True):
            np.testing.assert_array_equal(side, kept.numpy())
    assert passes == []
    other = Space.load(tmp_path / "s")
    other.settings["k_csls"] = 2
    cosine = unit(other.source.vectors) @ unit(other.target.vectors).T
    np.testing.assert_allclose(other.retriever.hubness[0], cosine.mean(axis=1), atol=1e-6)
    assert passes == [1]


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_another_k_takes_another_engine() -> None:
    space = small_space()
    assert space.retriever.k_csls == 10
    space.use_k_csls(10)
    kept = space.retriever
    space.use_k_csls(1)
    assert space.retriever is not kept
    assert (space.retriever.k_csls, space.settings["k_csls"]) == (1, 1)


@pytest.mark.parametrize(
    ("about", "sides", "said"),
    [
        ({"k_csls": 10}, {"source": 3, "target": 3}, "expected (3, 2) words"),
        ({"k_csls": 10}, {"source": 3}, "is damaged"),
        ({"k_csls": 10}, None, "cannot be read"),
        ({"k": 10}, {"source": 3, "target": 2}, "does not say of which k"),
        ([10], {"source": 3, "target": 2}, "does not say of which k"),
    ],
)
def test_damaged_hubness(
    tmp_path: Path, about: object, sides: dict[str, int] | None, said: str
) -> None:
    small_space().save(tmp_path / "s")
    if sides is not None:
        ones = {side: np.ones(words, np.float32) for side, words in sides.items()}
        save_file(ones, tmp_path / "s" / "hubness.safetensors")
    reseal(tmp_path / "s", "space.json", hubness=about)
    with pytest.raises(FileError) as error:
        Space.load(tmp_path / "s")
    assert said in str(error.value)


def test_save_replaces_a_space_but_nothing_else(tmp_path: Path) -> None:
    space = small_space()
    space.save(tmp_path / "s")
    small_space({"seed": 3}).save(tmp_path / "s")
    assert Space.load(tmp_path / "s").settings == {"seed": 3}
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter1.tex").write_text("precious")
    with pytest.raises(FileError, match="is not a space; it is left as it is"):
        space.save(mine)
    assert (mine / "chapter1.tex").read_text() == "precious"


def test_settings_that_json_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written as JSON"):
        small_space({"odd": object()}).save(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_vec_files_are_readable(tmp_path: Path) -> None:
    space = small_space()
    source, target = space.save_vec(tmp_path / "out")
    assert (source.name, target.name) == ("source.en.vec", "target.ru.vec")
    first = source.read_text(encoding="utf-8").splitlines()[0]
    assert first == "3 4"
    again = Embeddings.load(target, lowercase=False, cache=False)
    assert again.words == space.target.words
    np.testing.assert_allclose(again.vectors, space.target.vectors, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"format": "other"}, "expected format 'blicer-space'"),
        ({"version": 99}, "has version 99; this blicer reads version 1: make a space again"),
        ({"settings": None}, "lacks the method, its settings, or a side"),
        ({"source": {"words": 7}}, "has 3 words; space.json says 7"),
    ],
)
def test_damaged_description(tmp_path: Path, change: dict, expected: str) -> None:
    small_space().save(tmp_path / "s")
    reseal(tmp_path / "s", "space.json", **change)
    with pytest.raises(FileError) as caught:
        Space.load(tmp_path / "s")
    assert expected in str(caught.value)


def test_not_a_space(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"is not a space: there is no space\.json in it"):
        Space.load(tmp_path)
    small_space().save(tmp_path / "s")
    (tmp_path / "s" / "space.json").write_text("{")
    with pytest.raises(FileError, match="is not JSON"):
        Space.load(tmp_path / "s")


def test_dimensions_must_agree() -> None:
    narrow, wide = Embeddings(["a"], np.ones((1, 2))), Embeddings(["b"], np.ones((1, 3)))
    with pytest.raises(InputError, match="found 2 on the source side and 3 on the target side"):
        Space(narrow, wide)


def test_gold_ranks_follow_csls() -> None:
    """Both directions against CSLS written out."""
    random = np.random.default_rng(1)
    x, y = random.standard_normal((2, 30, 5)).astype(np.float32)
    space = Space(
        Embeddings([f"s{i}" for i in range(30)], x), Embeddings([f"t{i}" for i in range(30)], y)
    )
    cosines = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (
        y / np.linalg.norm(y, axis=1, keepdims=True)
    ).T
    hub_x = np.sort(cosines, axis=1)[:, -10:].mean(axis=1)
    hub_y = np.sort(cosines, axis=0)[-10:].mean(axis=0)
    csls = 2 * cosines - hub_x[:, None] - hub_y
    queries = np.array([0, 7, 29])
    golds = [np.array([1, 2]), np.array([7]), np.array([3])]
    for reverse, scores in ((False, csls), (True, csls.T)):
        ranks = space.gold_ranks(queries, golds, reverse=reverse)
        expected = [
            1 + int((scores[q] > scores[q][gold].max()).sum())
            for q, gold in zip(queries, golds, strict=True)
        ]
        assert ranks.tolist() == expected
