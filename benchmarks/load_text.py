"""Reading text vectors: ours against the usual line-by-line loader, the cache, and peak memory.

python -m benchmarks.load_text [--rows N] [--dim D]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

TARGET_SPEEDUP, TARGET_CACHED_SECONDS, TARGET_MEMORY = 8.0, 1.0, 2.0
REPEATS = 3


def generate(path: Path, rows: int, dim: int, seed: int = 0) -> None:
    """Like a fastText ``.vec``: a header, then numbers with four decimals."""
    rng = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{rows} {dim}\n")
        pattern = " ".join(["%.4f"] * dim)
        for start in range(0, rows, 1000):
            block = rng.standard_normal((min(1000, rows - start), dim)) * 0.1
            for i, row in enumerate(block, start=start):
                file.write(f"слово{i} " + pattern % tuple(row) + "\n")


def naive_load(path: Path) -> tuple[list[str], np.ndarray]:
    """The usual loader: split each line, convert to a float array."""
    words, vectors = [], []
    with path.open(encoding="utf-8", newline="\n") as file:
        next(file)
        for line in file:
            word, *numbers = line.rstrip().split(" ")
            words.append(word)
            vectors.append(np.array([float(number) for number in numbers], dtype=np.float32))
    return words, np.stack(vectors)


def peak_memory(path: Path) -> tuple[float, float]:
    """Megabytes above the imports while loading (cache off), in a process of its own."""
    code = (
        "import sys, pyarrow, numpy\n"
        "from blicer.embeddings import Embeddings\n"
        # ru_maxrss would count the parent's memory at the fork
        "lines = lambda: open('/proc/self/status').read().splitlines()\n"
        "peak = lambda: int([x for x in lines() if x.startswith('VmHWM')][0].split()[1]) / 1024\n"
        "before = peak()\n"
        "found = Embeddings.load(sys.argv[1], cache=False)\n"
        "print(peak() - before, found.vectors.nbytes / 2**20)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    extra, matrix = map(float, done.stdout.split())
    return extra, matrix


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(rows: int = 200_000, dim: int = 300) -> dict[str, Any]:
    from blicer.embeddings import Embeddings

    with tempfile.TemporaryDirectory(prefix="blicer-bench-") as folder:
        os.environ["BLICER_CACHE"] = str(Path(folder) / "cache")
        path = Path(folder) / "vectors.vec"
        generate(path, rows, dim)
        # Also warms the imports and the page cache, for both loaders alike.
        Embeddings.load(path, max_words=10, cache=False)
        path.read_bytes()

        times, cpu = [], []
        for _ in range(REPEATS):
            start, used = time.perf_counter(), _cpu()
            ours = Embeddings.load(path, cache=False)
            times.append(time.perf_counter() - start)
            cpu.append(_cpu() - used)
        start, used = time.perf_counter(), _cpu()
        words, vectors = naive_load(path)
        naive, naive_cpu = time.perf_counter() - start, _cpu() - used
        equal = ours.words == words and np.array_equal(ours.vectors, vectors)
        del words, vectors

        start = time.perf_counter()
        Embeddings.load(path)
        first = time.perf_counter() - start
        start = time.perf_counter()
        cached = Embeddings.load(path)
        second = time.perf_counter() - start
        equal = equal and np.array_equal(cached.vectors, ours.vectors)
        mapped = isinstance(cached.vectors, np.memmap)
        extra, matrix = peak_memory(path)
        seconds = float(np.median(times))
        return {
            "rows": rows,
            "dim": dim,
            "file_mb": round(path.stat().st_size / 2**20, 1),
            "naive_seconds": round(naive, 3),
            "seconds": round(seconds, 3),
            "speedup": round(naive / seconds, 2),
            "cpu_ratio": round(naive_cpu / float(np.median(cpu)), 2),
            "first_load_and_cache_seconds": round(first, 3),
            "cached_seconds": round(second, 3),
            "mapped": mapped,
            "equal": bool(equal),
            "matrix_mb": round(matrix, 1),
            "peak_mb": round(extra, 1),
            "peak_over_matrix": round(extra / matrix, 2),
            "cores": len(os.sched_getaffinity(0)),
            "load_average": round(os.getloadavg()[0], 1),
            "met": naive / seconds >= TARGET_SPEEDUP
            and second < TARGET_CACHED_SECONDS
            and extra / matrix < TARGET_MEMORY
            and bool(equal),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=300)
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.rows, arguments.dim), indent=2))


if __name__ == "__main__":
    main()
