"""The device to compute on, and the state of its random generators."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from blicer.errors import InputError

KINDS = ("cuda", "mps", "cpu")


def resolve_device(device: str | torch.device | None = "auto") -> torch.device:
    """Turn a name into a device; ``auto`` takes CUDA, then Apple's MPS, then the CPU."""
    if isinstance(device, torch.device):
        return device
    if device in (None, "auto"):
        return torch.device(next(kind for kind in KINDS if _count(kind)))
    kind, _, index = str(device).partition(":")
    if kind not in KINDS or not (index or "0").isdigit():
        raise InputError(f"device {device!r} is not known; use auto, cpu, cuda, cuda:1 or mps")
    if int(index or 0) >= (count := _count(kind)):
        raise InputError(f"device {device!r} was asked for, but there are {count} {kind} devices")
    return torch.device(str(device))


def _count(kind: str) -> int:
    return int(getattr(torch, kind).device_count())


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """The states of torch's random generators on the CPU and the device (dropout uses both)."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_state(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    """Restore what ``random_state`` returned."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif "mps" in states:
        torch.mps.set_rng_state(states["mps"])
