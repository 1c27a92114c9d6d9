"""Devices that are asked for by name."""

from __future__ import annotations

import pytest
import torch

from blicer.devices import resolve_device
from blicer.errors import InputError


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu", "is not known"),
        ("meta", "is not known"),
        ("cuda:x", "is not known"),
        ("", "is not known"),
    ],
)
def test_what_cannot_be_used_is_said(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve_device(name)


def test_cuda_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert resolve_device().type in ("mps", "cpu")
    with pytest.raises(InputError, match="there are 0 cuda devices"):
        resolve_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert resolve_device() == torch.device("cuda")
    assert resolve_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(InputError, match="there are 1 cuda devices"):
        resolve_device("cuda:7")
