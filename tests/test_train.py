"""The whole chain with a tiny encoder: what is held out, what is chosen, going on after a kill."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import blicer.pipeline
import blicer.pipeline as chain
from blicer.align.procrustes import Procrustes
from blicer.align.space import Space
from blicer.cli import app, commands  # noqa: F401 - registers the commands
from blicer.config import Config
from blicer.crossencoder.model import Reranker
from blicer.embeddings import Embeddings
from blicer.errors import BlicerError, InputError
from blicer.lexicon import Lexicon, largest_group
from blicer.mixing import queries_with_gold
from blicer.pipeline import Recipe, Workshop, make_aligner, preset_for, train
from blicer.scorers.cross_encoder import CrossEncoderScorer
from blicer.training_pairs import COLUMNS
from blicer.translator import Translator
from tiny_models import tiny_encoder, two_sides

WORDS = 120


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def sides() -> tuple[Embeddings, Embeddings]:
    return two_sides(WORDS, 0.6)


@pytest.fixture(scope="module")
def seeds(sides: tuple[Embeddings, Embeddings]) -> Lexicon:
    source, target = sides
    return Lexicon([(source.words[i], target.words[i]) for i in range(0, WORDS, 2)])


@pytest.fixture
def config(encoder: Path) -> Config:
    return Config.resolve(
        "supervised",
        overrides={
            "encoder": str(encoder),
            "epochs": 1,
            "n_neg": 5,
            "n_cand": 8,
            "n_rep": 1,
            "learning_rate": 1e-3,
            "batch_size": 64,
        },
    )


def test_held_out_words_reach_neither_mapping_nor_cross_encoder(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fits: list[tuple[Lexicon, Lexicon | None]] = []
    views: list[Lexicon] = []
    fit, view = chain.Workshop.fit, chain.Workshop.view

    def spy_fit(self, seeds, reserved=None):  # type: ignore[no-untyped-def]
        fits.append((seeds, reserved))
        return fit(self, seeds, reserved)

    def spy_view(self, fitted, held, everything):  # type: ignore[no-untyped-def]
        views.append(held)
        return view(self, fitted, held, everything)

    monkeypatch.setattr(chain.Workshop, "fit", spy_fit)
    monkeypatch.setattr(chain.Workshop, "view", spy_view)
    translator = train(*sides, seeds, config, Recipe(space="procrustes", holdout=0.2))
    (first, reserved), (last, nothing) = fits
    (held,) = views
    assert reserved == held
    assert len(held) == 12
    for side in (0, 1):
        assert not {pair[side] for pair in first} & {pair[side] for pair in held}
    assert set(last.pairs) == set(seeds.pairs)
    assert nothing is None
    assert translator.mixture.queries == 24  # both directions
    assert translator.calibration is not None
    assert len(translator.mixture.curve) == 101


def test_silver_pairs_keep_clear_of_held_out_words(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config
) -> None:
    """Else the cross-encoder would have learned the pairs that λ is chosen on."""
    with_silver = config.replace(n_aug=100)
    workshop = Workshop(
        *sides, with_silver, Recipe(space="procrustes", scorers=("spelling",)), None
    )
    rest, held = seeds.split(0.3, seed=1, share_targets=False)
    space = workshop.space(rest)

    def positives(reserved: Lexicon | None) -> set[tuple[str, str]]:
        pairs = workshop.pairs(space, rest, reserved)
        found = np.flatnonzero(pairs.is_positive)
        return {
            (space.source.words[pairs.source[row]], space.target.words[pairs.target[row]])
            for row in found
        }

    for side in (0, 1):
        words = {pair[side] for pair in held}
        assert words & {pair[side] for pair in positives(None)}
        assert not words & {pair[side] for pair in positives(held)}


def test_held_out_pairs_that_share_words_with_the_rest_are_neither_taught_nor_asked(
    sides: tuple[Embeddings, Embeddings], config: Config
) -> None:
    """Every word has two translations, each shared with the next word: all hang together."""
    source, target = sides
    count = 60
    chained = Lexicon(
        (source.words[i], target.words[(i + step) % count]) for i in range(count) for step in (0, 1)
    )
    recipe = Recipe(space="procrustes", scorers=("spelling",), holdout=0.2, folds=1)
    ((rest, held),) = chain.held_out_splits(chained, recipe)
    assert {pair[1] for pair in rest} & {pair[1] for pair in held}
    workshop = Workshop(source, target, config.replace(n_neg=50, delta=1.0), recipe, None)
    space = workshop.space(rest)
    pairs = workshop.pairs(space, rest, held)
    taught = zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)
    words = {(source.words[a], target.words[b]) for a, b in taught}
    assert set(rest.pairs) <= words
    assert not set(held.pairs) & words
    for reverse in (False, True):
        asked, offered = (target, source) if reverse else (source, target)
        queries, golds = queries_with_gold(held, chained, space, reverse=reverse)
        for query, gold in zip(queries.tolist(), golds, strict=True):
            for other in gold.tolist():
                pair = (asked.words[query], offered.words[other])
                assert (pair[::-1] if reverse else pair) in held.pairs
    assert len(queries) < len({pair[1] for pair in held})
    fitted = workshop.fit(rest, reserved=held)
    every_other = Lexicon(pair for pair in chained if pair[0] in list(chained.targets)[::2])
    view = workshop.view(fitted, every_other, chained)  # no target is held out: one direction
    assert len(view.parts) == len(every_other.targets)


def test_pairs_are_built_once_for_the_same_space_seeds_and_settings(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other training seeds, templates and encoders are taught the same pairs."""
    built = []
    usual = blicer.pipeline.build_pairs
    monkeypatch.setattr(
        blicer.pipeline, "build_pairs", lambda *a, **o: built.append(a) or usual(*a, **o)
    )
    recipe = Recipe(space="procrustes", scorers=("spelling",))
    rest, held = seeds.split(0.3, seed=1, share_targets=False)

    def pairs(reserved: Lexicon | None, **changed: Any) -> Any:
        workshop = Workshop(*sides, config.replace(n_aug=20, **changed), recipe, tmp_path)
        return workshop.pairs(workshop.space(rest), rest, reserved)

    first = pairs(held)
    again = pairs(held, seed=7, template="T2", epochs=3)
    assert len(built) == 1
    assert (again.scaling, again.report) == (first.scaling, first.report)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
        assert getattr(again, name).dtype == getattr(first, name).dtype
    pairs(None)
    pairs(held, alpha=0.123)
    pairs(held, n_neg=2)
    assert len(built) == 4


