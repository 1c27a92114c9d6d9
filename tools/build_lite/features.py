"""The table: what each token means, how it is spelt, where it is used, and a few flags."""

from __future__ import annotations

import zlib

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import svds

from blicer.scorers.romanise import romanise
from tools.build_lite.vocabulary import KNOWN, OTHERS, SPECIAL, START, Vocabulary, segment

# Where each kind of feature lies in a row of the table.
MEANING = slice(0, 64)
SPELLING = slice(64, 108)
LANGUAGES = slice(108, 123)  # the known ones, then any other
FREQUENCY, IMPORTANCE, IS_START, IS_SPECIAL, SEGMENT = range(123, 128)
WIDTH = 128
MEANING_NORM, SPELLING_NORM, LANGUAGE_SCALE = 8.0, 6.0, 1.5
HASHED = 1 << 15


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


def meaning_basis(vectors: np.ndarray) -> np.ndarray:
    """Leading directions (512, 64) of the USE encoder's vectors (not of its input table).

    On held-out training seeds 64 of the 512 dimensions rank candidates as well as all.
    """
    real = vectors.astype(np.float32)
    _, directions = np.linalg.eigh(real.T @ real)
    return np.ascontiguousarray(directions[:, ::-1][:, : MEANING.stop - MEANING.start])


def n_grams(token: str, whole: bool) -> list[str]:
    """n-grams of the romanised token; an end is marked where the token shows one."""
    text = romanise(token.removeprefix(START))
    text = ("<" if token.startswith(START) else "") + text + (">" if whole else "")
    return [text[i : i + n] for n in (1, 2, 3, 4) for i in range(len(text) - n + 1)]


def spelling_counts(tokens: list[str], whole: np.ndarray) -> csr_matrix:
    rows, columns = [], []
    for row, token in enumerate(tokens):
        hashes = [zlib.crc32(gram.encode()) % HASHED for gram in n_grams(token, bool(whole[row]))]
        rows += [row] * len(hashes)
        columns += hashes
    ones = np.ones(len(rows), np.float32)
    return csr_matrix((ones, (rows, columns)), shape=(len(tokens), HASHED))


def spelling(vocabulary: Vocabulary) -> np.ndarray:
    """Leading directions of the tokens' n-gram profiles; bytes get random directions."""
    # A piece that is a whole word by itself is still shown without a closing mark.
    counts = spelling_counts(vocabulary.tokens, vocabulary.is_whole)
    norms = np.sqrt(np.asarray(counts.multiply(counts).sum(1))).ravel()
    profiles = csr_matrix(counts.multiply(1.0 / np.maximum(norms, 1e-6)[:, None]))
    size = SPELLING.stop - SPELLING.start
    rng = np.random.default_rng(0)
    _, _, directions = svds(profiles, k=size, v0=rng.standard_normal(min(profiles.shape)), tol=1e-2)
    rows = np.asarray(profiles @ directions.T, dtype=np.float32)
    rows[: vocabulary.n_control] = rng.standard_normal((vocabulary.n_control, size))
    return SPELLING_NORM * unit(rows)


def languages(vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """How often each language uses the token, on a log scale from 0 to 1; and the most of it."""
    from wordfreq import get_frequency_dict

    tokenizer = vocabulary.tokenizer()
    used = np.zeros((len(vocabulary.tokens), len(KNOWN + OTHERS)), np.float64)
    for column, language in enumerate(KNOWN + OTHERS):
        frequency = get_frequency_dict(language)
        words = vocabulary.words[language]
        for word, ids in zip(words, segment(tokenizer, words), strict=True):
            used[ids, column] += frequency.get(word, 1e-8)
    scaled = np.clip(np.log10(np.maximum(used, 1e-12) * 1e8) / 6.0, 0.0, 1.0).astype(np.float32)
    known, other = scaled[:, : len(KNOWN)], scaled[:, len(KNOWN) :].max(1, keepdims=True)
    return LANGUAGE_SCALE * np.concatenate([known, other], axis=1), scaled.max(1)


def build_table(vocabulary: Vocabulary, meaning: np.ndarray, importance: np.ndarray) -> np.ndarray:
    """(tokens, 128) float32 from the tokens' meaning (tokens, 64) and importance in a word."""
    n = len(vocabulary.tokens)
    table = np.zeros((n, WIDTH), np.float32)
    table[:, MEANING] = MEANING_NORM * unit(meaning)
    table[:, SPELLING] = spelling(vocabulary)
    table[:, LANGUAGES], table[:, FREQUENCY] = languages(vocabulary)
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
