from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.errors import FileError, InputError
from blicer.io.dictionary import tsv_row
from blicer.lexicon import (
    Lexicon,
    find_words,
    fold_masks,
    largest_group,
    queries_with_golds,
    split_pairs,
    splits_apart,
)

# Whatever a vocabulary may hold, except what a line of text cannot: line ends, tabs, zero bytes,
# half characters and outer spaces.
WORDS = (
    st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1)
    .map(lambda word: word.strip(" "))
    .filter(bool)
)
AWKWARD = st.sampled_from(
    ["#", "#1", "\\#", "\\\\#x", '"', '""', '"a"', "source", "target", "English", "French", "a b"]
) | st.sampled_from(
    ["\ufeff", "\ufeffa", "\u0085", "a\u2028b", "\u00a0", "0.5", ";", "a,b", "e\u0301", "İ", "\f"]
)
PAIRS = st.lists(st.tuples(WORDS | AWKWARD, WORDS | AWKWARD), min_size=1, max_size=12)


def vocabulary(*words: str) -> SimpleNamespace:
    return SimpleNamespace(lookup={word: row for row, word in enumerate(words)})


@settings(max_examples=400)
@given(pairs=PAIRS)
def test_save_and_load_give_the_same_pairs(
    tmp_path_factory: pytest.TempPathFactory, pairs: list
) -> None:
    path = tmp_path_factory.mktemp("round") / "words.tsv"
    lexicon = Lexicon(pairs)
    lexicon.save(path)
    again = Lexicon.load(path, lowercase=False)
    assert again == lexicon
    assert again.times == lexicon.times  # a pair that is listed twice counts twice
    assert lexicon.pairs == list(dict.fromkeys(pairs))


@settings(max_examples=100)
@given(pairs=PAIRS)
def test_folding_case_is_the_same_as_folding_the_words(
    tmp_path_factory: pytest.TempPathFactory, pairs: list
) -> None:
    path = tmp_path_factory.mktemp("fold") / "words.tsv"
    Lexicon(pairs).save(path)
    folded = [(source.lower(), target.lower()) for source, target in pairs]
    assert Lexicon.load(path).pairs == list(dict.fromkeys(folded))


@pytest.mark.parametrize("word", ["a\tb", "a\nb", "a\r", "\0", " a", "a ", "\ud800"])
def test_words_that_cannot_be_written_are_refused_and_nothing_is_left(
    tmp_path: Path, word: str
) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        Lexicon([("cat", "chat"), (word, "x")]).save(tmp_path / "words.tsv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pair", [("a", ""), ("", "a"), ("a",), ("a", None), "ab", 3])
def test_only_word_pairs_are_pairs(pair: object) -> None:
    with pytest.raises(InputError, match="not a word pair"):
        Lexicon([pair])  # type: ignore[list-item]


def test_pairs_targets_reverse() -> None:
    lexicon = Lexicon([("cat", "chat"), ("cat", "chatte"), ("puss", "chat"), ("cat", "chat")])
    assert len(lexicon) == 3
    assert list(lexicon) == [("cat", "chat"), ("cat", "chatte"), ("puss", "chat")]
    assert lexicon.targets == {"cat": ["chat", "chatte"], "puss": ["chat"]}
    assert lexicon.reverse().targets == {"chat": ["cat", "puss"], "chatte": ["cat"]}
    assert lexicon.reverse().reverse() == lexicon
    assert ("cat", "chatte") in lexicon
    assert ("puss", "chatte") not in lexicon
    assert "2 source words" in repr(lexicon)


SMALL = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("stuvwxyz")), max_size=30)


