from __future__ import annotations

import io
import json
import math
import re
import sys
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from blicer import metrics
from blicer.errors import InputError, MissingDependency
from blicer.evaluation import (
    METRICS,
    Evaluation,
    compare,
    evaluate,
    interval,
    per_query,
    resampled_means,
    thinned,
)
from blicer.lexicon import Lexicon


def side(words: list[str]) -> SimpleNamespace:
    return SimpleNamespace(words=words, lookup={word: row for row, word in enumerate(words)})


class TableSystem:
    """A table of scores; ranks by a plain loop, ties in favour of earlier words."""

    def __init__(self, source: list[str], target: list[str], scores: np.ndarray) -> None:
        self.source, self.target, self.scores = side(source), side(target), scores

    def gold_ranks(self, queries: np.ndarray, golds: list, *, reverse: bool = False) -> np.ndarray:
        scores = self.scores.T if reverse else self.scores
        ranks = []
        for query, gold in zip(queries, golds, strict=True):
            order = sorted(range(scores.shape[1]), key=lambda c: (-scores[query, c], c))
            ranks.append(1 + min(order.index(one) for one in gold))
        return np.array(ranks, dtype=np.int64)


def random_system(seed: int, size: int = 30) -> TableSystem:
    source, target = [f"s{n}" for n in range(size)], [f"t{n}" for n in range(size)]
    scores = np.random.default_rng(seed).normal(size=(size, size))
    return TableSystem(source, target, scores)


def test_by_hand() -> None:
    # cat: chat 1st. dog: gold 'chien' 2nd. cow: gold not in vocabulary. emu: not in vocabulary.
    system = TableSystem(
        ["cat", "dog", "cow"],
        ["chat", "chien", "minou"],
        np.array([[0.9, 0.1, 0.8], [0.5, 0.4, 0.1], [0.3, 0.2, 0.1]]),
    )
    lexicon = Lexicon(
        [("cat", "minou"), ("cat", "chat"), ("dog", "chien"), ("cow", "vache"), ("emu", "émeu")]
    )
    result = evaluate(system, lexicon, bootstrap=50)
    forward, backward = result.forward, result.backward
    assert forward.words == ["cat", "dog", "cow", "emu"]
    assert forward.ranks.tolist() == [1, 2, 0, 0]
    assert forward.answerable.tolist() == [True, True, False, False]
    assert (forward.queries, forward.coverage) == (2, 0.5)
    assert (forward["p@1"], forward["p@5"], forward["p@10"], forward["mrr"]) == (0.5, 1, 1, 0.75)
    assert (forward.all_queries["p@1"], forward.all_queries["mrr"]) == (0.25, 0.375)
    assert forward.all_queries.queries == 4
    # minou: cat is 1st of its column. chat: cat 1st. chien: dog 1st. vache, émeu: unknown.
    assert backward.words == ["minou", "chat", "chien", "vache", "émeu"]
    assert backward.ranks.tolist() == [1, 1, 1, 0, 0]
    assert (backward["p@1"], backward.coverage, backward.all_queries["p@1"]) == (1, 0.6, 0.6)


PAIRS = st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), min_size=1, max_size=60)


