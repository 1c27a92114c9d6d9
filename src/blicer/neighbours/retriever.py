"""``Retriever``: exact nearest neighbours by cosine and CSLS between two vocabularies.

Work is done in blocks, so that memory does not grow with the vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from blicer.devices import resolve_device
from blicer.errors import InputError
from blicer.neighbours.kernels import Scan

Measure = Literal["cosine", "csls", "csls_candidate"]

ROWS_AT_ONCE = 65536


@dataclass(frozen=True)
class Neighbours:
    """The k best candidates of each query, best first."""

    indices: NDArray[np.int64]  # (queries, k)
    scores: NDArray[np.float32]  # (queries, k)


@dataclass(frozen=True)
class _Direction:
    """One direction of a search: score = factor·cos − r(query) − r(candidate)."""

    queries: Tensor
    candidates: Tensor
    factor: float
    query_hubness: Tensor
    candidate_hubness: Tensor | None


class Retriever:
    """Cosine and CSLS between two vocabularies that share a space (docs/method.md §1).

    ``source`` and ``target`` are rows of vectors, most frequent word first. ``k_csls`` is the
    size of the neighbourhood in CSLS. ``memory_gb`` bounds working memory. ``hubness``: that of all
    source and all target words, if known (None: measured on first use).
    """

    def __init__(
        self,
        source: Any,
        target: Any,
        *,
        k_csls: int = 10,
        device: str | torch.device | None = "auto",
        memory_gb: float = 2.0,
        hubness: tuple[Any, Any] | None = None,
    ) -> None:
        self.device = resolve_device(device)
        self.source = as_unit_rows(source, self.device)
        self.target = as_unit_rows(target, self.device)
        if self.source.shape[1] != self.target.shape[1]:
            raise InputError(
                f"source vectors have {self.source.shape[1]} dimensions and target vectors "
                f"{self.target.shape[1]}; expected one space (align them first)"
            )
        if k_csls < 1:
            raise InputError(f"k_csls is {k_csls}; expected 1 or more")
        if memory_gb <= 0:
            raise InputError(f"memory_gb is {memory_gb}; expected a positive number")
        self.k_csls, self.memory_gb = k_csls, memory_gb
        self._best = [np.full(len(one), np.nan, np.float32) for one in (self.source, self.target)]
        self.known_hubness: tuple[Tensor, Tensor] | None = None
        if hubness is not None:
            of_source, of_target = (
                torch.tensor(side, dtype=torch.float32, device=self.device) for side in hubness
            )
            if of_source.shape != (len(self.source),) or of_target.shape != (len(self.target),):
                raise InputError("the hubness given is not that of these words")
            self.known_hubness = (of_source, of_target)

    @property
    def hubness(self) -> tuple[Tensor, Tensor]:
        """r_Y(x) of every source word and r_X(y) of every target word."""
        if self.known_hubness is None:
            scan = Scan(
                self.source, self.target, memory_gb=self.memory_gb, label="measuring hubness"
            )
            of_source, _, of_target, _ = scan.best_both(self.k_csls)
            self.known_hubness = (of_source.mean(dim=1), of_target.mean(dim=1))
        return self.known_hubness

    def search(
        self,
        k: int,
        queries: Any = None,
        *,
        measure: Measure = "csls",
        reverse: bool = False,
        limit: int | None = None,
    ) -> Neighbours:
        """The k best candidates of each query.

        ``queries`` are word indices (None: all words). ``limit`` restricts candidates to the most
        frequent ones (None: all). ``reverse`` searches the sources of target words. The measure
        ``csls_candidate`` is 2·cos − r(candidate), CSLS without the query's own constant.
        """
        way = self._direction(measure, reverse)
        index = self._query_index(queries, len(way.queries))
        if k < 1:
            raise InputError(f"k is {k}; expected 1 or more")
        candidates, penalty = way.candidates[:limit], way.candidate_hubness
        penalty = None if penalty is None else penalty[:limit]
        k = min(k, len(candidates))
        scores = np.empty((len(index), k), dtype=np.float32)
        indices = np.empty((len(index), k), dtype=np.int64)
        label = "searching sources" if reverse else "searching translations"
        for start in range(0, len(index), ROWS_AT_ONCE):
            part = index[start : start + ROWS_AT_ONCE]
            scaled = way.factor * way.queries[part]
            values, places = Scan(scaled, candidates, penalty, self.memory_gb, label).best(k)
            done = slice(start, start + len(part))
            scores[done] = (values - way.query_hubness[part][:, None]).cpu().numpy()
            indices[done] = places.cpu().numpy()
        return Neighbours(indices, scores)

    def best_scores(self, queries: Any, *, reverse: bool = False) -> NDArray[np.float32]:
        """CSLS of each query's best candidate; computed once for every word."""
        known = self._best[int(reverse)]
        rows = np.asarray(queries, dtype=np.int64)
        new = np.unique(rows[np.isnan(known[rows])])
        if len(new):
            known[new] = self.search(1, new, reverse=reverse).scores[:, 0]
        return known[rows]

    def score(
        self, source_indices: Any, target_indices: Any, *, measure: Measure = "csls"
    ) -> NDArray[np.float32]:
        """The score of each given (source, target) pair."""
        left = self._query_index(source_indices, len(self.source))
        right = self._query_index(target_indices, len(self.target))
        if len(left) != len(right):
            raise InputError(f"{len(left)} source and {len(right)} target words; expected as many")
        way = self._direction(measure, reverse=False)
        parts = []
        for some, others in zip(left.split(ROWS_AT_ONCE), right.split(ROWS_AT_ONCE), strict=True):
            cosine = (self.source[some] * self.target[others]).sum(dim=1)
            value = way.factor * cosine - way.query_hubness[some]
            if way.candidate_hubness is not None:
                value = value - way.candidate_hubness[others]
            parts.append(value.cpu().numpy())
        return np.concatenate(parts)

    def gold_ranks(
        self,
        queries: Any,
        golds: Sequence[Any],
        *,
        measure: Measure = "csls",
        reverse: bool = False,
    ) -> NDArray[np.int64]:
        """The rank, from 1, of each query's best gold among all candidates.

        Of equal scores the more frequent candidate comes first.
        """
        way = self._direction(measure, reverse)
        index = self._query_index(queries, len(way.queries))
        if len(golds) != len(index) or any(len(gold) == 0 for gold in golds):
            raise InputError("every query needs at least one gold candidate")
        ranks: list[int] = []
        for part in index.split(self._rows_per_block(len(way.candidates))):
            rows = way.queries[part]
            if way.candidate_hubness is None:
                block = torch.mm(rows, way.candidates.T)
            else:  # without the query's own hubness, which does not change the order
                block = torch.addmm(
                    -way.candidate_hubness, rows, way.candidates.T, alpha=way.factor
                )
            for scores, gold in zip(block, golds[len(ranks) :], strict=False):
                places = torch.as_tensor(gold, dtype=torch.int64, device=self.device)
                best = scores[places].max()
                first = int(places[scores[places] == best].min())
                level = scores[:first] == best
                ranks.append(1 + int((scores > best).sum()) + int(level.sum()))
        return np.array(ranks, dtype=np.int64)

    def _direction(self, measure: Measure, reverse: bool) -> _Direction:
        if measure not in ("cosine", "csls", "csls_candidate"):
            raise InputError(f"measure is {measure!r}; expected cosine, csls or csls_candidate")
        sides = (self.target, self.source) if reverse else (self.source, self.target)
        none = torch.zeros(len(sides[0]), device=self.device)
        if measure == "cosine":
            return _Direction(*sides, 1.0, none, None)
        of_query, of_candidate = self.hubness[::-1] if reverse else self.hubness
        return _Direction(*sides, 2.0, of_query if measure == "csls" else none, of_candidate)

    def _query_index(self, queries: Any, words: int) -> Tensor:
        if queries is None:
            return torch.arange(words, device=self.device)
        index = torch.as_tensor(
            np.asarray(queries), dtype=torch.int64, device=self.device
        ).flatten()
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= words):
            raise InputError(f"a query index is outside 0 to {words - 1}")
        return index

    def _rows_per_block(self, candidates: int) -> int:
        # A block and its comparison mask are in memory together.
        rows = int(self.memory_gb * 2**30 / (4 * candidates * 2))
        return max(1, min(rows, 1024 if self.device.type == "cpu" else 8192))


def as_unit_rows(matrix: Any, device: torch.device) -> Tensor:
    """``matrix`` as fp32 unit rows; shares memory if it is that already."""
    if isinstance(matrix, np.ndarray):
        with warnings.catch_warnings():
            # Read-only memory maps are fine, because nothing writes to them.
            warnings.filterwarnings("ignore", message=".*not writable.*")
            matrix = torch.from_numpy(matrix)
    if matrix.ndim != 2:
        raise InputError(f"vectors have {matrix.ndim} dimensions; expected a table of rows")
    rows = matrix.to(device=device, dtype=torch.float32)
    norms = torch.linalg.vector_norm(rows, dim=1)
    if not bool(norms.isfinite().all()):
        raise InputError("vectors have NaN or infinity in them")
    if bool(((norms - 1).abs() <= 1e-6).logical_or(norms == 0).all()):
        return rows
    if rows.data_ptr() == matrix.data_ptr():
        rows = rows.clone()
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        rows[part] /= norms[part].clamp_min(torch.finfo(torch.float32).tiny)[:, None]
    return rows