@given(pairs=SMALL, fraction=st.floats(0, 1), seed=st.integers(0, 99), share=st.booleans())
def test_split_separates_source_words(pairs: list, fraction: float, seed: int, share: bool) -> None:
    lexicon = Lexicon(pairs)
    rest, held = lexicon.split(fraction, seed, share_targets=share)
    assert sorted([*rest, *held]) == sorted(lexicon)
    assert not set(rest.targets) & set(held.targets)
    again = lexicon.split(fraction, seed, share_targets=share)
    assert (rest, held) == again
    wanted = fraction * len(lexicon.targets)
    if share:
        assert abs(len(held.targets) - wanted) <= 1
    else:
        assert not set(rest.reverse().targets) & set(held.reverse().targets)
        assert len(held.targets) <= max(wanted + 0.5, 1)
    order = {pair: at for at, pair in enumerate(lexicon)}
    for part in (rest, held):
        places = [order[pair] for pair in part]
        assert places == sorted(places)


def test_split_depends_on_the_seed_and_is_random() -> None:
    lexicon = Lexicon((f"s{n}", f"t{n}") for n in range(200))
    parts = [set(lexicon.split(0.1, seed)[1].targets) for seed in range(50)]
    assert all(len(part) == 20 for part in parts)
    assert len({frozenset(part) for part in parts}) == 50
    # Each word is held out about one time in ten, not only the last or the first ones.
    times = [sum(f"s{n}" in part for part in parts) for n in range(200)]
    assert max(times) < 20


def naive_groups(pairs: list[tuple[int, int]]) -> list[set[int]]:
    """Merge sets of source words until no two of them share a target."""
    groups = [({source}, {target}) for source, target in pairs]
    merged = True
    while merged:
        merged = False
        for one in groups:
            for other in groups:
                if one is not other and (one[0] & other[0] or one[1] & other[1]):
                    one[0].update(other[0])
                    one[1].update(other[1])
                    groups.remove(other)
                    merged = True
                    break
            if merged:
                break
    return [sources for sources, _ in groups]


@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=15),
    share=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_index_pairs(pairs: list[tuple[int, int]], share: float, seed: int) -> None:
    rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    groups = naive_groups(pairs)
    assert largest_group(rows) == max(map(len, groups), default=0)
    sources = {source for source, _ in pairs}
    assert splits_apart(rows, share) == (largest_group(rows) <= max(1, share * len(sources)))
    held = split_pairs(rows, share, seed, share_targets=False)
    words = set(rows[held, 0].tolist())
    assert words.isdisjoint(rows[~held, 0].tolist())
    assert all(group <= words or group.isdisjoint(words) for group in groups)
    # A lexicon is split in the same way, its words numbered as they appear.
    order = list(dict.fromkeys(source for source, _ in pairs))
    numbered = np.array([(order.index(source), t) for source, t in pairs], np.int64).reshape(-1, 2)
    held = split_pairs(numbered, share, seed, share_targets=False)
    lexicon = Lexicon((f"s{source}", f"t{target}") for source, target in pairs)
    _, part = lexicon.split(share, seed, share_targets=False)
    assert set(part.targets) == {f"s{order[row]}" for row in numbered[held, 0].tolist()}

    asked, golds = queries_with_golds(rows)
    assert asked.tolist() == list(dict.fromkeys(source for source, _ in pairs))
    for query, gold in zip(asked.tolist(), golds, strict=True):
        assert gold.tolist() == sorted({target for source, target in pairs if source == query})


def test_rows_of_a_table_stay_rows() -> None:
    assert tsv_row(["a\tb", "c\r\nd", 1, 0.5]) == "a b\tc  d\t1\t0.5\n"
    assert tsv_row(["#1", "#2"]) == "\\#1\t#2\n"


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_split_refuses_other_fractions(fraction: float) -> None:
    with pytest.raises(InputError, match="from 0 to 1"):
        Lexicon([("a", "b")]).split(fraction)


def test_indices_are_the_rows_of_pairs_in_both_vocabularies() -> None:
    lexicon = Lexicon([("cat", "chat"), ("cow", "vache"), ("cat", "minou"), ("emu", "émeu")])
    found = lexicon.indices(vocabulary("the", "cat", "emu"), vocabulary("chat", "vache", "émeu"))
    assert found.dtype == np.int64
    assert found.tolist() == [[1, 0], [2, 2]]
    nothing = lexicon.indices(vocabulary(), vocabulary("chat"))
    assert nothing.shape == (0, 2)


