"""The demonstration: the starter pair from vectors to dictionary, before and after reranking.

Everything that it shows, on the terminal, as JSON and on the page, is one plain dictionary.
Nothing is chosen on the test dictionary: the mixing weights and the calibration come from seed
words that neither the mapping nor the reranker saw.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blicer.config import DEFAULT_ENCODER, Config
from blicer.errors import FileError
from blicer.files import atomic_write, check_writable, write_json
from blicer.progress import note

if TYPE_CHECKING:
    from blicer.evaluation import Evaluation, System
    from blicer.lexicon import Lexicon
    from blicer.starter import Starter
    from blicer.translator import Translator

Results = dict[str, Any]
TRANSLATOR, DICTIONARY = "translator", "dictionary.en-ru.tsv"
PAGE, RESULTS = "index.html", "results.json"
SHOWN = {"corrected": 12, "spoiled": 5}
NEXT = [  # what the user would type for files of their own
    "blicer train my.en.vec my.fr.vec --seeds my-seeds.tsv --source-language en "
    "--target-language fr -o en-fr",
    "blicer evaluate en-fr my-test.tsv",
    "blicer induce en-fr -n 20000 --min-confidence 0.5 -o en-fr.tsv",
]


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
    from blicer.pages import environment
    from blicer.pipeline import train

    output = Path(output)
    if output.exists() and not output.is_dir():
        raise FileError(output, "is a file; expected a folder, or a name that is free")
    environment()  # likewise jinja2: now, not after the training
    check_writable(output / PAGE)
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        note(f"{what} ...")
        start = time.perf_counter()
        yield
        seconds[what] = round(time.perf_counter() - start, 2)

    with timed("loading the starter pair"):
        pair = starter.load()
        if words is not None:
            pair = pair._replace(source=pair.source.head(words), target=pair.target.head(words))
    config = Config.resolve(
        "supervised", defaults={"encoder": DEFAULT_ENCODER}, overrides=settings
    ).for_training(len(pair.seeds))
    with timed("aligning with Procrustes"):
        aligner = Procrustes(device=config.device)
        procrustes: Any = aligner.align(pair.source, pair.target, pair.seeds)
    with timed("aligning in two views, fitting the reranker"):
        translator = train(pair.source, pair.target, pair.seeds, config)
    with timed("evaluating on the test dictionary"):
        results = measure(pair, procrustes, translator, bootstrap)
    with timed("writing the translator and a dictionary"):
        translator.details["vectors"] = {"starter": True, "max_words": words}
        translator.save(output / TRANSLATOR)
        induced = translator.induce(dictionary_words, k=3)
        induced.save(output / DICTIONARY)
    results["dictionary"] = {"words": induced.asked, "entries": len(induced)}
    files = {"translator": TRANSLATOR, "dictionary": DICTIONARY, "page": PAGE, "results": RESULTS}
    results["files"] = {name: str(output / file) for name, file in files.items()}
    results["seconds"] = seconds
    results["next"] = NEXT
    write_json(output / RESULTS, results)
    with atomic_write(output / PAGE) as file:
        file.write(page(results, entries(output / DICTIONARY)))
    return results


def entries(path: Path) -> dict[str, list[tuple[str, float]]]:
    """Words, translations and confidences of a dictionary that the demonstration wrote."""
    found: dict[str, list[tuple[str, float]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            sure = round(float(row["confidence"] or 0), 2)
            found.setdefault(row["source"], []).append((row["target"], sure))
    return found


def measure(pair: Starter, procrustes: System, translator: Translator, bootstrap: int) -> Results:
    """Both spaces and the translator on the test dictionary; what reranking changed."""
    from blicer.evaluation import compare, evaluate, thinned

    source, target, seeds, test = pair
    names = ("Procrustes, CSLS", "Two views, CSLS", "Two views, reranked")
    systems = (procrustes, translator.space, translator)
    scored = [evaluate(system, test, bootstrap=bootstrap) for system in systems]
    _, before, after = scored
    return {
        "pair": {
            "source_words": len(source),
            "target_words": len(target),
            "seed_pairs": len(seeds.indices(source, target)),
            "test_words": test.coverage(source, target).queries_found,
            "test_words_back": test.reverse().coverage(target, source).queries_found,
        },
        "systems": [
            {"name": name, **result.to_dict()} for name, result in zip(names, scored, strict=True)
        ],
        "gain": compare(after, before, bootstrap=max(bootstrap, 1)).to_dict(),
        "changes": changes(before, after, translator, test),
        "mixture": translator.mixture.to_dict(),
        "calibration": translator.calibration.to_dict() if translator.calibration else None,
        "risk_coverage": {
            name: thinned(one.risk_coverage).tolist()
            for name, (_, one) in zip(("en-ru", "ru-en"), after.directions(), strict=True)
        },
    }


def changes(
    before: Evaluation, after: Evaluation, translator: Translator, test: Lexicon
) -> Results:
    """What reranking put right and what it spoiled, most frequent words first; some as words."""
    shown: Results = {"counts": {}}
    for (direction, old), (_, new) in zip(before.directions(), after.directions(), strict=True):
        was, is_now = old.ranks == 1, new.ranks == 1
        moved = {"corrected": ~was & is_now, "spoiled": was & ~is_now}
        shown["counts"][direction] = {kind: int(mask.sum()) for kind, mask in moved.items()}
        for kind, mask in moved.items() if direction == "forward" else ():
            words = [old.words[i] for i in np.flatnonzero(mask)]
            words.sort(key=lambda word: translator.source.lookup[word])
            shown[kind] = in_words(words[: SHOWN[kind]], translator, test)
    return shown


def in_words(words: list[str], translator: Translator, test: Lexicon) -> list[Results]:
    rows = np.array([translator.source.lookup[word] for word in words], dtype=np.int64)
    plain = translator.space.best(rows)
    return [
        {
            "word": word,
            "before": translator.target.words[int(first)],
            "after": entry.best,
            "confidence": entry.candidates[0].confidence if entry.candidates else None,
            "gold": test.targets[word],
        }
        for word, first, entry in zip(words, plain, translator.translate(words, 1), strict=True)
    ]


def page(results: Results, dictionary: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """The results as one HTML page that needs no other file; every number on it is among them.

    ``dictionary``: what the reader can look up, if the browser runs scripts.
    """
    from blicer import plots
    from blicer.pages import render

    mixture, calibration = results["mixture"], results["calibration"] or {}
    lams, scores = np.array(mixture["curve"]).T
    curve = plots.Curve("mixed", lams, 100 * scores, 1 - mixture["weights"]["csls"])
    alone = ("CSLS alone", 100 * float(scores[0]))
    pictures = {"curve": plots.curves([curve], "", "λ", "P@1, per cent", baseline=alone)}
    if found := calibration.get("reliability"):
        pictures["reliability"] = plots.reliability(found["bins"], "")
        pictures["risk_coverage"] = plots.risk_coverage(results["risk_coverage"], "")
    embedded = json.dumps(dictionary, ensure_ascii=False, separators=(",", ":"))
    embedded = embedded.replace("<", "\\u003c")  # no word ends the script
    return render("demo.html.j2", pictures=pictures, entries=embedded, **results)