def test_folds_hold_out_every_seed_once(seeds: Lexicon) -> None:
    splits = chain.held_out_splits(seeds, Recipe(folds=4))
    held = [pair for _, part in splits for pair in part]
    assert sorted(held) == sorted(seeds.pairs)
    for rest, part in splits:
        assert not set(rest.pairs) & set(part.pairs)
        assert len(rest) + len(part) == len(seeds)


@pytest.mark.parametrize(
    ("encoder", "seeds", "given", "scorers", "folds"),
    [
        ("xlm-roberta-large", 900, Recipe(), ("cross-encoder",), 1),
        ("lite", 900, Recipe(), ("endings", "cross-encoder"), 4),
        ("lite", 5000, Recipe(), ("endings", "cross-encoder"), 1),
        ("lite", 900, Recipe(scorers=("spelling",), folds=2), ("spelling",), 2),
        ("lite", 900, Recipe(holdout=0.0), ("endings", "cross-encoder"), 1),
    ],
)
def test_what_a_recipe_leaves_open_follows_the_encoder(
    encoder: str, seeds: int, given: Recipe, scorers: tuple[str, ...], folds: int
) -> None:
    settled = given.resolved(Config.resolve(overrides={"encoder": encoder}), seeds)
    assert (settled.scorers, settled.folds) == (scorers, folds)


def test_the_mode_of_a_space() -> None:
    assert make_aligner("vecmap", "semi_supervised", Recipe()).self_learning is False
    learning = make_aligner("vecmap", "supervised", Recipe(space_mode="semi-supervised"))
    assert learning.self_learning is True
    with pytest.raises(InputError, match="vecmap has no mode 'magic'; its modes are supervised"):
        make_aligner("vecmap", "supervised", Recipe(space_mode="magic"))


@pytest.mark.parametrize("method", ["c1", "c2"])
def test_the_pivots_of_zero_shot_have_few_seeds(method: str) -> None:
    """METHOD.md §3: its spaces are semi-supervised."""
    few, zero_shot = (
        make_aligner(method, preset, Recipe()) for preset in ("semi_supervised", "zero_shot")
    )
    assert zero_shot.settings == few.settings
    assert zero_shot.settings != make_aligner(method, "supervised", Recipe()).settings


def test_a_given_lambda_mixes_two() -> None:
    config = Config.resolve(overrides={"encoder": "lite", "mixing_weight": 0.3})
    assert Recipe().resolved(config, 900).scorers == ("cross-encoder",)


def test_a_fixed_lambda_without_held_out_seeds(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config
) -> None:
    fixed = config.replace(mixing_weight=0.25)
    translator = train(*sides, seeds, fixed, Recipe(space="procrustes", holdout=0.0))
    assert translator.mixture.weights == {"csls": 0.75, "cross-encoder": 0.25}
    assert translator.calibration is None
    with pytest.raises(InputError, match="nothing to choose lambda on"):
        train(*sides, seeds, config, Recipe(space="procrustes", holdout=0.0))


