"""How well wrong seeds are found: wrong pairs planted among the seeds, and those that are listed.

    python -m benchmarks.suspects --data ../shared/data [--pairs en-fr,fi-fr] [--seeds 1000]

One seed in twenty, drawn from the training dictionary, gets the target of another. Vocabularies
are cut at 20,000 words a side. No test dictionary is read.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.spaces_table import dictionary
from blicer.embeddings import Embeddings
from blicer.lexicon import Lexicon
from blicer.pipeline import train

WORDS, ONE_IN = 20_000, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pairs", default="en-fr,fi-fr")
    parser.add_argument("--seeds", type=int, default=1_000)
    arguments = parser.parse_args()
    for pair in arguments.pairs.split(","):
        source, target = (
            Embeddings.load(
                arguments.data / "vectors" / f"{language}.npy",
                vocabulary=arguments.data / "vectors" / f"{language}.vocab.txt",
                max_words=WORDS,
                language=language,
            )
            for language in pair.split("-")
        )
        known = dictionary(arguments.data, pair, "train.freq.5k").pairs
        known = [one for one in known if one[0] in source and one[1] in target]
        order = np.random.default_rng(1).permutation(len(known))[: arguments.seeds]
        seeds = [known[row] for row in order]
        few = len(seeds) // ONE_IN
        wrong = [(seeds[n][0], seeds[(n + 1) % few][1]) for n in range(few)]
        translator = train(source, target, Lexicon([*wrong, *seeds[few:]]))
        listed = [(one["source"], one["target"]) for one in translator.details["suspects"]]
        found = [len(set(wrong) & set(some)) for some in (listed, listed[:few])]
        print(
            f"{pair}: {len(wrong)} wrong among {len(seeds)} seeds, {len(listed)} listed, "
            f"{found[0]} of the wrong ones among them, {found[1]} among the first {few}",
            flush=True,
        )


if __name__ == "__main__":
    main()