@given(pairs=PAIRS, seed=st.integers(0, 5))
def test_against_a_plain_loop(pairs: list[tuple[int, int]], seed: int) -> None:
    system = random_system(seed)  # numbers from 30 on are outside its vocabularies
    lexicon = Lexicon([(f"s{one}", f"t{other}") for one, other in pairs] + [("s0", "t0")])
    result = evaluate(system, lexicon, bootstrap=0)
    for direction, scores, flip in (
        (result.forward, system.scores, False),
        (result.backward, system.scores.T, True),
    ):
        answers: dict[int, set[int]] = {}
        for one, other in [*pairs, (0, 0)]:
            answers.setdefault(other if flip else one, set()).add(one if flip else other)
        hits, reciprocal, asked = {1: 0, 5: 0, 10: 0}, 0.0, 0
        for query, golds in answers.items():
            inside = [gold for gold in golds if gold < 30]
            if query >= 30 or not inside:
                continue
            asked += 1
            best = max(scores[query, gold] for gold in inside)
            rank = 1 + sum(score > best for score in scores[query])
            reciprocal += 1 / rank
            for cut in hits:
                hits[cut] += rank <= cut
        assert direction.queries == asked
        assert direction.coverage == asked / len(answers)
        assert direction["mrr"] == pytest.approx(reciprocal / asked)
        assert direction.all_queries["mrr"] == pytest.approx(reciprocal / len(answers))
        for cut, count in hits.items():
            assert direction[f"p@{cut}"] == pytest.approx(count / asked)
            assert direction.all_queries[f"p@{cut}"] == pytest.approx(count / len(answers))


class FixedRanks:
    """Gives the ranks that it is told, in both directions."""

    def __init__(self, ranks: list[int] | np.ndarray) -> None:
        self.ranks = np.asarray(ranks)
        self.source = side([f"s{n}" for n in range(len(self.ranks))])
        self.target = side([f"t{n}" for n in range(len(self.ranks))])

    def gold_ranks(self, queries: np.ndarray, golds: list, *, reverse: bool = False) -> np.ndarray:
        return self.ranks[queries]


def one_to_one(size: int) -> Lexicon:
    return Lexicon((f"s{n}", f"t{n}") for n in range(size))


def score(ranks: list[int] | np.ndarray, bootstrap: int = 0, seed: int = 0) -> Evaluation:
    return evaluate(FixedRanks(ranks), one_to_one(len(ranks)), bootstrap=bootstrap, seed=seed)


def test_interval_agrees_with_the_normal_approximation() -> None:
    size, share = 2000, 0.3
    ranks = np.where(np.arange(size) < share * size, 1, 7)
    forward = score(ranks, bootstrap=4000).forward
    half = NormalDist().inv_cdf(0.975) * math.sqrt(share * (1 - share) / size)
    low, high = forward.in_vocabulary.intervals["p@1"]
    assert low == pytest.approx(share - half, abs=0.002)
    assert high == pytest.approx(share + half, abs=0.002)
    assert forward.in_vocabulary.intervals["p@10"] == (1.0, 1.0)


def test_bootstrap_is_seeded_and_does_not_depend_on_block_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.random.default_rng(1).random((50, 3))
    whole = resampled_means(values, 40, seed=3)
    assert np.array_equal(whole, resampled_means(values, 40, seed=3))
    assert not np.array_equal(whole, resampled_means(values, 40, seed=4))
    monkeypatch.setattr("blicer.evaluation._BLOCK", 110)
    assert np.array_equal(whole, resampled_means(values, 40, seed=3))
    picked = np.random.default_rng(3).integers(0, 50, size=(40, 50))
    naive = [[values[row, column].mean() for column in range(3)] for row in picked]
    assert np.allclose(whole, naive)


def test_rank_zero_is_no_answer() -> None:
    assert per_query(np.array([1, 0, 5, 6, 11])).tolist() == [
        [1, 1, 1, 1],
        [0, 0, 0, 0],
        [0, 1, 1, 1 / 5],
        [0, 0, 1, 1 / 6],
        [0, 0, 0, 1 / 11],
    ]


def test_json_has_the_promised_keys() -> None:
    result = json.loads(json.dumps(score([1, 2, 30], bootstrap=20).to_dict()))
    assert set(result) == {"forward", "backward"}
    for direction in result.values():
        for part in (direction, direction["all_queries"]):
            for metric in ("p@1", "p@5", "p@10", "mrr"):
                low, high = part[f"{metric}_interval"]
                assert 0 <= low <= part[metric] <= high <= 1
            assert (part["queries"], part["coverage"]) == (3, 1.0)
    assert "p@1_interval" not in score([1]).to_dict()["forward"]


def shown(table: object, width: int = 200) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    return text.getvalue()


