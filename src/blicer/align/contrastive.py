"""C1: two linear maps, trained to tell a translation from its hard negatives (METHOD.md §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from blicer import progress
from blicer.align.base import UNIT_CENTRE_UNIT, Aligner, check_at_least, prepare, seeds_to_indices
from blicer.align.linear import apply_
from blicer.align.space import Space
from blicer.align.vecmap import INITS, VecMap, final_map_
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.neighbours.kernels import csr, has_sparse_kernels, pair_products, places_of_true
from blicer.neighbours.mining import silver_pairs
from blicer.neighbours.retriever import Retriever

# === align.mining ===
ROWS_AT_ONCE = 512  # of similarities: enough for the multiplication, small for the cache
ROUNDING = 1e-5  # of a product that is summed in another order
MOST_TIMES = 8  # as many numbers as are asked for: then ordering whole rows is no slower
SAMPLE = 64  # words scanned in full at every step, to measure what the pool misses


def weighted_rows(weights: Tensor, columns: Tensor, right: Tensor) -> Tensor:
    """``out[i] = Σ_j weights[i, j] · right[columns[i, j]]``."""
    return F.embedding_bag(columns, right, mode="sum", per_sample_weights=weights)


@dataclass(frozen=True)
class Transposed:
    """The entries of a pool, ordered by candidate instead of by query.

    Only the choice among them changes from step to step, so the order is found once a scan.
    """

    order: Tensor
    query: Tensor
    ends: Tensor  # number of entries up to and with each candidate

    @classmethod
    def of(cls, columns: Tensor, candidates: int) -> Transposed:
        flat = columns.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=candidates)
        return cls(order, order // columns.shape[1], counts.cumsum(0))

    def weighted_rows(self, weights: Tensor, left: Tensor) -> Tensor:
        """``out[c]``: the sum of weights · left[i] over entries (i, c); weights as the pool."""
        values = weights.reshape(-1)[self.order]
        used = values != 0
        values, query = values[used], self.query[used]
        passed = torch.cat([used.new_zeros(1, dtype=torch.int64), used.cumsum(0)])
        starts = torch.cat([passed[:1], passed[self.ends]])
        candidates = len(self.ends)
        if has_sparse_kernels(left.device):
            return csr(starts, query, values, (candidates, len(left))) @ left
        rows = torch.repeat_interleave(torch.arange(candidates, device=left.device), starts.diff())
        out = left.new_zeros(candidates, left.shape[1])
        part = max(1, 2**26 // left.shape[1])
        for i in range(0, len(rows), part):
            inside = slice(i, i + part)
            out.index_add_(0, rows[inside], values[inside, None] * left[query[inside]])
        return out


@dataclass(frozen=True)
class Pool:
    """For each query, the candidates that a full scan found nearest (the gold one left out)."""

    columns: Tensor  # (queries, width) candidate rows
    transposed: Transposed


@dataclass(frozen=True)
class Negatives:
    """The mined negatives of a step, inside the pool that they were chosen from."""

    scores: Tensor  # (queries, n) cosines
    places: Tensor  # (queries, n) columns of the pool
    pool: Pool

    @property
    def words(self) -> Tensor:
        """(queries, n) candidate rows."""
        return self.pool.columns.gather(1, self.places)

    def to_queries(self, weights: Tensor, candidates: Tensor) -> Tensor:
        """``out[i]``: the weighted sum of query i's negatives."""
        return weighted_rows(weights, self.words, candidates)

    def to_candidates(self, weights: Tensor, queries: Tensor) -> Tensor:
        """``out[c]``: the weighted sum of the queries that have c as a negative."""
        full = weights.new_zeros(self.pool.columns.shape).scatter_(1, self.places, weights)
        return self.pool.transposed.weighted_rows(full, queries)


