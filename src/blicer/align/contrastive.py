"""C1: two linear maps, trained to tell a translation from its hard negatives (docs/method.md §6).

Each self-learning round, in the order of this file: start from VecMap's closed-form maps of the
dictionary; descend on the contrastive loss, mining hard negatives at every step; mine confident
pairs for the dictionary of the next round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from blicer import progress
from blicer.align.base import Aligner, Folder, Seeds, apply_, mapped_unit, prepare
from blicer.align.checkpoint import Checkpoint
from blicer.align.space import Space
from blicer.align.vecmap import INITS, VecMap, closed_form_maps
from blicer.config import setting
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.encoders.tuning import check_finite
from blicer.errors import InputError
from blicer.neighbours.kernels import csr, pair_products, top_columns
from blicer.neighbours.mining import Pairs, silver_pairs
from blicer.neighbours.retriever import Retriever

VERDICT = ("converged", "verdict")  # settings that tell whether a start without seeds succeeded
ROWS_AT_ONCE = 512  # of similarities: fast to multiply, and small enough for the CPU cache
ROUNDING = 1e-5  # between products that are summed in different orders
SAMPLE = 64  # words scanned in full at every step, to measure the recall of the pool
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


@dataclass(kw_only=True)
class Contrastive(Aligner):
    """Contrastive maps in self-learning rounds (stage 1 of ContrastiveBLI).

    >>> space = Contrastive.preset("supervised").align(english, french, seeds)  # doctest: +SKIP
    """

    method = "c1"
    presets: ClassVar = {
        "supervised": {},
        "semi_supervised": FEW_SEEDS,
        "unsupervised": {**FEW_SEEDS, "unsupervised": True},
    }

    learning_rate: float = setting(1.5, "of gradient descent", above=0)
    decay: float = setting(0.99, "factor of the learning rate after each step", above=0)
    steps: int = setting(200, "steps a round", low=0)
    negatives: int = setting(150, "hard negatives on each side of a pair", low=1)
    negatives_from: int = setting(60_000, "most frequent words that can be negatives", low=2)
    max_gradient: float = setting(0.15, "norm that gradients are clipped to", above=0)
    rounds: int = setting(2, "self-learning rounds", low=1)
    mined_pairs: int = setting(10_000, "pairs mined in each direction", low=0)
    mined_from: int = setting(60_000, "most frequent words that are mined", low=1)
    train_on_mined: bool = setting(False, "also descend on mined pairs, not only start from them")
    unsupervised: bool = setting(False, "mine the first dictionary from a VecMap space")
    init: str = setting("distributions", "what that VecMap starts from", choices=INITS[1:])
    centre: bool = setting(True, "subtract the mean vector of each side")
    pool: float = setting(1.5, "candidates that a full scan keeps, as a multiple of negatives")
    min_recall: float = setting(
        0.99, "share of true negatives below which all words are scanned", low=0, high=1
    )
    max_words: int = setting(200_000, "most frequent words that can be matches", low=2)
    memory_gb: float = setting(2.0, "bound of working memory", above=0)
    seed: int = setting(0, "of the random draws", low=0)

    def fit(
        self, source: Embeddings, target: Embeddings, pairs: Seeds, *, work: Folder = None
    ) -> Space:
        if self.unsupervised and pairs is not None:
            raise InputError(
                "c1 in its unsupervised mode takes no seed pairs; use semi_supervised with them"
            )
        device = resolve_device(self.device)
        if device.type == "mps":  # has no sparse products
            device = torch.device("cpu")
        known = np.zeros((0, 2), np.int64) if self.unsupervised else self.require_seeds(pairs)
        for side, words in (("source", source), ("target", target)):
            if len(words) < 2:
                raise InputError(f"c1 needs at least 2 {side} words to find negatives among")
        outcome: dict[str, Any] = {"seed_pairs": len(known), "rounds_run": []}
        mined = known[:0]
        if self.unsupervised:
            mined, start = self._first_dictionary(source, target, work)
            outcome |= {"start": start, **{k: v for k, v in start.items() if k in VERDICT}}
        x, y = prepare(source, target, centre=self.centre, device=device)
        checkpoint, begun = Checkpoint(work, self.settings, x, y, known, mined), 0
        if (found := checkpoint.load()) is not None:
            mined, begun = found[0]["mined"].numpy(), len(found[1]["rounds_run"])
            outcome |= found[1]
        for turn in range(begun, self.rounds):
            dictionary = np.concatenate([known, mined])
            trained_on = dictionary if self.train_on_mined or self.unsupervised else known
            label = f"C1, round {turn + 1} of {self.rounds}, {len(trained_on)} pairs"
            start_x, start_y = closed_form_maps(x, y, torch.from_numpy(dictionary))
            start_y = torch.eye(x.shape[1]) if start_y is None else start_y
            maps, report = self.descend(x, y, trained_on, (start_x, start_y), label, work)
            progress.note(
                f"{label}: loss {report['first_loss']} to {report['last_loss']} in {self.steps} "
                f"steps with {report['full_scans']} full scans for negatives"
            )
            outcome["rounds_run"].append({"mined_pairs": len(mined), **report})
            if turn + 1 < self.rounds:
                mined = self._mine_pairs(x, y, maps, known)
                ended = {"rounds_run": outcome["rounds_run"]}
                checkpoint.save({"mined": torch.from_numpy(mined)}, ended)
        checkpoint.delete()
        return self.space(source, target, apply_(x, maps[0]), apply_(y, maps[1]), **outcome)

    def _first_dictionary(
        self, source: Embeddings, target: Embeddings, work: Folder
    ) -> tuple[Pairs, dict[str, Any]]:
        """Without seeds: confident pairs of an unsupervised VecMap space, and its report.

        VecMap warns if the start failed; our space records its verdict.
        """
        settings = {name: getattr(self, name) for name in ("init", "seed", "device")}
        start = VecMap.preset("unsupervised", **settings)
        heads = source.head(self.max_words), target.head(self.max_words)
        space = start.align(*heads, work=work)
        report = {k: v for k, v in space.settings.items() if k not in start.settings}
        return self._confident(space.retriever, np.zeros((0, 2), np.int64)), report

    def _mine_pairs(self, x: Tensor, y: Tensor, maps: tuple[Tensor, Tensor], known: Pairs) -> Pairs:
        a = mapped_unit(x[: self.max_words], maps[0])[0]
        b = mapped_unit(y[: self.max_words], maps[1])[0]
        return self._confident(Retriever(a, b, device=x.device, memory_gb=self.memory_gb), known)

    def _confident(self, retriever: Retriever, known: Pairs) -> Pairs:
        """Best-scoring matches of frequent words in both directions, without seed words."""
        return silver_pairs(
            retriever,
            known,
            n_aug=2 * self.mined_pairs,
            n_freq=self.mined_from,
            n_aug_pool=self.mined_pairs,
        )

    def descend(
        self,
        x: Tensor,
        y: Tensor,
        pairs: Pairs,
        maps: tuple[Tensor, Tensor],
        label: str,
        work: Folder = None,
    ) -> tuple[tuple[Tensor, Tensor], dict[str, Any]]:
        """``steps`` steps of clipped gradient descent; returns the maps and a report."""
        loss = ContrastiveLoss(x, y, torch.from_numpy(pairs).to(x.device), self)
        source_map, target_map = (each.to(x.device, torch.float32) for each in maps)
        rate, losses = self.learning_rate, []
        miners = (loss.forward, loss.backward)
        checkpoint = Checkpoint(work, self.settings, x, y, pairs, *maps)
        if (found := checkpoint.load()) is not None:
            source_map, target_map = (found[0][f"map {side}"].to(x.device) for side in (0, 1))
            rate, losses = found[1]["rate"], found[1]["losses"]
            for number, miner in enumerate(miners):
                miner.restore(found[0], found[1]["miners"][number], str(number))
        with torch.no_grad(), progress.task(label, self.steps) as running:
            running.advance(len(losses))
            for _ in range(len(losses), self.steps):
                value, source_gradient, target_gradient = loss(source_map, target_map)
                check_finite(value, f"step {len(losses) + 1}", self.learning_rate)
                step = rate * clipping(source_gradient, target_gradient, self.max_gradient)
                source_map = source_map - step * source_gradient
                target_map = target_map - step * target_gradient
                rate *= self.decay
                losses.append(value)
                running.advance(status=f"loss {value:.4f}")
                tensors = {"map 0": source_map, "map 1": target_map}
                for number, miner in enumerate(miners):
                    tensors |= miner.tensors(str(number))
                done = {"miners": [[miner.scans, miner.recalls] for miner in miners]}
                checkpoint.save(tensors, {"rate": rate, "losses": losses, **done})
        checkpoint.delete()
        report = {
            "pairs": len(pairs),
            "first_loss": losses[0] if losses else None,
            "last_loss": losses[-1] if losses else None,
            "full_scans": max(miner.scans for miner in miners),
            "lowest_recall": min([1.0, *(recall for miner in miners for recall in miner.recalls)]),
        }
        return (source_map, target_map), report


def clipping(first: Tensor, second: Tensor, most: float) -> float:
    """Factor that brings the norm of both gradients together to at most ``most``."""
    return min(1.0, most / (float(torch.stack([first.norm(), second.norm()]).norm()) + 1e-6))


class ContrastiveLoss:
    """-log softmax of each pair's cosine against its hard negatives on both sides (full batch).

    ``pairs`` (n, 2) are rows of x and y.
    """

    def __init__(self, x: Tensor, y: Tensor, pairs: Tensor, settings: Contrastive) -> None:
        limit = settings.negatives_from
        self.x, self.x_pairs, self.x_words = _working_rows(x, pairs[:, 0], limit)
        self.y, self.y_pairs, self.y_words = _working_rows(y, pairs[:, 1], limit)
        self.forward = NegativeMiner(self.y_pairs, self.y_words, settings)
        self.backward = NegativeMiner(self.x_pairs, self.x_words, settings)

    def __call__(self, source_map: Tensor, target_map: Tensor) -> tuple[float, Tensor, Tensor]:
        """The loss, and its gradients (d, d) for the two maps.

        Every word is mapped once. The mined similarities are the logits, so the gradient of a
        mapped word is a sparse sum of mapped words of the other side: with p = softmax(logits)
        and cos(x, y) first among them,

            d loss / d a_x = (p_0 - 1) b_y + sum of p_j b_j over x's negatives,
            d loss / d a_j = p_j b_y           for each negative j of y,

        and likewise with the sides exchanged, all divided by n.
        """
        a, a_lengths = mapped_unit(self.x, source_map)
        b, b_lengths = mapped_unit(self.y, target_map)
        x, y = a[self.x_pairs], b[self.y_pairs]
        a_words, b_words = a[: self.x_words], b[: self.y_words]
        near_x, near_y = self.forward.mine(x, b_words), self.backward.mine(y, a_words)

        positive = (x * y).sum(dim=1, keepdim=True)
        logits = torch.cat([positive, near_x.scores, near_y.scores], dim=1)
        log_total = logits.logsumexp(dim=1, keepdim=True)
        loss = float((log_total - positive).mean())
        share = (logits - log_total).exp_().div_(len(x))
        pull = share[:, :1] - 1 / len(x)
        push_x = share[:, 1 : 1 + near_x.scores.shape[1]].contiguous()
        push_y = share[:, 1 + near_x.scores.shape[1] :].contiguous()

        a_gradient, b_gradient = torch.zeros_like(a), torch.zeros_like(b)
        a_gradient[: self.x_words] = near_y.to_candidates(push_y, y)
        b_gradient[: self.y_words] = near_x.to_candidates(push_x, x)
        a_gradient.index_add_(0, self.x_pairs, near_x.to_queries(push_x, b_words).addcmul_(pull, y))
        b_gradient.index_add_(0, self.y_pairs, near_y.to_queries(push_y, a_words).addcmul_(pull, x))
        source_gradient = self.x.T @ _before_lengths(a_gradient, a, a_lengths)
        target_gradient = self.y.T @ _before_lengths(b_gradient, b, b_lengths)
        return loss, source_gradient, target_gradient


def _before_lengths(gradient: Tensor, unit: Tensor, lengths: Tensor) -> Tensor:
    """Gradient before normalisation: without the component that only changes the length."""
    along = (gradient * unit).sum(dim=1, keepdim=True)
    return gradient.addcmul_(unit, along, value=-1).div_(lengths)


def _working_rows(vectors: Tensor, words: Tensor, limit: int) -> tuple[Tensor, Tensor, int]:
    """The rows that the steps need: the frequent words, then the rarer words of the dictionary.

    Returns the rows, the positions of ``words`` among them, and the number of candidates.
    """
    limit, words = min(limit, len(vectors)), words.contiguous()
    rare = words[words >= limit].unique()
    places = torch.where(words < limit, words, limit + torch.searchsorted(rare, words))
    rows = torch.cat([vectors[:limit], vectors[rare]]) if len(rare) else vectors[:limit]
    return rows, places, limit


class Pool:
    """For each query, the nearest candidates (queries, width) of a full scan.

    Steps only choose among them, so their order by candidate, which the gradient needs, is computed
    once a scan.
    """

    def __init__(self, columns: Tensor, candidates: int) -> None:
        self.columns = columns
        flat = columns.reshape(-1)
        self.order = flat.argsort(stable=True)
        self.query = self.order // columns.shape[1]
        self.ends = torch.bincount(flat, minlength=candidates).cumsum(0)

    def sums_by_candidate(self, weights: Tensor, queries: Tensor) -> Tensor:
        """``out[c]``: the sum of weights[i, j] · queries[i] over all (i, j) with candidate c."""
        values = weights.reshape(-1)[self.order]
        used = values != 0
        values, query = values[used], self.query[used]
        passed = torch.cat([used.new_zeros(1, dtype=torch.int64), used.cumsum(0)])
        starts = torch.cat([passed[:1], passed[self.ends]])
        return csr(starts, query, values, (len(self.ends), len(queries))) @ queries


@dataclass(frozen=True)
class Negatives:
    """The negatives of a step, and the pool that they were chosen from."""

    scores: Tensor  # (queries, n) cosines
    places: Tensor  # (queries, n) columns of the pool
    pool: Pool

    @property
    def words(self) -> Tensor:
        """(queries, n) candidate rows."""
        return self.pool.columns.gather(1, self.places)

    def to_queries(self, weights: Tensor, candidates: Tensor) -> Tensor:
        """``out[i]``: the weighted sum of query i's negatives."""
        return F.embedding_bag(self.words, candidates, mode="sum", per_sample_weights=weights)

    def to_candidates(self, weights: Tensor, queries: Tensor) -> Tensor:
        """``out[c]``: the weighted sum of the queries that have c as a negative."""
        full = weights.new_zeros(self.pool.columns.shape).scatter_(1, self.places, weights)
        return self.pool.sums_by_candidate(full, queries)


