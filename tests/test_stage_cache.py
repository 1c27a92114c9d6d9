"""Stages of shared work: what each would have taken on its own, and which may be removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from blicer.encoders.loading import encoder_version
from blicer.stage_cache import log_stages, remove_stages, stage
from tiny_models import tiny_encoder


class Clock:
    """Time passes when it is told to."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("blicer.stage_cache.time", clock)
    return clock


def make(clock: Clock, place: Path, seconds: float, *inside: tuple[Path, float]) -> None:
    """A stage that takes so long if it is not there, a second if it is."""
    with stage(place):
        if place.is_dir():
            clock.now += 1
            return
        for inner, own in inside:
            make(clock, inner, own)
        clock.now += seconds
        place.mkdir()


def test_a_stage_that_is_there_counts_as_long_as_it_took(clock: Clock, tmp_path: Path) -> None:
    c1, c2 = tmp_path / "c1", tmp_path / "c2"
    with log_stages() as first:
        make(clock, c1, 100)
    assert (first.saved_seconds, clock.now) == (0, 100)
    with log_stages() as second:  # C2 finds C1: 1 + 20 seconds, as if 100 + 20
        make(clock, c2, 20, (c1, 100))
    assert (second.saved_seconds, clock.now) == (99, 121)
    with log_stages() as third:  # finds C2 with all that is in it
        make(clock, c2, 20, (c1, 100))
    assert (third.saved_seconds, clock.now) == (119, 122)
    assert second.folders == [c1, c2]
    assert third.folders == [c2]


def test_without_anybody_watching_nothing_is_written(clock: Clock, tmp_path: Path) -> None:
    make(clock, tmp_path / "a", 5)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    with log_stages() as watching:
        make(clock, tmp_path / "a", 5)  # nobody knows how long it took
    assert watching.saved_seconds == 0


def test_what_fails_leaves_no_time(clock: Clock, tmp_path: Path) -> None:
    with pytest.raises(KeyError), log_stages() as watching, stage(tmp_path / "a"):
        raise KeyError
    assert (list(tmp_path.iterdir()), watching.folders) == ([], [])


def test_a_removed_stage_is_gone_with_its_time(clock: Clock, tmp_path: Path) -> None:
    with log_stages() as watching:
        make(clock, tmp_path / "a", 5)
        make(clock, tmp_path / "b", 5)
    remove_stages(watching.folders[:1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "b.seconds.json"]


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
