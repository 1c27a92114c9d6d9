"""P@1 by the number of seeds, of the space and of the reranked dictionary, on XLING.

    python -m benchmarks.learning_curve run --data ../shared/data --pairs en-fr,en-ru
    python -m benchmarks.learning_curve report

``run`` trains with the defaults of ``blicer train`` on seeds drawn at random from the 5k training
dictionary (``--draws``), or on its first ones (``--frequent``; it lists the most frequent first),
and measures once on the test dictionary. Where the dictionary has fewer pairs than asked for, all
are taken, and the other draws are left out. A finished training is one file in
``results/few_seeds/units``, so a killed run goes on, and runs of other pairs may go on beside it.
``--space vecmap --no-reranker`` measures another space alone. ``report`` writes the tables and
pictures. Vocabularies are cut at 30,000 words a side.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peak import measure as measure_peak
from benchmarks.spaces_table import dictionary
from benchmarks.without_seeds import measured
from blicer.calibration import Absent, Calibration, Scored, calibrate
from blicer.config import Config
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.evaluation import answerable_queries, evaluate
from blicer.files import atomic_write, read_json, write_json
from blicer.lexicon import Lexicon
from blicer.pipeline import Prepared, prepare
from blicer.plots import Curve, curves
from blicer.translator import Ranking, Translator

PAIRS = ("en-fr", "en-ru", "ru-fr", "fi-fr", "en-fi", "fi-ru")
COUNTS = (0, 25, 50, 100, 200, 500, 1000, 3000, 5000)
WORDS = 30_000
RESULTS = Path("results/few_seeds")
FREQUENT = "frequent"
PROMISED, LEAST = 0.95, 0.5
CONFIDENCE = ("auc_absent", "ece", "ece_floor", "f1", "ap", "coverage@90", "coverage@95", "right")
CONFIDENCE += ("stated",)


def sides(data: Path, pair: str) -> list[Embeddings]:
    """The vectors of both languages, most frequent words."""
    return [
        Embeddings.load(
            data / "vectors" / f"{language}.npy",
            vocabulary=data / "vectors" / f"{language}.vocab.txt",
            max_words=WORDS,
            language=language,
        )
        for language in pair.split("-")
    ]


def draw(
    pairs: list[tuple[str, str]], count: int, how: str, source: Embeddings, target: Embeddings
) -> Lexicon | None:
    """The first pairs, or random ones, until so many are in both vocabularies.

    Those that are not come along: users have them too, and they tell how often a word has no
    translation here.
    """
    order = np.arange(len(pairs))
    if how != FREQUENT:
        order = np.random.default_rng(int(how)).permutation(len(pairs))
    usable = np.cumsum([pairs[row][0] in source and pairs[row][1] in target for row in order])
    drawn = order[: int(np.searchsorted(usable, count)) + 1]
    return Lexicon(pairs[row] for row in drawn) if count else None


def unit(
    data: Path, pair: str, count: int, how: str, space: str, reranked: bool, kept: Path
) -> dict[str, Any]:
    """Train once, measure once; ``kept``: a folder for the encoder's vectors of the words."""
    source, target = sides(data, pair)
    known = dictionary(data, pair, "train.freq.5k").pairs
    seeds = draw(known, count, how, source, target)
    overrides: dict[str, Any] = {"space": space}
    if not reranked:
        overrides["scorers"] = ["spelling"]  # none would mean the encoder's
    config = Config.for_seeds(count, **overrides)
    started = time.perf_counter()
    ran = measure_peak(lambda: prepare(source, target, seeds, config, work_dir=kept))
    prepared, seconds = ran.result, time.perf_counter() - started
    forget_stages(kept)
    test = dictionary(data, pair, "test.freq.2k")
    row = measured(prepared, test)
    settings = prepared.fitted.space.settings
    for direction, reverse in (("forward", False), ("backward", True)):
        asked = (test.reverse(), target, source) if reverse else (test, source, target)
        _, words, golds = answerable_queries(*asked)
        ranks = prepared.fitted.space.gold_ranks(words, golds, reverse=reverse)
        row[direction]["among_candidates"] = 100 * float((ranks <= config.n_cand).mean())
    row |= {"pair": pair, "count": count, "draw": how, "space": space, "reranked": reranked}
    if how == "0" and reranked and prepared.held_out is not None:
        row["confidence"] = {name: stated(one, test) for name, one in both_confidences(prepared)}
        row["confidence"]["now"]["backward"]["ece_fuller"] = backward_error(
            prepared.translator(), test, known
        )
    row |= {key: settings.get(key) for key in ("start", "chosen_weights", "descended")}
    row |= {"seeds": prepared.seeds, "seconds": seconds, "extra_gb": ran.extra_gb}
    return row | {"measured": date.today().isoformat()}


