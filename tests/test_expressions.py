"""Expressions of several words, near spellings, and what the command line says of either."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blicer.align.space import Space
from blicer.calibration import Absent, Scored, calibrate
from blicer.embeddings import Embeddings
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, Mixture
from blicer.training_pairs import Scaling
from blicer.translations import DISCOUNT, Spellings, compose, parts_of, swaps
from blicer.translator import Translator

ENGLISH = ["house", "white", "dog", "cat", "new_york", "élève", "star", "light", "eleven", "green"]
FRENCH = ["maison", "blanche", "chien", "chat", "new_york", "eleve", "étoile", "lumière", "onze"]


def make_translator(seeds: list[tuple[str, str]], french: list[str] = FRENCH) -> Translator:
    """Word i means word i; all else is noise."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(ENGLISH), 12)).astype(np.float32)
    other = vectors[: len(french)] + 0.05 * rng.normal(size=(len(french), 12)).astype(np.float32)
    mixed = rng.random((80, 5))
    words = Scored(mixed, mixed[:, :, None], np.arange(80) % 2 == 0, np.arange(80))
    return Translator(
        Space(Embeddings(ENGLISH, vectors, "en"), Embeddings(french, other, "fr"), method="files"),
        [],
        Mixture({CSLS: 1.0}),
        Scaling(0.5, 0.5),
        calibration=calibrate(words, rng.random(mixed.shape) < mixed, (Absent(), Absent())),
        n_cand=5,
        seeds=Lexicon(seeds),
    )


def test_an_expression_is_composed_of_its_parts() -> None:
    translator = make_translator([])
    white, house, both = translator.translate(["white", "house", "white house"])
    assert not white.composed
    assert both.known
    assert both.composed
    assert both.best == f"{white.best} {house.best}" == "blanche maison"
    expected = DISCOUNT * white.candidates[0].confidence * house.candidates[0].confidence  # type: ignore[operator]
    assert both.candidates[0].confidence == pytest.approx(expected)
    sure = translator.translate("white house", min_confidence=min(1.0, expected + 0.01))
    assert sure.known
    assert all(one.confidence > expected for one in sure.candidates)  # type: ignore[operator]


def test_the_order_is_reversed_only_if_the_seeds_say_so() -> None:
    swapped = [("green star", "étoile verte"), ("green", "verte"), ("star", "étoile")]
    kept = [("two stars", "deux étoiles"), ("two", "deux"), ("stars", "étoiles")]
    assert swaps(Lexicon(swapped))
    assert not swaps(Lexicon(kept))
    assert not swaps(Lexicon([*swapped, *kept]))
    assert not swaps(Lexicon([]))
    assert make_translator(swapped).translate("white house").best == "maison blanche"
    assert make_translator(kept).translate("white house").best == "blanche maison"


def test_what_the_target_vocabulary_has_comes_first() -> None:
    offered = Embeddings(["y_b", "a x"], np.eye(2))
    parts = [[("a", 0.5), ("b", 0.4)], [("x", 0.5), ("y", 0.4)]]
    found = compose(parts, Lexicon([]), offered)
    expected = {"a x": 0.25, "y_b": 0.16, "a y": 0.2, "b x": 0.2}
    assert dict(found) == pytest.approx({word: DISCOUNT * one for word, one in expected.items()})
    assert [word for word, _ in found[:2]] == ["a x", "y_b"]


def test_no_composition() -> None:
    translator = make_translator([("white house", "palais")])
    assert translator.translate("white house").best == "palais"  # the user gave it
    assert not translator.translate("white house").composed
    found = translator.translate("white zebra")
    assert not found.known
    assert not found.composed
    assert not translator.translate("zebra").known
    assert parts_of("a b c d e f") == []


def test_spaces_and_underscores_are_the_same() -> None:
    translator = make_translator([])
    for word in ("new_york", "new york", "New York", "  new york\n"):
        found = translator.translate(word)
        assert (found.best, found.composed) == ("new_york", False)
        assert found.word == word.strip()
    spaced = Embeddings(["ice cream", "glace_x"], np.eye(2))
    assert Lexicon([("ice_cream", "glace x")]).indices(spaced, spaced).tolist() == [[0, 1]]


def test_pairs_known_to_be_wrong_are_not_composed() -> None:
    translator = make_translator([])
    translator.wrong = Lexicon([("white house", "blanche maison")])
    assert translator.translate("white house", k=9).best != "blanche maison"


def test_near_spellings_ignore_accents() -> None:
    spellings = Spellings(["élève", "éleve", "elevé", "école", "house", "horse", "zebra"])
    assert spellings.near("eleve")[:3] == ["élève", "éleve", "elevé"]
    assert "house" in spellings.near("hause")
    assert spellings.near("hous")[0] == "house"
    assert spellings.near("xyzzy") == []
    assert spellings.near("") == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("translator") / "en-fr"
    make_translator([]).save(path)
    return path


def translate(folder: Path, *words: str) -> list[str]:
    command = [sys.executable, "-c", "from blicer.cli import main; main()", "-q", "translate"]
    done = subprocess.run([*command, folder, *words], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def test_the_command_line_says_so(folder: Path) -> None:
    near, made, stripped = translate(folder, "eleve", "white house", " dog ")
    assert "élève" in near
    assert "the other language has it: ask with --reverse" in near
    assert near.startswith("eleve\t(")
    _, best, *_ = made.split("\t")
    assert best.startswith("blanche maison (of its parts, 0.")
    assert stripped.startswith("dog\tchien")
    near, made = map(json.loads, translate(folder, "eleve", "white house", "--json"))
    assert near["near"][0] == "élève"  # type: ignore[index]
    assert made["composed"] is True  # type: ignore[index]


def test_composed_needs_no_calibration() -> None:
    translator = make_translator([])
    translator.calibration = None
    found = translator.translate("white house")
    assert found.best == "blanche maison"
    assert replace(found.candidates[0], score=None).confidence is None
