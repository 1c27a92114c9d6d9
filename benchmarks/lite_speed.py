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
from blicer.pipeline import LanguagePair, fit, seed_pairs, train_reranker
from blicer.scorers.cross_encoder import CrossEncoderScorer

PAIRS = 20_000


def run() -> dict[str, Any]:
    pair = starter.load()
    config = Config.for_seeds(len(pair.seeds), space="procrustes").for_training(len(pair.seeds))
    sides = LanguagePair(pair.source, pair.target)
    (fitted,) = fit([sides], [seed_pairs(sides, pair.seeds)], config)  # loads what is needed
    start = time.perf_counter()
    reranker = train_reranker([(sides, fitted.space, fitted.pairs)], config)
    training = time.perf_counter() - start
    scorer = CrossEncoderScorer(reranker, config.template, ("", ""))
    rng = np.random.default_rng(0)
    vocabularies = (pair.source.words, pair.target.words)
    words = [[side[i] for i in rng.integers(len(side), size=PAIRS)] for side in vocabularies]
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
