"""A cold `blicer translate` of two words, with and without transformers, and a warm one.

python -m benchmarks.startup TRANSLATOR [--repeats 5] [--output results/startup.md]

TRANSLATOR is a folder that `blicer train` or `blicer demo` wrote with the encoder `lite`. "Before"
is the same translator as blicer saved it before: its cross-encoder is loaded by transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGET_SECONDS, TARGET_MILLISECONDS = 2.5, 50.0
PROGRAM = "from blicer.cli import main; main()"


def older(translator: Path, folder: Path) -> Path:
    """The translator in links, without what lets it do without transformers."""
    for path in sorted(translator.rglob("*")):
        place = folder / path.relative_to(translator)
        if path.is_dir():
            place.mkdir(parents=True)
        elif path.name == "blicer.json":
            values = json.loads(path.read_text())
            kept = {key: values[key] for key in ("format", "config", "training", "files")}
            place.write_text(json.dumps(kept))
        elif path.name == "translator.json":
            values = json.loads(path.read_text())
            place.write_text(json.dumps({k: values[k] for k in values.keys() - {"sha256", "seal"}}))
        elif path.name != "pieces.safetensors":
            place.symlink_to(path.absolute())
    return folder


def cold(translator: Path, words: list[str]) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds and output of one run in a process of its own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    command = [sys.executable, "-c", PROGRAM, "translate", str(translator), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, done.stdout


def warm(translator: Path, count: int = 200) -> list[float]:
    """Milliseconds of each of so many known words, one at a time, none asked for before."""
    import blicer

    loaded = blicer.Translator.load(translator)
    words = loaded.source.words[100 : 100 + 5 * count]
    for word in words[:50]:
        loaded.translate(word)
    times = []
    for word in words[50 : 50 + count]:
        start = time.perf_counter()
        loaded.translate(word)
        times.append(1000 * (time.perf_counter() - start))
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("translator", type=Path)
    parser.add_argument("--words", nargs="*", default=["house", "dog"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    runs: dict[str, list[tuple[float, float, str]]] = {"before": [], "after": []}
    with tempfile.TemporaryDirectory() as temporary:
        folders = {"before": older(asked.translator, Path(temporary)), "after": asked.translator}
        for number in range(asked.repeats + 1):  # in turn; the first round fills the page cache
            for name, folder in folders.items():
                found = cold(folder, asked.words)
                runs[name] += [found] if number else []
    answers = {answer for one in runs.values() for *_, answer in one}
    assert len(answers) == 1, answers
    walls, used = (
        {name: statistics.median(run[place] for run in one) for name, one in runs.items()}
        for place in (0, 1)
    )
    best = {name: min(run[0] for run in one) for name, one in runs.items()}
    times = sorted(warm(asked.translator))
    load = os.getloadavg()[0]
    lines = [
        "# Start-up",
        "",
        f"`python -m benchmarks.startup`, {asked.repeats} runs of each in turn, "
        f"{os.cpu_count()} cores, load {load:.1f} at the end; both print the same."
        + (" The machine was busy: compare CPU times." if load > (os.cpu_count() or 1) else ""),
        "",
        f"| cold `translate` of {len(asked.words)} words | before | after | ratio |",
        "|---|---|---|---|",
        *(
            f"| {title} | {one['before']:.2f} s | {one['after']:.2f} s | "
            f"{one['before'] / one['after']:.1f} |"
            for title, one in (("median", walls), ("best", best), ("CPU time, median", used))
        ),
        "",
        f"A known word when warm: median {statistics.median(times):.1f} ms, 95th percentile "
        f"{times[int(0.95 * len(times))]:.1f} ms ({len(times)} words, one at a time).",
        "",
    ]
    print("\n".join(lines))
    if asked.output is not None:
        asked.output.write_text("\n".join(lines), encoding="utf-8")
    return int(best["after"] > TARGET_SECONDS or statistics.median(times) > TARGET_MILLISECONDS)


if __name__ == "__main__":
    raise SystemExit(main())