def test_tables() -> None:
    first, second = score([1] * 60 + [2] * 40, bootstrap=200), score([2] * 100)
    text = shown(first.table("en-fr"))
    assert "en-fr" in text
    assert "60.0 (" in text
    assert "80.0" in text  # MRR
    assert "100.0" in text  # coverage
    difference = shown(compare(first, second, bootstrap=2000).table())
    assert "+60.0 (" in difference
    assert "p<0.001" in difference
    for table in (first.table("en-fr"), compare(first, second, bootstrap=2000).table()):
        narrow = shown(table, width=80)  # a usual terminal: nothing is cut
        assert "…" not in narrow
        assert sorted(re.findall(r"[\d.]+", narrow)) == sorted(re.findall(r"[\d.]+", shown(table)))


def test_paired_test_agrees_with_the_z_test() -> None:
    # 60 queries won, 40 lost, 900 equal.
    first = score([1] * 60 + [2] * 40 + [1] * 900)
    second = score([2] * 60 + [1] * 40 + [1] * 900)
    result = compare(first, second, bootstrap=20_000).forward
    assert result.queries == 1000
    assert result.values["p@1"] == pytest.approx(0.02)
    assert result.values["mrr"] == pytest.approx(0.01)
    spread = math.sqrt((0.1 - 0.02**2) / 1000)
    expected = 2 * (1 - NormalDist().cdf(0.02 / spread))
    assert result.p_values["p@1"] == pytest.approx(expected, abs=0.012)
    low, high = result.intervals["p@1"]
    assert low == pytest.approx(0.02 - 1.96 * spread, abs=0.0025)
    assert high == pytest.approx(0.02 + 1.96 * spread, abs=0.0025)
    back = compare(second, first, bootstrap=20_000).forward
    assert back.values["p@1"] == pytest.approx(-0.02)
    assert back.p_values["p@1"] == pytest.approx(result.p_values["p@1"], abs=0.012)


def test_pairing_sees_what_two_intervals_do_not() -> None:
    # Half of the queries are right in both; of the rest the first wins 20, the second none.
    first, second = score([1] * 520 + [9] * 480, 1000), score([1] * 500 + [9] * 500, 1000)
    low, _ = first.forward.in_vocabulary.intervals["p@1"]
    _, high = second.forward.in_vocabulary.intervals["p@1"]
    assert low < high
    assert compare(first, second).forward.p_values["p@1"] < 0.001


def test_equal_systems_have_p_value_one() -> None:
    result = compare(score([1, 2, 3]), score([1, 2, 3]), bootstrap=100)
    for difference in (result.forward, result.backward):
        assert set(difference.p_values.values()) == {1.0}
        assert set(difference.values.values()) == {0.0}


def test_p_values_of_equally_good_systems_are_spread_evenly() -> None:
    generator = np.random.default_rng(0)
    p_values = []
    for _ in range(200):
        one, other = generator.integers(1, 12, size=(2, 150))
        p_values.append(compare(score(one), score(other), bootstrap=300).forward.p_values["mrr"])
    for level in (0.1, 0.5, 0.9):
        assert abs(np.mean(np.array(p_values) <= level) - level) < 0.1


def test_comparison_uses_the_queries_both_can_answer() -> None:
    lexicon = one_to_one(4)
    first = evaluate(FixedRanks([1, 1, 1]), lexicon, bootstrap=0)  # does not know s3
    second = evaluate(FixedRanks([2, 1, 1, 1]), lexicon, bootstrap=0)
    result = compare(first, second, bootstrap=100)
    assert result.forward.queries == 3
    assert result.forward.values["p@1"] == pytest.approx(1 / 3)
    as_json = json.loads(json.dumps(result.to_dict()))
    assert set(as_json["forward"]["p@1"]) == {"difference", "interval", "p_value"}
    assert as_json["backward"]["queries"] == 3