def forget_stages(kept: Path) -> None:
    """Leave the encoder's vectors alone in a work folder, for the next training."""
    for stage in kept.glob("*-*"):
        shutil.rmtree(stage)


class ScoreAndLead(Translator):
    """The same translator with the confidence of before: score and lead of words found here."""

    def rank(self, queries: Any, *, reverse: bool = False) -> Ranking:
        found = super().rank(queries, reverse=reverse)
        assert self.before is not None
        scored = score_and_lead(found.scores)
        return replace(found, confidence=self.before.confidence(scored), here=None)

    before: Calibration | None = None


def score_and_lead(mixed: Any) -> Scored:
    none = np.zeros((*mixed.shape, 0))
    return Scored(mixed, none, np.zeros(len(mixed), bool), np.zeros(len(mixed), np.int64))


def both_confidences(prepared: Prepared) -> Iterator[tuple[str, Translator]]:
    """The translator as it is now, and with the confidence that it would have had before."""
    now = prepared.translator()
    yield "now", now
    view = prepared.held_out
    assert view is not None
    parts = (now.space, now.scorers, now.mixture, now.scaling)
    before = ScoreAndLead(*parts, calibration=now.calibration, n_cand=now.n_cand)
    scores = score_and_lead(now.mixture.combine(view.parts))
    fitted = calibrate(scores, view.is_gold, (Absent.of_share(0.0), Absent.of_share(0.0)))
    surely = (40.0, tuple(0.0 for _ in fitted.here[1]))  # every word has a translation here
    before.before = replace(fitted, here=surely)
    yield "before", before


def stated(translator: Translator, test: Lexicon) -> dict[str, dict[str, Any]]:
    """Figures of confidence over all test words that get an entry, in both directions."""
    calibration = getattr(translator, "before", None) or translator.calibration
    assert calibration is not None
    try:
        threshold = calibration.reliability.threshold(PROMISED) if calibration.reliability else 2.0
    except InputError:  # nothing is promised
        threshold = 2.0
    rows: dict[str, dict[str, Any]] = {}
    for direction, found in evaluate(
        translator, test, bootstrap=0, min_confidence=LEAST
    ).directions():
        figures = {name: found.all_queries[name] for name in CONFIDENCE}
        answers = found.answers
        assert answers is not None
        sure, right = answers.sure[answers.has_entry, 0], answers.right[answers.has_entry, 0]
        kept = sure >= threshold
        figures |= {
            "kept": float(kept.mean()),
            "reached": float(right[kept].mean()) if kept.any() else None,
            "words": len(sure),
        }
        rows[direction] = figures
    return rows


def backward_error(
    translator: Translator, test: Lexicon, known: list[tuple[str, str]]
) -> float | None:
    """Calibration error backward where translations of the training dictionary count as right too.

    XLING's test dictionary has other source words than the training dictionary. So a target word's
    more frequent translations are missing from it.
    """
    asked = {target for _, target in test.pairs}
    fuller = Lexicon([*test.pairs, *(pair for pair in known if pair[1] in asked)])
    found: float | None = evaluate(translator, fuller, bootstrap=0).backward.all_queries["ece"]
    return found


