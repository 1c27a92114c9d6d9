"""Time and memory of ``blicer induce``: scores computed, and scores that were kept.

    python -m benchmarks.induction TRANSLATOR [--words 20000 50000] [--before SRC] [--json FILE]

Every run is a process of its own. CPU seconds count, because other work on the machine changes
how long a run takes but hardly how much it computes. ``--before``: the ``src`` folder of an earlier
blicer, which runs beside.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WHOLE = 200_000  # words that an estimate is given for
_MAIN = "from blicer.cli import main; main()"


def run(arguments: list[str], cache: Path, source: Path | None = None) -> dict[str, float]:
    """Seconds, CPU seconds and peak memory of one command."""
    environment = os.environ | {"BLICER_CACHE": str(cache)}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    command = [sys.executable, "-c", _MAIN, "--quiet", *arguments]
    start = time.perf_counter()
    child = os.spawnve(os.P_NOWAIT, sys.executable, command, environment)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gb": round(used.ru_maxrss / 2**20, 2),
    }


def measure(translator: str, words: list[int], before: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {"candidates": 28, "runs": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def induce(what: str, count: int, *options: str, **how: Any) -> None:
            output = folder / f"out.{how.pop('ending', 'tsv')}"
            arguments = ["induce", translator, "-n", str(count), *options, "-o", str(output)]
            cost = run(arguments, folder / how.pop("cache", f"cache-{count}"), **how)
            found["runs"].append({"what": what, "words": count, **cost})
            print(found["runs"][-1], file=sys.stderr, flush=True)

        induce("start: one word", 1, cache="cache-1")
        for count in words:
            if before is not None:
                induce("before", count, source=before, cache="cache-before")
            induce("scores computed", count)
            induce("scores kept: another -k and format", count, "-k", "2", ending="tmx")
    found["estimate"] = estimate(found["runs"], words)
    return found


def estimate(runs: list[dict[str, Any]], words: list[int]) -> dict[str, float]:
    """Pairs a CPU second between two sizes, and hours for ``WHOLE`` words at that rate."""
    cpu = {row["words"]: row["cpu_seconds"] for row in runs if row["what"] == "scores computed"}
    fewer, more = words[0], words[-1]
    a_word = (cpu[more] - cpu[fewer]) / (more - fewer)
    return {
        "pairs_a_second": round(28 / a_word),
        "hours_for_200000": round(WHOLE * a_word / 3600, 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("translator")
    parser.add_argument("--words", type=int, nargs=2, default=[20_000, 50_000])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    result = json.dumps(measure(asked.translator, asked.words, asked.before), indent=2)
    print(result)
    if asked.json is not None:
        asked.json.write_text(result + "\n", encoding="utf-8")
