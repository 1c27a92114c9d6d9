"""`lite` on the starter pair: training time, scoring speed and file size.

python -m benchmarks.lite_speed
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import torch

from blicer import lite, starter
from blicer.config import Config
from blicer.pipeline import Recipe, Workshop

PAIRS = 20_000


def run() -> dict[str, Any]:
    pair = starter.load()
    config = Config.resolve("supervised", overrides={"encoder": "lite"})
    recipe = Recipe(space="procrustes").resolved(config, len(pair.seeds))
    workshop = Workshop(pair.source, pair.target, config, recipe, None)
    fitted = workshop.fit(workshop.usable(pair.seeds))  # loads what has to be loaded
    start = time.perf_counter()
    scorer = workshop.cross_encoder(fitted.space, fitted.pairs)
    training = time.perf_counter() - start
    rng = np.random.default_rng(0)
    sides = (pair.source.words, pair.target.words)
    words = [[side[i] for i in rng.integers(len(side), size=PAIRS)] for side in sides]
    scorer.score(words[0][:500], words[1][:500])
    start = time.perf_counter()
    scorer.score(*words)
    scoring = time.perf_counter() - start
    shipped = {path.name: path.stat().st_size for path in lite.HERE.iterdir() if path.is_file()}
    return {
        "seed pairs": len(pair.seeds),
        "training pairs, each in both orders": len(fitted.pairs),
        "training seconds": round(training, 1),
        "pairs scored a second, both orders each": round(PAIRS / scoring),
        "shipped MB": round(sum(shipped.values()) / 1e6, 1),
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
