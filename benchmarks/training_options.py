"""What optional parts of the training bring, on held-out training seeds alone.

    python -m benchmarks.training_options --data ../shared/data [--pairs en-ru en-fr] [--size 1k]

P@1 on 30 % of the seed words, held out from the space and the training, weights chosen on the same
words: CSLS with the cross-encoder, and with `endings` beside it. No test dictionary is read.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.spaces_table import dictionary, vectors
from blicer.config import Config
from blicer.mixing import CSLS, choose_weights
from blicer.pipeline import (
    Fitted,
    LanguagePair,
    fit,
    fit_space,
    held_out_masks,
    held_out_view,
)

HOLDOUT = 0.3
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "positives nine times, not twice": {"n_rep": 8},
    "four epochs": {"epochs": 4, "average_last": 0.0},
    "LoRA, rank 8": {"lora_rank": 8, "learning_rate": 1e-3, "average_last": 0.0},
}


def run(data: Path, pair: str, size: str, encoder: str) -> None:
    sides = LanguagePair(*(vectors(data, language) for language in pair.split("-")))

    def config(*scorers: str, **changed: Any) -> Config:
        usual = {"encoder": encoder, "space": "procrustes", "folds": 1, "holdout": HOLDOUT}
        return Config.resolve("supervised", overrides={**usual, "scorers": scorers, **changed})

    known = dictionary(data, pair, f"train.freq.{size}").indices(sides.source, sides.target)
    (mask,) = held_out_masks(known, config())
    rest, held = known[~mask], known[mask]
    space = fit_space(sides, rest, config())
    (start,) = fit([sides], [rest], [space], config("endings", "untuned"), reserved=[held])
    endings, untuned = start.scorers
    for name in ("untuned", *OPTIONS):
        scorer: Any = untuned
        chosen = config("cross-encoder", **OPTIONS.get(name, {}))
        if name != "untuned":
            (tuned,) = fit([sides], [rest], [space], chosen, reserved=[held])
            (scorer,) = tuned.scorers
        both = Fitted(space, start.pairs, [scorer, endings])
        view = held_out_view(both, held, known, chosen)
        found = [
            choose_weights(view.parts[..., :n], view.is_gold, [CSLS, "it", "endings"][:n]).precision
            for n in (2, 3)
        ]
        shown = " | ".join(f"{100 * (value or 0):.1f}" for value in found)
        print(f"| {pair} | {size} | {name} | {shown} | {len(view.parts)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of vectors and xling")
    parser.add_argument("--pairs", nargs="+", default=["en-ru", "en-fr"])
    parser.add_argument("--size", default="1k")
    parser.add_argument("--encoder", default="lite")
    options = parser.parse_args()
    print("| pair | seeds | training | cross-encoder | and endings | words |")
    print("|---|---|---|---|---|---|")
    for one in options.pairs:
        run(options.data, one, options.size, options.encoder)