def test_early_stopping_by_words_of_its_own(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[list[str], Any]] = []
    fit = Reranker.fit

    def watched(self: Reranker, left: list[str], *rest: Any, **options: Any) -> Reranker:
        seen.append((left, options["validation"]))
        return fit(self, left, *rest, **options)

    monkeypatch.setattr(Reranker, "fit", watched)
    train(*sides, seeds, config.replace(early_stopping=1), Recipe(space="procrustes", refit=False))
    ((left, validation),) = seen
    assert validation is not None
    half, held_half = len(left) // 2, len(validation[0]) // 2  # the second half is the other order
    assert held_half > 0
    assert not set(left[:half]) & set(validation[0][:held_half])


def test_several_scorers_are_mixed(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config
) -> None:
    recipe = Recipe(space="procrustes", scorers=("spelling", "cross-encoder"), refit=False)
    translator = train(*sides, seeds, config, recipe)
    assert translator.mixture.names == ["csls", "spelling", "cross-encoder"]
    assert sum(translator.mixture.weights.values()) == pytest.approx(1)


def test_a_killed_training_goes_on_and_ends_the_same(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = Recipe(space="procrustes", holdout=0.2)
    whole = train(*sides, seeds, config, recipe, work_dir=tmp_path / "a")
    view = chain.Workshop.view

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chain.Workshop, "view", dies)
    with pytest.raises(KeyboardInterrupt):
        train(*sides, seeds, config, recipe, work_dir=tmp_path / "b")
    monkeypatch.setattr(chain.Workshop, "view", view)
    aligned: list[Any] = []
    align = Procrustes.align
    monkeypatch.setattr(Procrustes, "align", lambda *a: aligned.append(a) or align(*a))
    again = train(*sides, seeds, config, recipe, work_dir=tmp_path / "b")
    assert len(aligned) == 1  # only the one on all seeds was left to make
    words = list(sides[0].words[:20])
    assert again.translate(words, 3) == whole.translate(words, 3)


