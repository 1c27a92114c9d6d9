"""Translator: reranking, early exit, words in and out, saving. Scorers here are made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blicer import evaluate
from blicer.align.space import Space
from blicer.calibration import Absent, Scored, calibrate
from blicer.embeddings import Embeddings
from blicer.errors import FileError, InputError
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, Mixture
from blicer.training_pairs import Scaling
from blicer.translations import Candidate, Translation
from blicer.translator import Translator


class Oracle:
    """Knows that word ``s7`` means ``t7``; otherwise a fixed number from the two spellings."""

    name = "spelling"

    def __init__(self) -> None:
        self.asked = 0

    def score(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        self.asked += len(source)
        return np.array(
            [
                1.0 if a[1:] == b[1:] else (sum(map(ord, a + "|" + b)) * 37 % 100) / 250
                for a, b in zip(source, target, strict=True)
            ],
            dtype=np.float32,
        )


@pytest.fixture(scope="module")
def space() -> Space:
    rng = np.random.default_rng(0)
    source = rng.normal(size=(60, 8)).astype(np.float32)
    target = (source + 0.8 * rng.normal(size=source.shape)).astype(np.float32)
    return Space(
        Embeddings([f"s{i}" for i in range(60)], source, "en"),
        Embeddings([f"t{i}" for i in range(60)], target, "fr"),
        method="files",
    )


@pytest.fixture
def translator(space: Space) -> Translator:
    mixture = Mixture({CSLS: 0.4, "spelling": 0.6})
    rng = np.random.default_rng(1)
    mixed = rng.random((80, 10))
    words = Scored(mixed, np.stack([mixed, mixed], axis=2), np.arange(80) % 2 == 0, np.arange(80))
    calibration = calibrate(words, rng.random(mixed.shape) < mixed, (Absent(), Absent()))
    return Translator(
        space, [Oracle()], mixture, Scaling(0.5, 0.5), calibration=calibration, n_cand=10
    )


def naive_ranking(translator: Translator, query: int, reverse: bool) -> list[int]:
    """Ten best by CSLS, scored one by one, sorted by mixed score, CSLS order on ties."""
    found = translator.space.retriever.search(10, [query], reverse=reverse)
    scored = []
    for place, (index, csls) in enumerate(zip(found.indices[0], found.scores[0], strict=True)):
        source, target = (index, query) if reverse else (query, index)
        other = float(Oracle().score([f"s{source}"], [f"t{target}"])[0])
        scored.append((-(0.4 * (0.5 * float(csls) + 0.5) + 0.6 * other), place, int(index)))
    return [index for _, _, index in sorted(scored)]


@pytest.mark.parametrize("reverse", [False, True])
def test_ranking_is_the_naive_one(translator: Translator, reverse: bool) -> None:
    found = translator.rank(np.arange(60), reverse=reverse)
    for query in range(60):
        assert found.indices[query].tolist() == naive_ranking(translator, query, reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_gold_ranks(translator: Translator, reverse: bool) -> None:
    golds = [np.array([i, (i + 1) % 60]) for i in range(60)]
    ranks = translator.gold_ranks(np.arange(60), golds, reverse=reverse)
    by_csls = translator.space.gold_ranks(np.arange(60), golds, reverse=reverse)
    for query, gold in enumerate(golds):
        order = naive_ranking(translator, query, reverse)
        places = [order.index(g) + 1 for g in gold.tolist() if g in order]
        assert ranks[query] == (min(places) if places else by_csls[query])


def test_a_gold_outside_the_candidates_is_not_the_first(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks and lists may round a tie at the last place differently; it is no hit then."""
    golds = [np.array([i]) for i in range(60)]
    expected = translator.gold_ranks(np.arange(60), golds)
    listed = translator.space.retriever.search(10).indices
    outside = np.array([i not in listed[i] for i in range(60)])
    assert outside.any()
    claimed = np.where(outside, 10, translator.space.gold_ranks(np.arange(60), golds))
    monkeypatch.setattr(translator.space, "gold_ranks", lambda *_, **__: claimed.copy())
    ranks = translator.gold_ranks(np.arange(60), golds)
    assert (ranks[outside] == 11).all()
    np.testing.assert_array_equal(ranks[~outside], expected[~outside])


