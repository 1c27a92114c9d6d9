"""The table: what each token means, how often it is used, and a few flags."""

from __future__ import annotations

import numpy as np

from blicer import lite
from tools.build_lite.vocabulary import KNOWN, OTHERS, SPECIAL, START, Vocabulary, segment

# Where each kind of feature lies in a row of the table.
MEANING = slice(0, 96)
FREQUENCY, IMPORTANCE, IS_START, IS_SPECIAL, SEGMENT = range(96, 101)
WIDTH = 104
MEANING_NORM, MEANING_BITS = 8.0, 5
SAMPLE = 50_000  # rows on which the ranges of columns are chosen


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


def meaning_basis(vectors: np.ndarray) -> np.ndarray:
    """Leading directions (512, 96) of the USE encoder's vectors (not of its input table).

    They are most of what ranks candidates, and what the artefact has room for.
    """
    real = vectors.astype(np.float32)
    _, directions = np.linalg.eigh(real.T @ real)
    return np.ascontiguousarray(directions[:, ::-1][:, : MEANING.stop - MEANING.start])


def frequency(vocabulary: Vocabulary) -> np.ndarray:
    """How often any language uses the token, on a log scale from 0 to 1."""
    from wordfreq import get_frequency_dict

    tokenizer = vocabulary.tokenizer()
    used = np.zeros((len(vocabulary.tokens), len(KNOWN + OTHERS)), np.float64)
    for column, language in enumerate(KNOWN + OTHERS):
        frequencies = get_frequency_dict(language)
        words = vocabulary.words[language]
        for word, ids in zip(words, segment(tokenizer, words), strict=True):
            used[ids, column] += frequencies.get(word, 1e-8)
    scaled: np.ndarray = np.clip(np.log10(np.maximum(used, 1e-12) * 1e8) / 6.0, 0.0, 1.0)
    return scaled.max(1).astype(np.float32)


def build_table(vocabulary: Vocabulary, meaning: np.ndarray, importance: np.ndarray) -> np.ndarray:
    """(tokens, 104) float32 from the tokens' meaning (tokens, 96) and importance in a word."""
    n = len(vocabulary.tokens)
    table = np.zeros((n, WIDTH), np.float32)
    table[:, MEANING] = MEANING_NORM * unit(meaning)
    table[:, FREQUENCY] = frequency(vocabulary)
    table[:, IMPORTANCE] = importance
    table[:, IS_START] = [token.startswith(START) for token in vocabulary.tokens]
    table[: len(SPECIAL)] = 0.0
    table[: len(SPECIAL), IS_SPECIAL] = 3.0
    return table


def quantise(table: np.ndarray, bits: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes of so many bits (as uint8) with one offset and one scale for each column.

    A column's range leaves out as much of its tails as makes the squared error least.
    """
    top = 2**bits - 1
    sample = table[np.random.default_rng(0).permutation(len(table))[:SAMPLE]]
    best = np.full(table.shape[1], np.inf)
    low, high = table.min(0), table.max(0)
    for tail in (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2):
        ends = np.quantile(sample, [tail, 1 - tail], axis=0) if tail else np.stack([low, high])
        step = np.maximum(ends[1] - ends[0], 1e-6) / top
        codes = np.clip(np.rint((sample - ends[0]) / step), 0, top)
        error = np.square(ends[0] + step * codes - sample).sum(0)
        better = error < best
        best[better] = error[better]
        low, high = np.where(better, ends, (low, high)).astype(np.float32)
    scale = np.maximum(high - low, 1e-6) / top
    codes = np.clip(np.rint((table - low) / scale), 0, top).astype(np.uint8)
    return codes, scale.astype(np.float32), low


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Bit planes (rows, bits, columns / 8) of codes of so many bits, as `lite.unpack` reads."""
    return np.stack([np.packbits(codes >> bit & 1, axis=1) for bit in range(bits)][::-1], axis=1)


def quantise_table(table: np.ndarray) -> dict[str, np.ndarray]:
    """What is stored of the table: meaning in few bits, the other columns in eight."""
    meaning, *ranges = quantise(table[:, MEANING], MEANING_BITS)
    rest, *others = quantise(table[:, MEANING.stop :])
    scale, low = (np.concatenate(pair) for pair in zip(ranges, others, strict=True))
    return {"planes": pack(meaning, MEANING_BITS), "codes": rest, "scale": scale, "low": low}


def dequantise_table(stored: dict[str, np.ndarray]) -> np.ndarray:
    codes = np.concatenate([lite.unpack(stored["planes"]), stored["codes"]], axis=1)
    return stored["low"] + codes * stored["scale"]
