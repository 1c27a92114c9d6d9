"""The demonstration: the starter pair from vectors to dictionary, before and after reranking.

Everything that it shows, on the terminal, as JSON and on the page, is one plain dictionary.
Nothing is chosen on the test dictionary: the mixing weights and the calibration come from seed
words that neither the mapping nor the reranker saw.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.errors import FileError
from blicer.files import atomic_write, check_writable, write_json
from blicer.progress import note

if TYPE_CHECKING:
    from blicer.config import Config
    from blicer.evaluation import DirectionResult, Evaluation
    from blicer.lexicon import Lexicon
    from blicer.starter import Starter
    from blicer.translator import Translator

Results = dict[str, Any]
TRANSLATOR, DICTIONARY = "translator", "dictionary.en-ru.tsv"
PAGE, RESULTS = "index.html", "results.json"
CORRECTED_SHOWN, SPOILED_SHOWN = 12, 5
ENCODER = "lite"


@dataclass(frozen=True)
class Plan:
    """What to run; the defaults are ``blicer demo``."""

    words: int | None = None
    """Only the most frequent words of each side (all when None)."""
    scorers: tuple[str, ...] | None = None
    """What is mixed with CSLS (by default what `lite` comes with)."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the training that differ from those of the preset."""
    refit: bool = True
    """Fit on all seeds again once the mixing weights are chosen."""
    dictionary_words: int = 2_000
    bootstrap: int = 1_000
    device: str = "auto"


def run(output: str | Path, plan: Plan | None = None) -> Results:
    """Align, train, evaluate, write everything to the folder ``output``; what came out."""
    from blicer import starter
    from blicer.demo_page import page
    from blicer.dictionary import induce
    from blicer.pipeline import ENCODER_SCORERS

    plan, output = plan or Plan(), Path(output)
    if output.exists() and not output.is_dir():
        raise FileError(output, "is a file; expected a folder, or a name that is free")
    check_writable(output / PAGE)
    clock = Clock()
    with clock("loading the starter pair"):
        pair = cut(starter.load(), plan.words)
    scorers = plan.scorers or ENCODER_SCORERS[ENCODER]
    results: Results = {"pair": describe(pair), "scorers": list(scorers)}
    with clock("aligning with Procrustes"):
        spaces = {"Procrustes": procrustes(pair, plan)}
    with clock("aligning with VecMap, fitting the reranker"):
        translator = train(pair, plan, scorers)
    with clock("evaluating on the test dictionary"):
        results |= measure(pair, translator, spaces, plan)
    with clock("writing the translator and a dictionary"):
        translator.save(output / TRANSLATOR)
        induced = induce(translator, output / DICTIONARY, words=plan.dictionary_words, k=3)
    results["dictionary"] = {"words": induced.words, "entries": induced.entries}
    results["files"] = {
        "translator": str(output / TRANSLATOR),
        "dictionary": str(output / DICTIONARY),
        "page": str(output / PAGE),
        "results": str(output / RESULTS),
    }
    results["seconds"] = clock.seconds
    results["next"] = next_commands(scorers)
    write_json(output / RESULTS, results)
    with atomic_write(output / PAGE) as file:
        file.write(page(results))
    return results


class Clock:
    """Says what comes and keeps how long it took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        note(f"{what} ...")
        start = time.perf_counter()
        yield
        self.seconds[what] = round(time.perf_counter() - start, 2)


def cut(pair: Starter, words: int | None) -> Starter:
    if words is None:
        return pair
    return pair._replace(source=pair.source.head(words), target=pair.target.head(words))


def describe(pair: Starter) -> Results:
    source, target, seeds, test = pair
    return {
        "source": source.language,
        "target": target.language,
        "source_words": len(source),
        "target_words": len(target),
        "dimensions": source.dim,
        "seed_pairs": len(seeds.indices(source, target)),
        "test_words": test.coverage(source, target).queries_found,
        "test_pairs": len(test.indices(source, target)),
    }


def configuration(plan: Plan, scorers: tuple[str, ...]) -> Config:
    """The paper's supervised setup, with the embedded encoder where it is used."""
    from blicer.config import Config

    settings = plan.settings
    if "cross-encoder" in scorers and "encoder" not in settings:
        settings = {"encoder": ENCODER, **settings}
    return Config.resolve("supervised", overrides=settings)


