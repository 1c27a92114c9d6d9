"""VecMap: supervised, semi-supervised, unsupervised, from identical words or from numerals."""

from __future__ import annotations

import math
import time
import unicodedata
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from blicer import progress
from blicer.align.base import Aligner, check_at_least, prepare, seeds_to_indices
from blicer.align.linear import apply_, cross_product, normalise_, orthogonal_map, unit_
from blicer.align.procrustes import distinct_pairs
from blicer.align.space import Space
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.encoders.words import WordEncoder
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.neighbours.mining import mutual_neighbours
from blicer.neighbours.retriever import Retriever, top_k_both
from blicer.progress import note

# === align.closed_form ===
SMALLEST_VARIANCE = 1e-10  # of the largest: below it a direction is rounding error in float32


def whitening(rows: Tensor) -> Tensor | None:
    """The symmetric (d, d) float64 W that makes ``rows @ W`` uncorrelated; None if ill-posed."""
    variances, directions = torch.linalg.eigh(cross_product(rows, rows))
    if float(variances[0]) <= SMALLEST_VARIANCE * float(variances[-1]):
        return None
    scaled: Tensor = (directions / variances.sqrt()) @ directions.T
    return scaled


def final_map_(x: Tensor, y: Tensor, pairs: Tensor, reweight: float) -> bool:
    """VecMap's supervised map, applied to both matrices in place. True if it could whiten.

    Whitened seeds give canonical correlations. With fewer than 2·d distinct seeds some of these
    are 1 whatever the data (two d-dimensional subspaces of a smaller space always meet), with
    fewer than d the whitening itself does not exist. Then the orthogonal map, which is well-posed,
    takes its place (on held-out seeds it is better there by 4 to 20 points of P@1).
    """
    dimensions, distinct = x.shape[1], distinct_pairs(np.asarray(pairs))
    rows_x = x[pairs[:, 0].to(x.device)]
    rows_y = y[pairs[:, 1].to(y.device)]
    whiten_x = whitening(rows_x) if distinct >= 2 * dimensions else None
    whiten_y = whitening(rows_y) if distinct >= 2 * dimensions else None
    if whiten_x is None or whiten_y is None:
        why = (
            f"{distinct} distinct seed pairs are too few to whiten {dimensions} dimensions"
            f" (at least {2 * dimensions} are needed)"
            if distinct < 2 * dimensions
            else "the seed vectors do not span all dimensions"
        )
        note(f"{why}: mapped by orthogonal Procrustes instead")
        apply_(x, orthogonal_map(rows_x, rows_y))
        return False
    correlation = whiten_x.T @ cross_product(rows_x, rows_y) @ whiten_y
    left, scales, right = torch.linalg.svd(correlation)
    weights = torch.diag(scales.clamp(min=0) ** reweight)
    # whiten, rotate, re-weight, de-whiten with the side's own whitening (seen in the rotated axes)
    apply_(x, whiten_x @ left @ weights @ left.T @ torch.linalg.inv(whiten_x) @ left)
    turn = right.T
    apply_(y, whiten_y @ turn @ weights @ right @ torch.linalg.inv(whiten_y) @ turn)
    return True


# === align.induction ===
PRODUCT_ROWS = 2048  # rows of the similarity matrix multiplied at once
BLOCK_BYTES = 2**24  # of a block of rows that is folded while the cache holds it
GROUP = 16  # similarities folded into one maximum
RANK_BOUNDS = (
    1,
    2,
    4,
    7,
    11,
    16,
    24,
    36,
    80,
)  # words are selected for together with others of like rank
WORKING_SHARE = 0.85  # of the memory budget that the kept similarities may take


@dataclass(frozen=True)
class Induced:
    """Word pairs (pairs, 2) int64 on the CPU, and how similar best matches are on average."""

    pairs: Tensor
    forward: int  # pairs found from the source side; they come first
    objective: float


