"""One cross-encoder for several language pairs, also for pairs without seeds (zero-shot).

Every pair with seeds gives its training pairs; one cross-encoder learns from all of them and then
reranks every pair among the languages. A pair without seeds gets an unsupervised space, and the
mixing weights that all held-out seed words together choose. The paper's zero-shot setup is the
case of two pairs that share a pivot language, asked for the pair of the other two.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from blicer.config import Config
from blicer.encoders.loading import encoder_version
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.pipeline import (
    RERANKER,
    WITHOUT_SEEDS,
    Fitted,
    HeldOutView,
    Lesson,
    Prepared,
    Recipe,
    Workshop,
    check_choice,
    fit_reranker,
    held_out_splits,
)
from blicer.progress import note
from blicer.scorers import NEED_SEEDS
from blicer.scorers.cross_encoder import NAME as CROSS_ENCODER
from blicer.stage_cache import digest, stage_folder
from blicer.unsupervised import AUTO, check_start, find_space

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.crossencoder.model import Reranker
    from blicer.embeddings import Embeddings
    from blicer.training_pairs import TrainingPairs


# === several ===
Pair = tuple[str, str]
SHARED_RERANKER = f"shared-{RERANKER}"


def prepare_zero_shot(
    pivot: Embeddings,
    source: Embeddings,
    target: Embeddings,
    source_seeds: Lexicon,
    target_seeds: Lexicon,
    config: Config,
    recipe: Recipe | None = None,
    *,
    pivot_name: str | None = None,
    init: str = AUTO,
    work_dir: str | Path | None = None,
) -> Prepared:
    """From (pivot, source) and (pivot, target) seeds, pivot words first, to (source, target)."""
    recipe = recipe or Recipe()
    source_seeds, target_seeds = without_shared_pivots(source_seeds, target_seeds)
    wanted = ("source", "target")
    prepared = prepare_several(
        {"pivot": pivot, "source": source, "target": target},
        {("pivot", "source"): source_seeds, ("pivot", "target"): target_seeds},
        config,
        recipe,
        names=dict(zip(("pivot", *wanted), (pivot_name, *recipe.names), strict=True)),
        pairs=[wanted],
        init=init,
        work_dir=work_dir,
    )
    return prepared[wanted]


def without_shared_pivots(one: Lexicon, other: Lexicon) -> tuple[Lexicon, Lexicon]:
    """No pivot word in both: shared ones go to the two in turn, so that no pair can be chained."""
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


def prepare_several(
    vectors: Mapping[str, Embeddings],
    seeds: Mapping[Pair, Lexicon],
    config: Config,
    recipe: Recipe | None = None,
    *,
    names: Mapping[str, str | None] | None = None,
    pairs: Sequence[Pair] | None = None,
    init: str = AUTO,
    work_dir: str | Path | None = None,
) -> dict[Pair, Prepared]:
    """Everything for each pair of languages (of ``pairs``, or of all that there are).

    ``names``: what languages call themselves, where their tags do not tell. ``.translator()`` of
    each pair then chooses the mixing weights.
    """
    _check(vectors, seeds, pairs or [])
    seeds = _turned(seeds, pairs or [])
    folder = Path(work_dir) if work_dir else None
    fewest = min(len(lexicon) for lexicon in seeds.values())
    recipe = (recipe or Recipe()).resolved(config, fewest)
    check_choice(config, recipe)
    if not isinstance(recipe.space, str):
        raise InputError(
            "several pairs need a space each: give a method such as vecmap, not a saved space"
        )
    if CROSS_ENCODER not in recipe.scorers:
        raise InputError("several pairs share a cross-encoder, and the scorers name none")
    wanted = list(pairs) if pairs is not None else all_pairs(vectors, seeds)
    if set(wanted) - set(seeds):
        check_start(WITHOUT_SEEDS, init)  # now, not after the cross-encoder is trained
    called = names or {}

    def recipe_of(pair: Pair) -> Recipe:
        return replace(recipe, names=(called.get(pair[0]), called.get(pair[1])))

    workshops = {
        pair: Workshop(vectors[pair[0]], vectors[pair[1]], config, recipe_of(pair), folder)
        for pair in seeds
    }
    usable = {pair: workshop.usable(seeds[pair]) for pair, workshop in workshops.items()}
    splits = {pair: held_out_splits(usable[pair], recipe) for pair in seeds}
    views: dict[Pair, list[HeldOutView]] = {pair: [] for pair in seeds}
    for number in range(min(len(split) for split in splits.values())):
        parts = {pair: splits[pair][number] for pair in seeds}
        note(f"one cross-encoder for {_named(seeds)}, without held-out words (part {number + 1})")
        fitted, _ = _fit_together(workshops, parts, config, recipe, folder)
        for pair, (_, held) in parts.items():
            views[pair].append(workshops[pair].view(fitted[pair], held, usable[pair]))
    note(f"one cross-encoder for {_named(seeds)}, on all seeds")
    whole = {pair: (lexicon, None) for pair, lexicon in usable.items()}
    fitted, reranker = _fit_together(workshops, whole, config, recipe, folder)
    found: dict[Pair, Prepared] = {}
    for pair in wanted:
        if pair in seeds:
            view = HeldOutView.joined(views[pair]) if views[pair] else None
            found[pair] = Prepared(fitted[pair], view, len(usable[pair]), True, config, recipe)
        else:
            everyone = [view for several in views.values() for view in several]
            sides = (vectors[pair[0]], vectors[pair[1]])
            found[pair] = _without_seeds(
                sides, reranker, everyone, config, recipe_of(pair), init, folder
            )
    return found


def _check(
    vectors: Mapping[str, Embeddings], seeds: Mapping[Pair, Lexicon], wanted: Sequence[Pair]
) -> None:
    if not seeds:
        raise InputError("training on several pairs needs seeds of at least one of them")
    for pair in wanted:
        if pair[::-1] in wanted:
            raise InputError(
                f"both {'-'.join(pair)} and {'-'.join(pair[::-1])} are asked for; name one of the "
                "two, for every translator serves both directions"
            )
    for pair in seeds:
        if pair[::-1] in seeds:
            raise InputError(
                f"there are seeds for {'-'.join(pair)} and for {'-'.join(pair[::-1])}; give them "
                "as one dictionary, for every pair serves both directions"
            )
        for language in pair:
            if language not in vectors:
                raise InputError(
                    f"there are seeds for {'-'.join(pair)}, but no vectors for {language}"
                )


def _turned(seeds: Mapping[Pair, Lexicon], wanted: Sequence[Pair]) -> dict[Pair, Lexicon]:
    """The seeds in the direction in which their pair is asked for."""
    turned: dict[Pair, Lexicon] = {}
    for (one, other), lexicon in seeds.items():
        if (other, one) in wanted:
            turned[other, one] = lexicon.reverse()
        else:
            turned[one, other] = lexicon
    return turned


def _named(seeds: Mapping[Pair, Lexicon]) -> str:
    return ", ".join("-".join(pair) for pair in seeds)


def all_pairs(vectors: Iterable[str], seeds: Container[Pair]) -> list[Pair]:
    """Every two languages once, in the order of their seeds if they have any."""
    languages = list(vectors)
    pairs = []
    for place, one in enumerate(languages):
        for other in languages[place + 1 :]:
            pairs.append((other, one) if (other, one) in seeds else (one, other))
    return pairs


@dataclass(frozen=True)
class _Part:
    space: Space
    pairs: TrainingPairs


def _fit_together(
    workshops: Mapping[Pair, Workshop],
    seeds: Mapping[Pair, tuple[Lexicon, Lexicon | None]],
    config: Config,
    recipe: Recipe,
    folder: Path | None,
) -> tuple[dict[Pair, Fitted], Reranker]:
    """Each pair's own space and training pairs, and one cross-encoder that learns from all."""
    parts: dict[Pair, _Part] = {}
    lesson: Lesson | None = None
    for pair, workshop in workshops.items():
        rest, reserved = seeds[pair]
        space = workshop.space(rest)
        parts[pair] = _Part(space, workshop.pairs(space, rest, reserved))
        own = workshop.lesson(space, parts[pair].pairs)
        lesson = own if lesson is None else lesson + own
    assert lesson is not None  # there is at least one pair, as checked
    place = None
    if folder is not None:
        shown = digest(lesson.examples.left, lesson.examples.right, lesson.examples.labels)
        version = encoder_version(config.encoder)
        place = stage_folder(folder, SHARED_RERANKER, config.to_dict(), shown, version)
    reranker = fit_reranker(lesson, config, recipe, place)
    fitted = {
        pair: Fitted(
            part.space, part.pairs, workshops[pair].scorers(part.space, part.pairs, reranker)
        )
        for pair, part in parts.items()
    }
    return fitted, reranker


