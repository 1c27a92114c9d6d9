"""What decisions in ``blicer serve`` are worth: a simulated annotator on XLING.

    python -m benchmarks.annotator run --data ../shared/data --pairs en-ru
    python -m benchmarks.annotator report

A translator is trained on 200 seeds drawn from the training dictionary. Then somebody decides on
100 words at a time in the order of a queue of the server, and it learns from that. The answers are
those of the training dictionary beyond the seeds: the first translation is accepted if the
dictionary has it; if not it is rejected and corrected by the dictionary's own. A dictionary lists
only some of the right words, so ``--orders uncertain-corrections`` leaves the rejections out. The
test dictionary only measures. Every finished training is one file in ``results/annotator/units``
that also holds the next decisions, so a killed run goes on. Vocabularies are cut at 30,000 words a
side.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning_curve import PROMISED, WORDS, forget_stages
from benchmarks.spaces_table import dictionary
from blicer.config import Config
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.evaluation import DirectionResult, evaluate
from blicer.files import atomic_write, read_json, write_json
from blicer.lexicon import Lexicon
from blicer.pipeline import train
from blicer.plots import Curve, curves
from blicer.serve.lookup import QUEUES, Lookup, Row
from blicer.translator import Translator

PAIRS = ("en-ru", "fi-fr", "en-fi")
ORDERS = ("random", *QUEUES)
CORRECTIONS = tuple(f"{order}-corrections" for order in ORDERS)  # without rejections
START, AT_ONCE, STEPS = 200, 100, 8
RESULTS = Path("results/annotator")
RANDOM = 0
Pairs = list[tuple[str, str]]


class Annotator:
    """Answers from a dictionary."""

    def __init__(self, data: Path, pair: str, kept: Path) -> None:
        """``kept``: a folder for the encoder's vectors of the words."""
        self.pair, self.kept = pair, kept
        self.source, self.target = (
            Embeddings.load(
                data / "vectors" / f"{language}.npy",
                vocabulary=data / "vectors" / f"{language}.vocab.txt",
                max_words=WORDS,
                language=language,
            )
            for language in pair.split("-")
        )
        train_pairs = dictionary(data, pair, "train.freq.5k").pairs
        known = [p for p in train_pairs if p[0] in self.source and p[1] in self.target]
        self.gold = Lexicon(known)
        self.test = dictionary(data, pair, "test.freq.2k")
        order = np.random.default_rng(RANDOM).permutation(len(known))
        self.seeds: Pairs = [known[row] for row in order[:START]]

    def train(self, right: Pairs, wrong: Pairs) -> Translator:
        seeds = Lexicon([*self.seeds, *right])
        config = Config.for_seeds(len(seeds))
        how: dict[str, Any] = {"wrong": Lexicon(wrong), "work_dir": self.kept}
        translator = train(self.source, self.target, seeds, config, **how)
        forget_stages(self.kept)
        return translator

    def lookup(self, translator: Translator) -> Lookup:
        """Its folder stays until the next one, because words are read as they are asked for."""
        translator.save(self.kept / "translator")
        return Lookup.load(self.kept / "translator")

    def asked(self, lookup: Lookup, known: set[str], order: str) -> list[Row]:
        """The next words of a queue that the dictionary can answer."""
        seen = known | {word for word, _ in self.seeds}
        words = sorted(set(self.gold.targets) - seen, key=self.source.lookup.__getitem__)
        if order == "random":
            mixed = np.random.default_rng([RANDOM, len(words)]).permutation(len(words))
            words = [words[at] for at in mixed]
        if order in ("random", "frequent"):
            return lookup.first_translations(words[:AT_ONCE], reverse=False)
        rows = lookup.first_translations(words, reverse=False)
        return sorted(rows, key=QUEUES[order])[:AT_ONCE]

    def decide(self, lookup: Lookup, known: set[str], order: str) -> dict[str, Pairs]:
        """The next decisions: pairs that are right and pairs that are wrong."""
        queue, _, without = order.partition("-")
        right: Pairs = []
        wrong: Pairs = []
        for row in self.asked(lookup, known, queue):
            gold = self.gold.targets[row.source]
            if row.target in gold:
                right.append((row.source, str(row.target)))
            else:
                right.append((row.source, gold[0]))
                wrong += [(row.source, row.target)] if row.target is not None else []
        return {"right": right, "wrong": [] if without else wrong}

    def unit(self, step: int, right: Pairs, wrong: Pairs) -> tuple[Translator, dict[str, Any]]:
        """Train once, measure once."""
        started = time.perf_counter()
        translator = self.train(right, wrong)
        seconds = time.perf_counter() - started
        figures = {
            way: measured(translator, found)
            for way, found in evaluate(translator, self.test, bootstrap=0).directions()
        }
        row = {"pair": self.pair, "decisions": AT_ONCE * step, "seconds": seconds, **figures}
        return translator, row | {"right": right, "wrong": wrong}


