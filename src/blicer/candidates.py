"""Candidates by CSLS, and what each scorer says of them: the table that mixing works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.lexicon import Lexicon, find_words

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.mixing import Scorer
    from blicer.scaling import Scaling


@dataclass(frozen=True)
class CandidateScores:
    """For each query (row) its n_cand best candidates by CSLS, and every scorer's view of them."""

    queries: NDArray[np.int64]  # (q,)
    indices: NDArray[np.int64]  # (q, k), best CSLS first
    parts: NDArray[np.float64]  # (q, k, 1 + scorers): scaled CSLS, then the scorers in order


def score_candidates(
    space: Space,
    scaling: Scaling,
    scorers: Sequence[Scorer],
    queries: Any,
    n_cand: int,
    *,
    reverse: bool = False,
) -> CandidateScores:
    """Retrieve by CSLS and let every scorer score; a pair is given as (source, target) always."""
    queries = np.asarray(queries, dtype=np.int64)
    found = space.retriever.search(n_cand, queries, reverse=reverse)
    shape = found.indices.shape
    parts = np.empty((*shape, 1 + len(scorers)))
    parts[..., 0] = scaling(found.scores)
    if scorers:
        sources, targets = pair_words(space, queries, found.indices, reverse=reverse)
        for place, scorer in enumerate(scorers, start=1):
            parts[..., place] = scorer.score(sources, targets).reshape(shape)
    return CandidateScores(queries, found.indices, parts)


def pair_words(
    space: Space, queries: NDArray[np.int64], indices: NDArray[np.int64], *, reverse: bool
) -> tuple[list[str], list[str]]:
    """The words of every (query, candidate), source word first whatever the direction."""
    asked, offered = (space.target, space.source) if reverse else (space.source, space.target)
    left = [asked.words[i] for i in np.repeat(queries, indices.shape[1]).tolist()]
    right = [offered.words[i] for i in indices.ravel().tolist()]
    return (right, left) if reverse else (left, right)


def gold_marks(scores: CandidateScores, golds: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """(q, k): whether each candidate is among its query's gold translations."""
    marks = np.zeros(scores.indices.shape, dtype=bool)
    for row, (candidates, gold) in enumerate(zip(scores.indices, golds, strict=True)):
        marks[row] = np.isin(candidates, gold)
    return marks


def queries_with_gold(
    lexicon: Lexicon, everything: Lexicon, space: Space, *, reverse: bool = False
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Query words of a held-out ``lexicon`` in vocabulary, with all their in-vocabulary golds.

    A word that ``everything`` has other translations of is left out: those were trained on.
    """
    if reverse:
        lexicon, everything = lexicon.reverse(), everything.reverse()
    asked, offered = (space.target, space.source) if reverse else (space.source, space.target)
    rows, _ = find_words(lexicon.targets, asked)
    queries, golds = [], []
    for word, row in rows.items():
        translations = lexicon.targets[word]
        if set(everything.targets.get(word, ())) - set(translations):
            continue
        found, _ = find_words(translations, offered)
        if found:
            queries.append(row)
            golds.append(np.array(sorted(set(found.values())), dtype=np.int64))
    return np.array(queries, dtype=np.int64), golds
