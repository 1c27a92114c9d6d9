"""Setups without direct supervision on real vectors: before and after, won or lost.

    python -m benchmarks.without_seeds unsupervised --data ../shared/data
    python -m benchmarks.without_seeds zero-shot --data ../shared/data
    python -m benchmarks.without_seeds several --data ../shared/data

Vocabularies are cut at 60,000 words; P@1 on the XLING test dictionaries over in-vocabulary
queries, both directions. Finished rows are kept in a JSON file, so that a killed run goes on.

unsupervised: every start of two views on every pair; no pair of words is given. A start that the
product rejects is measured all the same (as a space), to see whether it was right to. λ is
chosen on silver pairs; "λ by gold" is what the training dictionary would choose for the same
scorers (it is read for that only), "cost" what that choice would gain on the training dictionary.
zero-shot: seeds to and from English alone, 2,000 English words a language, none in both.
several: one cross-encoder for three pairs against one for each, from the same spaces.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from benchmarks.spaces_table import dictionary, vectors
from blicer.align.two_view import STARTS, TwoView
from blicer.benchmark.run import ZERO_SHOT_WORDS, choose_mixture, first_words, measure
from blicer.config import Config
from blicer.errors import InputError
from blicer.evaluation import evaluate
from blicer.files import read_json, write_json
from blicer.mixing import Mixture
from blicer.multilingual import prepare_multilingual, prepare_zero_shot, without_shared_pivots
from blicer.pipeline import Prepared, choose, held_out_view, prepare

Row = dict[str, Any]


def measured(prepared: Prepared, test: Any) -> Row:
    """P@1 of the space and of all scorers mixed, with the weights chosen without the test."""
    mixtures = {
        name: (scorers, choose_mixture(prepared, scorers, None))
        for name, scorers in {"space": (), "reranked": prepared.config.scorers}.items()
    }
    row: Row = {"weights": mixtures["reranked"][1].weights}
    figures = measure(prepared, mixtures, test)
    for direction in ("forward", "backward"):
        space, reranked = (figures[name][direction] for name in ("space", "reranked"))
        row[direction] = {
            "queries": space["queries"],
            "space": 100 * space["p@1"],
            "reranked": 100 * reranked["p@1"],
            "p": reranked["gain"]["p_value"],
        }
    return row


def unsupervised(data: Path, pair: str, start: str) -> Row:
    source, target = (vectors(data, language) for language in pair.split("-"))
    test, train = dictionary(data, pair, "test.freq.2k"), dictionary(data, pair, "train.freq.5k")
    try:
        space = TwoView(init=start).align(source, target)
    except InputError as error:
        return {"believed": False, "said": str(error)}
    kept = ("rounds_run", "convergence", "converged")
    row: Row = {"believed": space.settings["converged"]}
    row["how"] = {key: space.settings[key] for key in kept}
    if not row["believed"]:
        report = evaluate(space, test)
        row["forward"] = {"space": 100 * report.forward["p@1"]}
        row["backward"] = {"space": 100 * report.backward["p@1"]}
        return row
    config = Config.resolve("unsupervised", overrides={"encoder": "lite"})
    prepared = prepare(source, target, None, config, space=space)
    row |= measured(prepared, test)
    known = train.indices(source, target)
    gold = held_out_view(prepared.fitted, known, known, prepared.config)
    by_gold = choose(gold, prepared.config)[0]
    ours = Mixture(row["weights"]).combine(gold.parts).argmax(axis=1)
    hits = gold.is_gold[range(len(ours)), ours].mean()
    row["gold"] = {
        "weights": by_gold.weights,
        "cost": float(100 * ((by_gold.precision or 0) - hits)),
    }
    return row


def zero_shot(data: Path, pair: str, pivot: str) -> Row:
    source, target = pair.split("-")
    middle, left, right = (vectors(data, language) for language in (pivot, source, target))
    lexicons = without_shared_pivots(
        dictionary(data, f"{pivot}-{source}", "train.freq.5k"),
        dictionary(data, f"{pivot}-{target}", "train.freq.5k"),
    )
    one, other = (first_words(lexicon, ZERO_SHOT_WORDS) for lexicon in lexicons)
    config = Config.resolve("zero_shot", overrides={"encoder": "lite"})
    prepared = prepare_zero_shot(middle, left, right, one, other, config, init="encoder")
    row = measured(prepared, dictionary(data, pair, "test.freq.2k"))
    return {**row, "tried": prepared.notes["zero_shot"]["tried"], "seeds": [len(one), len(other)]}


def several(data: Path, pairs: list[str], size: str, space: str) -> Row:
    languages = sorted({language for pair in pairs for language in pair.split("-")})
    sides = {language: vectors(data, language) for language in languages}
    seeds = {pair: dictionary(data, pair, f"train.freq.{size}") for pair in pairs}
    config = Config.resolve(
        "supervised" if size == "5k" else "semi_supervised",
        # The cross-encoder alone: what each pair's own scorers add would hide the difference.
        overrides={"encoder": "lite", "space": space, "scorers": ["cross-encoder"], "folds": 1},
    )
    together = prepare_multilingual(
        sides,
        {(pair.split("-")[0], pair.split("-")[1]): lexicon for pair, lexicon in seeds.items()},
        config,
        pairs=[(pair.split("-")[0], pair.split("-")[1]) for pair in pairs],
    )
    row: Row = {}
    for (a, b), shared in together.items():
        pair = f"{a}-{b}"
        test = dictionary(data, pair, "test.freq.2k")
        alone = prepare(sides[a], sides[b], seeds[pair], config)
        row[pair] = {"one for all": measured(shared, test), "its own": measured(alone, test)}
    return row


def table(rows: dict[str, Row]) -> str:
    """Markdown, all that is finished."""
    lines: list[str] = []
    heads = "| pair | start | believed | convergence | space > | space < | reranked > |"
    found = {key: row for key, row in rows.items() if key.startswith("unsupervised/")}
    if found:
        lines += [
            "### Unsupervised",
            "",
            heads + " reranked < | λ | λ by gold | cost |",
            "|---" * 11 + "|",
        ]
    for key, row in found.items():
        _, pair, start = key.split("/")
        cells = [_cell(row, d, s) for s in ("space", "reranked") for d in ("forward", "backward")]
        gold = row.get("gold", {})
        cost = f"{gold['cost']:.1f}" if gold else ""
        believed = "yes" if row["believed"] else "no"
        score = f"{row['how']['convergence']:.2f}" if "how" in row else row["said"].split(";")[0]
        cells += [_lambda(row), _lambda(gold), cost]
        first = [pair, start, believed, score]
        lines.append("| " + " | ".join([*first, *cells]) + " |")
    found = {key: row for key, row in rows.items() if key.startswith("zero-shot/")}
    if found:
        lines += ["", "### Zero-shot", "", "| pair | pivot | space > | space < | reranked > |"]
        lines[-1] += " reranked < | λ |"
        lines.append("|---" * 7 + "|")
    for key, row in found.items():
        _, pair, pivot = key.split("/")
        cells = [_cell(row, d, s) for s in ("space", "reranked") for d in ("forward", "backward")]
        lines.append(f"| {pair} | {pivot} | " + " | ".join([*cells, _lambda(row)]) + " |")
    found = {key: row for key, row in rows.items() if key.startswith("several/")}
    if found:
        lines += ["", "### One cross-encoder for several pairs", ""]
        lines += ["| pair | seeds | space > | space < | its own > | its own < | one for all > |"]
        lines[-1] += " one for all < |"
        lines.append("|---" * 8 + "|")
    for key, row in found.items():
        for pair, both in row.items():
            if pair == "seconds":
                continue
            cells = [_cell(both["its own"], d, "space") for d in ("forward", "backward")]
            for name in ("its own", "one for all"):
                cells += [_cell(both[name], d, "reranked") for d in ("forward", "backward")]
            lines.append(f"| {pair} | {key.split('/')[1]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: Row, direction: str, system: str) -> str:
    value = row.get(direction, {}).get(system)
    return f"{value:.1f}" if value is not None else ""


def _lambda(row: Row) -> str:
    return f"{1 - row['weights']['csls']:.2f}" if "weights" in row else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=["unsupervised", "zero-shot", "several", "show"])
    parser.add_argument("--data", type=Path, help="folder of vectors and xling")
    parser.add_argument("--pairs", nargs="+")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--pivot", default="en")
    parser.add_argument("--size", default="5k", choices=["5k", "1k"])
    parser.add_argument("--space", default="vecmap")
    parser.add_argument("--results", type=Path, default=Path("results/without_seeds.json"))
    options = parser.parse_args()
    rows: dict[str, Row] = read_json(options.results) if options.results.exists() else {}

    def keep(key: str, make: Any) -> None:
        if key in rows:
            return
        started = time.perf_counter()
        found = make()
        # Read again: another process may have finished a row meanwhile.
        rows.update(read_json(options.results) if options.results.exists() else {})
        rows[key] = {**found, "seconds": round(time.perf_counter() - started, 1)}
        write_json(options.results, rows)
        print(key, rows[key], flush=True)

    if options.what == "unsupervised":
        for pair in options.pairs or ["ru-fr", "fi-fr", "en-fr"]:
            for start in options.starts:
                keep(
                    f"unsupervised/{pair}/{start}",
                    lambda pair=pair, start=start: unsupervised(options.data, pair, start),
                )
    elif options.what == "zero-shot":
        for pair in options.pairs or ["ru-fr"]:
            keep(
                f"zero-shot/{pair}/{options.pivot}",
                lambda pair=pair: zero_shot(options.data, pair, options.pivot),
            )
    elif options.what == "several":
        pairs = options.pairs or ["en-fr", "en-ru", "ru-fr"]
        key = f"several/{options.size}/{options.space}/{' '.join(pairs)}"
        keep(key, lambda: several(options.data, pairs, options.size, options.space))
    print(table(rows))


if __name__ == "__main__":
    main()