def draw_ranks(words: int, keep: float, generator: torch.Generator) -> Tensor:
    """How many-th best entry is each word's best survivor: geometric(keep), int64 from 1."""
    if keep >= 1.0:
        return torch.ones(words, dtype=torch.int64)
    uniform = 1.0 - torch.rand(words, dtype=torch.float64, generator=generator)  # in (0, 1]
    return (uniform.log() / math.log1p(-keep)).floor().long() + 1


def similarity_buffer(x: Tensor, y: Tensor, memory_gb: float) -> Tensor | None:
    """Room for all similarities, to be used again and again; None if the budget is too small."""
    if 4 * len(x) * len(y) > WORKING_SHARE * memory_gb * 2**30:
        return None
    return x.new_empty(len(x), len(y))


def induce(
    x: Tensor,
    y: Tensor,
    *,
    keep: float = 1.0,
    generator: torch.Generator,
    k_csls: int = 10,
    memory_gb: float = 2.0,
    buffer: Tensor | None = None,
) -> Induced:
    """Best surviving match by CSLS of every row of ``x`` and of ``y`` (unit rows), both united.

    A pair that both directions choose stands twice in the result, so it weighs double in the map.
    ``buffer`` is a ``similarity_buffer`` to be overwritten, for callers that induce repeatedly.
    """
    ranks_x = draw_ranks(len(x), keep, generator).to(x.device)
    ranks_y = draw_ranks(len(y), keep, generator).to(x.device)
    if buffer is None:
        buffer = similarity_buffer(x, y, memory_gb)
    if buffer is None:
        return _induce_blocked(x, y, ranks_x, ranks_y, k_csls, memory_gb)
    for start in range(0, len(x), PRODUCT_ROWS):
        part = slice(start, start + PRODUCT_ROWS)
        torch.mm(x[part], y.T, out=buffer[part])
    rows, columns = _Side(buffer, by_rows=True), _Side(buffer, by_rows=False)
    for block in _row_blocks(buffer):
        rows.fold(buffer[block], block)
        columns.fold(buffer[block], block)
    best_x = rows.values_of_best(min(k_csls, len(y)))
    best_y = columns.values_of_best(min(k_csls, len(x)))
    # CSLS up to a term that is constant for the word that asks: cos - r(candidate) / 2.
    rows.shift, columns.shift = best_y.mean(dim=1) / 2, best_x.mean(dim=1) / 2
    scratch = buffer.new_empty(_height(buffer), buffer.shape[1])
    for block in _row_blocks(buffer):
        shifted = scratch[: block.stop - block.start]
        rows.fold(torch.sub(buffer[block], rows.shift, out=shifted), block)
        columns.fold(torch.sub(buffer[block], columns.shift[block, None], out=shifted), block)
    return _united(
        rows.indices_at(ranks_x), columns.indices_at(ranks_y), best_x[:, 0], best_y[:, 0]
    )