def run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as kept:
        _run(arguments, Path(kept))


def _run(arguments: argparse.Namespace, kept: Path) -> None:
    draws = [FREQUENT] if arguments.frequent else [str(n) for n in range(arguments.draws)]
    for how in draws:
        for count in arguments.counts:
            for pair in arguments.pairs:
                if how != "0" and (count == 0 or draws_all(pair, count)):
                    continue  # the same seeds as in the first draw
                name = f"{pair}.{count}.{how}.{arguments.space}"
                name += "" if arguments.reranker else ".alone"
                file = RESULTS / "units" / f"{name}.json"
                if file.is_file():
                    continue
                try:
                    how_made = (arguments.space, arguments.reranker, kept / pair)
                    row = unit(arguments.data, pair, count, how, *how_made)
                except Exception as error:
                    print(f"{name}: {error}", flush=True)
                    continue
                write_json(file, row)
                both = [row[way] for way in ("forward", "backward")]
                shown = " / ".join(f"{way['space']:.1f} > {way['reranked']:.1f}" for way in both)
                print(f"{name}: {shown} ({row['seconds']:.0f} s)", flush=True)


def draws_all(pair: str, count: int) -> bool:
    """Whether the first draw had all pairs of the training dictionary."""
    file = RESULTS / "units" / f"{pair}.{count}.0.twoview.json"
    return file.is_file() and all_drawn(read_json(file))


def all_drawn(row: dict[str, Any]) -> bool:
    return bool(row["seeds"] < row["count"])


def report() -> None:
    rows = [read_json(file) for file in sorted((RESULTS / "units").glob("*.json"))]
    ours = [row for row in rows if row["space"] == "twoview" and row["reranked"]]
    text = ["# P@1 by the number of seeds", "", _COMMAND, ""]
    for how, title in (("random", "Seeds drawn at random"), (FREQUENT, "Most frequent first")):
        groups: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for row in ours:
            same = row["count"] == 0 or all_drawn(row)  # in every draw
            if same or (row["draw"] == FREQUENT) == (how == FREQUENT):
                groups[row["pair"], row["count"]].append(row)
        if how == FREQUENT and not any(row["draw"] == FREQUENT for row in ours):
            continue
        text += [f"## {title}", "", *_table(groups), ""]
        for pair in PAIRS:
            lines = _lines(groups, pair)
            if lines and len(lines[0].xs) >= 3:  # fewer points are no curve
                name = f"{pair}.{how}.svg"
                picture = curves(
                    lines,
                    f"{pair}: {title.lower()}",
                    "seed pairs (10: none)",
                    "P@1, per cent",
                    log=True,
                )
                with atomic_write(RESULTS / name) as file:
                    file.write(picture)
                text += [f"![{pair}]({name})"]
        text += [""]
    text += _candidates(rows)
    text += _confidences([row for row in ours if "confidence" in row])
    with atomic_write(RESULTS / "report.md") as file:
        file.write("\n".join(text).rstrip() + "\n")


_COMMAND = """`python -m benchmarks.learning_curve run --data ../shared/data`, then `report`. 30,000
words a side; forward / backward; the mean of the draws, ± half their range. Gold among 28: share of
test words whose translation is among the candidates. Seconds: of one thread, beside other work.
Measured before: with the method before rounds took the place of self-learning (CHANGELOG)."""


