"""What a setup reads, and how it is trained: with seeds of the pair, without any, or by a pivot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blicer import lite
from blicer.benchmark.dataset import UNSUPERVISED, ZERO_SHOT, Dataset, Digests, vocabulary_of
from blicer.encoders.loading import local_files
from blicer.lexicon import Lexicon

if TYPE_CHECKING:
    from blicer.benchmark.unit import Unit
    from blicer.pipeline import Prepared, Workshop

FILES = "files"  # a space that was made elsewhere
ZERO_SHOT_WORDS = 2_000  # pivot words of either dictionary (METHOD.md §3)


def data_digests(unit: Unit, dataset: Dataset, digests: Digests) -> dict[str, str]:
    """SHA-256 of the files that the unit reads."""
    sides = {"source": unit.source, "target": unit.target, "pivot": unit.pivot}
    found = {
        side: digests.of(path := dataset.vectors(language), vocabulary_of(path))
        for side, language in sides.items()
        if language and (unit.space != FILES or side == "pivot")
    }
    if unit.space == FILES:
        folder = dataset.saved_space(unit.source, unit.target, unit.setup)
        found |= {side: digests.of(folder / f"{side}.safetensors") for side in ("source", "target")}
    files = [dataset.seeds(*pair).path for pair in seed_pairs(unit)]
    found["seeds"] = digests.of(*files) if files else ""
    found["test"] = digests.of(dataset.test(unit.source, unit.target).path)
    return {**found, **encoder_digest(unit.encoder, digests)}


def encoder_digest(encoder: str, digests: Digests) -> dict[str, str]:
    """An encoder of the user's own may change in its folder, so its files count as data."""
    files = local_files(encoder) if encoder != lite.NAME else []
    return {"encoder": digests.of(*files)} if files else {}


def seed_pairs(unit: Unit) -> list[tuple[str, str, str]]:
    """(source, target, size) of the training dictionaries that the unit reads."""
    if unit.setup == UNSUPERVISED:
        return []
    if unit.setup == ZERO_SHOT:
        return [(unit.pivot, unit.source, "5k"), (unit.pivot, unit.target, "5k")]
    return [(unit.source, unit.target, unit.setup)]


def prepare_for(unit: Unit, dataset: Dataset, workshop: Workshop, seeds: Lexicon) -> Prepared:
    """Fit the space and the scorers as the unit's setup asks."""
    from blicer.multilingual import prepare_zero_shot, without_shared_pivots
    from blicer.pipeline import prepare
    from blicer.unsupervised import AUTO, prepare_unsupervised

    if unit.setup == UNSUPERVISED:
        return prepare_unsupervised(workshop, init=unit.space_mode or AUTO)
    if unit.setup == ZERO_SHOT:
        to_source, to_target = without_shared_pivots(
            dataset.seeds(unit.pivot, unit.source, "5k").load(),
            dataset.seeds(unit.pivot, unit.target, "5k").load(),
        )
        return prepare_zero_shot(
            dataset.embeddings(unit.pivot, unit.max_words),
            workshop.source,
            workshop.target,
            first_words(to_source, ZERO_SHOT_WORDS),
            first_words(to_target, ZERO_SHOT_WORDS),
            workshop.config,
            workshop.recipe,
            init=unit.space_mode or AUTO,
            work_dir=workshop.folder,
        )
    return prepare(workshop, workshop.usable(seeds))


def first_words(lexicon: Lexicon, words: int) -> Lexicon:
    """The pairs of the first ``words`` source words."""
    kept = set(list(lexicon.targets)[:words])
    return Lexicon(pair for pair in lexicon.listed() if pair[0] in kept)