class NegativeMiner:
    """Finds the nearest candidates of each query by cosine, except the gold one.

    A full scan keeps a pool of ``pool`` times as many candidates; the next steps choose from it
    until, on a sample of the queries, less than ``min_recall`` of the true nearest are found.
    """

    def __init__(self, gold: Tensor, candidates: int, settings: Contrastive) -> None:
        self.gold, self.min_recall, self.candidates = gold, settings.min_recall, candidates
        self.negatives = min(settings.negatives, candidates - 1)
        factor = max(1.0, settings.pool) if self.min_recall < 1 else 1.0
        self.width = min(round(self.negatives * factor), candidates - 1)
        # A block of similarities, and as much again for the selection in it.
        fitting = int(settings.memory_gb * 2**30 / 2 / (4 * candidates))
        self.block_rows = max(1, min(fitting, ROWS_AT_ONCE))
        self.scans = 0
        self.recalls: list[float] = []  # measured, of the steps that needed no scan
        self._generator = torch.Generator().manual_seed(settings.seed)
        self._pool: Pool | None = None

    def tensors(self, name: str) -> dict[str, Tensor]:
        """State to save in a checkpoint."""
        found = {f"generator {name}": self._generator.get_state()}
        return found | ({f"pool {name}": self._pool.columns} if self._pool is not None else {})

    def restore(self, tensors: Mapping[str, Tensor], counts: list[Any], name: str) -> None:
        """Restore what ``tensors`` returned; ``counts``: the number of scans, and the recalls."""
        self.scans, self.recalls = counts
        self._generator.set_state(tensors[f"generator {name}"])
        if f"pool {name}" in tensors:
            columns = tensors[f"pool {name}"].to(self.gold.device)
            self._pool = Pool(columns, self.candidates)

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
            lowest = scores.amin(dim=1)  # at least as many words as a pool holds reach this
        columns = self._scan(queries, candidates, self.gold, self.width, lowest)
        self._pool = Pool(columns, len(candidates))
        self.scans += 1
        return self._choose(self._pool, pair_products(queries, candidates, columns))

    def _choose(self, pool: Pool, scores: Tensor) -> Negatives:
        scores, places = scores.topk(self.negatives, dim=1, sorted=False)
        return Negatives(scores, places, pool)

    def _recall(self, found: Negatives, queries: Tensor, candidates: Tensor) -> float:
        """Share of the true nearest candidates among those found, on a sample of the queries."""
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
        """The ``width`` best candidates except the gold one; at least as many reach ``lowest``."""
        columns = queries.new_empty(len(queries), width, dtype=torch.int64)
        rows = min(self.block_rows, len(queries))
        buffer = queries.new_empty(rows, len(candidates))
        for start in range(0, len(queries), rows):
            part = slice(start, start + rows)
            block = buffer[: len(queries[part])]
            torch.mm(queries[part], candidates.T, out=block)
            inside = (gold[part] < len(candidates)).nonzero().flatten()  # not the rare words
            block[inside, gold[part][inside]] = -torch.inf
            bar = None if lowest is None else lowest[part] - ROUNDING
            columns[part] = top_columns(block, width, bar)
        return columns