def test_accents_are_found_in_either_form_but_as_written_first() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert find_words([composed], vocabulary("x", decomposed)) == {composed: 1}
    assert find_words([decomposed], vocabulary("x", composed)) == {decomposed: 1}
    both = vocabulary(composed, decomposed)
    assert find_words([composed, decomposed], both) == {composed: 0, decomposed: 1}
    # Both spellings in the lexicon, one in the vocabulary: one pair of rows, not two.
    lexicon = Lexicon([("coffee", composed), ("coffee", decomposed)])
    assert lexicon.indices(vocabulary("coffee"), vocabulary(composed)).tolist() == [[0, 0]]


def test_coverage_counts_by_hand() -> None:
    lexicon = Lexicon([("cat", "chat"), ("cat", "minou"), ("cow", "vache"), ("dog", "chien")])
    coverage = lexicon.coverage(vocabulary("cat", "dog"), vocabulary("chat", "vache"))
    assert (coverage.pairs, coverage.pairs_found) == (4, 1)
    assert (coverage.source_words, coverage.target_words, coverage.queries_found) == (3, 4, 1)
    assert coverage.missing_source == ("cow",)
    assert coverage.missing_target == ("minou", "chien")
    assert coverage.lines()[0] == "1 of 4 pairs are in both vocabularies"
    assert "1 of 3 source words are not in the source vocabulary: cow" in coverage.lines()
    assert Lexicon([]).coverage(vocabulary(), vocabulary()).pairs == 0


def test_saving_where_nothing_can_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        Lexicon([("a", "b")]).save(tmp_path / "file" / "words.tsv")


def test_notes_tell_what_was_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr("blicer.progress.note", heard.append)
    path = tmp_path / "words.tsv"
    path.write_text("cat\tchat\nalone\n")
    Lexicon.load(path)
    assert len(heard) == 1
    assert "1 line that could not be read: line 2 (one column" in heard[0]


def test_a_pair_listed_twice_counts_twice_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "seeds.tsv"
    path.write_text("Cat\tchat\ncat\tchat\ndog\tchien\n", encoding="utf-8")
    lexicon = Lexicon.load(path)
    assert lexicon.pairs == [("cat", "chat"), ("dog", "chien")]
    assert list(lexicon.listed()) == [("cat", "chat"), ("cat", "chat"), ("dog", "chien")]
    source, target = _Words(["dog", "cat"]), _Words(["chien", "chat"])
    assert lexicon.indices(source, target).tolist() == [[1, 1], [0, 0]]
    assert lexicon.indices(source, target, repeated=True).tolist() == [[1, 1], [1, 1], [0, 0]]
    assert next(lexicon.reverse().listed()) == ("chat", "cat")
    rest, held = lexicon.split(0.5, seed=0)
    assert len(list(rest.listed())) + len(list(held.listed())) == 3


class _Words:
    def __init__(self, words: list[str]) -> None:
        self.lookup = {word: row for row, word in enumerate(words)}


@given(st.integers(0, 99), st.integers(2, 4), st.sets(st.integers(0, 400), min_size=60))
def test_a_few_more_seeds_leave_the_folds_nearly_as_they_are(
    seed: int, folds: int, words: set[int]
) -> None:
    """Otherwise a training with five more pairs chooses on other words, and changes everything."""
    before = np.array([(word, word) for word in sorted(words)])
    after = np.concatenate([before, [(word, word) for word in range(500, 505)]])
    moved = [
        int((one != other[: len(before)]).sum())
        for one, other in zip(
            fold_masks(before, folds, seed), fold_masks(after, folds, seed), strict=True
        )
    ]
    assert sum(moved) <= 2 * 5 * folds