class NegativeMiner:
    """The ``negatives`` nearest candidates of each query by dot product, the gold one left out."""

    def __init__(
        self,
        gold: Tensor,
        candidates: int,
        *,
        negatives: int,
        pool: float = 1.5,
        min_recall: float = 0.99,
        memory_gb: float = 2.0,
        seed: int = 0,
    ) -> None:
        self.gold = gold
        self.negatives = min(negatives, candidates - 1)
        self.min_recall = min_recall
        wide = self.negatives if min_recall >= 1 else round(self.negatives * max(1.0, pool))
        self.width = min(wide, candidates - 1)
        # A block of similarities, and as much again for the selection in it.
        fitting = int(memory_gb * 2**30 / 2 / (4 * candidates))
        self.block_rows = max(1, min(fitting, ROWS_AT_ONCE))
        self.scans = 0
        self.recalls: list[float] = []  # measured, of the steps that needed no scan
        self._generator = torch.Generator().manual_seed(seed)
        self._pool: Pool | None = None

    def mine(self, queries: Tensor, candidates: Tensor) -> Negatives:
        """Both as rows of unit length under the current maps."""
        lowest = None
        if self._pool is not None:
            scores = pair_products(queries, candidates, self._pool.columns)
            if self.min_recall < 1:
                found = self._choose(self._pool, scores)
                recall = self._recall(found, queries, candidates)
                if recall >= self.min_recall:
                    self.recalls.append(recall)
                    return found
            lowest = scores.amin(dim=1)  # as many words as a pool holds score no less than this
        columns = self._scan(queries, candidates, self.gold, self.width, lowest)
        self._pool = Pool(columns, Transposed.of(columns, len(candidates)))
        self.scans += 1
        return self._choose(self._pool, pair_products(queries, candidates, columns))

    def _choose(self, pool: Pool, scores: Tensor) -> Negatives:
        scores, places = scores.topk(self.negatives, dim=1, sorted=False)
        return Negatives(scores, places, pool)

    def _recall(self, found: Negatives, queries: Tensor, candidates: Tensor) -> float:
        """Share of the true nearest candidates that were found, on a sample of the queries."""
        sample = torch.randperm(len(queries), generator=self._generator)[:SAMPLE]
        sample = sample.to(queries.device)
        lowest = found.scores[sample].amin(dim=1)
        true = self._scan(queries[sample], candidates, self.gold[sample], self.negatives, lowest)
        mark = torch.zeros(len(sample), len(candidates), dtype=torch.bool, device=queries.device)
        mark.scatter_(1, found.words[sample], True)
        return float(mark.gather(1, true).float().mean())

    def _scan(
        self,
        queries: Tensor,
        candidates: Tensor,
        gold: Tensor,
        width: int,
        lowest: Tensor | None = None,
    ) -> Tensor:
        """The ``width`` best candidates but the gold one; at least so many reach ``lowest``."""
        columns = queries.new_empty(len(queries), width, dtype=torch.int64)
        rows = min(self.block_rows, len(queries))
        buffer = queries.new_empty(rows, len(candidates))
        for start in range(0, len(queries), rows):
            part = slice(start, start + rows)
            block = buffer[: len(queries[part])]
            torch.mm(queries[part], candidates.T, out=block)
            inside = (gold[part] < len(candidates)).nonzero().flatten()  # a rare word is none
            block[inside, gold[part][inside]] = -torch.inf
            columns[part] = _best(block, width, None if lowest is None else lowest[part])
        return columns


def _best(block: Tensor, count: int, lowest: Tensor | None) -> Tensor:
    """Columns of the ``count`` best numbers of each row, in any order.

    Where it is known that as many reach ``lowest``, only those are put in order: for hundreds of
    tens of thousands that takes a third of the time.
    """
    if lowest is None:
        return block.topk(count, dim=1, sorted=False).indices
    rows, columns = places_of_true(block >= (lowest - ROUNDING)[:, None])
    found = torch.bincount(rows, minlength=len(block))
    if int(found.min()) < count or len(rows) > MOST_TIMES * count * len(block):
        return block.topk(count, dim=1, sorted=False).indices
    place = torch.arange(len(rows), device=block.device) - (found.cumsum(0) - found)[rows]
    values = block.new_full((len(block), int(found.max())), -torch.inf)
    values[rows, place] = block[rows, columns]
    listed = torch.zeros_like(values, dtype=torch.int64)
    listed[rows, place] = columns
    return listed.gather(1, values.topk(count, dim=1, sorted=False).indices)


# === align.contrastive_step ===
@dataclass(frozen=True)
class StepResult:
    loss: float
    source_gradient: Tensor  # (d, d), of the source map
    target_gradient: Tensor

    @property
    def norm(self) -> float:
        """Of both gradients together, as the clipping takes it."""
        both = torch.stack([self.source_gradient.norm(), self.target_gradient.norm()])
        return float(both.norm())