def procrustes(pair: Starter, plan: Plan) -> Any:
    from blicer.align import Procrustes

    return Procrustes(device=plan.device).align(pair.source, pair.target, pair.seeds)


def train(pair: Starter, plan: Plan, scorers: tuple[str, ...]) -> Translator:
    from blicer.pipeline import Recipe
    from blicer.pipeline import train as run_chain

    recipe = Recipe(space="vecmap", scorers=scorers, refit=plan.refit, device=plan.device)
    return run_chain(pair.source, pair.target, pair.seeds, configuration(plan, scorers), recipe)


def measure(pair: Starter, translator: Translator, spaces: dict[str, Any], plan: Plan) -> Results:
    """Every system on the test dictionary, and what reranking changed."""
    from blicer.evaluation import compare, evaluate

    systems: dict[str, Any] = {f"{name}, CSLS": space for name, space in spaces.items()}
    systems["VecMap, CSLS"] = translator.space
    systems["VecMap, reranked"] = translator
    scored = {
        name: evaluate(system, pair.test, bootstrap=plan.bootstrap)
        for name, system in systems.items()
    }
    before, after = scored["VecMap, CSLS"], scored["VecMap, reranked"]
    calibration = translator.calibration
    return {
        "systems": [{"name": name, **result.to_dict()} for name, result in scored.items()],
        "gain": compare(after, before, bootstrap=max(plan.bootstrap, 1)).to_dict(),
        "changes": changes(before, after, translator, pair.test),
        "mixture": translator.mixture.to_dict(),
        "calibration": calibration.to_dict() if calibration else None,
        "held_out": translator.details.get("held_out"),
    }


def changes(
    before: Evaluation, after: Evaluation, translator: Translator, test: Lexicon
) -> Results:
    """What reranking put right and what it spoiled, most frequent words first; some as words."""
    counts = {}
    for (name, old), (_, new) in zip(before.directions(), after.directions(), strict=True):
        right, wrong = moved(old, new)
        counts[name] = {"corrected": len(right), "spoiled": len(wrong)}
    rows = translator.source.lookup
    corrected, spoiled = (
        sorted((before.forward.words[at] for at in places), key=lambda word: rows[word])
        for places in moved(before.forward, after.forward)
    )
    return {
        "counts": counts,
        "corrected": in_words(corrected[:CORRECTED_SHOWN], translator, test),
        "spoiled": in_words(spoiled[:SPOILED_SHOWN], translator, test),
    }


def moved(
    before: DirectionResult, after: DirectionResult
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the queries whose first answer became right, and of those it became wrong."""
    was, is_now = before.ranks == 1, after.ranks == 1
    return np.flatnonzero(~was & is_now), np.flatnonzero(was & ~is_now)


def in_words(words: list[str], translator: Translator, test: Lexicon) -> list[Results]:
    if not words:
        return []
    rows = np.array([translator.source.lookup[word] for word in words])
    plain = translator.space.retriever.search(1, rows).indices[:, 0]
    found = translator.translate(words, 1)
    return [
        {
            "word": word,
            "before": translator.target.words[int(first)],
            "after": entry.best,
            "confidence": entry.candidates[0].confidence if entry.candidates else None,
            "gold": test.targets[word],
        }
        for word, first, entry in zip(words, plain, found, strict=True)
    ]


def next_commands(scorers: tuple[str, ...]) -> list[str]:
    """What the user would type next for files of their own."""
    how = "" if "cross-encoder" in scorers else f"--scorers {','.join(scorers)} "
    return [
        "blicer train my.en.vec my.fr.vec --seeds my-seeds.tsv "
        f"--source-language en --target-language fr {how}-o en-fr",
        "blicer evaluate en-fr my-test.tsv",
        "blicer induce en-fr -n 20000 --min-confidence 0.5 -o en-fr.tsv",
    ]