def _table(groups: dict[tuple[str, int], list[dict[str, Any]]]) -> list[str]:
    lines = ["| pair | seeds | draws | space | reranked | gold among 28 | seconds | measured |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for pair in PAIRS:
        for count in COUNTS:
            if rows := groups.get((pair, count)):
                figures = [_both(rows, what) for what in ("space", "reranked", "among_candidates")]
                seconds = np.mean([row["seconds"] for row in rows])
                when = min(row.get("measured", "before") for row in rows)
                cells = [pair, str(count), str(len(rows)), *figures, f"{seconds:.0f}", when]
                lines.append("| " + " | ".join(cells) + " |")
    return lines


def _both(rows: list[dict[str, Any]], what: str) -> str:
    shown = []
    for direction in ("forward", "backward"):
        values = [row[direction][what] for row in rows]
        spread = f" ± {(max(values) - min(values)) / 2:.1f}" if len(values) > 1 else ""
        shown.append(f"{np.mean(values):.1f}{spread}")
    return " / ".join(shown)


def _lines(groups: dict[tuple[str, int], list[dict[str, Any]]], pair: str) -> list[Curve]:
    counts = [count for count in COUNTS if (pair, count) in groups]
    lines = []
    for direction in ("forward", "backward"):
        for what in ("space", "reranked"):
            means = [
                float(np.mean([row[direction][what] for row in groups[pair, count]]))
                for count in counts
            ]
            if means:
                # The axis is the logarithm of the count, so that few seeds have room.
                lines.append(Curve(f"{what}, {direction}", [max(10, c) for c in counts], means))
    return lines


def _candidates(rows: list[dict[str, Any]]) -> list[str]:
    """Gold among the candidates: VecMap's closed form before, two views now."""
    found = {(row["pair"], row["count"], row["draw"], row["space"]): row for row in rows}
    lines = ["## Spaces alone: VecMap's closed form and two views", ""]
    lines += ["| pair | seeds | VecMap P@1 | two views P@1 | VecMap gold among 28 | two views |"]
    lines += ["|---|---|---|---|---|---|"]
    for pair, count, how, space in sorted(found):
        if space == "vecmap" and (pair, count, how, "twoview") in found:
            both = [found[pair, count, how, name] for name in ("vecmap", "twoview")]
            cells = [_both([one], what) for what in ("space", "among_candidates") for one in both]
            lines.append(f"| {pair} | {count} ({how}) | " + " | ".join(cells) + " |")
    return lines if len(lines) > 4 else []


def _confidences(rows: list[dict[str, Any]]) -> list[str]:
    """Figures of confidence before and now, of every training."""
    lines = ["", "## Confidence over all words that get an entry", "", _ABOUT_CONFIDENCE, ""]
    names = ("auc_absent", "ece", "ece_floor", "f1", "coverage@95", "kept", "reached")
    shown = ("AUC not here", "ECE", "(floor)", "F1", "coverage at 95", "kept", "reached", "fuller")
    lines += [f"| pair | seeds | draw | direction | {' | '.join(shown)} |"]
    lines += ["|" + "---|" * (4 + len(shown))]
    for row in sorted(rows, key=lambda one: (PAIRS.index(one["pair"]), one["count"], one["draw"])):
        for direction in ("forward", "backward"):
            both = [row["confidence"][when][direction] for when in ("before", "now")]
            cells = [" → ".join(_percent(one[name]) for one in both) for name in names]
            cells.append(_percent(both[1].get("ece_fuller")))
            about = [row["pair"], str(row["count"]), row["draw"], direction]
            lines.append("| " + " | ".join([*about, *cells]) + " |")
    return lines if rows else []


_ABOUT_CONFIDENCE = """Before (score and lead of held-out words alone) → now, in per cent, test
dictionaries, words whose gold is out of the target vocabulary included. F1: of entries of at least
0.5. Kept and reached: the share of words that `--at-precision 0.95` keeps, and the precision that
they have. Fuller: ECE now, if translations that the training dictionary lists count as right too;
backward the test dictionary lacks a word's more frequent translations, as its source words are
others than the training dictionary's."""


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pairs", type=lambda text: text.split(","), default=list(PAIRS))
    parser.add_argument(
        "--counts", type=lambda text: [int(n) for n in text.split(",")], default=list(COUNTS)
    )
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--frequent", action="store_true")
    parser.add_argument("--space", default="twoview")
    parser.add_argument("--no-reranker", dest="reranker", action="store_false")
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments)
    else:
        report()


if __name__ == "__main__":
    main()
