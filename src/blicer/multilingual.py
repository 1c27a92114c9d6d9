"""One cross-encoder for several language pairs, also for pairs without seeds (zero-shot).

Every pair with seeds gives its training pairs; one cross-encoder learns from all of them and then
reranks every pair among the languages. A pair without seeds gets an unsupervised space, and the
mixing weights that all held-out seed words together choose. The paper's zero-shot setup is the
case of two pairs that share a pivot language, asked for the pair of the other two
(docs/method.md §8).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from blicer.config import AUTO, Config
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.mixing import HeldOutView
from blicer.pipeline import (
    NO_PAIRS,
    SHARED_RERANKER,
    Fitted,
    LanguagePair,
    Lesson,
    Names,
    Pairs,
    Prepared,
    check_config,
    count,
    fit_scorers,
    fit_space,
    held_out_splits,
    held_out_view,
    make_lesson,
    reranker_inputs,
    seed_pairs,
    train_reranker,
    training_pairs,
)
from blicer.progress import note
from blicer.scorers import CROSS_ENCODER, needs_seeds
from blicer.stage_cache import stage_folder
from blicer.unsupervised import check_start, find_space

if TYPE_CHECKING:
    from blicer.crossencoder.model import Reranker
    from blicer.embeddings import Embeddings

Languages = tuple[str, str]
SILVER_PAIRS = 4_000  # that scale CSLS for a pair without seeds
# What makes the space of a pair without seeds, whatever makes those of the others.
METHOD_WITHOUT_SEEDS = "vecmap"


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
    """Keep every shared pivot word in one of the two, in turn, so that no pair can be chained."""
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

    ``vectors`` by language, ``seeds`` by pair of languages. ``names``: what languages call
    themselves, where their tags do not tell. ``init`` is the start of unsupervised spaces.
    ``.translator()`` of each result then chooses the mixing weights.
    """
    _check(vectors, seeds, pairs or [])
    seeds = _turned(seeds, pairs or [])
    work = Path(work_dir) if work_dir else None
    config = config.for_training(min(len(lexicon) for lexicon in seeds.values()))
    check_config(config)
    if CROSS_ENCODER not in config.scorers:
        raise InputError("several pairs share a cross-encoder, and the scorers name none")
    wanted = list(pairs) if pairs is not None else all_pairs(vectors, seeds)
    if set(wanted) - set(seeds):
        check_start(METHOD_WITHOUT_SEEDS, init)  # now, not after the cross-encoder is trained

    def language_pair(languages: Languages) -> LanguagePair:
        one, other = languages
        called = names or {}
        return LanguagePair(
            vectors[one], vectors[other], (called.get(one), called.get(other)), work
        )

    data = {languages: language_pair(languages) for languages in seeds}
    known = {languages: seed_pairs(data[languages], seeds[languages]) for languages in seeds}
    splits = {languages: held_out_splits(known[languages], config) for languages in seeds}
    views: dict[Languages, list[HeldOutView]] = {languages: [] for languages in seeds}
    listed = ", ".join("-".join(languages) for languages in seeds)
    for number in range(min(len(split) for split in splits.values())):
        parts = {languages: splits[languages][number] for languages in seeds}
        note(f"one cross-encoder for {listed}, without held-out words (part {number + 1})")
        fitted, _ = _fit_together(data, parts, config, work)
        for languages, (_, held) in parts.items():
            view = held_out_view(fitted[languages], held, known[languages], config)
            views[languages].append(view)
    note(f"one cross-encoder for {listed}, on all seeds")
    whole = {languages: (pairs, NO_PAIRS) for languages, pairs in known.items()}
    fitted, reranker = _fit_together(data, whole, config, work)
    found: dict[Languages, Prepared] = {}
    for languages in wanted:
        if languages in seeds:
            own = HeldOutView.joined(views[languages]) if views[languages] else None
            found[languages] = Prepared(
                fitted[languages], own, count(known[languages]), True, config
            )
        else:
            everyone = [view for several in views.values() for view in several]
            found[languages] = _without_seeds(
                language_pair(languages), reranker, everyone, config, init
            )
    return found