def test_a_given_space_is_taken_as_it_is(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(chain, "note", said.append)
    space = Space(*sides, method="files")
    translator = train(*sides, seeds, config, Recipe(space=space, refit=False))
    assert translator.space is space
    assert "it knows the held-out words too" in said[0]


@pytest.mark.parametrize(("pairs", "expected"), [(0, "unsupervised"), (900, "semi_supervised")])
def test_preset_by_the_number_of_seeds(pairs: int, expected: str) -> None:
    assert preset_for(pairs) == expected
    assert preset_for(5000) == "supervised"


def test_bad_input_is_one_sentence(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config
) -> None:
    few = Lexicon(seeds.pairs[:5])
    with pytest.raises(InputError, match=r"only 5 of 5 seed pairs .* at least 20"):
        train(*sides, few, config)
    with pytest.raises(InputError, match="there is no space 'vecmop'"):
        train(*sides, seeds, config, Recipe(space="vecmop"))
    with pytest.raises(InputError, match="holdout is -1"):
        train(*sides, seeds, config, Recipe(holdout=-1))
    with pytest.raises(InputError, match="there is no scorer 'magic'"):
        train(*sides, seeds, config, Recipe(space="procrustes", scorers=("magic",)))


def test_from_files_to_a_dictionary_by_command(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, encoder: Path, tmp_path: Path
) -> None:
    for side, embeddings in zip(("en", "fr"), sides, strict=True):
        embeddings.save(tmp_path / f"{side}.vec")
    seeds.save(tmp_path / "seeds.tsv")
    run = CliRunner()
    arguments = [
        "train",
        *(str(tmp_path / file) for file in ("en.vec", "fr.vec")),
        *("--seeds", str(tmp_path / "seeds.tsv"), "--space", "procrustes"),
        *("--encoder", str(encoder), "--preset", "supervised", "-o", str(tmp_path / "en-fr")),
        *("--set", "epochs=1", "--set", "n_rep=1", "--set", "n_neg=3", "--json"),
        *("--source-language", "en", "--target-language", "fr"),
    ]
    result = run.invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["languages"] == ["en", "fr"]
    assert not (tmp_path / "en-fr.work").exists()
    translator = Translator.load(tmp_path / "en-fr")
    word = sides[0].words[3]
    result = run.invoke(app, ["translate", str(tmp_path / "en-fr"), word, "zzzz", "--json"])
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["candidates"][0]["word"] == translator.translate([word])[0].best
    assert second["known"] is False
    result = run.invoke(app, ["translate", str(tmp_path / "en-fr"), "zzzz"])
    assert result.exit_code == 1
    piped = run.invoke(app, ["translate", str(tmp_path / "en-fr"), "-k", "2"], input=f"{word}\n\n")
    assert piped.stdout.startswith(word + "\t")
    output = tmp_path / "out.csv"
    result = run.invoke(app, ["induce", str(tmp_path / "en-fr"), "-n", "10", "-o", str(output)])
    assert result.exit_code == 0
    assert len(output.read_text().splitlines()) == 11


def test_an_unknown_name_is_found_before_anything_is_computed(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain.Workshop, "fit", lambda *_: pytest.fail("something was fitted"))
    for recipe, said in (
        (Recipe(scorers=("magic",)), "no scorer 'magic'"),
        (Recipe(space="magic"), "no space 'magic'"),
        (Recipe(space_mode="magic"), "no mode 'magic'"),
    ):
        with pytest.raises(InputError, match=said):
            train(*sides, seeds, config, recipe)


def test_the_untuned_encoder_is_a_scorer_that_saves_and_loads(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config, tmp_path: Path
) -> None:
    recipe = Recipe(space="procrustes", scorers=("cross-encoder", "untuned"), refit=False)
    translator = train(*sides, seeds, config, recipe)
    tuned, untuned = translator.scorers
    words = (["abc", "dba"], ["klm", "mlk"])
    fresh = Reranker(config.encoder, max_length=config.max_length)
    filled = CrossEncoderScorer(fresh, config.template, ("english", "français"))
    np.testing.assert_allclose(untuned.score(*words), filled.score(*words), atol=1e-6)
    assert not np.allclose(untuned.score(*words), tuned.score(*words), atol=1e-6)
    translator.save(tmp_path / "both")
    again = Translator.load(tmp_path / "both")
    for before, after in zip(translator.scorers, again.scorers, strict=True):
        assert before.name == after.name
        np.testing.assert_allclose(after.score(*words), before.score(*words), atol=1e-6)


def test_a_folder_named_like_a_method_is_not_the_space(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, embeddings in zip(("en", "fr"), sides, strict=True):
        embeddings.save(tmp_path / f"{side}.vec")
    seeds.save(tmp_path / "seeds.tsv")
    (tmp_path / "vecmap").mkdir()  # such as a clone of it
    Space(*sides, method="files").save(tmp_path / "own")
    usual = ["--seeds", "seeds.tsv", "--encoder", str(encoder), "--preset", "supervised"]
    usual += ["--set", "epochs=1", "--set", "n_rep=1", "--set", "n_neg=3", "-o", "out"]
    usual += ["--source-language", "en", "--target-language", "fr"]
    done = CliRunner().invoke(app, ["train", "en.vec", "fr.vec", *usual])
    assert done.exit_code == 0, done.output
    assert Translator.load(tmp_path / "out").space.method == "vecmap"
    done = CliRunner().invoke(app, ["train", "en.vec", "fr.vec", *usual, "--space", "own"])
    assert "give either two vector files, or the saved space own" in str(done.exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--holdout", "0"], "nothing to choose lambda on"),
        (["--lambda", "0.5", "--scorers", "spelling,endings"], "mixes CSLS with one scorer"),
        (["--set", "preset=unsupervised"], "the preset unsupervised takes no --seeds"),
        (["--config", "settings.toml"], "the preset unsupervised takes no --seeds"),
        (["-o", "mine"], r"mine\.work: holds 'thesis.txt', which is not of an unfinished run"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_fitted(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, embeddings in zip(("en", "fr"), sides, strict=True):
        embeddings.save(tmp_path / f"{side}.vec")
    seeds.save(tmp_path / "seeds.tsv")
    (tmp_path / "settings.toml").write_text('preset = "unsupervised"\n')
    (tmp_path / "mine.work").mkdir()
    (tmp_path / "mine.work" / "thesis.txt").write_text("precious")

    def fit(*_: object) -> None:
        raise AssertionError("something was fitted")

    monkeypatch.setattr(Workshop, "fit", fit)
    arguments = ["train", "en.vec", "fr.vec", "--seeds", "seeds.tsv", "-o", "out", *options]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, BlicerError)
    assert re.search(said, str(done.exception))
    assert (tmp_path / "mine.work" / "thesis.txt").read_text() == "precious"


def test_folds_of_seeds_that_hang_together() -> None:
    """Many translations a word tie all seed words together; the folds are even all the same."""
    rng = np.random.default_rng(0)
    pairs = [(f"s{i}", f"t{j}") for i in range(200) for j in rng.integers(0, 200, size=3)]
    seeds = Lexicon(pairs)
    assert largest_group(seeds.numbered()) > 150
    splits = chain.held_out_splits(seeds, Recipe(folds=4))
    assert [len(held.targets) for _, held in splits] == [50] * 4
    for rest, held in splits:
        assert not set(rest.targets) & set(held.targets)
    ((rest, held),) = chain.held_out_splits(seeds, Recipe(folds=1, holdout=0.2))
    assert (len(rest.targets), len(held.targets)) == (160, 40)
