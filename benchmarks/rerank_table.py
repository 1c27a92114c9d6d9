"""P@1 before and after reranking on real vectors and XLING dictionaries, every system beside it.

    python -m benchmarks.rerank_table --data ../shared/data --pairs en-fr en-ru --spaces procrustes

For each pair, seed size, space and training seed: the space and the cross-encoder are fitted
without 15 % of the seed words (with few seeds, without each quarter in its turn), every system's
mixing weights are chosen on those words, then all is
fitted again on all seeds and scored on the test dictionary, which nothing has read before. Each
finished unit is kept in a JSON file, so that a killed run goes on where it was.

Systems: the space alone; A = space + use-cosine; B = A + spelling; untuned = space + the encoder
before training; tuned = space + the trained cross-encoder (the paper's method);
untuned+spelling learns nothing from seeds but its weights; tuned+endings is `lite`'s default.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.spaces_table import dictionary, vectors
from blicer.candidates import gold_marks, queries_with_gold, score_candidates
from blicer.config import Config
from blicer.errors import MissingDependency
from blicer.files import read_json, write_json
from blicer.mixing import CSLS, Scorer, choose_weights
from blicer.scorers import make_scorer
from blicer.scorers.cross_encoder import CrossEncoderScorer
from blicer.train import Fitted, Recipe, Workshop, fitted_scorer, held_out_splits, preset_for

SYSTEMS: dict[str, tuple[str, ...]] = {
    "space": (),
    "A": ("use-cosine",),
    "B": ("use-cosine", "spelling"),
    "untuned": ("untuned",),
    "tuned": ("cross-encoder",),
    "untuned+spelling": ("untuned", "spelling"),
    "tuned+endings": ("cross-encoder", "endings"),
}
DIRECTIONS = ("forward", "backward")


class Untuned(CrossEncoderScorer):
    """The encoder as it comes, before any training on seeds."""

    name = "untuned"


def everyone(fitted: Fitted, workshop: Workshop, controls: bool) -> list[Scorer]:
    """The trained cross-encoder and, with ``controls``, all that it is compared with."""
    from blicer.reranker import Reranker

    endings = fitted_scorer("endings", fitted.space, fitted.pairs)
    if not controls:
        return [*fitted.scorers, endings]
    start = Reranker(workshop.config.encoder, max_length=workshop.config.max_length)
    untuned = Untuned(start, workshop.template, workshop.names)
    scorers: list[Scorer] = [*fitted.scorers, untuned, endings]
    for name in ("spelling", "use-cosine"):
        try:
            scorers.append(make_scorer(name))
        except MissingDependency as missing:
            print(missing)
    return scorers


def unit(
    data: Path,
    pair: str,
    size: str,
    space: str,
    encoder: str,
    seed: int,
    *,
    work: Path | None,
    controls: bool,
) -> dict[str, Any]:
    source, target = (vectors(data, language) for language in pair.split("-"))
    seeds = dictionary(data, pair, f"train.freq.{size}")
    config = Config.resolve(preset_for(len(seeds)), overrides={"encoder": encoder, "seed": seed})
    recipe = Recipe(space=space, scorers=("cross-encoder",)).resolved(config, len(seeds))
    workshop = Workshop(source, target, config, recipe, work)
    started = time.perf_counter()
    usable = workshop.usable(seeds)
    parts, marks, scorers = [], [], []
    for rest, held in held_out_splits(usable, recipe):
        fitted = workshop.fit(rest, reserved=held)
        scorers = everyone(fitted, workshop, controls)
        view = workshop.view(Fitted(fitted.space, fitted.pairs, scorers), held, usable)
        parts.append(view.parts)
        marks.append(view.is_gold)
    held_parts, held_marks = np.concatenate(parts), np.concatenate(marks)
    names = [CSLS, *(scorer.name for scorer in scorers)]
    systems = {name: parts for name, parts in SYSTEMS.items() if set(parts) <= set(names)}
    weights = {
        name: choose_weights(
            held_parts[..., columns(names, mixed)], held_marks, [CSLS, *mixed]
        ).weights
        for name, mixed in systems.items()
    }
    final = workshop.fit(usable)
    scorers = everyone(final, workshop, controls)
    seconds = time.perf_counter() - started
    test = dictionary(data, pair, "test.freq.2k")
    result: dict[str, Any] = {"seconds": round(seconds, 1), "weights": weights, "p@1": {}}
    for direction in DIRECTIONS:
        reverse = direction == "backward"
        queries, golds = queries_with_gold(test, test, final.space, reverse=reverse)
        scores = score_candidates(
            final.space, final.scaling, scorers, queries, config.n_cand, reverse=reverse
        )
        gold = gold_marks(scores, golds)
        result[f"{direction} queries"] = len(queries)
        for name, mixed in systems.items():
            final_scores = scores.parts[..., columns(names, mixed)] @ list(weights[name].values())
            right = gold[np.arange(len(gold)), final_scores.argmax(axis=1)]
            result["p@1"].setdefault(name, {})[direction] = 100 * float(right.mean())
        result["p@1"].setdefault("gold in 28", {})[direction] = 100 * float(gold.any(1).mean())
    return result


def columns(names: Sequence[str], parts: Sequence[str]) -> list[int]:
    return [0, *(names.index(part) for part in parts)]


def table(units: dict[str, Any]) -> str:
    """Markdown: a row for each pair, size, space and direction; mean over training seeds."""
    heads = [*SYSTEMS, "gold in 28"]
    lines = [
        "| direction | seeds | space | " + " | ".join(heads) + " |",
        "|---|---|---|" + "---|" * len(heads),
    ]
    groups: dict[tuple[str, ...], list[Any]] = {}
    for key, value in units.items():
        groups.setdefault(tuple(key.split("/")[:3]), []).append(value)
    gains: dict[str, list[float]] = {}
    for (pair, size, space), values in groups.items():
        for direction in DIRECTIONS:
            a, b = pair.split("-") if direction == "forward" else reversed(pair.split("-"))
            cells = []
            for name in heads:
                found = [v["p@1"][name][direction] for v in values if name in v["p@1"]]
                spread = f" ±{np.std(found):.1f}" if len(found) > 1 and np.std(found) > 0 else ""
                cells.append(f"{np.mean(found):.1f}{spread}" if found else "")
                if found:
                    base = np.mean([v["p@1"]["space"][direction] for v in values])
                    gains.setdefault(name, []).append(float(np.mean(found) - base))
            lines.append(f"| {a}>{b} | {size} | {space} | " + " | ".join(cells) + " |")
    lines += ["", "Gain over the space, mean over the rows, and rows with a gain:", ""]
    lines += [
        f"- {name}: {np.mean(values):+.2f}, {sum(v > 0 for v in values)} of {len(values)}"
        for name, values in gains.items()
        if name not in ("space", "gold in 28")
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of vectors and xling")
    parser.add_argument("--pairs", nargs="+", default=["en-fr", "en-ru"])
    parser.add_argument("--sizes", nargs="+", default=["5k", "1k"])
    parser.add_argument("--spaces", nargs="+", default=["procrustes"])
    parser.add_argument("--encoder", default="lite")
    parser.add_argument("--training-seeds", nargs="+", type=int, default=[33])
    parser.add_argument("--results", type=Path, default=Path("rerank_table.json"))
    parser.add_argument("--work", type=Path, help="folder for spaces, so that seeds share them")
    parser.add_argument("--no-controls", action="store_true", help="leave out A, B and untuned")
    parser.add_argument("--show", action="store_true", help="only print what is finished")
    options = parser.parse_args()
    units: dict[str, Any] = read_json(options.results) if options.results.exists() else {}
    for pair in [] if options.show else options.pairs:
        for size in options.sizes:
            for space in options.spaces:
                for seed in options.training_seeds:
                    key = f"{pair}/{size}/{space}/{options.encoder}/{seed}"
                    if key in units:
                        continue
                    units[key] = unit(
                        options.data,
                        pair,
                        size,
                        space,
                        options.encoder,
                        seed,
                        work=options.work,
                        controls=not options.no_controls,
                    )
                    write_json(options.results, units)
                    print(key, units[key]["p@1"], f"{units[key]['seconds']} s", flush=True)
    print(table(units))


if __name__ == "__main__":
    main()
