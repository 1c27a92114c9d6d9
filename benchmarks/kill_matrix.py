"""Every long command, killed at random moments and started again, ends with the same result.

python -m benchmarks.kill_matrix [--kills 20] [--commands align-vecmap,train] [--words 4000]

The data is the head of the starter pair. A command runs once to the end; then it is killed
(SIGKILL) so many times, each time at a random moment of its usual duration, started again until it
ends, and its output compared byte by byte (but for times that a report mentions).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-c", "from blicer.cli import main; main()"]
ALIGN = ["align", "en.vec", "ru.vec", "--seeds", "seeds.tsv", "--max-words", "{words}", "--space"]
COMMANDS: dict[str, tuple[list[str], str]] = {
    "align-vecmap": (
        [*ALIGN, "vecmap", "--mode", "semi_supervised", "--force", "-o", "{out}"],
        "out",
    ),
    "align-rcsls": ([*ALIGN, "rcsls", "-o", "{out}"], "out"),
    "align-c1": ([*ALIGN, "c1", "-o", "{out}"], "out"),
    "align-twoview": ([*ALIGN, "twoview", "-o", "{out}"], "out"),
    "train": (
        [
            *("train", "en.vec", "ru.vec", "--seeds", "seeds.tsv", "--max-words", "{words}"),
            *("--source-language", "en", "--target-language", "ru", "-o", "{out}"),
        ],
        "out",
    ),
    "induce": (["induce", "translator", "-n", "3000", "-o", "{out}.tsv"], "out.tsv"),
}
VARIES = ("seconds", "resumed_from")  # of a training report
CHECKS = ("sha256", "seal")  # of files that say how long something took


def prepare(folder: Path) -> None:
    """The starter pair as files, and a translator for ``induce``."""
    from blicer import starter

    pair = starter.load()
    pair.source.save(folder / "en.vec")
    pair.target.save(folder / "ru.vec")
    pair.seeds.save(folder / "seeds.tsv")


def fingerprint(path: Path) -> dict[str, str]:
    """Hash of every file of an output, without times."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = {}
    for file in (file for file in files if file.is_file()):
        content = file.read_bytes()
        if file.suffix == ".json":
            content = json.dumps(_timeless(json.loads(content)), sort_keys=True).encode()
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = (*VARIES, *CHECKS)
        return {key: _timeless(one) for key, one in value.items() if key not in left_out}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


def start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *command], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def run(name: str, folder: Path, kills: int, words: int, draw: random.Random) -> dict[str, Any]:
    """Kill one command ``kills`` times, one kill a run, and compare."""
    template, output = COMMANDS[name]
    command = [part.format(words=words, out="out") for part in template]
    begun = time.monotonic()
    if start(command, folder).wait():
        raise RuntimeError(f"{name} failed")
    usual = time.monotonic() - begun
    right = fingerprint(folder / output)
    different = late = 0
    for _ in range(kills):
        _clear(folder)
        child = start(command, folder)
        try:
            child.wait(timeout=draw.uniform(0.05, 0.95) * usual)
            late += 1
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
            if start(command, folder).wait():
                different += 1
                continue
        strange = [
            one for one in (*folder.glob("out*"), *folder.glob(".out*")) if one.name != output
        ]
        different += fingerprint(folder / output) != right or bool(strange)
    _clear(folder)
    return {"seconds": round(usual, 1), "kills": kills - late, "different": different}


def _clear(folder: Path) -> None:
    for path in (*folder.glob("out*"), *folder.glob(".out*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--words", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw, wrong = random.Random(asked.seed), 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["BLICER_CACHE"] = str(folder / "cache")
        prepare(folder)
        names = asked.commands.split(",")
        if "induce" in names:
            command = COMMANDS["train"][0]
            made = [part.format(words=asked.words, out="translator") for part in command]
            if start(made, folder).wait():
                raise RuntimeError("no translator could be trained")
        print("| command | seconds | kills | different results |\n|---|---|---|---|")
        for name in names:
            found = run(name, folder, asked.kills, asked.words, draw)
            wrong += found["different"]
            print(f"| {name} | {' | '.join(map(str, found.values()))} |", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
