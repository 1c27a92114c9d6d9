"""Every writing command on a disk that is too small: one sentence, and the old output survives.

python -m benchmarks.disk_full [--commands align,train] [--words 3000]

Needs the right to mount a tmpfs (root); elsewhere it says so and ends. A command runs once with
room enough, to measure what it needs; then on tmpfs of several smaller sizes, with an output from
before in place; then again after the disk has been made larger.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.kill_matrix import COMMANDS, PROGRAM, fingerprint, prepare

SHARES = (0.02, 0.3, 0.6, 0.9)  # of the room that is needed
CACHE_TOO = ("roomy", "full")  # whether the cache is on the full disk as well


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    options = f"size={max(64, kilobytes)}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def can_mount(folder: Path) -> bool:
    try:
        with small_disk(folder, 64):
            return True
    except (subprocess.CalledProcessError, OSError):
        return False


def call(command: list[str], home: Path, cache: Path) -> tuple[int, str]:
    done = subprocess.run(
        [*PROGRAM, *command],
        cwd=home,
        env={**os.environ, "BLICER_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def used(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // 1024


def write_old(name: str, path: Path) -> None:
    """A small output of an earlier, other command."""
    import numpy as np

    from blicer.align.space import Space
    from blicer.dictionary import Dictionary, Entry
    from blicer.embeddings import Embeddings
    from blicer.mixing import Mixture
    from blicer.scorers.spelling import Spelling
    from blicer.training_pairs import Scaling
    from blicer.translator import Translator

    side = Embeddings(["a", "b"], np.eye(2, dtype=np.float32))
    if name == "induce":
        Dictionary([Entry("a", "b", 0.5)]).save(path)
    elif name == "train":
        mixture = Mixture({"csls": 0.5, "spelling": 0.5})
        Translator(Space(side, side), [Spelling()], mixture, Scaling(1.0, 0.0)).save(path)
    else:
        Space(side, side).save(path)


def trial(command: list[str], output: str, home: Path, disk: Path, cache: Path) -> str:
    """What happens with too little room; empty if all is as promised."""
    old = disk / output
    before = fingerprint(old)
    code, said = call(command, home, cache)
    if code == 0:
        return ""  # there was room after all
    lines = [line for line in said.splitlines() if line.startswith("blicer:")]
    if "Traceback" in said or len(lines) != 1:
        return f"not one sentence: {said[-300:]!r}"
    if not old.exists() or fingerprint(old) != before:
        return "the old output is gone or changed"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = ["align-rcsls", "align-twoview", "train", "induce"]
    parser.add_argument("--commands", default=",".join(names))
    parser.add_argument("--words", type=int, default=3000)
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        if not can_mount(home / "disk"):
            print("a tmpfs cannot be mounted here; nothing was tried")
            return 0
        roomy = home / "cache"
        prepare(home)
        made = [part.format(words=asked.words, out="translator") for part in COMMANDS["train"][0]]
        if "induce" in asked.commands and call(made, home, roomy)[0]:
            raise RuntimeError("no translator could be trained")
        print(
            "| command | room | cache | promised | goes on with more room |\n|---|---|---|---|---|"
        )
        for name in asked.commands.split(","):
            template, output = COMMANDS[name]
            command = [part.format(words=asked.words, out="disk/out") for part in template]
            shutil.rmtree(home / "disk", ignore_errors=True)  # what another command wrote
            (home / "disk").mkdir()
            if (problem := call(command, home, roomy))[0]:
                raise RuntimeError(problem[1])
            need = used(home / "disk")
            right = fingerprint(home / "disk" / output)
            for share, where in [(share, where) for share in SHARES for where in CACHE_TOO]:
                with small_disk(home / "disk", 64 + int(share * need)) as disk:
                    write_old(name, disk / output)
                    cache = roomy if where == "roomy" else disk / "cache"
                    found = trial(command, output, home, disk, cache)
                    options = f"remount,size={40 * need + 4_000_000}k"
                    subprocess.run(["mount", "-o", options, str(disk)], check=True)
                    code, _ = call(command, home, cache)
                    same = code == 0 and fingerprint(disk / output) == right
                    wrong += bool(found) + (not same)
                    row: list[Any] = [name, f"{share:.0%}", where, found or "yes", same]
                    print(f"| {' | '.join(map(str, row))} |", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
