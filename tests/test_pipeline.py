"""The whole chain with a tiny encoder: what is held out, what is chosen, going on after a kill."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import blicer.pipeline as chain
from blicer.align.procrustes import Procrustes
from blicer.align.space import Space
from blicer.cli import app
from blicer.config import ENCODERS, Config, preset_for
from blicer.crossencoder.model import Reranker
from blicer.dictionary import Dictionary
from blicer.embeddings import Embeddings
from blicer.errors import BlicerError, InputError
from blicer.lexicon import Lexicon, largest_group
from blicer.pipeline import LanguagePair, Pairs, make_aligner, train
from blicer.scorers.cross_encoder import CrossEncoderScorer
from blicer.translator import Translator, provenance
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


def words_of(sides: tuple[Embeddings, Embeddings], pairs: Pairs) -> set[tuple[str, str]]:
    return {(sides[0].words[a], sides[1].words[b]) for a, b in pairs.tolist()}


def test_spaces_that_need_seeds_say_how_many(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config.for_seeds(3, space="procrustes")
    for few, said in ((seeds.pairs[:3], "at least 20 seed pairs here, not 3"), ([], "needs seed")):
        with pytest.raises(InputError, match=said):
            train(*sides, Lexicon(few), config)
    assert "the space uses them" not in capsys.readouterr().err


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
    fits: list[tuple[Pairs, Pairs]] = []
    views: list[Pairs] = []
    fit, view = chain.fit, chain.held_out_view

    def spy_fit(pairs, seeds, *rest, reserved=None):  # type: ignore[no-untyped-def]
        fits.append((seeds[0], reserved[0] if reserved else chain.NO_PAIRS))
        return fit(pairs, seeds, *rest, reserved=reserved)

    def spy_view(fitted, held, *rest):  # type: ignore[no-untyped-def]
        views.append(held)
        return view(fitted, held, *rest)

    monkeypatch.setattr(chain, "fit", spy_fit)
    monkeypatch.setattr(chain, "held_out_view", spy_view)
    translator = train(*sides, seeds, config.replace(space="procrustes", holdout=0.2))
    (first, reserved), (last, nothing) = fits
    (held,) = views
    assert reserved is held
    assert len(held) == 12
    for side in (0, 1):
        assert not set(first[:, side]) & set(held[:, side])
    assert words_of(sides, last) == set(seeds.pairs)
    assert not len(nothing)
    assert translator.mixture.queries == 24  # both directions
    assert translator.calibration is not None
    assert len(translator.mixture.curve) == 101


def test_silver_pairs_keep_clear_of_held_out_words(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config
) -> None:
    """Else the cross-encoder would have learned the pairs that λ is chosen on."""
    with_silver = config.replace(n_aug=100, space="procrustes", scorers=("spelling",))
    pair = LanguagePair(*sides)
    rest, held = (part.indices(*sides) for part in seeds.split(0.3, seed=1, share_targets=False))
    space = chain.fit_space(pair, rest, with_silver)

    def positives(reserved: Pairs) -> Pairs:
        pairs = chain.training_pairs(space, rest, with_silver, reserved=reserved)
        return np.stack([pairs.source, pairs.target], axis=1)[pairs.is_positive]

    for side in (0, 1):
        assert set(held[:, side]) & set(positives(chain.NO_PAIRS)[:, side])
        assert not set(held[:, side]) & set(positives(held)[:, side])


def test_held_out_pairs_that_share_words_with_the_rest_are_neither_taught_nor_asked(
    sides: tuple[Embeddings, Embeddings], config: Config
) -> None:
    """Every word has two translations, each shared with the next word: all hang together."""
    source, target = sides
    count = 60
    chained = Lexicon(
        (source.words[i], target.words[(i + step) % count]) for i in range(count) for step in (0, 1)
    )
    config = config.replace(
        space="procrustes", scorers=("spelling",), holdout=0.2, folds=1, n_neg=50, delta=1.0
    )
    pair, everything = LanguagePair(source, target), chained.indices(source, target)
    (mask,) = chain.held_out_masks(everything, config)
    rest, held = everything[~mask], everything[mask]
    assert set(rest[:, 1]) & set(held[:, 1])
    space = chain.fit_space(pair, rest, config)
    (fitted,) = chain.fit([pair], [rest], [space], config, reserved=[held])
    taught = np.stack([fitted.pairs.source, fitted.pairs.target], axis=1)
    assert words_of(sides, rest) <= words_of(sides, taught)
    assert not words_of(sides, held) & words_of(sides, taught)
    view = chain.held_out_view(fitted, held, everything, config)
    # Every source word is asked with both its golds; a target only if both its sources are held.
    whole = sum(
        set(everything[everything[:, 1] == one, 0]) <= set(held[:, 0]) for one in set(held[:, 1])
    )
    assert (
        len(view.parts)
        == len(set(held[:, 0])) + whole
        < len(set(held[:, 0])) + len(set(held[:, 1]))
    )
    every_other = everything[np.isin(everything[:, 0], np.unique(everything[:, 0])[::2])]
    # No target is held out with all its sources: one direction.
    one_way = chain.held_out_view(fitted, every_other, everything, config)
    assert len(one_way.parts) == len(set(every_other[:, 0]))


def test_folds_hold_out_every_seed_once() -> None:
    seeds = np.stack([np.arange(0, 120, 2), np.arange(60)[::-1]], axis=1)
    masks = chain.held_out_masks(seeds, Config(folds=4))
    assert (np.sum(masks, axis=0) == 1).all()
    for mask in masks:
        assert not set(seeds[~mask, 0]) & set(seeds[mask, 0])


@pytest.mark.parametrize(
    ("encoder", "seeds", "given", "scorers", "folds"),
    [
        ("xlm-roberta-large", 900, {}, ("cross-encoder",), 1),
        ("lite", 900, {}, ENCODERS["lite"].scorers, 3),
        ("lite", 5000, {}, ENCODERS["lite"].scorers, 1),
        ("lite", 900, {"scorers": ("spelling",), "folds": 2}, ("spelling",), 2),
        ("lite", 900, {"holdout": 0.0}, ENCODERS["lite"].scorers, 1),
    ],
)
def test_what_is_left_open_follows_the_encoder(
    encoder: str, seeds: int, given: dict[str, Any], scorers: tuple[str, ...], folds: int
) -> None:
    settled = Config.resolve(overrides={"encoder": encoder, **given}).for_training(seeds)
    assert (settled.scorers, settled.folds) == (scorers, folds)


def test_the_mode_of_a_space() -> None:
    def made(preset: str, **changed: Any) -> Any:
        return make_aligner(Config.resolve(preset, overrides={"space": "vecmap", **changed}))

    assert made("semi_supervised").self_learning is False
    assert made("supervised", space_mode="semi-supervised").self_learning is True
    with pytest.raises(InputError, match=r"vecmap has no mode 'magic'; it has .*supervised"):
        made("supervised", space_mode="magic")
    with pytest.raises(InputError, match="vecmap has no setting 'wrods'"):
        made("supervised", space_settings={"wrods": 5})


@pytest.mark.parametrize("method", ["c1", "c2"])
def test_the_pivots_of_zero_shot_have_few_seeds(method: str) -> None:
    """docs/method.md §3: its spaces are semi-supervised."""
    usual, few, zero_shot = (
        make_aligner(Config.resolve(preset, overrides={"space": method})).settings
        for preset in ("supervised", "semi_supervised", "zero_shot")
    )
    assert zero_shot == few
    assert zero_shot != usual


def test_a_given_lambda_mixes_two() -> None:
    config = Config.resolve(overrides={"encoder": "lite", "mixing_weight": 0.3})
    assert config.for_training(900).scorers == ("cross-encoder",)


def test_a_fixed_lambda_without_held_out_seeds(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config
) -> None:
    config = config.replace(space="procrustes", holdout=0.0)
    translator = train(*sides, seeds, config.replace(mixing_weight=0.25))
    assert translator.mixture.weights == {"csls": 0.75, "cross-encoder": 0.25}
    assert translator.calibration is None
    with pytest.raises(InputError, match="nothing to choose lambda on"):
        train(*sides, seeds, config)


def test_several_scorers_are_mixed(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config
) -> None:
    scorers = ("spelling", "cross-encoder")
    config = config.replace(space="procrustes", scorers=scorers, refit=False)
    translator = train(*sides, seeds, config)
    assert translator.mixture.names == ["csls", "spelling", "cross-encoder"]
    assert sum(translator.mixture.weights.values()) == pytest.approx(1)


def test_a_killed_training_goes_on_and_ends_the_same(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = config.replace(space="procrustes", holdout=0.2)
    whole = train(*sides, seeds, config, work_dir=tmp_path / "a")
    view = chain.held_out_view

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chain, "held_out_view", dies)
    with pytest.raises(KeyboardInterrupt):
        train(*sides, seeds, config, work_dir=tmp_path / "b")
    monkeypatch.setattr(chain, "held_out_view", view)
    aligned: list[Any] = []
    align = Procrustes.fit
    monkeypatch.setattr(Procrustes, "fit", lambda *a, **o: aligned.append(a) or align(*a, **o))
    again = train(*sides, seeds, config, work_dir=tmp_path / "b")
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
    translator = train(*sides, seeds, config.replace(refit=False), space=space)
    assert translator.space is space
    assert "it knows the held-out words too" in said[0]


@pytest.mark.parametrize(("pairs", "expected"), [(0, "unsupervised"), (900, "semi_supervised")])
def test_preset_by_the_number_of_seeds(pairs: int, expected: str) -> None:
    assert preset_for(pairs) == expected
    assert preset_for(5000) == "supervised"


def test_bad_input_is_one_sentence(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config
) -> None:
    with pytest.raises(InputError, match="there is no space 'vecmop'"):
        train(*sides, seeds, config.replace(space="vecmop"))
    with pytest.raises(InputError, match="holdout is -1"):
        train(*sides, seeds, config.replace(holdout=-1))
    with pytest.raises(InputError, match="there is no scorer 'magic'"):
        train(*sides, seeds, config.replace(space="procrustes", scorers=("magic",)))


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
    table = run.invoke(app, ["translate", str(tmp_path / "en-fr")], input=f"{word}\tchat\n")
    assert "line 1: has a tab" in str(table.exception)
    output = tmp_path / "out.csv"
    result = run.invoke(app, ["induce", str(tmp_path / "en-fr"), "-n", "10", "-o", str(output)])
    assert result.exit_code == 0
    assert len(output.read_text().splitlines()) == 11
    # An editor rejects the first entry and corrects the second: both come back as training data.
    rows = Dictionary.load(output).entries
    edited = Dictionary(
        [replace(rows[0], verdict="reject"), replace(rows[1], correction=sides[1].words[7])]
    )
    edited.save(tmp_path / "edited.tsv")
    arguments[arguments.index(str(tmp_path / "en-fr"))] = str(tmp_path / "again")
    again = [*arguments, "--curated", str(tmp_path / "edited.tsv")]
    assert run.invoke(app, again, catch_exceptions=False).exit_code == 0
    translator = Translator.load(tmp_path / "again")
    assert (rows[0].source, rows[0].target) not in translator.seeds
    assert (rows[0].source, rows[0].target) in translator.wrong
    assert translator.translate(rows[1].source).best == sides[1].words[7]
    assert provenance(translator).vectors[0].startswith("en.vec")
    untouched = [*arguments, "--curated", str(output)]
    assert "no verdict" in str(run.invoke(app, untouched).exception)


def test_an_unknown_name_is_found_before_anything_is_computed(
    sides: tuple[Embeddings, Embeddings],
    seeds: Lexicon,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain, "prepare_pairs", lambda *_, **__: pytest.fail("this goes too far"))
    for changed, said in (
        ({"scorers": ("magic",)}, "no scorer 'magic'"),
        ({"space": "magic"}, "no space 'magic'"),
        ({"space_mode": "magic"}, "no mode 'magic'"),
        ({"encoder": "/not/there"}, "there is no such folder"),
        ({"device": "cuda:9"}, "cuda:9"),
    ):
        with pytest.raises(BlicerError, match=said):
            train(*sides, seeds, config.replace(**changed))


def test_the_untuned_encoder_is_a_scorer_that_saves_and_loads(
    sides: tuple[Embeddings, Embeddings], seeds: Lexicon, config: Config, tmp_path: Path
) -> None:
    scorers = ("cross-encoder", "untuned")
    translator = train(
        *sides, seeds, config.replace(space="procrustes", scorers=scorers, refit=False)
    )
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
    (tmp_path / "twoview").mkdir()  # such as a clone of it
    Space(*sides, method="files").save(tmp_path / "own")
    usual = ["--seeds", "seeds.tsv", "--encoder", str(encoder), "--preset", "supervised"]
    usual += ["--set", "epochs=1", "--set", "n_rep=1", "--set", "n_neg=3", "-o", "out"]
    usual += ["--source-language", "en", "--target-language", "fr"]
    done = CliRunner().invoke(app, ["train", "en.vec", "fr.vec", *usual])
    assert done.exit_code == 0, done.output
    assert Translator.load(tmp_path / "out").space.method == "twoview"
    done = CliRunner().invoke(app, ["train", "en.vec", "fr.vec", *usual, "--space", "own"])
    assert "give either two vector files, or the saved space own" in str(done.exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--holdout", "0"], "nothing to choose lambda on"),
        (["--lambda", "0.5", "--scorers", "spelling,endings"], "mixes CSLS with one scorer"),
        (["--set", "preset=zero_shot"], "the preset zero-shot needs --pivot"),
        (["--suspects", "seeds.tsv"], "seeds.tsv is read by this command"),
        (["-o", "seeds.tsv"], "seeds.tsv is read by this command"),
        (["--config", "settings.toml"], "the preset zero-shot needs --pivot"),
        (["-o", "mine"], r"mine\.work: holds 'thesis.txt', which is not part of an unfinished run"),
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
    (tmp_path / "settings.toml").write_text('preset = "zero_shot"\n')
    (tmp_path / "mine.work").mkdir()
    (tmp_path / "mine.work" / "thesis.txt").write_text("precious")

    monkeypatch.setattr(chain, "fit", lambda *_, **__: pytest.fail("something was fitted"))
    arguments = ["train", "en.vec", "fr.vec", "--seeds", "seeds.tsv", "-o", "out", *options]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, BlicerError)
    assert re.search(said, str(done.exception))
    assert (tmp_path / "mine.work" / "thesis.txt").read_text() == "precious"


def test_folds_of_seeds_that_hang_together() -> None:
    """Many translations a word tie all seed words together; the folds are even all the same."""
    rng = np.random.default_rng(0)
    seeds = np.array([(i, j) for i in range(200) for j in rng.integers(0, 200, size=3)])
    assert largest_group(seeds) > 150
    masks = chain.held_out_masks(seeds, Config(folds=4))
    assert [len(np.unique(seeds[held, 0])) for held in masks] == [50] * 4
    for held in masks:
        assert not set(seeds[~held, 0]) & set(seeds[held, 0])
    (held,) = chain.held_out_masks(seeds, Config(folds=1, holdout=0.2))
    rest = seeds[~held]
    assert (len(np.unique(rest[:, 0])), len(np.unique(seeds[held, 0]))) == (160, 40)