def _check(
    vectors: Mapping[str, Embeddings],
    seeds: Mapping[Languages, Lexicon],
    wanted: Sequence[Languages],
) -> None:
    if not seeds:
        raise InputError("training on several pairs needs seeds of at least one of them")
    for one, other in wanted:
        if (other, one) in wanted:
            raise InputError(
                f"both {one}-{other} and {other}-{one} are asked for; name one of the "
                "two, for every translator serves both directions"
            )
    for one, other in seeds:
        if (other, one) in seeds:
            raise InputError(
                f"there are seeds for {one}-{other} and for {other}-{one}; give them "
                "as one dictionary, for every pair serves both directions"
            )
        for language in (one, other):
            if language not in vectors:
                raise InputError(
                    f"there are seeds for {one}-{other}, but no vectors for {language}"
                )


def _turned(
    seeds: Mapping[Languages, Lexicon], wanted: Sequence[Languages]
) -> dict[Languages, Lexicon]:
    """The seeds in the direction in which their pair is asked for."""
    return {
        (other, one) if (other, one) in wanted else (one, other): (
            lexicon.reverse() if (other, one) in wanted else lexicon
        )
        for (one, other), lexicon in seeds.items()
    }


def all_pairs(languages: Iterable[str], seeds: Container[Languages]) -> list[Languages]:
    """Every two languages once, in the order of their seeds if they have any."""
    listed = list(languages)
    return [
        (other, one) if (other, one) in seeds else (one, other)
        for place, one in enumerate(listed)
        for other in listed[place + 1 :]
    ]


def _fit_together(
    data: Mapping[Languages, LanguagePair],
    seeds: Mapping[Languages, tuple[Pairs, Pairs]],
    config: Config,
    work: Path | None,
) -> tuple[dict[Languages, Fitted], Reranker]:
    """Fit each pair's own space and training pairs, and one cross-encoder on all of them."""
    parts = {}
    for languages, pair in data.items():
        rest, reserved = seeds[languages]
        space = fit_space(pair, rest, config)
        parts[languages] = space, training_pairs(pair, space, rest, config, reserved=reserved)
    lesson = Lesson.joined(
        [make_lesson(data[languages], *part, config) for languages, part in parts.items()]
    )
    folder = stage_folder(work, SHARED_RERANKER, *reranker_inputs(config, lesson)) if work else None
    reranker = train_reranker(lesson, config, folder)
    fitted = {
        languages: Fitted(*part, fit_scorers(data[languages], *part, config, reranker=reranker))
        for languages, part in parts.items()
    }
    return fitted, reranker


def _without_seeds(
    pair: LanguagePair,
    reranker: Reranker,
    views: Sequence[HeldOutView],
    config: Config,
    init: str,
) -> Prepared:
    """A pair that has no seeds: CSLS of an unsupervised VecMap space, the shared cross-encoder.

    Scorers that learn from a pair's own seeds are left out. Silver pairs scale CSLS; nothing is
    trained on them.
    """
    alone = config.replace(
        space=METHOD_WITHOUT_SEEDS,
        space_mode="",
        space_settings={},
        scorers=tuple(name for name in config.scorers if not needs_seeds(name)),
    )
    space, tried = find_space(pair, alone, init)
    silver = alone.replace(n_aug=config.n_aug or SILVER_PAIRS)
    pairs = training_pairs(pair, space, NO_PAIRS, silver)
    fitted = Fitted(space, pairs, fit_scorers(pair, space, pairs, alone, reranker=reranker))
    columns = [0, *(1 + config.scorers.index(name) for name in alone.scorers)]
    view = None
    if views:
        joined = HeldOutView.joined(list(views))
        view = HeldOutView(joined.parts[..., columns], joined.is_gold)
    notes = {"zero_shot": {"tried": tried, "chosen_on": "held-out seed words of the other pairs"}}
    return Prepared(fitted, view, 0, True, alone, notes=notes)
