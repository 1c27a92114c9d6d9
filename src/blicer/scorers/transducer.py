"""Learns from the seeds which letters correspond, for any two scripts.

A memoryless transducer (Ristad and Yianilos 1998) generates both words of a pair letter by letter:
it replaces a letter by another, drops one, or adds one. Expectation maximisation estimates the
probabilities. Most translations are not related in spelling, so a training pair is generated either
by the transducer or by two independent models, and the share of related pairs is estimated too. A
logistic regression then calibrates the likelihood ratio (docs/method.md §7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from blicer.errors import FileError
from blicer.files import read_json, write_json
from blicer.regression import logistic_regression
from blicer.scorers import check_lengths
from blicer.scorers.spelling import romanise

FILE, LETTERS_FILE = "transducer.safetensors", "transducer.json"
LONGEST = 24  # letters of a word that are read
ITERATIONS = 8
PAIRS_AT_ONCE = 8192
MOST_LETTERS = 400  # of a language; rarer ones count as unknown
ALIKE, ANY = 2.0, 0.02  # pseudo-counts of letters that sound alike, and of any two letters
UNKNOWN = 0

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Tables:
    """Probabilities of the three operations, and of letters on their own (0: unknown letter)."""

    replace: Floats  # (source letters, target letters)
    drop: Floats  # (source letters,)
    add: Floats  # (target letters,)
    stop: float
    source: Floats
    target: Floats


class Transducer:
    """Likeness of spelling by letter correspondences learned from your seeds, in any scripts.

    The score is the probability that two words so alike are a translation; where the languages'
    words are unrelated it is nearly the same for all pairs.
    """

    name = "transducer"
    needs_seeds = True

    def __init__(self) -> None:
        self.letters: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self.tables: Tables | None = None
        self.weights = np.zeros(3)

    def fit(
        self,
        source: Sequence[str],
        target: Sequence[str],
        is_positive: Bools,
        of_seeds: Bools | None = None,
    ) -> None:
        """Learn from word pairs, seeds or not; negatives serve the logistic regression only."""
        if not is_positive.any() or is_positive.all():
            return  # nothing to tell apart: every pair scores the same
        self.letters = (_alphabet(source, is_positive), _alphabet(target, is_positive))
        left, right = self._codes(source, target)
        alike, features = self._sounds_alike(), np.zeros((len(left), 2))
        # Pairs that the tables were learned from would look too alike, so each half of the pairs is
        # scored with tables from the other half.
        half = np.arange(len(left)) % 2 == 0
        for judged in (half, ~half):
            taught = is_positive & ~judged
            self.tables = _expectation_maximisation(left[taught], right[taught], alike)
            features[judged] = self._features(left[judged], right[judged])
        self.tables = _expectation_maximisation(left[is_positive], right[is_positive], alike)
        balance = np.where(is_positive, 0.5 / is_positive.mean(), 0.5 / (1 - is_positive.mean()))
        fitted = logistic_regression(features, is_positive.astype(np.float64), weights=balance)
        self.weights = np.array(fitted)

    def score(self, source: Sequence[str], target: Sequence[str]) -> NDArray[np.float32]:
        """Probability that each pair is a translation, by its letters alone."""
        check_lengths(source, target)
        features = self._features(*self._codes(source, target))
        logits = self.weights[0] + features @ self.weights[1:]
        return (1 / (1 + np.exp(-np.clip(logits, -40, 40)))).astype(np.float32)

    def _codes(self, source: Sequence[str], target: Sequence[str]) -> tuple[Ints, Ints]:
        return (_encode(source, self.letters[0]), _encode(target, self.letters[1]))

    def _features(self, left: Ints, right: Ints) -> Floats:
        """(pairs, 2): log likelihood ratio of related to unrelated words, in all and by letter."""
        gain = np.zeros(len(left))
        if self.tables is None:
            return np.zeros((len(left), 2))
        for start in range(0, len(left), PAIRS_AT_ONCE):
            some = slice(start, start + PAIRS_AT_ONCE)
            forward, lengths = _forward(left[some], right[some], self.tables)
            related = _ends(forward, lengths) * self.tables.stop
            alone = _log_alone(left[some], right[some], self.tables)
            gain[some] = np.log(np.maximum(related, 1e-300)) - alone
        letters = (left >= 0).sum(axis=1) + (right >= 0).sum(axis=1)
        return np.stack([np.clip(gain, -20, 20) / 10, gain / np.maximum(letters, 1)], axis=1)

    def _sounds_alike(self) -> Bools:
        """(source letters, target letters): whether equal, or equal after romanisation."""
        sounds = [["", *(romanise(letter) or letter for letter in side)] for side in self.letters]
        table = np.array([[a == b and a != "" for b in sounds[1]] for a in sounds[0]])
        return table.reshape(len(sounds[0]), len(sounds[1]))

    def save(self, folder: Path) -> dict[str, Any]:
        arrays = {"weights": self.weights}
        if self.tables is not None:
            arrays |= {name: np.atleast_1d(value) for name, value in vars(self.tables).items()}
        save_file({name: value.copy() for name, value in arrays.items()}, folder / FILE)
        write_json(folder / LETTERS_FILE, [list(side) for side in self.letters])
        return {}

    @classmethod
    def load(cls, folder: Path, values: dict[str, Any], **_: Any) -> Transducer:
        scorer = cls()
        try:
            sides = read_json(folder / LETTERS_FILE)
            first, second = ({a: n for n, a in enumerate(side, start=1)} for side in sides)
            arrays = load_file(folder / FILE)
            scorer.letters, scorer.weights = (first, second), arrays.pop("weights")
            if [len(first), len(second)] != [len(side) for side in sides]:
                raise ValueError("a letter is listed twice")
            rows, columns = len(first) + 1, len(second) + 1
            shapes = {"replace": (rows, columns), "drop": (rows,), "add": (columns,)}
            shapes |= {"source": (rows,), "target": (columns,), "stop": (1,)}
            found = {name: array.shape for name, array in arrays.items()}
            if (arrays and found != shapes) or scorer.weights.shape != (3,):
                raise ValueError(f"tables of {found}; expected {shapes}")
            if not all(np.isfinite(one).all() for one in (*arrays.values(), scorer.weights)):
                raise ValueError("a probability is not a finite number")
            if arrays:
                stop = float(arrays.pop("stop")[0])
                scorer.tables = Tables(stop=stop, **arrays)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(folder / FILE, f"cannot be read: {error}") from None
        return scorer


def _alphabet(words: Sequence[str], counted: Bools) -> dict[str, int]:
    """Numbers from 1 for the letters of the counted words, most frequent first."""
    counts: dict[str, int] = {}
    for word in {word for word, yes in zip(words, counted.tolist(), strict=True) if yes}:
        for letter in word[:LONGEST]:
            counts[letter] = counts.get(letter, 0) + 1
    frequent = sorted(counts, key=lambda letter: (-counts[letter], letter))[:MOST_LETTERS]
    return {letter: number for number, letter in enumerate(frequent, start=1)}


def _encode(words: Sequence[str], letters: dict[str, int]) -> Ints:
    """(words, longest): letters as numbers, padded with -1."""
    width = min(LONGEST, max(map(len, words), default=1))
    codes = np.full((len(words), max(width, 1)), -1, np.int64)
    known: dict[str, list[int]] = {}
    for row, word in enumerate(words):
        if word not in known:
            known[word] = [letters.get(letter, UNKNOWN) for letter in word[:LONGEST]]
        codes[row, : len(known[word])] = known[word]
    return codes


def _expectation_maximisation(left: Ints, right: Ints, alike: Bools) -> Tables:
    """Learn the tables from positive pairs, some of which are related in spelling."""
    prior = Tables(
        replace=ANY / alike.size**0.5 + ALIKE * alike,
        drop=np.full(alike.shape[0], ANY),
        add=np.full(alike.shape[1], ANY),
        stop=1.0,
        source=_frequencies(left, alike.shape[0]),
        target=_frequencies(right, alike.shape[1]),
    )
    tables, share = _normalised(prior), 0.5
    for _ in range(ITERATIONS):
        replace, drop, add = prior.replace.copy(), prior.drop.copy(), prior.add.copy()
        stop, related_pairs = prior.stop, 0.0
        for start in range(0, len(left), PAIRS_AT_ONCE):
            some = slice(start, start + PAIRS_AT_ONCE)
            counts = _expected_counts(left[some], right[some], tables, share)
            replace, drop, add = replace + counts[0], drop + counts[1], add + counts[2]
            stop, related_pairs = stop + counts[3], related_pairs + counts[3]
        share = min(0.95, max(0.01, related_pairs / max(1, len(left))))
        learned = Tables(replace, drop, add, stop, prior.source, prior.target)
        tables = _normalised(learned)
    return tables


def _normalised(counts: Tables) -> Tables:
    """Normalise operations and the end of a pair to one distribution."""
    total = counts.replace.sum() + counts.drop.sum() + counts.add.sum() + counts.stop
    return Tables(
        counts.replace / total,
        counts.drop / total,
        counts.add / total,
        counts.stop / total,
        counts.source,
        counts.target,
    )


def _frequencies(codes: Ints, letters: int) -> Floats:
    counts = np.bincount(codes[codes >= 0], minlength=letters) + 0.5
    return counts / counts.sum()


def _log_alone(left: Ints, right: Ints, tables: Tables) -> Floats:
    """Log-probability of both words if generated independently of each other."""
    total = np.zeros(len(left))
    for codes, frequencies in ((left, tables.source), (right, tables.target)):
        total += np.where(codes >= 0, np.log(frequencies[np.maximum(codes, 0)]), 0.0).sum(axis=1)
        # Lengths have a geometric distribution of mean 7.
        lengths = (codes >= 0).sum(axis=1)
        end = 1 / (1 + 7.0)
        total += lengths * np.log(1 - end) + np.log(end)
    return total


def _forward(left: Ints, right: Ints, tables: Tables) -> tuple[Floats, tuple[Ints, Ints]]:
    """(pairs, i, j): probability of the first i and j letters, over all alignments."""
    rows, columns = left.shape[1], right.shape[1]
    replace, drop, add = _operations(left, right, tables)
    forward = np.zeros((rows + 1, columns + 1, len(left)))
    forward[0, 0] = 1.0
    for i in range(rows + 1):
        for j in range(columns + 1):
            cell = forward[i, j]
            if i and j:
                cell += forward[i - 1, j - 1] * replace[i - 1, j - 1]
            if i:
                cell += forward[i - 1, j] * drop[i - 1]
            if j:
                cell += forward[i, j - 1] * add[j - 1]
    return forward, ((left >= 0).sum(axis=1), (right >= 0).sum(axis=1))


def _operations(left: Ints, right: Ints, tables: Tables) -> tuple[Floats, Floats, Floats]:
    """Probability of each operation at each position, letters first; 0 after the end of a word."""
    inside_left, inside_right = (left >= 0).T, (right >= 0).T
    a, b = np.maximum(left, 0).T, np.maximum(right, 0).T
    replace = tables.replace[a[:, None], b[None]] * (inside_left[:, None] & inside_right[None])
    return replace, tables.drop[a] * inside_left, tables.add[b] * inside_right


def _ends(forward: Floats, lengths: tuple[Ints, Ints]) -> Floats:
    """The probability of the whole pair, from the cell of its lengths."""
    return forward[lengths[0], lengths[1], np.arange(forward.shape[2])]


def _expected_counts(
    left: Ints, right: Ints, tables: Tables, share: float
) -> tuple[Floats, Floats, Floats, float]:
    """Expected counts of each operation, weighted by the probability that the pair is related."""
    forward, lengths = _forward(left, right, tables)
    whole = _ends(forward, lengths)
    gain = np.log(np.maximum(whole * tables.stop, 1e-300)) - _log_alone(left, right, tables)
    odds = np.clip(gain + np.log(share / (1 - share)), -40, 40)
    related = 1 / (1 + np.exp(-odds))
    replace, drop, add = _operations(left, right, tables)
    rows, columns = left.shape[1], right.shape[1]
    backward = np.zeros_like(forward)
    backward[lengths[0], lengths[1], np.arange(len(left))] = 1.0
    for i in range(rows, -1, -1):
        for j in range(columns, -1, -1):
            cell = backward[i, j]
            if i < rows and j < columns:
                cell += backward[i + 1, j + 1] * replace[i, j]
            if i < rows:
                cell += backward[i + 1, j] * drop[i]
            if j < columns:
                cell += backward[i, j + 1] * add[j]
    scale = related / np.maximum(whole, 1e-300)
    used = forward[:-1, :-1] * backward[1:, 1:] * replace * scale
    dropped = (forward[:-1] * backward[1:]).sum(axis=1) * drop * scale
    added = (forward[:, :-1] * backward[:, 1:]).sum(axis=0) * add * scale
    a, b = np.maximum(left, 0).T, np.maximum(right, 0).T
    shape = tables.replace.shape
    places = np.broadcast_to(a[:, None] * shape[1] + b[None], used.shape)
    counts: list[Floats] = [
        np.bincount(letters.ravel(), often.ravel(), minlength=size).astype(np.float64)
        for letters, often, size in (
            (places, used, shape[0] * shape[1]),
            (a, dropped, shape[0]),
            (b, added, shape[1]),
        )
    ]
    return counts[0].reshape(shape), counts[1], counts[2], float(related.sum())
