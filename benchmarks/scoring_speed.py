"""Queries per second of the reranking chain against plain CrossEncoder.predict, in one run.

    python -m benchmarks.scoring_speed [--queries 32] [--lam 0.22 0.3] [--csls FILE.npy] [--json]

A model of xlm-roberta-base's size (12 layers, 768 wide, 30,000 pieces) with random weights scores
28 candidates a query in both orders. The baseline calls ``CrossEncoder.predict`` once per query
and per order with its defaults. Both are measured in wall time and in the process's CPU time (the
fairer one on a busy machine), query by query in turns, with the same threads.

Reported apart: what batching saves when everything is scored, and what early exit saves on top.
Early exit depends on λ, so it is timed at two: 0.22, the paper's for an encoder of this size (C1,
5k seeds), and 0.3, nearer to its values for the large one; a larger λ saves less. Scaled CSLS
scores are drawn to have the gaps between ranks that Procrustes spaces of Russian-French and
English-French have (measured on training words), or read from a (queries, 28) array. The shares
saved at other λ, with the random head's scores (all near 0.5) and with scores spread out by hand,
are printed without being timed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

from blicer.crossencoder.model import Reranker
from blicer.crossencoder.scoring import best_first

CANDIDATES, MAX_LENGTH, PIECES = 28, 20, 30_000
# Ranks and median gaps to the best candidate, mean of the two measured spaces.
RANKS, GAPS = (1, 2, 5, 10, 28), (0.0, 0.050, 0.105, 0.139, 0.187)


def build_model(folder: Path, layers: int) -> None:
    """xlm-roberta-base with random weights, a cut vocabulary and a tokenizer laid out as its."""
    generator = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnoprstuvz"))
    pieces = {"(", ")", "!", "▁(", "▁", *letters, "english", "français"}
    while len(pieces) < PIECES - 4:
        size = int(generator.integers(2, 6))
        pieces.add(
            ("▁" if generator.random() < 0.5 else "") + "".join(generator.choice(letters, size))
        )
    scored = [(piece, -float(8 - len(piece) / 4)) for piece in sorted(pieces)]
    specials = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    backend = Tokenizer(models.Unigram([*specials, *scored], unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=PIECES,
        hidden_size=768,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=514,
        num_labels=1,
    )
    XLMRobertaForSequenceClassification(config).save_pretrained(folder)


def words(count: int, generator: np.random.Generator) -> list[str]:
    """Invented words of 2 to 14 letters, about one to four pieces each."""
    letters = np.array(list("abcdefghijklmnoprstuvz"))
    sizes = np.clip(generator.normal(7, 2.5, count), 2, 14).astype(int)
    return ["".join(generator.choice(letters, size)) for size in sizes]


def draw_csls(queries: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """(queries, 28) scaled CSLS, best first, with gaps as in real spaces."""
    curve = np.interp(np.log(np.arange(1, CANDIDATES + 1)), np.log(RANKS), GAPS)
    steps = np.diff(curve, prepend=0.0)
    # Gamma steps vary as much between words as the measured 10 % and 90 % quantiles do.
    width = np.clip(generator.normal(1.0, 0.3, (queries, 1)), 0.3, None)
    noisy = generator.gamma(1.5, 1 / 1.5, (queries, CANDIDATES)) * steps * width
    return generator.normal(0.82, 0.06, (queries, 1)) - np.cumsum(noisy, axis=1)


@dataclass
class Clock:
    wall: float = 0.0
    cpu: float = 0.0

    def run(self, work: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        return result


@dataclass
class Counted:
    """A function that scores parts of pairs, and how many parts it was asked for."""

    score: Callable[..., Any]
    parts: int = 0

    def __call__(self, q: NDArray[np.int64], *rest: NDArray[np.int64]) -> Any:
        self.parts += len(q)
        return self.score(q, *rest)

    def saved(self, pairs: int) -> float:
        return 1 - self.parts / (2 * pairs)


def csls_mix(csls: NDArray[np.float64], lam: float) -> tuple[NDArray[np.float64], list[float]]:
    """The known part and the weights of method §4: (1-λ) CSLS + λ/2 of either order."""
    return (1 - lam) * csls, [lam / 2, lam / 2]


def saved_share(csls: NDArray[np.float64], lam: float, parts: NDArray[np.float64]) -> float:
    counted = Counted(lambda q, c, p: parts[p, q, c])
    best_first(*csls_mix(csls, lam), counted, batch_size=1)
    return counted.saved(csls.size)


def measure(
    queries: int, lams: list[float], csls: NDArray[np.float64] | None, layers: int
) -> dict[str, Any]:
    generator = np.random.default_rng(1)
    if csls is None:
        csls = draw_csls(queries, generator)
    else:
        csls = csls[np.linspace(0, len(csls) - 1, queries).astype(int)]
    sources = [f"{word} (english)!" for word in words(queries, generator)]
    # Candidates of different queries overlap, as words of one vocabulary do.
    pool = np.array([f"{word} (français)!" for word in words(queries * 20, generator)])
    targets = pool[generator.integers(0, len(pool), (queries, CANDIDATES))]

    with tempfile.TemporaryDirectory() as folder:
        build_model(Path(folder), layers)
        baseline = CrossEncoder(folder, max_length=MAX_LENGTH, device="cpu")
        ours = Reranker(folder, device="cpu", precision="fp32", max_length=MAX_LENGTH)
        ours.score(["warm"], ["up"])
        baseline.predict([("warm", "up")])

    def plain(q: int) -> list[NDArray[np.float32]]:
        return [
            baseline.predict([(sources[q], str(target)) for target in targets[q]]),
            baseline.predict([(str(target), sources[q]) for target in targets[q]]),
        ]

    def parts_of(q: NDArray[np.int64], c: NDArray[np.int64], p: NDArray[np.int64]) -> Any:
        return ours.score_parts([sources[i] for i in q], [str(t) for t in targets[q, c]], p)

    slow, full = Clock(), Clock()
    baseline_scores = np.zeros((2, queries, CANDIDATES))
    half = queries // 2
    everything = np.indices((2, queries, CANDIDATES)).reshape(3, -1)

    # Baseline, ours, baseline: a machine that gets busier or calmer weighs on both alike.
    for q in range(half):
        baseline_scores[:, q] = slow.run(lambda q=q: plain(q))
    mixes = {lam: csls_mix(csls, lam) for lam in lams}
    early = {lam: Clock() for lam in lams}
    asked = {lam: Counted(parts_of) for lam in lams}
    found = {
        lam: early[lam].run(lambda lam=lam: best_first(*mixes[lam], asked[lam])) for lam in lams
    }
    scores = full.run(lambda: parts_of(everything[1], everything[2], everything[0]))
    for q in range(half, queries):
        baseline_scores[:, q] = slow.run(lambda q=q: plain(q))

    parts = np.asarray(scores, dtype=np.float64).reshape(2, queries, CANDIDATES)
    logits = np.log(parts / (1 - parts))
    spread = 1 / (1 + np.exp(-(logits - logits.mean()) / logits.std() * 2.5 + 2.0))
    result: dict[str, Any] = {
        "queries": queries,
        "threads": torch.get_num_threads(),
        "largest score difference": float(np.abs(parts - baseline_scores).max()),
        "baseline queries/s": queries / slow.wall,
        "batching only queries/s": queries / full.wall,
        "speed-up, batching only": slow.wall / full.wall,
        "speed-up in CPU time, batching only": slow.cpu / full.cpu,
    }
    for lam in lams:
        known, (there, back) = mixes[lam]
        plain_best = (known + there * baseline_scores[0] + back * baseline_scores[1]).argmax(1)
        result |= {
            f"λ {lam}: queries/s": queries / early[lam].wall,
            f"λ {lam}: same top-1": int((plain_best == found[lam]).sum()),
            f"λ {lam}: speed-up": slow.wall / early[lam].wall,
            f"λ {lam}: speed-up in CPU time": slow.cpu / early[lam].cpu,
            f"λ {lam}: share of pairs saved": asked[lam].saved(csls.size),
        }
    return result | {
        "share saved by λ, random head": {
            x: round(saved_share(csls, x, parts), 3) for x in (0.15, 0.22, 0.3, 0.36, 0.5)
        },
        "share saved by λ, spread scores": {
            x: round(saved_share(csls, x, spread), 3) for x in (0.15, 0.22, 0.3, 0.36, 0.5)
        },
    }


def run(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--queries", type=int, default=32)
    parser.add_argument("--lam", type=float, nargs="+", default=[0.22, 0.3])
    parser.add_argument("--csls", type=Path, help="a (queries, 28) array of scaled CSLS scores")
    parser.add_argument("--layers", type=int, default=12, help="fewer for a quick look")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    csls = np.load(options.csls, allow_pickle=False) if options.csls else None
    result = measure(options.queries, options.lam, csls, options.layers)
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:38} {value:.3f}" if isinstance(value, float) else f"{name:38} {value}")
    return result


if __name__ == "__main__":
    run()
