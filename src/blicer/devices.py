"""Which device to compute on, and in which precision."""

from __future__ import annotations

import torch

from blicer.errors import InputError


def resolve_device(device: str | torch.device | None = "auto") -> torch.device:
    """``auto`` takes CUDA, then Apple's MPS, then the CPU."""
    if isinstance(device, torch.device):
        return device
    if device in (None, "auto"):
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    try:
        resolved = torch.device(str(device))
    except RuntimeError as error:
        raise InputError(
            f"device {device!r} is not known; use auto, cpu, cuda, cuda:1 or mps"
        ) from error
    if resolved.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"device {device!r} is not supported; use auto, cpu, cuda, cuda:1 or mps")
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {device!r} was asked for, but no CUDA device is available")
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {device!r} was asked for, but there are {torch.cuda.device_count()} of them"
        )
    if resolved.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"device {device!r} was asked for, but MPS is not available")
    return resolved
