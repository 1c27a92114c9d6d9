"""Retrieval speed: ratios within one run, same threads (issue: foundations, the engine).

    python -m benchmarks.retrieval [--words 100000] [--queries 5000] [--no-faiss]

The job: hubness of both sides and the 28 best targets by CSLS of 5,000 queries.
Compared with the bare fp32 product that one pass needs (``torch.mm`` into a preallocated block),
with the usual recipe (a pass of matmul + topk for each side, then a third for the queries), and
with faiss-cpu's exact inner-product search doing the same job.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from blicer.neighbours.retriever import Retriever

K_CSLS, K, DIM = 10, 28, 300
BLOCK = 2048


def vectors(words: int, dim: int = DIM) -> tuple[torch.Tensor, torch.Tensor]:
    """Two related spaces with the falling spectrum that real word vectors have."""
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.linspace(2.0, 0.3, dim)
    source = torch.randn(words, dim, generator=generator) * spectrum
    target = source + 0.7 * torch.randn(words, dim, generator=generator) * spectrum
    unit = torch.nn.functional.normalize
    return unit(source), unit(target)


def bare_product(source: torch.Tensor, target: torch.Tensor) -> None:
    """One pass of fp32 GEMM and nothing else."""
    block = torch.empty(BLOCK, len(target))
    for start in range(0, len(source), BLOCK):
        rows = source[start : start + BLOCK]
        torch.mm(rows, target.T, out=block[: len(rows)])


def usual_recipe(
    source: torch.Tensor, target: torch.Tensor, queries: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Matmul + topk over all of each side, then again for the queries."""

    def mean_of_nearest(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        parts = [
            (left[start : start + BLOCK] @ right.T).topk(K_CSLS, dim=1).values.mean(dim=1)
            for start in range(0, len(left), BLOCK)
        ]
        return torch.cat(parts)

    of_source, of_target = mean_of_nearest(source, target), mean_of_nearest(target, source)
    found = []
    for some in queries.split(BLOCK):
        scores = 2 * (source[some] @ target.T) - of_source[some, None] - of_target
        found.append(scores.topk(K, dim=1).indices)
    return of_source, of_target, torch.cat(found)


def faiss_job(
    source: torch.Tensor, target: torch.Tensor, queries: torch.Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same with faiss: CSLS as one more dimension of an inner product."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    x, y = source.numpy(), target.numpy()
    means = []
    for one, other in ((x, y), (y, x)):
        index = faiss.IndexFlatIP(one.shape[1])
        index.add(other)
        means.append(index.search(one, K_CSLS)[0].mean(axis=1))
    index = faiss.IndexFlatIP(x.shape[1] + 1)
    index.add(np.column_stack([2 * y, -means[1]]).astype(np.float32))
    asked = np.column_stack([x[queries], np.ones(len(queries))]).astype(np.float32)
    return means[0], means[1], index.search(asked, K)[1]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def run(words: int = 100_000, queries: int = 5000, with_faiss: bool = True) -> dict[str, Any]:
    source, target = vectors(words)
    asked = torch.randperm(words, generator=torch.Generator().manual_seed(1))[:queries]
    bare_product(source[:BLOCK], target)  # warm up

    def ours() -> tuple[Any, Any, np.ndarray]:
        retriever = Retriever(source, target, device="cpu")
        found = retriever.search(K, asked.numpy())
        return (*retriever.hubness, found.indices)

    seconds: dict[str, float] = {}
    seconds["bare fp32 product"], _ = timed(lambda: bare_product(source, target))
    seconds["blicer"], exact = timed(ours)
    result: dict[str, Any] = {"words": words, "queries": queries, "dim": DIM}
    seconds["usual recipe"], usual = timed(lambda: usual_recipe(source, target, asked))
    result["candidates equal to the usual recipe"] = float((usual[2].numpy() == exact[2]).mean())
    if with_faiss:
        seconds["faiss exact"], theirs = timed(lambda: faiss_job(source, target, asked))
        result["candidates equal to faiss"] = float((theirs[2] == exact[2]).mean())
    flops = 2.0 * words * words * DIM
    result["seconds"] = {name: round(value, 2) for name, value in seconds.items()}
    result["gflops of the bare product"] = round(flops / seconds["bare fp32 product"] / 1e9)
    result["ratios"] = {
        f"{name} / blicer": round(value / seconds["blicer"], 2)
        for name, value in seconds.items()
        if name != "blicer"
    }
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--no-faiss", action="store_true")
    options = parser.parse_args()
    print(json.dumps(run(options.words, options.queries, not options.no_faiss), indent=2))
