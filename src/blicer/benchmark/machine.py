"""What the figures were measured on: versions, processor, memory."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("blicer", "numpy", "torch", "transformers")
GIGABYTE = 1 << 30


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Python and the packages that decide the figures."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


@lru_cache(maxsize=1)
def source_revision() -> str:
    """The commit that an installation from a working copy runs; empty for a released package."""
    home = Path(__file__).resolve().parents[3]
    # A virtual environment inside somebody's repository is not ours.
    if not (home / ".git").exists() or not (home / "src" / "blicer").is_dir():
        return ""
    command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": cores(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", 0) or cores()),
        "memory_gb": round(_memory()[0] / GIGABYTE, 1),
    }


@lru_cache(maxsize=1)
def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that may still be taken; 0 when the system does not tell."""
    return _memory()[1]


def _memory() -> tuple[int, int]:
    """(all, free) bytes, of the machine or of the control group if that has less."""
    total = free = 0
    try:
        fields = {
            name: int(value.split()[0]) * 1024
            for name, _, value in (
                line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines()
            )
        }
        total, free = fields["MemTotal"], fields["MemAvailable"]
    except (OSError, KeyError, ValueError, IndexError):
        names = getattr(os, "sysconf_names", {})
        if "SC_PHYS_PAGES" in names:
            total = free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        left = limit - int((group / "memory.current").read_text())
        total, free = min(total, limit), min(free, max(left, 0))
    except (OSError, ValueError):  # no control group, or one without a limit ("max")
        pass
    return total, free