def test_the_best_by_early_exit_is_the_best_of_all(translator: Translator) -> None:
    best = translator.best(np.arange(60))
    asked = translator.scorers[0].asked  # type: ignore[attr-defined]
    assert 0 < asked <= 60 * translator.n_cand
    np.testing.assert_array_equal(best, translator.rank(np.arange(60)).indices[:, 0])


def test_reranking_helps_where_the_scorer_knows(translator: Translator, space: Space) -> None:
    test = Lexicon([(f"s{i}", f"t{i}") for i in range(60)])
    before, after = evaluate(space, test), evaluate(translator, test)
    assert after.forward.in_vocabulary["p@1"] > before.forward.in_vocabulary["p@1"]


def test_words_in_words_out(translator: Translator) -> None:
    first, unknown, upper = translator.translate(["s3", "s3x", "S4"], k=3, min_confidence=0)
    assert first.known
    assert len(first.candidates) == 3
    scores = [candidate.score for candidate in first.candidates]
    assert scores == sorted(scores, reverse=True)
    assert not unknown.known
    assert upper.known
    assert upper.word == "S4"


def test_min_confidence_leaves_out_the_unsure(translator: Translator) -> None:
    words = [f"s{i}" for i in range(60)]
    every = translator.translate(words, k=10, min_confidence=0)
    # Between the surest second translation and the least sure first one.
    limit = 0.9 * max(entry.candidates[1].confidence or 0 for entry in every)
    sure = translator.translate(words, k=10, min_confidence=limit)
    for one, other in zip(every, sure, strict=True):
        expected = [c for c in one.candidates if (c.confidence or 0) >= limit]
        assert list(other.candidates) == expected
    assert any(len(entry.candidates) > 1 for entry in sure)


def test_the_best_is_given_and_others_if_likely(translator: Translator) -> None:
    words = [f"s{i}" for i in range(60)]
    assert translator.calibration is not None
    every = translator.translate(words, k=10, min_confidence=0)
    sure = [one.confidence or 0 for entry in every for one in entry.candidates[1:]]
    likely = float(np.median(sure))
    measured = translator.calibration.reliability
    assert measured is not None
    eager = replace(translator.calibration, reliability=replace(measured, likely=likely))
    translator.calibration = eager
    for one, other in zip(every, translator.translate(words, k=4), strict=True):
        others = [c for c in one.candidates[1:] if (c.confidence or 0) >= likely]
        assert list(other.candidates) == [one.candidates[0], *others][:4]


def test_a_word_is_one_word(translator: Translator) -> None:
    assert translator.translate("s3") == translator.translate(["s3"])[0]


def test_seeds_come_first_as_given(translator: Translator) -> None:
    alone = translator.translate(["s3", "s4"], k=3, min_confidence=0)
    second = alone[0].candidates[1]
    given = [("s3", "odd one"), ("s3", second.word), ("two words", "t5")]
    translator.seeds = Lexicon(given)
    seeded, other, outside, unknown = translator.translate(
        ["s3", "s4", "two words", "t5"], k=3, min_confidence=0
    )
    assert seeded.candidates == (
        Candidate("odd one", None, 1.0, seed=True),
        Candidate(second.word, second.score, 1.0, seed=True),
        alone[0].candidates[0],
    )
    assert other == alone[1]
    assert outside.known
    assert outside.candidates == (Candidate("t5", None, 1.0, seed=True),)
    assert not unknown.known
    back = translator.translate("t5", reverse=True, min_confidence=1.0)
    assert [one.word for one in back.candidates] == ["two words"]
    overruled = translator.translate(["s3", "s4"], k=3, min_confidence=0, seeds_as_evidence=True)
    assert overruled == alone