def mapped_unit(vectors: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Mapped rows at unit length, and the lengths that they had."""
    mapped = vectors @ matrix
    lengths = mapped.norm(dim=1, keepdim=True).clamp_min_(1e-9)
    return mapped.div_(lengths), lengths


def contrastive_step(
    source: Tensor,
    target: Tensor,
    source_map: Tensor,
    target_map: Tensor,
    pairs: Tensor,
    forward: NegativeMiner,
    backward: NegativeMiner,
    *,
    candidates: tuple[int, int],
    through_lengths: bool,
) -> StepResult:
    """Loss and gradients for all dictionary pairs at once (the full batch).

    ``pairs`` (n, 2) are rows of ``source`` and ``target``; negatives come from the first
    ``candidates`` rows of each side. Every word is mapped once. The mined similarities are the
    logits, so the gradient of a mapped word is a sparse sum of mapped words of the other side:
    with p = softmax(logits) and cos(x, y) first among them,

        d loss / d a_x = (p_0 - 1) b_y + sum of p_j b_j over x's negatives,
        d loss / d a_j = p_j b_y           for each negative j of y,

    and likewise with the sides changed, all divided by n.
    """
    a, a_lengths = mapped_unit(source, source_map)
    b, b_lengths = mapped_unit(target, target_map)
    x, y = a[pairs[:, 0]], b[pairs[:, 1]]
    a_candidates, b_candidates = a[: candidates[0]], b[: candidates[1]]
    near_x = forward.mine(x, b_candidates)
    near_y = backward.mine(y, a_candidates)

    positive = (x * y).sum(dim=1, keepdim=True)
    logits = torch.cat([positive, near_x.scores, near_y.scores], dim=1)
    log_total = logits.logsumexp(dim=1, keepdim=True)
    loss = float((log_total - positive).mean())
    share = (logits - log_total).exp_().div_(len(pairs))
    pull = share[:, :1] - 1 / len(pairs)
    push_x = share[:, 1 : 1 + near_x.scores.shape[1]].contiguous()
    push_y = share[:, 1 + near_x.scores.shape[1] :].contiguous()

    a_gradient, b_gradient = torch.zeros_like(a), torch.zeros_like(b)
    a_gradient[: candidates[0]] = near_y.to_candidates(push_y, y)
    b_gradient[: candidates[1]] = near_x.to_candidates(push_x, x)
    a_gradient.index_add_(0, pairs[:, 0], near_x.to_queries(push_x, b_candidates).addcmul_(pull, y))
    b_gradient.index_add_(0, pairs[:, 1], near_y.to_queries(push_y, a_candidates).addcmul_(pull, x))
    return StepResult(
        loss,
        source.T @ _before_lengths(a_gradient, a, a_lengths, through_lengths),
        target.T @ _before_lengths(b_gradient, b, b_lengths, through_lengths),
    )


def _before_lengths(gradient: Tensor, unit: Tensor, lengths: Tensor, through: bool) -> Tensor:
    """Gradient of the mapped rows before they were brought to unit length.

    The public implementation takes the lengths as constants; ``through`` differentiates them,
    which takes out the part of the gradient that would only change a length.
    """
    if through:
        along = (gradient * unit).sum(dim=1, keepdim=True)
        gradient = gradient.addcmul_(unit, along, value=-1)
    return gradient.div_(lengths)


# === align.contrastive ===
Maps = tuple[Tensor, Tensor]
VERDICT = ("converged", "verdict")  # on a start without seeds
FEW_SEEDS: Mapping[str, Any] = {
    "learning_rate": 2.0,
    "decay": 1.0,
    "steps": 50,
    "negatives": 60,
    "rounds": 3,
    "mined_pairs": 6_000,
    "mined_from": 20_000,
    "train_on_mined": True,
}


class Contrastive(Aligner):
    """Contrastive maps in self-learning rounds (stage 1 of ContrastiveBLI).

    Every round starts from VecMap's closed-form map on the seeds and the pairs mined in the space
    of the round before, then takes ``steps`` steps of gradient descent on
    ``-log softmax`` of each pair's cosine against ``negatives`` hard negatives on either side.

    ``min_recall`` is the share of the true nearest negatives below which the whole vocabulary is
    scanned again (1: at every step); ``pool`` is how many times more candidates than negatives a
    scan keeps. ``through_lengths`` differentiates the division by the mapped words' lengths; the
    public implementation does not, and gains less on held-out seeds.

    >>> space = Contrastive.preset("supervised").align(english, french, seeds)  # doctest: +SKIP
    """

    method = "c1"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "supervised": {},
        "semi_supervised": FEW_SEEDS,
        "unsupervised": {**FEW_SEEDS, "unsupervised": True},
    }

    def __init__(
        self,
        *,
        learning_rate: float = 1.5,
        decay: float = 0.99,
        steps: int = 200,
        negatives: int = 150,
        negatives_from: int = 60_000,
        max_gradient: float = 0.15,
        rounds: int = 2,
        mined_pairs: int = 10_000,
        mined_from: int = 60_000,
        train_on_mined: bool = False,
        unsupervised: bool = False,
        init: str = "distributions",
        encoder: str = "lite",
        centre: bool = True,
        through_lengths: bool = True,
        pool: float = 1.5,
        min_recall: float = 0.99,
        max_words: int = 200_000,
        memory_gb: float = 2.0,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        for name, value, low in (
            ("learning_rate", learning_rate, 0),
            ("decay", decay, 0),
            ("max_gradient", max_gradient, 0),
            ("memory_gb", memory_gb, 0),
        ):
            if not value > low:
                raise InputError(f"{name} = {value}: expected a number above {low}")
        check_at_least(
            steps=(steps, 0),
            negatives=(negatives, 1),
            negatives_from=(negatives_from, 2),
            rounds=(rounds, 1),
            mined_pairs=(mined_pairs, 0),
            mined_from=(mined_from, 1),
            max_words=(max_words, 2),
            seed=(seed, 0),
        )
        if not 0 <= min_recall <= 1:
            raise InputError(f"min_recall = {min_recall}: expected a share from 0 to 1")
        self.learning_rate, self.decay, self.steps = learning_rate, decay, steps
        self.negatives, self.negatives_from = negatives, negatives_from
        self.max_gradient = max_gradient
        self.rounds = rounds
        self.mined_pairs, self.mined_from = mined_pairs, mined_from
        self.train_on_mined, self.unsupervised = train_on_mined, unsupervised
        if init not in INITS[1:]:
            raise InputError(f"init is {init!r}; expected one of {', '.join(INITS[1:])}")
        self.init, self.encoder = init, encoder
        self.centre, self.through_lengths = centre, through_lengths
        self.pool, self.min_recall = pool, min_recall
        self.max_words, self.memory_gb = max_words, memory_gb
        self.seed, self.device = seed, device

    def align(self, source: Embeddings, target: Embeddings, seeds: Lexicon | None = None) -> Space:
        device = resolve_device(self.device)
        if self.unsupervised and seeds is not None:
            raise InputError(
                "C1 in its unsupervised mode takes no seed pairs; use semi_supervised with them"
            )
        known = np.zeros((0, 2), np.int64)
        if not self.unsupervised:
            known = seeds_to_indices(source, target, seeds, method="C1")
        for side, words in (("source", source), ("target", target)):
            if len(words) < 2:
                raise InputError(f"C1 needs at least 2 {side} words to find negatives among")
        outcome: dict[str, Any] = {"seed_pairs": len(known), "rounds_run": []}
        mined = known[:0]
        if self.unsupervised:
            mined, start = self._first_dictionary(source, target)
            outcome |= {"start": start, **{k: v for k, v in start.items() if k in VERDICT}}
        normalisation = UNIT_CENTRE_UNIT if self.centre else ("unit",)
        x, y = prepare(source, target, normalisation=normalisation, device=device)
        for turn in range(self.rounds):
            dictionary = np.concatenate([known, mined])
            trained_on = dictionary if self.train_on_mined or self.unsupervised else known
            label = f"C1, round {turn + 1} of {self.rounds}, {len(trained_on)} pairs"
            maps, report = self._descend(
                x, y, trained_on, closed_form_maps(x, y, dictionary), label
            )
            outcome["rounds_run"].append({"mined_pairs": len(mined), **report})
            if turn + 1 < self.rounds:
                mined = self._mine_pairs(x, y, maps, known)
        return self.space(source, target, apply_(x, maps[0]), apply_(y, maps[1]), **outcome)

    def _first_dictionary(
        self, source: Embeddings, target: Embeddings
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Without seeds: confident pairs of an unsupervised VecMap space, and how that went.

        Whether the start failed is VecMap's to detect and to say; it stays with our space.
        """
        start = VecMap.preset(
            "unsupervised",
            init=self.init,
            encoder=self.encoder,
            seed=self.seed,
            device=self.device,
        )
        space = start.align(source.head(self.max_words), target.head(self.max_words))
        report = {k: v for k, v in space.settings.items() if k not in start.settings}
        return self._confident(space.retriever, np.zeros((0, 2), np.int64)), report

    def _mine_pairs(self, x: Tensor, y: Tensor, maps: Maps, known: np.ndarray) -> np.ndarray:
        a = mapped_unit(x[: self.max_words], maps[0])[0]
        b = mapped_unit(y[: self.max_words], maps[1])[0]
        return self._confident(Retriever(a, b, device=x.device, memory_gb=self.memory_gb), known)

    def _confident(self, retriever: Retriever, known: np.ndarray) -> np.ndarray:
        """Best matches of frequent words, best-scoring first, of both directions; no seed word."""
        return silver_pairs(
            retriever,
            known,
            n_aug=2 * self.mined_pairs,
            n_freq=self.mined_from,
            n_aug_pool=self.mined_pairs,
        )

    def _descend(
        self, x: Tensor, y: Tensor, pairs: np.ndarray, maps: Maps, label: str
    ) -> tuple[Maps, dict[str, Any]]:
        """``steps`` steps of clipped gradient descent; the maps, and how it went."""
        source, source_rows, source_limit = self._working_rows(x, pairs[:, 0])
        target, target_rows, target_limit = self._working_rows(y, pairs[:, 1])
        rows = torch.stack([source_rows, target_rows], dim=1)
        options: dict[str, Any] = {
            "negatives": self.negatives,
            "pool": self.pool,
            "min_recall": self.min_recall,
            "memory_gb": self.memory_gb,
            "seed": self.seed,
        }
        forward = NegativeMiner(target_rows, target_limit, **options)
        backward = NegativeMiner(source_rows, source_limit, **options)
        source_map, target_map = (each.to(x.device, torch.float32) for each in maps)
        rate, losses = self.learning_rate, []
        with torch.no_grad(), progress.task(label, self.steps) as running:
            for _ in range(self.steps):
                step = contrastive_step(
                    source,
                    target,
                    source_map,
                    target_map,
                    rows,
                    forward,
                    backward,
                    candidates=(source_limit, target_limit),
                    through_lengths=self.through_lengths,
                )
                clip = min(1.0, self.max_gradient / (step.norm + 1e-6))
                source_map = source_map - rate * clip * step.source_gradient
                target_map = target_map - rate * clip * step.target_gradient
                rate *= self.decay
                losses.append(step.loss)
                running.advance(status=f"loss {step.loss:.4f}")
        report = {
            "pairs": len(pairs),
            "first_loss": losses[0] if losses else None,
            "last_loss": losses[-1] if losses else None,
            "full_scans": max(forward.scans, backward.scans),
            "lowest_recall": min([1.0, *forward.recalls, *backward.recalls]),
        }
        if losses:
            progress.note(
                f"{label}: loss {losses[0]:.4f} to {losses[-1]:.4f} in {self.steps} steps with "
                f"{report['full_scans']} full scans for negatives"
            )
        return (source_map, target_map), report

    def _working_rows(self, vectors: Tensor, words: np.ndarray) -> tuple[Tensor, Tensor, int]:
        """The rows that the steps need: the frequent words, then rarer dictionary words.

        Returns the rows, the places of ``words`` among them, and how many are candidates.
        """
        limit = min(self.negatives_from, len(vectors))
        rare = np.unique(words[words >= limit])
        places = np.where(words < limit, words, limit + np.searchsorted(rare, words))
        rows = vectors[:limit]
        if len(rare):
            rows = torch.cat([rows, vectors[torch.from_numpy(rare).to(vectors.device)]])
        return rows, torch.from_numpy(places).to(vectors.device), limit


def closed_form_maps(x: Tensor, y: Tensor, pairs: np.ndarray) -> Maps:
    """VecMap's supervised map as two (d, d) matrices: what it makes of the axes themselves.

    Only the dictionary's rows take part, so a copy of these and the axes is all that is mapped.
    """
    axes = torch.eye(x.shape[1], device=x.device)
    sides, places = [], []
    for vectors, words in ((x, pairs[:, 0]), (y, pairs[:, 1])):
        rows, place = np.unique(words, return_inverse=True)
        sides.append(torch.cat([vectors[torch.from_numpy(rows).to(x.device)], axes]))
        places.append(torch.from_numpy(place.reshape(-1)))
    final_map_(sides[0], sides[1], torch.stack(places, dim=1), 0.5)
    return sides[0][-len(axes) :], sides[1][-len(axes) :]
