"""``Retriever``: exact nearest neighbours by cosine and CSLS between two vocabularies.

Work is cut into blocks, so that memory does not grow with the vocabulary. Where the device
multiplies bf16 much faster than fp32, large scans run in bf16; they keep ``BF16_MARGIN`` more
candidates than asked for, and rescoring in fp32 makes the result that of an fp32 scan.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from blicer.devices import resolve_device
from blicer.errors import InputError
from blicer.neighbours.kernels import Scan, pair_products

Measure = Literal["cosine", "csls", "csls_candidate"]
Precision = Literal["auto", "fp32", "bf16"]

ROWS_AT_ONCE = 65536
BF16_MARGIN = 32
SMALL_SCAN = 2e11  # multiply-adds below which fp32 is fast enough
FASTER = 0.75  # bf16 products must take at most this share of fp32's time
PAIRS_AT_ONCE = 2**22  # rescored together
UNIT_ROUNDING = 2.0**-8  # bf16 keeps eight bits: half of the last one's step
SUMMATION = 1e-4  # more than what adding up in fp32, in any order, changes of a cosine


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
    size of the neighbourhood in CSLS. ``precision`` is that of large scans ("auto": bf16 where it
    is faster); results are exact in any case. ``memory_gb`` bounds working memory. ``hubness`` is
    that of all source and all target words if it was measured before (None: on first use).
    """

    def __init__(
        self,
        source: Any,
        target: Any,
        *,
        k_csls: int = 10,
        device: str | torch.device | None = "auto",
        precision: Precision = "auto",
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
        self.precision: Precision = precision
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
            of_source, _, of_target, _ = nearest_both(scan, self.k_csls, self.precision)
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
            scan = Scan(scaled, candidates, penalty, self.memory_gb, label)
            values, places = nearest(scan, k, self.precision)
            done = slice(start, start + len(part))
            scores[done] = (values - way.query_hubness[part][:, None]).cpu().numpy()
            indices[done] = places.cpu().numpy()
        return Neighbours(indices, scores)

    def score(
        self, source_indices: Any, target_indices: Any, *, measure: Measure = "csls"
    ) -> NDArray[np.float32]:
        """The score of each given (source, target) pair."""
        left = self._query_index(source_indices, len(self.source))
        right = self._query_index(target_indices, len(self.target))
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
        width = max((len(gold) for gold in golds), default=1)
        # Repeating a gold to fill its row changes neither the best score nor its first holder.
        padded = np.empty((len(golds), width), dtype=np.int64)
        for row, gold in zip(padded, golds, strict=True):
            row[:] = np.resize(np.sort(gold), width)
        gold_index = torch.from_numpy(padded).to(self.device)
        ranks = np.empty(len(index), dtype=np.int64)
        places = torch.arange(len(way.candidates), device=self.device)
        start = 0
        for part in index.split(self._rows_per_block(len(way.candidates))):
            rows = way.queries[part]
            if way.candidate_hubness is None:
                block = torch.mm(rows, way.candidates.T)
            else:  # without the query's own constant, which orders nothing
                block = torch.addmm(
                    -way.candidate_hubness, rows, way.candidates.T, alpha=way.factor
                )
            mine = gold_index[start : start + len(part)]
            values = block.gather(1, mine)
            best = values.amax(dim=1, keepdim=True)
            # Golds are in index order, so the first that reaches the best is the most frequent.
            first = mine.gather(1, (values == best).int().argmax(dim=1, keepdim=True))
            ahead = (block > best).sum(dim=1)
            level = ((block == best) & (places < first)).sum(dim=1)
            ranks[start : start + len(part)] = (1 + ahead + level).cpu().numpy()
            start += len(part)
        return ranks

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
        # A block and its comparison mask are alive together.
        rows = int(self.memory_gb * 2**30 / (4 * candidates * 2))
        return max(1, min(rows, 1024 if self.device.type == "cpu" else 8192))


def as_unit_rows(matrix: Any, device: torch.device) -> Tensor:
    """``matrix`` as fp32 rows of length one; shares memory when it already is that."""
    if isinstance(matrix, np.ndarray):
        with warnings.catch_warnings():
            # Read-only memory maps are fine: nothing here writes to them.
            warnings.filterwarnings("ignore", message=".*not writable.*")
            matrix = torch.from_numpy(matrix)
    if matrix.ndim != 2:
        raise InputError(f"vectors have {matrix.ndim} dimensions; expected a table of rows")
    rows: Tensor = matrix.to(device=device, dtype=torch.float32)
    norms = torch.linalg.vector_norm(rows, dim=1)
    if bool(((norms - 1).abs() <= 1e-6).logical_or(norms == 0).all()):
        return rows
    if rows.data_ptr() == matrix.data_ptr():
        rows = rows.clone()
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        rows[part] /= norms[part].clamp_min(torch.finfo(torch.float32).tiny)[:, None]
    return rows


def nearest(scan: Scan, k: int, precision: Precision = "auto") -> tuple[Tensor, Tensor]:
    """``scan.best(k)``, in bf16 first where that is faster (or asked for)."""
    coarse = _coarse(scan, precision)
    if coarse is None:
        return scan.best(k)
    found = coarse.best(min(k + BF16_MARGIN, len(scan.right)))
    return _in_fp32(scan, *found, k)


def nearest_both(
    scan: Scan, k: int, precision: Precision = "auto"
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``scan.best_both(k)``, in bf16 first where that is faster (or asked for)."""
    coarse = _coarse(scan, precision)
    if coarse is None:
        return scan.best_both(k)
    found, turned = (
        coarse.best_both(k + BF16_MARGIN),
        replace(scan, left=scan.right, right=scan.left),
    )
    return (
        *_in_fp32(scan, *found[:2], min(k, len(scan.right))),
        *_in_fp32(turned, *found[2:], min(k, len(scan.left))),
    )


def _coarse(scan: Scan, precision: Precision) -> Scan | None:
    """The scan in bf16; None if it should run in fp32."""
    if precision not in ("auto", "fp32", "bf16"):
        raise InputError(f"precision is {precision!r}; expected auto, fp32 or bf16")
    if precision == "auto":
        multiply_adds = float(len(scan.left)) * len(scan.right) * scan.left.shape[1]
        large = multiply_adds > SMALL_SCAN
        precision = "bf16" if large and bf16_is_faster(scan.left.device.type) else "fp32"
    if precision == "fp32":
        return None
    return replace(scan, left=scan.left.bfloat16(), right=scan.right.bfloat16())


@lru_cache(maxsize=4)
def bf16_is_faster(device_type: str) -> bool:
    """Whether a bf16 scan with its rescoring beats an fp32 scan: measured, not guessed.

    Only the products get faster, so they must be faster by far.
    """
    if device_type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device_type != "cpu":
        return False
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        scan = Scan(torch.ones(1024, 320, dtype=dtype), torch.ones(1024, 320, dtype=dtype))
        buffer, whole = torch.empty(1024 * 1024), slice(None)
        scan.tile(whole, whole, buffer)
        times = []
        for _ in range(7):
            start = time.perf_counter()
            scan.tile(whole, whole, buffer)
            times.append(time.perf_counter() - start)
        seconds[dtype] = min(times)
    return seconds[torch.bfloat16] < FASTER * seconds[torch.float32]


def _in_fp32(scan: Scan, coarse: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of each row of ``scan`` (fp32), exact, from more than k that bf16 found.

    What bf16 left out scored no more there than the last that it kept. Where the k-th fp32 score
    is above that by more than rounding can do, no better word was left out; other rows are scanned
    again in fp32.
    """
    values = torch.empty(len(indices), k, device=scan.left.device)
    places = torch.empty(len(indices), k, dtype=torch.int64, device=scan.left.device)
    chosen = indices.long().sort(dim=1).values  # by index, so that ties go to frequent words
    step = max(1, PAIRS_AT_ONCE // chosen.shape[1])
    for start in range(0, len(chosen), step):
        part = slice(start, start + step)
        exact = pair_products(scan.left[part].contiguous(), scan.right, chosen[part])
        if scan.penalty is not None:
            exact = exact - scan.penalty[chosen[part]]
        ordered, order = exact.sort(dim=1, descending=True, stable=True)
        values[part], places[part] = ordered[:, :k], chosen[part].gather(1, order[:, :k])
    if chosen.shape[1] < len(scan.right):
        last = coarse[:, -1].float()
        again = (values[:, -1] <= last + _largest_error(scan, last)).nonzero().flatten()
        if len(again):
            close = replace(scan, left=scan.left[again], label="scanning close calls again")
            values[again], places[again] = close.best(k)
    return values, places


def _largest_error(scan: Scan, last: Tensor) -> Tensor:
    """By how much fp32 may score a word that bf16 left out above ``last``, for each left row.

    With x', y' the rounded rows, x·y - x'·y' = (x - x')·y + x'·(y - y'), and no product is above
    that of the lengths. The product itself is rounded, too, in proportion to its size: that of a
    word near ``last`` is at most ``last`` and the largest penalty, and one far below stays below.
    """
    left, left_error = _lengths(scan.left)
    right, right_error = (each.max() for each in _lengths(scan.right))
    penalty = scan.penalty.abs().max() if scan.penalty is not None else 0.0
    rounded = (last.abs() + penalty) * (UNIT_ROUNDING / (1 - UNIT_ROUNDING))
    factors = left_error * right + (left + left_error) * right_error
    bound: Tensor = factors + rounded + SUMMATION * left * right
    return bound


def _lengths(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The length of each row, and of what bf16 takes away from it."""
    lengths, errors = [], []
    for some in rows.split(ROWS_AT_ONCE):
        lengths.append(some.norm(dim=1))
        errors.append((some - some.bfloat16().float()).norm(dim=1))
    return torch.cat(lengths), torch.cat(errors)
