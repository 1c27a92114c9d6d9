"""Every speed figure that we state, each as a ratio within one run: ``make bench``.

One process a benchmark, one after the other, so that none disturbs another. Quiet machines only.
"""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = {
    "load_text": "text vectors: 8x the line-by-line loader, peak memory under 2x, cached under 1 s",
    "retrieval": "hubness of both sides + top-28 CSLS: 1x bare GEMM, 3x the usual recipe, > faiss",
    "vecmap_iteration": "VecMap self-learning iteration, 20,000 x 20,000 x 300: 4x",
    "rcsls_iteration": "RCSLS iteration, 5,000 seeds, 200,000 words, 300-d: 4x",
    "c1_step": "C1 step, 5,000 seeds, 150 negatives, 60,000 words, 300-d: 10x",
    "lite_speed": "lite: training time, scoring speed, file size",
    "scoring_speed": "reranking, xlm-roberta-base size: 4x CrossEncoder.predict, same top-1",
}


def main() -> int:
    failed = []
    for name, target in BENCHMARKS.items():
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        print(f"\n== {target}\n   python -m benchmarks.{name}", flush=True)
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
