"""Shared by all tests: nothing is read from or written to the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("BLICER_CACHE", str(folder))
    return folder
