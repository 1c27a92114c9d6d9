"""The table: what each token means, how often it is used, and a few flags."""

from __future__ import annotations

import numpy as np

from tools.build_lite.vocabulary import KNOWN, OTHERS, SPECIAL, START, Vocabulary, segment

# Where each kind of feature lies in a row of the table.
MEANING = slice(0, 96)
FREQUENCY, IMPORTANCE, IS_START, IS_SPECIAL, SEGMENT = range(96, 101)
WIDTH = 104
MEANING_NORM = 8.0


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


def meaning_basis(vectors: np.ndarray) -> np.ndarray:
    """Leading directions (512, 96) of the USE encoder's vectors (not of its input table).

    They are most of what ranks candidates, and what the 45 MB of the artefact have room for.
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


def quantise(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """uint8 codes with one offset and one scale for each column."""
    low, high = table.min(0), table.max(0)
    scale = np.maximum(high - low, 1e-6) / 255.0
    codes = np.clip(np.rint((table - low) / scale), 0, 255).astype(np.uint8)
    return codes, scale.astype(np.float32), low.astype(np.float32)
