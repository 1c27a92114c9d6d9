"""Which device to compute on, and the state of its random numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from blicer.errors import InputError


def resolve_device(device: str | torch.device | None = "auto") -> torch.device:
    """Turn a name into a device; ``auto`` takes CUDA, then Apple's MPS, then the CPU."""
    if isinstance(device, torch.device):
        return device
    mps = torch.backends.mps.is_available
    if device in (None, "auto"):
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if mps() else "cpu")
    expected = "use auto, cpu, cuda, cuda:1 or mps"
    try:
        resolved = torch.device(str(device))
    except RuntimeError as error:
        raise InputError(f"device {device!r} is not known; {expected}") from error
    if resolved.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"device {device!r} is not supported; {expected}")
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {device!r} was asked for, but no CUDA device is available")
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {device!r} was asked for, but there are {torch.cuda.device_count()} of them"
        )
    if resolved.type == "mps" and not mps():
        raise InputError(f"device {device!r} was asked for, but MPS is not available")
    return resolved


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """The state of torch's random numbers, of the CPU and of the device: what dropout draws on."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_state(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    """Go on drawing from where ``random_state`` was taken."""
    torch.set_rng_state(states["cpu"].cpu())
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)
    elif "mps" in states and device.type == "mps":
        torch.mps.set_rng_state(states["mps"].cpu())