def test_errors() -> None:
    with pytest.raises(InputError, match="is empty"):
        evaluate(FixedRanks([1]), Lexicon([]))
    with pytest.raises(InputError, match="no word of the test dictionary can be scored: 0 of 1"):
        evaluate(FixedRanks([1]), Lexicon([("Katze", "chat")]))
    with pytest.raises(InputError, match="bootstrap=-1"):
        score([1], bootstrap=-1)
    with pytest.raises(InputError, match="different queries"):
        compare(score([1, 2]), score([1]))
    with pytest.raises(InputError, match="at least one draw"):
        compare(score([1]), score([1]), bootstrap=0)


class RankingSystem(TableSystem):
    """Ranks its best few words as a translator does; counts the queries that it is asked."""

    def __init__(self, seed: int, size: int = 30, n_cand: int = 6, calibrated: bool = True) -> None:
        plain = random_system(seed, size)
        super().__init__(plain.source.words, plain.target.words, plain.scores)
        self.n_cand, self.calibrated = n_cand, calibrated
        self.ranked: list[int] = []

    def rank(self, queries: np.ndarray, *, reverse: bool = False) -> SimpleNamespace:
        self.ranked.append(len(queries))
        scores = (self.scores.T if reverse else self.scores)[queries]
        indices = np.argsort(-scores, axis=1, kind="stable")[:, : self.n_cand]
        best = np.take_along_axis(scores, indices, axis=1)
        confidence = (1 / (1 + np.exp(-best))).round(1) if self.calibrated else None
        found = SimpleNamespace(indices=indices, scores=best, confidence=confidence)
        if self.calibrated:  # a system need not know it
            found.here = (queries * 7 % 10) / 10
        return found


def test_swapped_columns_are_said() -> None:
    """Names that both languages share are found either way, and would be all that is scored."""
    source, target = (["paris", *(f"{side}{i}" for i in range(5))] for side in "st")
    system = TableSystem(source, target, np.eye(6))
    pairs = list(zip(source, target, strict=True))
    assert evaluate(system, Lexicon(pairs)).forward["p@1"] == 1.0
    with pytest.raises(InputError, match="columns of the test dictionary are swapped: 1 of 6"):
        evaluate(system, Lexicon((b, a) for a, b in pairs))


def drawn_lexicon(seed: int, pairs: int = 60, words: int = 40) -> Lexicon:
    """Pairs of random words; those from 30 on are outside the vocabularies."""
    rows = np.random.default_rng(seed).integers(0, words, size=(pairs, 2)).tolist()
    return Lexicon([(f"s{one}", f"t{other}") for one, other in rows] + [("s0", "t0")])


@pytest.mark.parametrize("seed", range(4))
def test_candidates_change_no_rank(seed: int) -> None:
    system, lexicon = RankingSystem(seed), drawn_lexicon(seed)
    plain = TableSystem(system.source.words, system.target.words, system.scores)
    result, expected = (
        evaluate(system, lexicon, bootstrap=30),
        evaluate(plain, lexicon, bootstrap=30),
    )
    for (_, one), (_, other) in zip(result.directions(), expected.directions(), strict=True):
        assert one.ranks.tolist() == other.ranks.tolist()
        for scores, same in zip(one.scored(), other.scored(), strict=True):
            for metric in METRICS:
                assert scores[1][metric] == same[1][metric]
                assert scores[1].intervals[metric] == same[1].intervals[metric]
    assert expected.forward["f1"] is None  # it has no candidates
    assert "only P@k" in expected.notes()[0]
    assert expected.details() == []