def _without_seeds(
    sides: tuple[Embeddings, Embeddings],
    reranker: Reranker,
    views: Sequence[HeldOutView],
    config: Config,
    recipe: Recipe,
    init: str,
    folder: Path | None,
) -> Prepared:
    """A pair that has no seeds: CSLS of an unsupervised VecMap space, the shared cross-encoder.

    A scorer that learns from a pair's own seeds has no part in it. Silver pairs serve to scale
    CSLS; nothing is trained on them.
    """
    alone = replace(
        recipe,
        space=WITHOUT_SEEDS,
        space_mode="",
        space_settings={},
        scorers=tuple(name for name in recipe.scorers if name not in NEED_SEEDS),
    )
    workshop = Workshop(*sides, config, alone, folder)
    space, tried = find_space(workshop, init)
    silver = config.replace(n_aug=config.n_aug or 4_000)
    scaled = Workshop(*sides, silver, replace(alone, space=space), folder)
    pairs = scaled.pairs(scaled.space(Lexicon([])), Lexicon([]))
    fitted = Fitted(space, pairs, scaled.scorers(space, pairs, reranker))
    columns = [0, *(1 + recipe.scorers.index(name) for name in alone.scorers)]
    view = None
    if views:
        joined = HeldOutView.joined(list(views))
        view = HeldOutView(joined.parts[..., columns], joined.is_gold)
    notes = {"zero_shot": {"tried": tried, "chosen_on": "held-out seed words of the other pairs"}}
    return Prepared(fitted, view, 0, True, config, alone, notes=notes)
