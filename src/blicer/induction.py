"""Whole dictionaries of a translator, with scores that are kept for the next time.

Rankings lie in the user's cache, in blocks of words, keyed by a hash of all that they depend on. So
the same words are scored once, whatever format, threshold or number of translations is asked for,
and a killed run goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blicer import __version__
from blicer.config import part_of
from blicer.dictionary import About, Dictionary, Entry, merged
from blicer.errors import InputError
from blicer.files import digest
from blicer.progress import task
from blicer.scorers import contents
from blicer.stage_cache import ArrayCache

BLOCK = 512  # words a file


def induce(
    translator: Any,
    ranking: Callable[..., Any],
    words: int | None,
    k: int,
    *,
    reverse: bool,
    both: bool,
    shard: str,
    min_confidence: float | None,
    seeds_as_evidence: bool,
) -> Dictionary:
    """``Translator.induce``, which describes the arguments; ``ranking``: the class of rankings."""
    translator.check_request([], k, min_confidence)
    if words is not None and words < 1:
        raise InputError(f"words is {words}; expected 1 or more, or None for all")
    if both and reverse:
        raise InputError("a dictionary of both directions has no reverse: ask for either")
    if both and shard != "1/1":
        raise InputError("both directions in parts do not fit together: make each on its own")
    how: Any = {"min_confidence": min_confidence, "seeds_as_evidence": seeds_as_evidence}
    if both:
        return merged(*(translator.induce(words, k, reverse=back, **how) for back in (False, True)))
    side = translator.target if reverse else translator.source
    asked = side.words[: len(side) if words is None else words]
    blocks = part_of(-(-len(asked) // BLOCK), shard)  # whole ones, because they are kept as files
    vocabulary = asked[BLOCK * blocks.start : BLOCK * blocks.stop]
    kept, entries = cache(translator), []

    def rank(queries: list[int]) -> Any:
        if not queries:
            return translator.rank(queries, reverse=reverse)
        return ranking(**rank_kept(translator, kept, queries, reverse=reverse))

    with task("translating", len(vocabulary)) as running:
        for answer in translator.translate_stream(vocabulary, k, reverse=reverse, rank=rank, **how):
            running.advance()
            for place, one in enumerate(answer.candidates, start=1):
                numbers = (one.confidence, one.score, place, one.seed, one.forms)
                entries.append(Entry(answer.word, one.word, *numbers))
    forms = translator.target_forms if reverse else translator.source_forms
    found = Dictionary(
        entries,
        about(translator).reverse() if reverse else about(translator),
        asked=len(vocabulary),
    )
    others = set(asked) - set(vocabulary)  # headwords of the other parts
    forms_found = forms.of(found.words).items()
    found.inflected = {form: head for form, head in forms_found if form not in others}
    return found


def rank_kept(
    translator: Any, kept: ArrayCache, queries: list[int], *, reverse: bool
) -> dict[str, NDArray[Any] | None]:
    """What ``Translator.rank`` gives; of each block, the words up to the last one are kept."""
    blocks, places = np.divmod(np.asarray(queries), BLOCK)
    found: dict[str, NDArray[Any]] = {}
    for block in np.unique(blocks).tolist():
        first, rows = block * BLOCK, blocks == block

        def compute(start: int, stop: int, first: int = first) -> dict[str, NDArray[Any]]:
            ranking = translator.rank(np.arange(first + start, first + stop), reverse=reverse)
            return {key: value for key, value in vars(ranking).items() if value is not None}

        name = f"{'backward' if reverse else 'forward'}-{block:06}"
        for key, values in kept.rows(name, int(places[rows].max()) + 1, compute).items():
            into = found.setdefault(key, np.empty((len(queries), *values.shape[1:]), values.dtype))
            into[rows] = values[places[rows]]
    return {"confidence": None, **found}


def cache(translator: Any) -> ArrayCache:
    """Rankings of this translator that were computed before, in any process."""
    ours = translator.to_dict()
    settings = [ours[key] for key in ("mixture", "scaling", "calibration", "n_cand")]
    vectors = [np.asarray(side.vectors) for side in (translator.source, translator.target)]
    words = ["\n".join(side.words) for side in (translator.source, translator.target)]
    parts = [__version__, translator.space.k_csls, settings, contents(translator.scorers)]
    return ArrayCache("scores", digest(parts, *vectors, *words))


def about(translator: Any) -> About:
    """Where a translator's dictionaries come from."""
    files = translator.details.get("vectors", {}).get("files", ["", ""])
    sides = zip((translator.source, translator.target), map(Path, files), strict=True)
    first, second = (f"{path.name or 'unnamed'}, {len(side):,} words" for side, path in sides)
    return About(
        translator.source.language or "",
        translator.target.language or "",
        vectors=(first, second),
        seeds=translator.details.get("seeds", len(translator.seeds)),
        method=f"{translator.space.method}; {translator.mixture}",
    )
