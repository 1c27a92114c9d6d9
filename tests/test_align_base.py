"""The shape that methods share: presets, settings, normalisation, PCA."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

import blicer.align
from blicer.align import Procrustes, VecMap
from blicer.align.base import apply_, centre_, prepare, reduce_by_pca, seed_indices, unit_
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon

CPU = torch.device("cpu")


def test_presets_and_overrides() -> None:
    aligner = VecMap.preset("semi-supervised", words=500)
    assert isinstance(aligner, VecMap)
    assert aligner.settings["self_learning"] is True
    assert aligner.settings["words"] == 500
    assert VecMap.preset("unsupervised").settings["init"] == "distributions"


def test_settings_are_the_constructors() -> None:
    assert Procrustes(centre=False).settings == {"centre": False, "device": "auto"}


@pytest.mark.parametrize(
    ("kind", "name", "overrides", "expected"),
    [
        (Procrustes, "unsupervised", {}, "procrustes has no mode 'unsupervised'; it has semi_"),
        (
            VecMap,
            "supervised",
            {"wrods": 1},
            "vecmap has no setting 'wrods'; it has device, init, ",
        ),
        (
            VecMap,
            "supervised",
            {"words": "many"},
            "words is 'many'; expected a whole number of at least 1",
        ),
        (VecMap, "supervised", {"words": True}, "words is True; expected a whole number"),
        (VecMap, "supervised", {"self_learning": 1}, "self_learning is 1; expected true or false"),
        (
            VecMap,
            "supervised",
            {"keep_start": 0},
            "keep_start is 0; expected a number above 0 and at most 1",
        ),
        (VecMap, "supervised", {"keep_factor": 1}, "keep_factor is 1; expected a number above 1"),
        (VecMap, "supervised", {"words": 0}, "words is 0; expected a whole number of at least 1"),
        (VecMap, "supervised", {"init": "magic"}, "init is 'magic'; expected one of seeds"),
    ],
)
def test_wrong_settings(kind, name: str, overrides: dict, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        kind.preset(name, **overrides)
    assert expected in str(caught.value)


def test_every_method_has_its_class() -> None:
    for method in blicer.align.METHODS:
        kind = blicer.align.aligner_class(method)
        assert kind.method == method
        assert "supervised" in kind.presets
        assert len(kind.help()) > 20
        for one in fields(kind):
            assert one.metadata["help"]
    with pytest.raises(InputError, match="there is no space 'magic'; expected one of twoview, "):
        blicer.align.aligner_class("magic")
    with pytest.raises(AttributeError):
        _ = blicer.align.NoSuchMethod


def test_normalisation_by_hand() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0]])
    torch.testing.assert_close(unit_(rows.clone()), torch.tensor([[0.6, 0.8], [0, 1], [0, 0.0]]))
    torch.testing.assert_close(
        centre_(rows.clone()), torch.tensor([[2.0, 2.0], [-1.0, 0.0], [-1.0, -2.0]])
    )
    both = unit_(centre_(unit_(rows.clone())))
    torch.testing.assert_close(both.norm(dim=1), torch.ones(3))


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    rows = torch.from_numpy(random.standard_normal((50, 6)).astype(np.float32))
    weights = torch.from_numpy(random.standard_normal((6, 6)))
    whole = apply_(centre_(unit_(rows.clone())), weights)
    monkeypatch.setattr("blicer.align.base.BLOCK_ROWS", 7)
    torch.testing.assert_close(apply_(centre_(unit_(rows.clone())), weights), whole)


def test_pca_against_svd() -> None:
    random = np.random.default_rng(0)
    rows = random.standard_normal((100, 6)) * np.array([5, 4, 3, 2, 1, 0.5])
    found = reduce_by_pca(torch.from_numpy(rows.astype(np.float32)), 3).numpy()
    expected = rows @ np.linalg.svd(rows)[2][:3].T
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-4)


def test_prepare_gives_unit_rows_of_one_dimension() -> None:
    random = np.random.default_rng(0)
    wide = Embeddings([str(i) for i in range(40)], random.standard_normal((40, 9)))
    narrow = Embeddings([str(i) for i in range(30)], random.standard_normal((30, 5)))
    for centre in (False, True):
        x, y = prepare(wide, narrow, centre=centre, device=CPU)
        assert (x.shape, y.shape) == ((40, 5), (30, 5))
        torch.testing.assert_close(x.norm(dim=1), torch.ones(40))
        torch.testing.assert_close(y.norm(dim=1), torch.ones(30))


def test_memory_mapped_vectors_are_not_changed(tmp_path) -> None:
    random = np.random.default_rng(0)
    Embeddings([str(i) for i in range(40)], random.standard_normal((40, 9))).save(tmp_path / "e")
    loaded = Embeddings.load(tmp_path / "e")
    before = np.array(loaded.vectors)
    prepare(loaded, loaded, device=CPU)
    np.testing.assert_array_equal(loaded.vectors, before)


def test_swapped_columns_stop_the_work() -> None:
    """Some names are the same in both languages, so a few pairs are found either way."""
    words = [f"w{i}" for i in range(50)]
    source = Embeddings(["paris", *words], np.eye(51, dtype=np.float32))
    target = Embeddings(["paris", *(f"v{i}" for i in range(50))], np.eye(51, dtype=np.float32))
    pairs = [("paris", "paris"), *((f"w{i}", f"v{i}") for i in range(50))]
    assert len(seed_indices(source, target, Lexicon(pairs))) == 51
    swapped = Lexicon([(b, a) for a, b in pairs])
    with pytest.raises(InputError, match=r"swapped: 1 of 51 pairs .* 51 the other way round"):
        seed_indices(source, target, swapped)
