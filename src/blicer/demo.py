"""The demonstration: the starter pair from vectors to dictionary, before and after reranking.

Everything that it shows, on the terminal, as JSON and on the page, is one plain dictionary.
Nothing is chosen on the test dictionary: the mixing weights and the calibration come from seed
words that neither the mapping nor the reranker saw.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.config import DEFAULT_ENCODER, Config
from blicer.errors import FileError
from blicer.files import atomic_write, check_writable, write_json
from blicer.progress import note

if TYPE_CHECKING:
    from blicer.evaluation import DirectionResult, Evaluation
    from blicer.lexicon import Lexicon
    from blicer.starter import Starter
    from blicer.translator import Translator

Results = dict[str, Any]
TRANSLATOR, DICTIONARY = "translator", "dictionary.en-ru.tsv"
PAGE, RESULTS = "index.html", "results.json"
CORRECTED_SHOWN, SPOILED_SHOWN = 12, 5


def run(
    output: str | Path,
    *,
    words: int | None = None,
    settings: dict[str, Any] | None = None,
    dictionary_words: int = 2_000,
    bootstrap: int = 1_000,
) -> Results:
    """Align, train, evaluate, write everything to the folder ``output``; return what came out.

    ``words``: only the most frequent ones of each side (default: all). ``settings``: of the
    training, where they differ from the paper's supervised setup with the embedded encoder.
    ``dictionary_words``: how many are translated. ``bootstrap``: draws for the intervals.
    """
    from blicer import plots, starter  # noqa: F401 - says now if matplotlib is missing
    from blicer.align import Procrustes
    from blicer.dictionary import induce
    from blicer.pages import environment
    from blicer.pipeline import train

    output = Path(output)
    if output.exists() and not output.is_dir():
        raise FileError(output, "is a file; expected a folder, or a name that is free")
    environment()  # likewise jinja2: now, not after the training
    check_writable(output / PAGE)
    clock = Clock()
    with clock("loading the starter pair"):
        pair = starter.load()
        if words is not None:
            pair = pair._replace(source=pair.source.head(words), target=pair.target.head(words))
    config = Config.resolve(
        "supervised", defaults={"encoder": DEFAULT_ENCODER}, overrides=settings
    ).for_training(len(pair.seeds))
    with clock("aligning with Procrustes"):
        aligner = Procrustes(device=config.device)
        procrustes: Any = aligner.align(pair.source, pair.target, pair.seeds)
    with clock("aligning with VecMap, fitting the reranker"):
        translator = train(pair.source, pair.target, pair.seeds, config)
    systems = {"Procrustes, CSLS": procrustes, "VecMap, CSLS": translator.space}
    systems["VecMap, reranked"] = translator
    with clock("evaluating on the test dictionary"):
        results = {"pair": describe(pair), "scorers": list(config.scorers)}
        results |= measure(systems, translator, pair.test, bootstrap)
    with clock("writing the translator and a dictionary"):
        translator.save(output / TRANSLATOR)
        induced = induce(translator, output / DICTIONARY, words=dictionary_words, k=3)
    results["dictionary"] = {"words": induced.words, "entries": induced.entries}
    files = {"translator": TRANSLATOR, "dictionary": DICTIONARY, "page": PAGE, "results": RESULTS}
    results["files"] = {name: str(output / file) for name, file in files.items()}
    results["seconds"] = clock.seconds
    results["next"] = next_commands(config.scorers)
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


def measure(
    systems: dict[str, Any], translator: Translator, test: Lexicon, bootstrap: int
) -> Results:
    """Every system on the test dictionary; what the last changed against the one before it."""
    from blicer.evaluation import compare, evaluate

    scored = {name: evaluate(one, test, bootstrap=bootstrap) for name, one in systems.items()}
    before, after = list(scored.values())[-2:]
    calibration = translator.calibration
    return {
        "systems": [{"name": name, **result.to_dict()} for name, result in scored.items()],
        "gain": compare(after, before, bootstrap=max(bootstrap, 1)).to_dict(),
        "changes": changes(before, after, translator, test),
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
    plain = translator.space.best(rows)
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


def page(results: Results) -> str:
    """The results as one HTML page that needs no other file; every number on it is among them."""
    from blicer import plots
    from blicer.pages import render

    mixture, calibration = results["mixture"], results["calibration"] or {}
    lams, scores = np.array(mixture["curve"]).T
    curve = plots.Curve("mixed", lams, 100 * scores, 1 - mixture["weights"]["csls"])
    alone = ("CSLS alone", 100 * float(scores[0]))
    pictures = {"curve": plots.curves([curve], "", "λ", "P@1, per cent", baseline=alone)}
    if found := calibration.get("reliability"):
        pictures["reliability"] = plots.reliability(found["bins"], "")
    return render("demo.html.j2", pictures=pictures, **results)