@pytest.mark.parametrize("seed", range(4))
def test_figures_of_both_denominators_by_loops(seed: int) -> None:
    system, lexicon = RankingSystem(seed), drawn_lexicon(seed)
    result = evaluate(system, lexicon, bootstrap=0, min_confidence=0.7)
    for direction, test, scores in (
        (result.forward, lexicon, system.scores),
        (result.backward, lexicon.reverse(), system.scores.T),
    ):
        found = {"in vocabulary": [0, 0, 0], "all": [0, 0, 0]}  # entries, hits, golds
        right = confidence = answered = 0
        here: dict[bool, list[float]] = {True: [], False: []}  # by: is there a gold at all?
        for word, answers in test.targets.items():
            row, golds = int(word[1:]), {int(one[1:]) for one in answers}
            known = {gold for gold in golds if gold < 30}
            found["all"][2] += len(golds)
            if row >= 30:
                continue
            order = sorted(range(30), key=lambda c: (-scores[row, c], c))[:6]
            sure = [round(1 / (1 + math.exp(-scores[row, c])), 1) for c in order]
            entries = [c for c, level in zip(order, sure, strict=True) if level >= 0.7]
            answered, confidence = answered + 1, confidence + sure[0]
            here[bool(known)].append(row * 7 % 10 / 10)
            right += order[0] in known
            for name in ("all", "in vocabulary") if known else ("all",):
                found[name][0] += len(entries)
                found[name][1] += len(known & set(entries))
            found["in vocabulary"][2] += len(known)
        for name, measured in direction.scored():
            entries, hits, golds = found[name]
            assert measured["precision"] == pytest.approx(hits / entries)
            assert measured["recall"] == pytest.approx(hits / golds)
            assert measured["f1"] == pytest.approx(2 * hits / (entries + golds))
        told = [(a > b) + 0.5 * (a == b) for a in here[True] for b in here[False]]
        assert direction.all_queries["auc_absent"] == pytest.approx(np.mean(told))
        assert direction.all_queries["right"] == pytest.approx(right / answered)
        assert direction.all_queries["stated"] == pytest.approx(confidence / answered)
        assert direction.risk_coverage[-1][:2].tolist() == pytest.approx([1, right / answered])
        assert sum(words for *_, words in direction.reliability) == answered


def test_every_query_is_ranked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    system, lexicon = RankingSystem(0), drawn_lexicon(0)
    monkeypatch.setattr("blicer.evaluation._QUERIES_AT_ONCE", 7)
    result = evaluate(system, lexicon, bootstrap=10)
    result.to_dict(details=True)
    known = [len({pair[side] for pair in lexicon if int(pair[side][1:]) < 30}) for side in (0, 1)]
    assert sum(system.ranked) == sum(known)
    assert max(system.ranked) == 7
    system = RankingSystem(0)
    monkeypatch.undo()
    assert evaluate(system, lexicon, bootstrap=10).to_dict() == result.to_dict()


def test_intervals_are_those_of_resampled_words() -> None:
    result = evaluate(RankingSystem(2), drawn_lexicon(2), bootstrap=200, seed=5).forward
    answers = result.answers
    assert answers is not None
    size = len(answers.golds)
    picked = np.random.default_rng(5).integers(0, size, size=(200, size))
    draws = [metrics.figures(answers.take(rows), np.ones((1, size))) for rows in picked]
    for name, bounds in result.all_queries.intervals.items():
        if name not in METRICS:
            values = np.array([draw[name].item() for draw in draws])
            expected = interval(values[~np.isnan(values)][:, None])[0]
            assert bounds == pytest.approx(tuple(expected)), name
    assert set(result.all_queries.intervals) == {
        name
        for name, value in result.all_queries.values.items()
        if value is not None and name != "ece"
    }


def test_groups_are_evaluations_of_their_words() -> None:
    system, lexicon = RankingSystem(3), drawn_lexicon(3)
    result = evaluate(system, lexicon, bootstrap=20)
    parts = result.forward.groups["frequency of the gold"]
    assert set(parts) == {"1-5k", "out of vocabulary"}
    for name, part in parts.items():
        inside = [
            word
            for word, answers in lexicon.targets.items()
            if any(int(one[1:]) < 30 for one in answers) == (name == "1-5k")
        ]
        assert part.words == inside
        if name == "1-5k":
            some = Lexicon(pair for pair in lexicon if pair[0] in inside)
            assert part.to_dict() == evaluate(system, some, bootstrap=20).forward.to_dict()
        else:
            assert (part.queries, part["p@1"], part["f1"]) == (0, None, None)
            assert part.all_queries["right"] == 0
            assert part.all_queries["stated"] > 0
    for parts in result.backward.groups.values():
        assert sum(len(part.words) for part in parts.values()) == len(result.backward.words)