def test_pairs_known_to_be_wrong_are_never_given(translator: Translator, tmp_path: Path) -> None:
    asked = {"min_confidence": 0.0}
    best = translator.translate("s3", k=3, **asked).candidates[0].word
    translator.wrong = Lexicon([("s3", best)])
    translator.save(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "translator.json").read_text())
    assert saved["wrong"] == [["s3", best]]
    after = [one.word for one in translator.translate("s3", k=60, **asked).candidates]
    assert best not in after
    assert len(after) == translator.n_cand - 1
    back = translator.translate(best, k=60, reverse=True, **asked).candidates
    assert "s3" not in [one.word for one in back]
    assert best in [one.word for one in translator.translate("s4", k=60, **asked).candidates] or (
        best not in [translator.target.words[i] for i in translator.rank([4]).indices[0]]
    )


def test_forms_of_one_lemma_are_one_translation() -> None:
    """Fifty stems with -a and -as, each pair used alike; the endings are learned from them."""
    rng = np.random.default_rng(3)
    stems = ["".join(rng.choice(list("bdfgklmn"), 5)) for _ in range(50)]
    vectors = rng.normal(size=(50, 8))
    target = Embeddings(
        [stem + ending for stem in stems for ending in ("a", "as")],
        np.repeat(vectors, 2, axis=0) + 0.1 * rng.normal(size=(100, 8)),
    )
    source = Embeddings([f"s{i}" for i in range(50)], vectors.astype(np.float32))
    translator = Translator(
        Space(source, target), [], Mixture({CSLS: 1.0}), Scaling(1, 0), n_cand=10
    )
    for number, entry in enumerate(translator.translate(source.words, k=10)):
        best = entry.candidates[0]
        assert {best.word, *best.forms} == {stems[number] + "a", stems[number] + "as"}
        words = [word for one in entry.candidates for word in (one.word, *one.forms)]
        assert len(set(words)) == len(words) == 10