def _height(similarities: Tensor) -> int:
    """Rows of a block, a multiple of GROUP so that only the last block has a remainder."""
    return max(1, BLOCK_BYTES // (4 * similarities.shape[1] * GROUP)) * GROUP


def _row_blocks(similarities: Tensor) -> list[slice]:
    height, total = _height(similarities), len(similarities)
    return [slice(start, min(start + height, total)) for start in range(0, total, height)]


class _Side:
    """Selection among the similarities (n, m), for the words of the rows or of the columns.

    ``fold`` keeps the maximum of every group of GROUP candidates of a word. The k best candidates
    lie in the groups with the k best maxima, so a selection reads these groups only. Groups are
    every ``groups``-th candidate of a row (folds along memory), or GROUP consecutive ones of a
    column (folds whole rows at once).
    """

    def __init__(self, similarities: Tensor, *, by_rows: bool) -> None:
        self.flat = similarities.view(-1)
        self.rows, self.width = similarities.shape
        self.by_rows = by_rows
        self.words, self.candidates = (
            (self.rows, self.width) if by_rows else (self.width, self.rows)
        )
        self.groups = -(-self.candidates // GROUP)
        self.maxima = similarities.new_empty(
            (self.words, self.groups) if by_rows else (self.groups, self.words)
        )
        self.shift: Tensor | None = None  # of each candidate
        self.integer = torch.int32 if len(self.flat) < 2**31 else torch.int64

    def fold(self, block: Tensor, place: slice) -> None:
        """Take in the rows ``place`` of the similarities, or of these minus the shift."""
        if self.by_rows:
            whole = self.candidates // self.groups * self.groups
            maxima = self.maxima[place]
            torch.amax(block[:, :whole].unflatten(1, (-1, self.groups)), dim=1, out=maxima)
            if whole < self.candidates:
                rest = maxima[:, : self.candidates - whole]
                torch.maximum(rest, block[:, whole:], out=rest)
            return
        first, whole = place.start // GROUP, len(block) // GROUP
        torch.amax(
            block[: whole * GROUP].unflatten(0, (-1, GROUP)),
            dim=1,
            out=self.maxima[first : first + whole],
        )
        if whole * GROUP < len(block):
            self.maxima[first + whole] = block[whole * GROUP :].amax(dim=0)

    def best(self, maxima: Tensor, words: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Values and candidates (words, k), best first, of some words with their maxima."""
        groups = maxima.topk(min(k, self.groups), dim=1, sorted=False).indices.to(self.integer)
        words = words.to(self.integer)[:, None]
        member = torch.arange(GROUP, device=words.device, dtype=self.integer)
        if self.by_rows:
            candidates = (groups[:, :, None] + member * self.groups).flatten(1)
        else:
            candidates = (groups[:, :, None] * GROUP + member).flatten(1)
        outside = None
        if self.candidates % GROUP:  # the last members of some groups do not exist
            outside = candidates >= self.candidates
            candidates.clamp_(max=self.candidates - 1)
        if self.by_rows:
            places = candidates + words * self.width
        else:
            places = (candidates * self.width).add_(words)
        found = self.flat.index_select(0, places.view(-1)).view(places.shape)
        if self.shift is not None:
            found -= self.shift.index_select(0, candidates.view(-1)).view(places.shape)
        if outside is not None:
            found.masked_fill_(outside, -torch.inf)
        values, order = found.topk(k, dim=1)
        return values, candidates.gather(1, order)

    def values_of_best(self, k: int) -> Tensor:
        """The k largest similarities (words, k) of every word, best first."""
        every = torch.arange(self.words, device=self.flat.device)
        return torch.cat([self.best(*part, k)[0] for part in self._parts(every, k)])

    def indices_at(self, ranks: Tensor) -> Tensor:
        """The candidate of each word at its rank; -1 where there are fewer candidates."""
        found = torch.full_like(ranks, -1)
        lower = 0
        for upper in RANK_BOUNDS:
            k = min(upper, self.candidates)
            chosen = ((ranks > lower) & (ranks <= k)).nonzero().flatten()
            for maxima, words in self._parts(chosen, k):
                best = self.best(maxima, words, k)[1]
                found[words] = best.gather(1, ranks[words, None] - 1).flatten().to(found.dtype)
            lower = upper
        beyond = ((ranks > lower) & (ranks <= self.candidates)).nonzero().flatten()
        similarities = self.flat.view(self.rows, self.width)
        for words in _chunks(beyond, 64):
            scores = similarities[words] if self.by_rows else similarities[:, words].T
            found[words] = nth_best(
                scores if self.shift is None else scores - self.shift, ranks[words]
            )
        return found

    def _parts(self, words: Tensor, k: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Maxima (some words, groups) and these words, in parts that bound the memory."""
        for part in _chunks(words, max(1, BLOCK_BYTES // (8 * k * GROUP))):
            together = slice(int(part[0]), int(part[-1]) + 1)
            consecutive = together.stop - together.start == len(part)
            chosen = together if consecutive else part
            yield (
                (self.maxima[chosen] if self.by_rows else self.maxima[:, chosen].T.contiguous()),
                part,
            )


def _chunks(words: Tensor, size: int) -> Iterator[Tensor]:
    for start in range(0, len(words), size):
        yield words[start : start + size]


def nth_best(scores: Tensor, ranks: Tensor) -> Tensor:
    """The ``ranks[i]``-th best of row i; -1 where the row has no so many entries."""
    inside = ranks <= scores.shape[1]
    if not bool(inside.any()):
        return torch.full_like(ranks, -1)
    best = scores.topk(int(ranks[inside].max()), dim=1).indices
    picked = best.gather(1, ranks.clamp(max=best.shape[1])[:, None] - 1).flatten()
    return torch.where(inside, picked, torch.full_like(picked, -1))


def _induce_blocked(
    x: Tensor, y: Tensor, ranks_x: Tensor, ranks_y: Tensor, k_csls: int, memory_gb: float
) -> Induced:
    """For a tight memory budget: blocks of the product are made anew instead of kept."""
    best_x, _, best_y, _ = top_k_both(
        x, y, min(k_csls, len(x), len(y)), memory_gb=memory_gb, precision="fp32", label="hubness"
    )
    found = []
    for left, right, ranks, half in (
        (x, y, ranks_x, best_y.mean(dim=1) / 2),
        (y, x, ranks_y, best_x.mean(dim=1) / 2),
    ):
        height = max(1, BLOCK_BYTES // (4 * len(right)))
        blocks = zip(_chunks(left, height), _chunks(ranks, height), strict=True)
        found.append(torch.cat([nth_best(rows @ right.T - half, rank) for rows, rank in blocks]))
    return _united(found[0], found[1], best_x[:, 0], best_y[:, 0])


def _united(forward: Tensor, backward: Tensor, best_x: Tensor, best_y: Tensor) -> Induced:
    """Both directions' pairs; a word with no survivor gives none."""
    words_x = torch.arange(len(forward), device=forward.device)
    words_y = torch.arange(len(backward), device=forward.device)
    from_x = torch.stack([words_x, forward], dim=1)[forward >= 0]
    from_y = torch.stack([backward, words_y], dim=1)[backward >= 0]
    objective = (best_x.cpu().double().mean() + best_y.cpu().double().mean()) / 2  # MPS has no fp64
    return Induced(torch.cat([from_x, from_y]).cpu(), len(from_x), float(objective))


# === align.first_dictionary ===
def similarity_distributions(rows: Tensor) -> Tensor:
    """Each word's similarities to all others, sorted, from the square root of the Gram matrix.

    The sorted list forgets which words the similarities belong to, so that the lists of the two
    languages can be compared; words that mean the same have similar lists.
    """
    left, scales, _ = torch.linalg.svd(rows.cpu().double(), full_matrices=False)
    root = ((left * scales) @ left.T).float().to(rows.device)
    return normalise_(root.sort(dim=1).values, ("unit", "centre", "unit"))


def from_distributions(
    x: Tensor, y: Tensor, *, words: int = 4000, k_csls: int = 10, memory_gb: float = 2.0
) -> Tensor:
    """Pairs (pairs, 2) int64 of the most frequent words with alike similarity distributions."""
    size = min(words, len(x), len(y))
    lists_x, lists_y = similarity_distributions(x[:size]), similarity_distributions(y[:size])
    unused = torch.Generator()  # nothing is dropped, so nothing is drawn
    return induce(lists_x, lists_y, generator=unused, k_csls=k_csls, memory_gb=memory_gb).pairs


def from_identical(source: Embeddings, target: Embeddings) -> Tensor:
    """Words that are spelled the same in both languages."""
    pairs = [(row, target.lookup[word]) for row, word in enumerate(source.words) if word in target]
    if not pairs:
        raise InputError(
            "no word is spelled the same in both vocabularies; expected some for a start from "
            "identical words (give seeds, or start from encoder, numerals or distributions)"
        )
    return torch.from_numpy(np.array(pairs, dtype=np.int64))


def from_numerals(source: Embeddings, target: Embeddings) -> Tensor:
    """Numbers written in digits, of whatever script, that both languages have."""
    wanted = _numerals(target)
    pairs = [(row, wanted[value]) for value, row in _numerals(source).items() if value in wanted]
    if not pairs:
        raise InputError(
            "the vocabularies share no numeral; expected some for a start from numerals (give "
            "seeds, or start from encoder, identical or distributions)"
        )
    return torch.from_numpy(np.array(pairs, dtype=np.int64))


def _numerals(embeddings: Embeddings) -> dict[str, int]:
    """Row of each numeral, by its digits; of two spellings the more frequent counts."""
    rows: dict[str, int] = {}
    for row, word in enumerate(embeddings.words):
        if word.isdecimal():
            rows.setdefault("".join(str(unicodedata.decimal(digit)) for digit in word), row)
    return rows


# === align.selflearning ===
@dataclass(frozen=True)
class Schedule:
    """How the loop runs (METHOD.md §6)."""

    words: int = 20_000  # most frequent words of each side that take part
    k_csls: int = 10
    keep_start: float = 0.1  # share of the similarities kept at first
    keep_factor: float = 2.0  # by which that share grows at every stall
    patience: int = 50  # iterations without a rise that make a stall
    threshold: float = 1e-6  # what counts as a rise of the objective
    max_iterations: int | None = None

    def iterations_left(self, keep: float, since_rise: int) -> int:
        """The fewest iterations that can still come: a stall for each step of ``keep``."""
        steps = math.ceil(math.log(1.0 / keep, self.keep_factor) - 1e-9) if keep < 1.0 else 0
        return self.patience - since_rise + steps * self.patience


@dataclass(frozen=True)
class Learned:
    """What the loop ended with: pairs (pairs, 2), and how it went."""

    pairs: Tensor
    objective: float
    iterations: int
    stalled: bool  # False when max_iterations cut the loop short


def self_learn(
    x: Tensor,
    y: Tensor,
    pairs: Tensor,
    schedule: Schedule,
    *,
    seed: int = 0,
    memory_gb: float = 2.0,
    label: str = "self-learning",
) -> Learned:
    """Self-learning with the orthogonal map from a first dictionary (pairs, 2) of rows."""
    generator = torch.Generator().manual_seed(seed)
    head_x, head_y = x[: schedule.words], y[: schedule.words]
    buffer = similarity_buffer(head_x, head_y, memory_gb)

    def run_induction(mapped: Tensor, keep: float) -> tuple[Tensor, float]:
        induced = induce(
            mapped,
            head_y,
            keep=keep,
            generator=generator,
            k_csls=schedule.k_csls,
            memory_gb=memory_gb,
            buffer=buffer,
        )
        return induced.pairs, induced.objective

    started = time.monotonic()
    keep, best, last_rise, iteration = schedule.keep_start, float("-inf"), 0, 0
    objective, stalled = best, True
    with progress.task(label) as running:
        while True:
            iteration += 1
            if iteration - last_rise > schedule.patience:
                if keep >= 1.0:
                    break
                keep = min(1.0, schedule.keep_factor * keep)
                last_rise = iteration
            if schedule.max_iterations is not None and iteration > schedule.max_iterations:
                stalled = False
                break
            weights = orthogonal_map(*_rows(x, y, pairs), exact=False).to(x.dtype).to(x.device)
            pairs, objective = run_induction(head_x @ weights, keep)
            if objective - best >= schedule.threshold:
                best, last_rise = objective, iteration
            left = schedule.iterations_left(keep, iteration - last_rise)
            seconds = left * (time.monotonic() - started) / iteration
            running.advance(
                status=f"objective {100 * objective:.3f} %, keep probability {keep:.2f}, "
                f"at least {left} iterations ({seconds / 60:.0f} min) more"
            )
    if not stalled and keep < 1.0:
        # Cut short: the dictionary for the final map is induced without dropping anything.
        weights = orthogonal_map(*_rows(x, y, pairs), exact=False).to(x.dtype).to(x.device)
        pairs, objective = run_induction(head_x @ weights, 1.0)
    return Learned(pairs, objective, iteration - 1, stalled)


def _rows(x: Tensor, y: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    return x[pairs[:, 0].to(x.device)], y[pairs[:, 1].to(y.device)]


# === align.colearning ===
def co_learn(
    x: Tensor,
    y: Tensor,
    encoded_x: Tensor,
    encoded_y: Tensor,
    *,
    rounds: int = 3,
    reweight: float = 0.5,
    k_csls: int = 10,
    memory_gb: float = 2.0,
) -> Tensor:
    """The dictionary (pairs, 2) after ``rounds`` of mapping and looking at both views.

    Rows of x, y and of the encoder's vectors are the same most frequent words. With 0 rounds the
    dictionary is the encoder's alone.
    """

    def neighbours(left: Tensor, right: Tensor) -> Tensor:
        retriever = Retriever(left, right, k_csls=k_csls, device=x.device, memory_gb=memory_gb)
        return torch.from_numpy(mutual_neighbours(retriever))

    pairs = neighbours(encoded_x, encoded_y)
    if not len(pairs):
        raise InputError(
            "the encoder finds no two words near each other; expected some for a start from it "
            "(use seeds, identical words, or the unsupervised start)"
        )
    with progress.task("learning from vectors and encoder", rounds) as running:
        for _ in range(rounds):
            mapped_x, mapped_y = x.clone(), y.clone()
            final_map_(mapped_x, mapped_y, pairs, reweight)
            both_x = torch.cat([unit_(mapped_x), encoded_x], dim=1)
            both_y = torch.cat([unit_(mapped_y), encoded_y], dim=1)
            pairs = neighbours(both_x, both_y)
            running.advance(status=f"{len(pairs)} pairs")
    return pairs


# === align.trust ===
ENOUGH = 0.2  # score above which a map is believed; wrong ones stay near 0
WORDS = 4_000  # most frequent words that the check looks at
SPLITS = 4  # random halves that the agreement is averaged over
NULL_STARTS, NULL_PATIENCE, NULL_ITERATIONS = 3, 3, 80
FEWEST_PAIRS = 10


@dataclass(frozen=True)
class Trust:
    """Agreement of held-out pairs, and the best that random starts reach."""

    agreement: float
    chance: float

    @property
    def score(self) -> float:
        return (self.agreement - self.chance) / max(1e-9, 1.0 - self.chance)

    @property
    def enough(self) -> bool:
        return self.score >= ENOUGH


def check_trust(
    x: Tensor, y: Tensor, pairs: Tensor, *, seed: int, k_csls: int = 10, memory_gb: float = 2.0
) -> Trust:
    """Judge the dictionary (pairs, 2) that self-learning ended with on unit rows x and y."""
    x, y = x[:WORDS], y[:WORDS]
    pairs = pairs[(pairs[:, 0] < len(x)) & (pairs[:, 1] < len(y))]
    generator = torch.Generator().manual_seed(seed)

    def learn(dictionary: Tensor) -> Tensor:
        """One deterministic step: the map of a dictionary, and the mutual neighbours under it."""
        weights = _map(x, y, dictionary)
        found = induce(x @ weights, y, generator=generator, k_csls=k_csls, memory_gb=memory_gb)
        return _mutual(found.pairs, found.forward)

    def agreement(dictionary: Tensor) -> float:
        mutual = learn(dictionary)
        if len(mutual) < FEWEST_PAIRS:
            return 0.0
        shares = []
        for _ in range(SPLITS):
            order = torch.randperm(len(mutual), generator=generator)
            half, rest = mutual[order[: len(order) // 2]], mutual[order[len(order) // 2 :]]
            found = torch.isin(_keys(rest, len(y)), _keys(learn(half), len(y)))
            shares.append(float(found.double().mean()))
        return sum(shares) / len(shares)

    smaller = min(len(x), len(y))
    schedule = Schedule(
        words=WORDS, k_csls=k_csls, patience=NULL_PATIENCE, max_iterations=NULL_ITERATIONS
    )
    chance = []
    for start in range(NULL_STARTS):
        random = torch.stack(
            [torch.randperm(len(side), generator=generator)[:smaller] for side in (x, y)], dim=1
        )
        learned = self_learn(
            *(x, y, random, schedule),
            seed=seed + start,
            memory_gb=memory_gb,
            label=f"checking the outcome ({start + 1} of {NULL_STARTS})",
        )
        chance.append(agreement(learned.pairs))
    return Trust(agreement(pairs), max(chance))


def _map(x: Tensor, y: Tensor, pairs: Tensor) -> Tensor:
    rows = pairs.to(x.device)
    return orthogonal_map(x[rows[:, 0]], y[rows[:, 1]]).to(x.dtype).to(x.device)


def _mutual(pairs: Tensor, forward: int) -> Tensor:
    """Pairs that both directions chose."""
    width = int(pairs[:, 1].max()) + 1
    both = torch.isin(_keys(pairs[:forward], width), _keys(pairs[forward:], width))
    return pairs[:forward][both]


def _keys(pairs: Tensor, width: int) -> Tensor:
    """One number a pair."""
    return pairs[:, 0] * width + pairs[:, 1]


# === align.vecmap ===
INITS = ("seeds", "distributions", "encoder", "identical", "numerals")


class VecMap(Aligner):
    """Artetxe et al.'s map, in closed form or with stochastic self-learning (METHOD.md §6).

    ``init`` says where the first dictionary comes from: the seeds, the sorted similarity
    distributions of the most frequent words (no supervision), a multilingual encoder's own
    vectors of words, identical words, or numerals.

    >>> VecMap.preset("unsupervised").align(finnish, estonian)  # doctest: +SKIP
    """

    method = "vecmap"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "supervised": {"init": "seeds", "self_learning": False},
        "semi_supervised": {"init": "seeds", "self_learning": True},
        "unsupervised": {"init": "distributions", "self_learning": True},
        "encoder": {"init": "encoder", "self_learning": True},
        "identical": {"init": "identical", "self_learning": True},
        "numerals": {"init": "numerals", "self_learning": True},
    }

    def __init__(
        self,
        *,
        init: str = "seeds",
        self_learning: bool = False,
        reweight: float = 0.5,
        words: int = 20_000,
        init_words: int = 4_000,
        encoder: str = "lite",
        encoder_rounds: int = 3,
        k_csls: int = 10,
        keep_start: float = 0.1,
        keep_factor: float = 2.0,
        patience: int = 50,
        threshold: float = 1e-6,
        max_iterations: int | None = None,
        memory_gb: float = 2.0,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        if init not in INITS:
            raise InputError(f"init is {init!r}; expected one of {', '.join(INITS)}")
        if not 0.0 < keep_start <= 1.0:
            raise InputError(f"keep_start is {keep_start}; expected a probability above 0, up to 1")
        if keep_factor <= 1.0:
            raise InputError(f"keep_factor is {keep_factor}; expected more than 1")
        check_at_least(
            words=(words, 1),
            init_words=(init_words, 1),
            patience=(patience, 1),
            k_csls=(k_csls, 1),
            encoder_rounds=(encoder_rounds, 0),
            seed=(seed, 0),
        )
        if not memory_gb > 0:
            raise InputError(f"memory_gb is {memory_gb}; expected a number above 0")
        self.init = init
        self.self_learning = self_learning
        self.reweight = reweight
        self.words = words
        self.init_words = init_words
        self.encoder = encoder
        self.encoder_rounds = encoder_rounds
        self.k_csls = k_csls
        self.keep_start = keep_start
        self.keep_factor = keep_factor
        self.patience = patience
        self.threshold = threshold
        self.max_iterations = max_iterations
        self.memory_gb = memory_gb
        self.seed = seed
        self.device = device

    def align(self, source: Embeddings, target: Embeddings, seeds: Lexicon | None = None) -> Space:
        device = resolve_device(self.device)
        pairs = self._given_dictionary(source, target, seeds)
        x, y = prepare(source, target, device=device)
        learned = None
        if self.init == "encoder":
            learned = self._learn_with_encoder(source, target, x, y)
        elif pairs is None:
            pairs = from_distributions(
                x, y, words=self.init_words, k_csls=self.k_csls, memory_gb=self.memory_gb
            )
        outcome: dict[str, Any] = {}
        if pairs is not None:
            outcome["first_pairs"] = len(pairs)
            if self.self_learning:
                schedule = self._schedule()
                learned = self_learn(
                    x, y, pairs, schedule, seed=self.seed, memory_gb=self.memory_gb
                )
        if learned is not None:
            pairs = learned.pairs
            trust = check_trust(
                x, y, pairs, seed=self.seed, k_csls=self.k_csls, memory_gb=self.memory_gb
            )
            outcome |= self._verdict(learned, trust)
        assert pairs is not None  # one of the starts gave them
        outcome["whitened"] = final_map_(x, y, pairs, self.reweight)
        return self.space(source, target, x, y, **outcome)

    def _learn_with_encoder(
        self, source: Embeddings, target: Embeddings, x: Tensor, y: Tensor
    ) -> Learned:
        """A dictionary from the encoder's own vectors and, with self-learning, from both views."""
        encoder = WordEncoder(self.encoder, device=self.device)
        own = [
            unit_(torch.from_numpy(encoder.encode(words, cache=self.work)).to(x.device))
            for words in (source.words[: self.words], target.words[: self.words])
        ]
        rounds = self.encoder_rounds if self.self_learning else 0
        head_x, head_y = x[: self.words], y[: self.words]
        pairs = co_learn(
            head_x,
            head_y,
            *own,
            rounds=rounds,
            reweight=self.reweight,
            k_csls=self.k_csls,
            memory_gb=self.memory_gb,
        )
        turn = orthogonal_map(head_x[pairs[:, 0]], head_y[pairs[:, 1]]).to(x.dtype).to(x.device)
        generator = torch.Generator().manual_seed(self.seed)
        induced = induce(
            head_x @ turn,
            head_y,
            generator=generator,
            k_csls=self.k_csls,
            memory_gb=self.memory_gb,
        )
        return Learned(pairs, induced.objective, rounds, stalled=True)

    def _given_dictionary(
        self, source: Embeddings, target: Embeddings, seeds: Lexicon | None
    ) -> Tensor | None:
        """The first dictionary as far as words give it; None if vectors have to."""
        if self.init == "seeds":
            return torch.from_numpy(seeds_to_indices(source, target, seeds, method="VecMap"))
        if seeds is not None:
            note(f"the seeds are not used: this mode starts from {self.init}")
        if self.init == "identical":
            return from_identical(source, target)
        return from_numerals(source, target) if self.init == "numerals" else None

    def _schedule(self) -> Schedule:
        return Schedule(
            words=self.words,
            k_csls=self.k_csls,
            keep_start=self.keep_start,
            keep_factor=self.keep_factor,
            patience=self.patience,
            threshold=self.threshold,
            max_iterations=self.max_iterations,
        )

    def _verdict(self, learned: Learned, trust: Trust) -> dict[str, Any]:
        """How self-learning went; a run that failed is not handed over in silence."""
        outcome: dict[str, Any] = {
            "objective": learned.objective,
            "iterations": learned.iterations,
            "trust": round(trust.score, 4),
            "converged": trust.enough,
        }
        if not learned.stalled:
            note(f"self-learning was cut short after {learned.iterations} iterations, as set")
        if not trust.enough:
            outcome["verdict"] = (
                "self-learning did not find a common structure of the two spaces (objective "
                f"{100 * learned.objective:.1f} %; {100 * trust.agreement:.0f} % of held-out pairs "
                f"agree, {100 * trust.chance:.0f} % would by chance): {self._advice()}"
            )
            warnings.warn(outcome["verdict"], stacklevel=3)
        return outcome

    def _advice(self) -> str:
        if self.init == "seeds":
            return "give more seed pairs, or check that they are right"
        others = [init for init in ("encoder", "identical", "numerals") if init != self.init]
        return (
            f"give seed pairs (some hundreds suffice), try the mode {' or '.join(others)} or "
            "another seed of the random draws, and check that both sides are vectors of frequent "
            "words, most frequent first"
        )
