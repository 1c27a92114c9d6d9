"""Stages of shared work: which of them a block uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from blicer.encoders.loading import encoder_version
from blicer.stage_cache import log_stages, stage
from tiny_models import tiny_encoder


def test_the_stages_of_a_block_are_recorded(tmp_path: Path) -> None:
    c1, c2 = tmp_path / "c1", tmp_path / "c2"
    with stage(c1):
        pass  # nobody is watching
    with log_stages() as folders:
        with stage(c2), stage(c1), stage(None):
            pass
        with pytest.raises(KeyError), stage(tmp_path / "fails"):
            raise KeyError
    assert folders == [c1, c2]


def test_an_encoder_is_told_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_encoder(tmp_path / "one")
    version = encoder_version(folder)
    assert version
    assert encoder_version(tiny_encoder(tmp_path / "two")) == version
    (folder / "README.md").write_text("a card")
    assert encoder_version(folder) == version
    (folder / "vocab.txt").write_text("another\n")
    assert encoder_version(folder) != version
    assert encoder_version(tiny_encoder(tmp_path / "three", seed=1)) != version
    assert encoder_version("xlm-roberta-large") == ""
    assert encoder_version("") == ""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert encoder_version("~/two") == version
    assert encoder_version("lite")
