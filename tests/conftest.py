"""Shared by all tests: the user's cache is left alone, and no example is timed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("BLICER_CACHE", str(folder))
    return folder
