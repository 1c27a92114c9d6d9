"""One cross-encoder for several language pairs, also for pairs without seeds (zero-shot).

One cross-encoder learns from the training pairs of all language pairs with seeds, and then reranks
any pair of the languages. A pair without seeds gets an unsupervised space, and the mixing weights
are chosen on all held-out seed words together. The paper's zero-shot setup is a special case: two
pairs with seeds share a pivot language, and that of the other two is wanted (docs/method.md §8).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blicer.align.base import seed_indices
from blicer.config import AUTO, Config
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.mixing import HeldOutView
from blicer.neighbours.mining import Pairs
from blicer.pipeline import (
    FEWEST_SEEDS,
    NO_PAIRS,
    SILVER_PAIRS,
    Fitted,
    LanguagePair,
    Names,
    Prepared,
    check_config,
    find_space,
    fit_scorers,
    make_aligner,
    n_pairs,
    prepare_pairs,
    training_pairs,
)
from blicer.progress import note
from blicer.scorers import CROSS_ENCODER, needs_seeds

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings

Languages = tuple[str, str]
# The method of spaces without seeds, whatever that of the others.
METHOD_WITHOUT_SEEDS = "twoview"


def prepare_zero_shot(
    pivot: Embeddings,
    source: Embeddings,
    target: Embeddings,
    source_seeds: Lexicon,
    target_seeds: Lexicon,
    config: Config,
    *,
    names: Names = (None, None),
    pivot_name: str | None = None,
    init: str = AUTO,
    work_dir: str | Path | None = None,
) -> Prepared:
    """From (pivot, source) and (pivot, target) seeds, pivot words first, to (source, target)."""
    source_seeds, target_seeds = without_shared_pivots(source_seeds, target_seeds)
    wanted = ("source", "target")
    prepared = prepare_multilingual(
        {"pivot": pivot, "source": source, "target": target},
        {("pivot", "source"): source_seeds, ("pivot", "target"): target_seeds},
        config,
        names=dict(zip(("pivot", *wanted), (pivot_name, *names), strict=True)),
        pairs=[wanted],
        init=init,
        work_dir=work_dir,
    )
    return prepared[wanted]


def without_shared_pivots(one: Lexicon, other: Lexicon) -> tuple[Lexicon, Lexicon]:
    """Keep each shared pivot word in one of the two, in turn, so that no pair can be chained."""
    shared = [word for word in one.targets if word in other.targets]
    if not shared:
        return one, other
    note(
        f"{len(shared)} pivot words are in both dictionaries; each is kept in one of them, in turn"
    )
    first, second = set(shared[::2]), set(shared[1::2])
    return (
        Lexicon(pair for pair in one.listed() if pair[0] not in second),
        Lexicon(pair for pair in other.listed() if pair[0] not in first),
    )


def prepare_multilingual(
    vectors: Mapping[str, Embeddings],
    seeds: Mapping[Languages, Lexicon],
    config: Config,
    *,
    names: Mapping[str, str | None] | None = None,
    pairs: Sequence[Languages] | None = None,
    init: str = AUTO,
    work_dir: str | Path | None = None,
) -> dict[Languages, Prepared]:
    """Fit everything for each of ``pairs`` (by default all pairs of the languages).

    ``vectors`` by language, ``seeds`` by pair of languages. ``names``: the languages' own names, if
    they do not follow from their tags. ``init``: the start of unsupervised spaces.
    ``.translator()`` of each result then chooses the mixing weights.
    """
    check_pairs(vectors, seeds, pairs or [])
    config = config.for_training(min(len(lexicon) for lexicon in seeds.values()))
    check_config(config)
    if CROSS_ENCODER not in config.scorers:
        raise InputError("several pairs share a cross-encoder, and the scorers name none")
    wanted = list(pairs) if pairs is not None else all_pairs(vectors, seeds)
    # Turn every lexicon into the direction of its wanted pair.
    turned = {pair: pair[::-1] if pair[::-1] in wanted else pair for pair in seeds}
    seeds = {turned[p]: one if turned[p] == p else one.reverse() for p, one in seeds.items()}
    alone = config.replace(space=METHOD_WITHOUT_SEEDS, space_settings={}).seedless(init)
    make_aligner(alone)  # a wrong start raises now, not after the cross-encoder is trained

    work, called = Path(work_dir) if work_dir else None, names or {}

    def language_pair(languages: Languages) -> LanguagePair:
        one, other = languages
        own_names = (called.get(one), called.get(other))
        return LanguagePair(vectors[one], vectors[other], own_names, work)

    note(f"one cross-encoder for {', '.join(map('-'.join, seeds))}")
    data = [
        (both := language_pair(languages), seed_pairs(both, lexicon))
        for languages, lexicon in seeds.items()
    ]
    trained = prepare_pairs(data, config)
    prepared = {
        languages: replace(one, lexicon=seeds[languages])
        for languages, one in zip(seeds, trained, strict=True)
    }
    for pair in wanted:
        if pair not in seeds:
            prepared[pair] = _without_seeds(language_pair(pair), trained, config, alone)
    return {pair: prepared[pair] for pair in wanted}


def check_pairs(
    vectors: Container[str], seeds: Collection[Languages], wanted: Collection[Languages]
) -> None:
    """Raise ``InputError`` for languages without vectors, and for pairs in both directions."""
    if not seeds:
        raise InputError("training on several pairs needs seeds of at least one of them")
    for listed, what in ((seeds, "have seeds"), (wanted, "are asked for")):
        for one, other in listed:
            if (other, one) in listed:
                raise InputError(
                    f"both {one}-{other} and {other}-{one} {what}; give one of the two, because "
                    "every translator serves both directions"
                )
            if missing := [language for language in (one, other) if language not in vectors]:
                raise InputError(f"{one}-{other} {what}, but there are no vectors for {missing[0]}")


def all_pairs(languages: Iterable[str], seeds: Container[Languages]) -> list[Languages]:
    """Every two languages once, in the direction of their seeds if there are any."""
    return [
        (other, one) if (other, one) in seeds else (one, other)
        for one, other in combinations(languages, 2)
    ]


def seed_pairs(pair: LanguagePair, seeds: Lexicon) -> Pairs:
    """The seed pairs in both vocabularies as indices; raises if too few to hold some out."""
    known = seed_indices(pair.source, pair.target, seeds)
    if (found := n_pairs(known)) < FEWEST_SEEDS:
        raise InputError(
            f"only {found} of {len(seeds)} seed pairs are in both vocabularies; "
            f"training needs at least {FEWEST_SEEDS}"
        )
    return known


def _without_seeds(
    pair: LanguagePair, others: Sequence[Prepared], config: Config, alone: Config
) -> Prepared:
    """A pair without seeds: an unsupervised space, and the other pairs' cross-encoder.

    Scorers that learn from a pair's own seeds are left out. Silver pairs only serve to scale CSLS.
    """
    scorers = tuple(name for name in config.scorers if not needs_seeds(name))
    alone = alone.replace(scorers=scorers)
    space = find_space(pair, alone)
    silver = alone.replace(n_aug=config.n_aug or SILVER_PAIRS)
    pairs = training_pairs(space, NO_PAIRS, silver)
    shared: Any = others[0].fitted.scorers[config.scorers.index(CROSS_ENCODER)]
    fitted = Fitted(space, pairs, fit_scorers(pair, space, pairs, alone, shared.reranker))
    view = None
    if views := [one.held_out for one in others if one.held_out is not None]:
        joined = HeldOutView.joined(views)
        columns = [0, *(1 + config.scorers.index(name) for name in scorers)]
        view = replace(joined, parts=joined.parts[..., columns])
    notes = {
        "zero_shot": {
            "tried": space.settings.get("tried", []),
            "chosen_on": "held-out seed words of the other pairs",
        }
    }
    return Prepared(fitted, view, 0, others[0].refit, alone, notes=notes)