def test_without_calibration() -> None:
    calibrated = evaluate(RankingSystem(1), drawn_lexicon(1), bootstrap=20)
    result = evaluate(RankingSystem(1, calibrated=False), drawn_lexicon(1), bootstrap=20)
    assert "no calibration" in result.notes()[0]
    assert calibrated.notes() == []
    for name in ("precision", "recall", "f1", "ece", "ace", "reached@95", "stated"):
        assert result.forward[name] is None
        assert name not in result.forward.in_vocabulary.intervals
        assert calibrated.forward[name] is not None or name == "reached@95"
    assert result.forward["ap"] is not None
    assert result.forward.reliability == []
    text = shown(result.table())
    assert "ece" not in text
    assert "ap" in text
    assert "ece" in shown(result.table(details=True))


def test_details_json_frame_and_html() -> None:
    result = evaluate(RankingSystem(0), drawn_lexicon(0), bootstrap=20)
    brief, details = result.to_dict(), json.loads(json.dumps(result.to_dict(details=True)))
    assert "groups" not in brief["forward"]
    for name, direction in result.directions():
        one = details[name]
        assert one["all_queries"]["ece"] == direction.all_queries["ece"]
        assert one["risk_coverage"][-1]["coverage"] == 1.0
        assert {"confidence", "right", "words"} == set(one["reliability"][0])
        assert set(one["groups"]) == set(direction.groups)
    frame = result.to_pandas()
    row = frame.query(
        "direction == 'backward' and grouped_by == 'all words' and words == 'all' "
        "and figure == 'auc_absent'"
    )
    assert row["value"].item() == result.backward.all_queries["auc_absent"]
    assert (row["low"] <= row["value"]).all()
    assert (row["value"] <= row["high"]).all()
    kinds = [kind for parts in result.forward.groups.values() for kind in parts]
    figures = len(METRICS) + len(metrics.FIGURES)
    assert (frame["direction"] == "forward").sum() == 2 * figures * (1 + len(kinds))
    assert "P@1" in repr(result)
    assert len(repr(result)) < 200
    html = result._repr_html_()
    assert html.count("<tr>") == html.count("</tr>") == 1 + len(METRICS) + 6 + 2
    text = "".join(shown(table) for table in result.details())
    assert "by form of the gold" in text
    assert "forward, reliability" in text
    assert "backward, surest words first" in text


def test_a_usual_terminal_cuts_nothing() -> None:
    result = evaluate(RankingSystem(0), drawn_lexicon(0), bootstrap=20)
    for table in (result.table(), result.table(details=True), *result.details()):
        narrow = shown(table, width=80)
        assert "…" not in narrow
        assert sorted(re.findall(r"[\d.]+", narrow)) == sorted(re.findall(r"[\d.]+", shown(table)))


def test_a_data_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependency, match=r"blicer\[bench\]"):
        score([1, 2]).to_pandas()


def test_a_long_curve_is_thinned() -> None:
    curve = np.stack([np.arange(1, 1001) / 1000, np.linspace(1, 0.5, 1000), np.zeros(1000)], axis=1)
    some = thinned(curve)
    assert len(some) == 100
    assert (some[0].tolist(), some[-1].tolist()) == (curve[0].tolist(), curve[-1].tolist())
    assert np.diff(some[:, 0]).max() < 0.012
    assert thinned(curve[:50]) is not some
    assert len(thinned(curve[:50])) == 50


def test_minimal_confidence_is_checked() -> None:
    with pytest.raises(InputError, match=r"min_confidence=1.5"):
        evaluate(RankingSystem(0), drawn_lexicon(0), min_confidence=1.5)