def test_a_promised_precision_is_a_confidence(translator: Translator) -> None:
    assert translator.calibration is not None
    assert translator.calibration.reliability is not None
    curve = translator.calibration.reliability.curve
    reached = curve[len(curve) // 2][1]
    assert translator.confidence_for(reached) == min(p[0] for p in curve if p[1] >= reached)
    for wrong in (0.0, 1.0, 95):
        with pytest.raises(InputError, match="expected one between 0 and 1"):
            translator.confidence_for(wrong)
    translator.calibration = None
    with pytest.raises(InputError, match="no precision can be promised"):
        translator.confidence_for(0.9)


def test_a_scorer_of_no_weight_is_not_asked(space: Space) -> None:
    oracle = Oracle()
    translator = Translator(
        space, [oracle], Mixture({CSLS: 1.0, "spelling": 0.0}), Scaling(1, 0), n_cand=10
    )
    found = translator.rank([1, 2])
    assert oracle.asked == 0
    np.testing.assert_array_equal(found.indices, space.retriever.search(10, [1, 2]).indices)
    assert found.confidence is None


def test_saved_and_loaded_it_says_the_same(translator: Translator, tmp_path: Path) -> None:
    from blicer.scorers.spelling import Spelling

    plain = Translator(
        translator.space,
        [Spelling()],
        translator.mixture,
        translator.scaling,
        calibration=translator.calibration,
        n_cand=10,
        details={"note": "été"},
        seeds=Lexicon([("s1", "un\tdeux"), ("s9", "t9")]),
    )
    plain.save(tmp_path / "t")
    again = Translator.load(tmp_path / "t")
    assert again.translate(["s1", "s2"], k=4) == plain.translate(["s1", "s2"], k=4)
    assert again.details == {"note": "été"}
    assert again.seeds == plain.seeds
    assert not list(tmp_path.glob("**/*.pkl"))


def test_damaged_folders_are_one_sentence(translator: Translator, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"is not a translator: there is no translator\.json"):
        Translator.load(tmp_path)
    (tmp_path / "translator.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(FileError, match="expected format 'blicer-translator'"):
        Translator.load(tmp_path)
    (tmp_path / "translator.json").write_text(
        json.dumps({"format": "blicer-translator", "version": 99})
    )
    with pytest.raises(FileError, match="has version 99"):
        Translator.load(tmp_path)


def test_a_word_that_more_likely_than_not_has_no_translation(translator: Translator) -> None:
    """What is said of each word is the chance that its ranking has."""
    ranking = translator.rank(np.arange(5))
    assert ranking.here is not None
    words = translator.source.words[:5]
    for word, chance in zip(words, ranking.here, strict=True):
        found = translator.translate(word)
        assert found.here == pytest.approx(chance)
        assert found.perhaps_none == (chance < 0.5)
        assert found.candidates[0].confidence <= chance + 1e-9  # type: ignore[operator]
    # Where nobody has checked the pairs that confidence was fitted on, it is no chance.
    assert translator.calibration is not None
    translator.calibration = translator.calibration.unchecked((0.5, 0.5))
    assert translator.rank(np.arange(5)).here is None
    assert translator.translate(words[0]).here is None
    seeded = Translation("a", (Candidate("b", 0.1, 1.0, seed=True),), here=0.1)
    assert not seeded.perhaps_none
    assert not Translation("a", ()).perhaps_none


def test_words_in_any_iterable(translator: Translator) -> None:
    expected = [one.best for one in translator.translate(["s1", "s2"])]
    for words in (("s1", "s2"), iter(["s1", "s2"]), (word for word in ("s1", "s2"))):
        assert [one.best for one in translator.translate(words)] == expected
    for wrong in (5, b"s1", None, 1.5):
        with pytest.raises(InputError, match="expected a word"):
            translator.translate(wrong)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="words is a str"):
        translator.induce("200")  # type: ignore[arg-type]


def test_bad_arguments_are_named(translator: Translator, space: Space) -> None:
    with pytest.raises(InputError, match="k is 0"):
        translator.translate(["s1"], k=0)
    with pytest.raises(InputError, match=r"min_confidence is 1\.5"):
        translator.translate(["s1"], min_confidence=1.5)
    with pytest.raises(InputError, match=r"the mixture weighs \['csls'\]"):
        Translator(space, [Oracle()], Mixture({CSLS: 1.0}), Scaling(1, 0))
    with pytest.raises(InputError, match="k is '3'"):
        translator.translate(["s1"], k="3")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="None is to be translated"):
        translator.translate([None])  # type: ignore[list-item]
    with pytest.raises(InputError, match="the calibration has 21 coefficients; expected 19"):
        Translator(
            space, [], Mixture({CSLS: 1.0}), Scaling(1, 0), calibration=translator.calibration
        )
    bare = Translator(space, [], Mixture({CSLS: 1.0}), Scaling(1, 0))
    with pytest.raises(InputError, match="no calibration"):
        bare.translate(["s1"], min_confidence=0.5)


def test_other_files_are_never_replaced(translator: Translator, tmp_path: Path) -> None:
    folder, file = tmp_path / "mine", tmp_path / "words.txt"
    folder.mkdir()
    (folder / "notes.txt").write_text("precious", encoding="utf-8")
    file.write_text("precious", encoding="utf-8")
    for place in (folder, file):
        with pytest.raises(FileError, match="exists and is not a translator; it is left as it is"):
            translator.save(place)
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "precious"
    assert file.read_text(encoding="utf-8") == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "words.txt"}
    translator.save(tmp_path / "new")
    translator.save(tmp_path / "new")  # its like may be replaced