def measured(translator: Translator, found: DirectionResult) -> dict[str, Any]:
    """P@1, coverage at 95 % precision, and what ``--at-precision 0.95`` keeps and reaches."""
    try:
        least = translator.confidence_for(PROMISED)
    except InputError:  # nothing is promised
        least = 2.0
    answers = found.answers
    assert answers is not None
    sure, right = answers.sure[answers.has_entry, 0], answers.right[answers.has_entry, 0]
    kept = sure >= least
    return {
        "p@1": found.in_vocabulary["p@1"],
        "coverage@95": found.all_queries["coverage@95"],
        "kept": float(kept.mean()),
        "reached": float(right[kept].mean()) if kept.any() else None,
    }


def run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as kept:
        annotators = [Annotator(arguments.data, pair, Path(kept)) for pair in arguments.pairs]
        for step in range(arguments.steps + 1):
            for annotator in annotators:
                for order in arguments.orders:
                    _advance(annotator, order, step)


def _file(pair: str, order: str, step: int) -> Path:
    """The start is the same for all orders."""
    return RESULTS / "units" / (f"{pair}.{order}.{step}.json" if step else f"{pair}.start.json")


def _advance(annotator: Annotator, order: str, step: int) -> None:
    """One training, unless it is there; its file holds the decisions that come next."""
    file = _file(annotator.pair, order, step)
    if file.is_file():
        return
    right: Pairs = []
    wrong: Pairs = []
    if step:
        before = read_json(_file(annotator.pair, order, step - 1))
        new = before["next"][order]
        right, wrong = (
            [(a, b) for a, b in [*before[name], *new[name]]] for name in ("right", "wrong")
        )
    translator, row = annotator.unit(step, right, wrong)
    lookup, known = annotator.lookup(translator), {word for word, _ in right}
    follow = [order] if step else [*ORDERS, *CORRECTIONS]
    row["next"] = {one: annotator.decide(lookup, known, one) for one in follow}
    write_json(file, row | {"order": order if step else "start"})
    shown = " / ".join(f"{100 * row[way]['p@1']:.1f}" for way in ("forward", "backward"))
    print(f"{file.stem}: P@1 {shown}, {len(wrong)} rejected ({row['seconds']:.0f} s)", flush=True)


def report() -> None:
    rows = [read_json(file) for file in sorted((RESULTS / "units").glob("*.json"))]
    text = ["# What decisions are worth", "", _ABOUT, ""]
    text += ["| pair | order | decisions | of them rejected | P@1 | coverage at 95 % | seconds |"]
    text += ["|---|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: (row["pair"], row["order"], row["decisions"])):
        cells = [row["pair"], row["order"], str(row["decisions"]), str(len(row["wrong"]))]
        cells += [_both(row, name) for name in ("p@1", "coverage@95")]
        text.append(f"| {' | '.join(cells)} | {row['seconds']:.0f} |")
    text.append("")
    for pair in PAIRS:
        for name, what in (("p@1", "P@1, per cent"), ("coverage@95", "coverage at 95 %")):
            lines = _lines([row for row in rows if row["pair"] == pair], name)
            if lines:
                file = f"{pair}.{name.replace('@', '')}.svg"
                with atomic_write(RESULTS / file) as out:
                    out.write(curves(lines, f"{pair}: mean of both directions", "decisions", what))
                text.append(f"![{pair}, {what}]({file})")
    with atomic_write(RESULTS / "report.md") as out:
        out.write("\n".join(text).rstrip() + "\n")


def _both(row: dict[str, Any], name: str) -> str:
    values = [row[way][name] for way in ("forward", "backward")]
    return " / ".join("–" if one is None else f"{100 * one:.1f}" for one in values)


def _lines(rows: list[dict[str, Any]], name: str) -> list[Curve]:
    """A line for each order that has two points or more; all begin at the same one."""
    lines = []
    for order in sorted({row["order"] for row in rows} - {"start"}):
        own = sorted(
            (row for row in rows if row["order"] in (order, "start")),
            key=lambda row: row["decisions"],
        )
        means = [50 * sum(row[way][name] or 0.0 for way in ("forward", "backward")) for row in own]
        if len(own) > 1:
            lines.append(Curve(order, [row["decisions"] for row in own], means))
    return lines


_ABOUT = f"""`python -m benchmarks.annotator run --data ../shared/data`, then `report`. {START}
seeds at the start, {AT_ONCE} decisions between two trainings, 30,000 words a side. Test dictionary,
forward / backward, per cent: P@1 over words in vocabulary; coverage: the share of all words that
can be answered, surest first, while 95 % of the answers are right."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pairs", type=lambda text: text.split(","), default=list(PAIRS))
    parser.add_argument("--orders", type=lambda text: text.split(","), default=list(ORDERS))
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments)
    else:
        report()


if __name__ == "__main__":
    main()
