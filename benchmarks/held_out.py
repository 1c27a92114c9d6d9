"""A benchmark folder made of XLING's training dictionaries alone, to choose methods on.

    python -m benchmarks.held_out --data ../shared/data -o held-out
    blicer benchmark run held-out --pairs en-fr,fi-fr --setups 1k,200 --spaces twoview -o ablation

As in XLING itself the test words are rarer than the seeds: the test dictionary of a pair is the
rarest 30 % of the source words of its 5k training dictionary, and seeds are drawn at random from
the others. No test dictionary of XLING is read.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.learning_curve import PAIRS
from benchmarks.spaces_table import dictionary
from blicer.lexicon import Lexicon

TESTED = 0.3
SIZES = {"50": 50, "200": 200, "1k": 1_000, "3k": 3_000}


def write(data: Path, pair: str, folder: Path) -> None:
    known = dictionary(data, pair, "train.freq.5k")
    words = list(dict.fromkeys(source for source, _ in known.pairs))
    frequent = set(words[: round((1 - TESTED) * len(words))])
    seeds = [one for one in known.pairs if one[0] in frequent]
    (folder / pair).mkdir(parents=True, exist_ok=True)
    Lexicon(one for one in known.pairs if one[0] not in frequent).save(folder / pair / "test.tsv")
    order = np.random.default_rng(0).permutation(len(seeds))
    for name, size in SIZES.items():
        drawn = Lexicon(seeds[row] for row in order[:size])
        drawn.save(folder / pair / f"train.{name}.tsv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    for pair in PAIRS:
        write(arguments.data, pair, arguments.output)
    if not (vectors := arguments.output / "vectors").exists():
        vectors.symlink_to((arguments.data / "vectors").resolve())


if __name__ == "__main__":
    main()
