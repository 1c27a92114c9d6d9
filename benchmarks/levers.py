"""What else the cross-encoder could learn, on training pairs alone.

    python -m benchmarks.levers run --data ../shared/data
    python -m benchmarks.levers report

Seeds are drawn from the more frequent 70 % of XLING's 5k training dictionary, and the words asked
for are its rarest 30 % (``benchmarks.held_out``); no test dictionary is read. Over VecMap's space,
where the encoder is not in the space already. Each lever changes the training of the cross-encoder
alone; weights are chosen on held-out seeds as always:

- pointwise: the default.
- listwise: softmax over a positive and its hard negatives, in place of BCE pair by pair.
- second round: the wrong candidates that the default ranks first become negatives, trained anew.
- agreeing silver: more positives, on which the two directions of the default's ranking agree and
  the encoder's static vectors too.
- distilled: more pairs, words without seeds with their candidates, labelled with the mean of what
  cross-encoder and bi-encoder (the same net's vectors of single words) say; one round.

A finished training is one file in ``results/levers/units``, so a killed run goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.held_out import TESTED
from benchmarks.learning_curve import PAIRS, draw, sides
from benchmarks.spaces_table import dictionary
from blicer import pipeline
from blicer.align.space import Space
from blicer.config import Config
from blicer.crossencoder.model import Reranker
from blicer.crossencoder.training import Run
from blicer.encoders.static import StaticVectors
from blicer.encoders.words import WordEncoder
from blicer.evaluation import answerable_queries
from blicer.files import atomic_write, read_json, write_json
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, HeldOutView, Mixture, choose_weights, gold_marks, score_candidates
from blicer.pipeline import LanguagePair
from blicer.training_pairs import NEGATIVE, SILVER, Examples, TrainingPairs

RESULTS = Path("results/levers")
FRESH = 3_000  # words without seeds that levers take candidates of
WORST = 5  # wrong candidates of a seed word that the second round learns from
SYSTEMS = ("cross-encoder alone", "tuned", "default")

Taught = tuple[Reranker, TrainingPairs]
Lever = Callable[["Task"], Reranker]


class Task:
    """One training of the cross-encoder: a space, training pairs, and the words held out."""

    def __init__(
        self, pair: LanguagePair, space: Space, pairs: TrainingPairs, taboo: Any, config: Config
    ) -> None:
        self.pair, self.space, self.pairs, self.config = pair, space, pairs, config
        self.taboo = taboo  # (n, 2): held-out pairs, whose words no lever may look at

    def examples(self, pairs: TrainingPairs | None = None) -> Examples:
        words = self.space.source.words, self.space.target.words
        return (pairs or self.pairs).examples(
            *words, self.config.template, ("", ""), repeat=not self.config.weigh_positives
        )

    def fitted(self, taught: Examples, run: Any = Run) -> Reranker:
        with patch("blicer.crossencoder.model.Run", run):
            return pipeline.new_reranker(self.config).fit(*vars(taught).values())

    def more(self, added: Any, label: Any, kind: int, weight: Any) -> TrainingPairs:
        """The training pairs and some more."""
        old = self.pairs
        new = len(added)
        zeros = np.zeros(new, np.float32)
        return replace(
            old,
            source=np.concatenate([old.source, added[:, 0]]),
            target=np.concatenate([old.target, added[:, 1]]),
            score=np.concatenate([old.score, zeros]),
            scaled=np.concatenate([old.scaled, zeros]),
            label=np.concatenate([old.label, np.broadcast_to(label, new).astype(np.float32)]),
            kind=np.concatenate([old.kind, np.full(new, kind, np.int8)]),
            weight=np.concatenate([old.weight, np.broadcast_to(weight, new)]),
        )

    def fresh(self, *, reverse: bool) -> Any:
        """Frequent words that are neither seeds nor held out."""
        side = int(reverse)
        known = np.concatenate([(self.pairs.source, self.pairs.target)[side], self.taboo[:, side]])
        words = len((self.space.source, self.space.target)[side].words)
        return np.setdiff1d(np.arange(min(words, 2 * FRESH)), known)[:FRESH]

    def ranked(self, reranker: Reranker, words: Any, *, reverse: bool) -> tuple[Any, Any]:
        """Candidates of words, and their mixed score with usual weights."""
        fitted = pipeline.Fitted(
            self.space,
            self.pairs,
            pipeline.fit_scorers(self.pair, self.space, self.pairs, self.config, reranker),
        )
        names = [CSLS, *self.config.scorers]
        found = score_candidates(
            self.space, fitted.scaling, fitted.scorers, words, 28, reverse=reverse
        )
        nothing = np.zeros(found.indices.shape, bool)
        mixture = choose_weights(found.parts, nothing, names, checked=False)
        return found, mixture.combine(found.parts)

    def oriented(self, words: Any, candidates: Any, *, reverse: bool) -> Any:
        """(n, 2) rows of source and target words."""
        both = np.stack([np.repeat(words, candidates.shape[1]), candidates.ravel()], axis=1)
        return both[:, ::-1] if reverse else both


def pointwise(task: Task) -> Reranker:
    return task.fitted(task.examples())


class ListwiseRun(Run):
    """Batches of whole lists (a positive, then its negatives), and softmax in each."""

    lists: Any  # rows of each list, set by ``listwise``

    def rows(self, step: int) -> Any:
        groups = np.array_split(
            np.random.default_rng([self.config.seed, step // self.steps_per_epoch]).permutation(
                len(self.lists)
            ),
            self.steps_per_epoch,
        )[step % self.steps_per_epoch]
        self.group = {}
        for number, at in enumerate(groups):
            for place, row in enumerate(self.lists[at]):
                self.group[row] = (number, place == 0)
        return np.concatenate([self.lists[at] for at in groups])

    def _loss(self, rows: Any) -> torch.Tensor:
        logits = self.model(**self.data.tokens.batch(rows, self.device)).logits[:, 0].float()
        number = torch.tensor([self.group[row][0] for row in rows])
        first = torch.tensor([self.group[row][1] for row in rows])
        lists = int(number.max()) + 1
        total = torch.zeros(lists).scatter_add(0, number, logits.clamp(max=30).exp())
        best = torch.zeros(lists).scatter_add(0, number, logits * first)
        return ((total.log() - best) * len(rows) / lists).sum()


def listwise(task: Task) -> Reranker:
    """A list is a positive with all negatives that share its source word, or its target word."""
    pairs = task.pairs
    left, right, sizes = [], [], []
    words = task.space.source.words, task.space.target.words
    negative = pairs.kind == NEGATIVE
    for own in (pairs.source, pairs.target):
        order = np.flatnonzero(negative)[np.argsort(own[negative], kind="stable")]
        for place in np.flatnonzero(~negative):
            low, high = np.searchsorted(own[order], [own[place], own[place] + 1])
            if low == high:
                continue
            for turned in (False, True):
                rows = [place, *order[low:high]]
                one = [words[0][pairs.source[row]] for row in rows]
                other = [words[1][pairs.target[row]] for row in rows]
                left += other if turned else one
                right += one if turned else other
                sizes.append(len(rows))
    ends = np.cumsum(sizes)
    lists = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    run = type("Listwise", (ListwiseRun,), {"lists": lists})
    ones = np.ones(len(left), np.float32)
    task.config = task.config.replace(micro_batch_size=100_000)
    return task.fitted(Examples(left, right, ones, ones), run)


def second_round(task: Task) -> Reranker:
    first = pointwise(task)
    positives = task.pairs.is_positive
    keys = set(zip(task.pairs.source.tolist(), task.pairs.target.tolist(), strict=True))
    keys |= {tuple(pair) for pair in task.taboo.tolist()}
    added = []
    for reverse in (False, True):
        words = np.unique((task.pairs.source, task.pairs.target)[int(reverse)][positives])
        found, mixed = task.ranked(first, words, reverse=reverse)
        best = np.take_along_axis(found.indices, (-mixed).argsort(axis=1)[:, :WORST], axis=1)
        both = task.oriented(words, best, reverse=reverse).tolist()
        added += [pair for pair in both if tuple(pair) not in keys]
    new = np.unique(np.array(added, np.int64).reshape(-1, 2), axis=0)
    return task.fitted(task.examples(task.more(new, 0.0, NEGATIVE, 1)))


def agreeing_silver(task: Task) -> Reranker:
    first = pointwise(task)
    found = []
    for reverse in (False, True):
        words = task.fresh(reverse=reverse)
        ranking, mixed = task.ranked(first, words, reverse=reverse)
        best = np.take_along_axis(ranking.indices, mixed.argmax(axis=1)[:, None], axis=1)
        found.append(set(map(tuple, task.oriented(words, best, reverse=reverse).tolist())))
    mutual = np.array(sorted(found[0] & found[1]), np.int64).reshape(-1, 2)
    table = StaticVectors.load()
    sides = [
        table.encode([vocabulary.words[row] for row in mutual[:, side].tolist()])
        for side, vocabulary in enumerate((task.space.source, task.space.target))
    ]
    cosines = np.einsum("ij,ij->i", *(unit(side) for side in sides))
    agreed = mutual[cosines > np.median(cosines)]  # the better half
    weight = int(task.pairs.weight.max())
    return task.fitted(task.examples(task.more(agreed, 1.0, SILVER, weight)))


def unit(rows: Any) -> Any:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def distilled(task: Task) -> Reranker:
    first = pointwise(task)
    own = WordEncoder(task.config.encoder)
    added, labels = [], []
    for reverse in (False, True):
        words = task.fresh(reverse=reverse)[: FRESH // 2]
        found = task.space.retriever.search(8, words, reverse=reverse)
        both = task.oriented(words, found.indices, reverse=reverse)
        one = [task.space.source.words[row] for row in both[:, 0].tolist()]
        other = [task.space.target.words[row] for row in both[:, 1].tolist()]
        cross = first.score_both_orders(one, other)
        single = np.einsum("ij,ij->i", unit(own.encode(one)), unit(own.encode(other)))
        order = np.empty(len(single))
        order[single.argsort()] = np.sort(cross)  # the same scale: by rank
        added.append(both)
        labels.append((cross + order) / 2)
    label = np.clip(np.concatenate(labels), 0, 1)
    new = task.more(np.concatenate(added), label, NEGATIVE, 1)
    return task.fitted(task.examples(new))


LEVERS: dict[str, Lever] = {
    "pointwise": pointwise,
    "listwise": listwise,
    "second round": second_round,
    "agreeing silver": agreeing_silver,
    "distilled": distilled,
}


def measure(data: Path, pair: str, count: int) -> dict[str, Any]:
    source, target = sides(data, pair)
    known = dictionary(data, pair, "train.freq.5k")
    words = list(dict.fromkeys(left for left, _ in known.pairs))
    frequent = set(words[: round((1 - TESTED) * len(words))])
    test = Lexicon(one for one in known.pairs if one[0] not in frequent)
    pool = [one for one in known.pairs if one[0] in frequent]
    drawn = draw(pool, count, "0", source, target)
    assert drawn is not None
    config = Config.for_seeds(count, space="vecmap", folds=1).for_training(count)
    seeds = drawn.indices(source, target)
    asked_pairs = test.indices(source, target)
    side = LanguagePair(source, target)
    (mask,) = pipeline.held_out_masks(seeds, config)
    rows: dict[str, Any] = {"pair": pair, "count": count}
    spaces = list(pipeline.fit_spaces(side, seeds, [mask], config))
    for name, lever in LEVERS.items():
        started = time.perf_counter()
        held, final = (
            taught(side, space, own, seeds[mask], asked_pairs, config, lever)
            for space, own in zip(spaces, (seeds[~mask], seeds), strict=True)
        )
        view = pipeline.held_out_view(held, seeds[mask], seeds, config)
        rows[name] = figures(view, final, test, config)
        rows[name]["seconds"] = time.perf_counter() - started
        print(pair, count, name, rows[name], flush=True)
    return rows


def taught(
    side: LanguagePair,
    space: Space,
    seeds: Any,
    held: Any,
    asked: Any,
    config: Config,
    lever: Lever,
) -> pipeline.Fitted:
    pairs = pipeline.training_pairs(space, seeds, config, reserved=np.concatenate([held, asked]))
    taboo = np.concatenate([held, asked])
    reranker = lever(Task(side, space, pairs, taboo, config))
    return pipeline.Fitted(space, pairs, pipeline.fit_scorers(side, space, pairs, config, reranker))


def figures(
    view: HeldOutView, fitted: pipeline.Fitted, test: Lexicon, config: Config
) -> dict[str, Any]:
    """P@1 of each system in both directions, its weights chosen on the held-out view."""
    names = [CSLS, *config.scorers]
    at = names.index("cross-encoder")
    mixtures: dict[str, tuple[list[int], Mixture]] = {
        "tuned": (
            [0, at],
            choose_weights(
                view.parts[..., [0, at]],
                view.is_gold,
                [CSLS, "cross-encoder"],
                backward=view.backward,
            ),
        ),
        "default": (
            list(range(len(names))),
            choose_weights(view.parts, view.is_gold, names, backward=view.backward),
        ),
    }
    found: dict[str, Any] = {name: [] for name in SYSTEMS}
    source, target = fitted.space.source, fitted.space.target
    for reverse in (False, True):
        asked = (test.reverse(), target, source) if reverse else (test, source, target)
        _, words, golds = answerable_queries(*asked)
        scores = score_candidates(
            fitted.space, fitted.scaling, fitted.scorers, words, 28, reverse=reverse
        )
        marks = gold_marks(scores, golds)
        ranked = {"cross-encoder alone": scores.parts[..., at]}
        ranked |= {
            name: mix.combine(scores.parts[..., use]) for name, (use, mix) in mixtures.items()
        }
        for name, mixed in ranked.items():
            right = marks[np.arange(len(marks)), mixed.argmax(axis=1)]
            found[name].append(100 * float(right.mean()))
    return found


def run(data: Path, pairs: list[str], counts: list[int]) -> None:
    for count in counts:
        for pair in pairs:
            file = RESULTS / "units" / f"{pair}.{count}.json"
            if not file.is_file():
                write_json(file, measure(data, pair, count))


def report() -> None:
    rows = [read_json(file) for file in sorted((RESULTS / "units").glob("*.json"))]
    rows.sort(key=lambda row: (row["count"], PAIRS.index(row["pair"])))
    about = (__doc__ or "").split("\n\n", 2)[2].replace("``", "`").strip()
    text = ["# What else the cross-encoder could learn", "", _COMMAND, "", about, ""]
    for system in SYSTEMS:
        text += [f"## P@1, forward / backward: {system}", ""]
        text += [f"| pair | seeds | {' | '.join(LEVERS)} |", "|---|---|" + "---|" * len(LEVERS)]
        for row in rows:
            cells = [" / ".join(f"{one:.1f}" for one in row[name][system]) for name in LEVERS]
            text.append(f"| {row['pair']} | {row['count']} | {' | '.join(cells)} |")
        means = [f"{np.mean([row[name][system] for row in rows]):.2f}" for name in LEVERS]
        text += [f"| mean | | {' | '.join(means)} |", ""]
    with atomic_write(RESULTS / "report.md") as file:
        file.write("\n".join(text))


_COMMAND = "`python -m benchmarks.levers run --data ../shared/data`, then `report`."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--counts", default="1000")
    arguments = parser.parse_args()
    if arguments.what == "run":
        counts = [int(one) for one in arguments.counts.split(",")]
        run(arguments.data, arguments.pairs.split(","), counts)
    report()


if __name__ == "__main__":
    main()
