"""Time and memory of ``blicer induce``: scores computed, and scores that were kept.

    python -m benchmarks.induction TRANSLATOR [--words 20000 50000] [--before SRC] [--json FILE]

Every run is a process of its own; the second size goes on from the scores of the first. CPU seconds
count, because other work on the machine changes how long a run takes but hardly how much it
computes. ``--before``: the ``src`` folder of an earlier blicer, which runs beside.
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

CANDIDATES = 28  # of each word, by default
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
    found: dict[str, Any] = {"candidates": CANDIDATES, "runs": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def induce(
            what: str, count: int, new: int, *options: str, source: Path | None = None
        ) -> None:
            output = folder / ("out.tmx" if options else "out.tsv")
            arguments = ["induce", translator, "-n", str(count), *options, "-o", str(output)]
            cost = run(arguments, folder / "cache", source)
            found["runs"].append({"what": what, "words": count, "scored": new, **cost})
            print(found["runs"][-1], file=sys.stderr, flush=True)

        induce("start", 1, 1)
        ready = 1
        for count in words:
            if before is not None:
                induce("before", count, count, source=before)
            induce("computed", count, count - ready)
            induce("kept", count, 0, "-k", "2")
            ready = count
    return found | estimate(found["runs"])


def estimate(runs: list[dict[str, Any]]) -> dict[str, float]:
    """CPU seconds of the last computing run beyond those with kept scores, as a rate."""
    *_, computed, kept = runs
    scoring = (computed["cpu_seconds"] - kept["cpu_seconds"]) / computed["scored"]
    writing = kept["cpu_seconds"] / kept["words"]
    return {
        "pairs_a_cpu_second": round(CANDIDATES / scoring),
        "cpu_hours_for_200000_words": round(WHOLE * (scoring + writing) / 3600, 2),
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
