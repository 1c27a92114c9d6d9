"""One cross-encoder for several pairs: what it learns from, and pairs that have no seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import blicer.multilingual as chain
from blicer.align.space import Space
from blicer.cli import app
from blicer.config import Config
from blicer.crossencoder.model import Reranker
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.mixing import HeldOutView, choose_weights
from blicer.multilingual import prepare_multilingual, prepare_zero_shot, without_shared_pivots
from blicer.training_pairs import Examples
from blicer.translator import Translator
from tiny_models import spelled, tiny_encoder

WORDS = 160
LETTERS = {"en": "abcdefghij", "fr": "klmnopqrst", "ru": "абвгдежзик"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"))


def word(number: int, language: str) -> str:
    return spelled(number, LETTERS[language])


@pytest.fixture(scope="module")
def vectors() -> dict[str, Embeddings]:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(WORDS, 12)).astype(np.float32)
    return {
        language: Embeddings(
            [word(i, language) for i in range(WORDS)],
            base + 0.3 * rng.normal(size=base.shape).astype(np.float32),
            language,
        )
        for language in LETTERS
    }


def lexicon(one: str, other: str, start: int = 0) -> Lexicon:
    return Lexicon([(word(i, one), word(i, other)) for i in range(start, WORDS, 2)])


@pytest.fixture
def config(encoder: Path) -> Config:
    overrides: dict[str, Any] = {
        "encoder": str(encoder),
        "epochs": 1,
        "n_neg": 4,
        "n_cand": 6,
        "n_rep": 1,
    }
    overrides |= {"template": "T1", "batch_size": 64, "n_rep": 1, "holdout": 0.2, "folds": 1}
    overrides |= {"scorers": ("endings", "cross-encoder"), "space": "vecmap"}
    return Config.resolve("supervised", overrides=overrides)


@pytest.fixture
def ready_space(vectors: dict[str, Embeddings], monkeypatch: pytest.MonkeyPatch) -> None:
    """The unsupervised space of a pair without seeds: it stands here already."""

    def find(pair: Any, config: Config) -> Space:
        return Space(pair.source, pair.target, method="files")

    monkeypatch.setattr(chain, "find_space", find)


def watch_training(monkeypatch: pytest.MonkeyPatch) -> list[Examples]:
    """What every cross-encoder is taught."""
    lessons: list[Examples] = []
    fit = Reranker.fit

    def watched(self: Reranker, *shown: Any, **options: Any) -> Reranker:
        lessons.append(Examples(*shown))
        return fit(self, *shown, **options)

    monkeypatch.setattr(Reranker, "fit", watched)
    return lessons


@pytest.mark.usefixtures("ready_space")
def test_one_cross_encoder_learns_from_all_pairs_and_serves_all(
    vectors: dict[str, Embeddings], config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lessons = watch_training(monkeypatch)
    seeds = {("en", "fr"): lexicon("en", "fr"), ("en", "ru"): lexicon("en", "ru", 1)}
    found = prepare_multilingual(vectors, seeds, config, work_dir=tmp_path)
    assert list(found) == [("en", "fr"), ("en", "ru"), ("fr", "ru")]
    held_out, whole = lessons
    shown = set(zip(whole.left, whole.right, strict=True))
    assert {(word(0, "en"), word(0, "fr")), (word(1, "ru"), word(1, "en"))} <= shown
    assert len(held_out) < len(whole)
    for pair in seeds:  # a fifth of 80 words, in both directions; none of them was shown
        assert len(found[pair].held_out.parts) == 2 * 16  # type: ignore[union-attr]
    rerankers = {id(one.fitted.scorers[-1].reranker) for one in found.values()}  # type: ignore[attr-defined]
    assert len(rerankers) == 1
    assert [scorer.name for scorer in found["fr", "ru"].fitted.scorers] == ["cross-encoder"]
    translators = {pair: one.translator() for pair, one in found.items()}
    assert translators["fr", "ru"].translate([word(3, "fr")], 1)[0].best is not None
    lessons.clear()
    prepare_multilingual(vectors, seeds, config, work_dir=tmp_path)
    kept = sorted(path.name for path in tmp_path.glob("reranker-*"))
    assert len(kept) == 2  # a second run found both


@pytest.mark.usefixtures("ready_space")
def test_a_pair_without_seeds_takes_the_weights_that_all_held_out_words_choose(
    vectors: dict[str, Embeddings], config: Config
) -> None:
    seeds = {("en", "fr"): lexicon("en", "fr"), ("en", "ru"): lexicon("en", "ru", 1)}
    found = prepare_multilingual(vectors, seeds, config)
    views = [found[pair].held_out for pair in seeds]
    joined = HeldOutView.joined(views)  # type: ignore[arg-type]
    expected = choose_weights(joined.parts[..., [0, 2]], joined.is_gold, ["csls", "cross-encoder"])
    alone = found["fr", "ru"].translator()
    mixture, calibration = alone.mixture, alone.calibration
    # The other pairs' seeds are checked pairs: confidences are as these say, without promises.
    assert calibration is not None
    assert calibration.usual is None
    assert calibration.reliability is None
    assert mixture.weights == expected.weights
    assert mixture.queries == len(joined.parts)


@pytest.mark.usefixtures("ready_space")
def test_zero_shot_sees_no_pair_of_the_languages_asked_for(
    vectors: dict[str, Embeddings], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    lessons = watch_training(monkeypatch)
    sides = (vectors["en"], vectors["ru"], vectors["fr"])
    both = (lexicon("en", "ru"), lexicon("en", "fr"))  # every English word is shared
    prepared = prepare_zero_shot(*sides, *both, config)
    assert (prepared.fitted.space.source.language, prepared.fitted.space.target.language) == (
        "ru",
        "fr",
    )
    shown = lessons[-1]
    english = {"ru": set(), "fr": set()}  # type: ignore[var-annotated]
    positives = [
        (left, right)
        for left, right, label in zip(shown.left, shown.right, shown.labels, strict=True)
        if label > 0.5 and left[0] in LETTERS["en"]
    ]
    for left, right in positives:
        english["ru" if right[0] in LETTERS["ru"] else "fr"].add(left)
    assert english["ru"]
    assert english["fr"]
    assert not english["ru"] & english["fr"]
    for left, right in zip(shown.left, shown.right, strict=True):
        assert (left[0] in LETTERS["en"]) != (right[0] in LETTERS["en"])


def test_every_language_is_called_by_its_own_name(
    vectors: dict[str, Embeddings], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    lessons = watch_training(monkeypatch)
    spaces: list[Any] = []

    def find(pair: Any, config: Config) -> Space:
        spaces.append((config.space, pair.names_for(config)))
        return Space(pair.source, pair.target, method="files")

    monkeypatch.setattr(chain, "find_space", find)
    named = config.replace(template="[w] is [L]", space="procrustes")
    sides = (vectors["en"], vectors["ru"], vectors["fr"])
    both = (lexicon("en", "ru"), lexicon("en", "fr", 1))
    prepare_zero_shot(*sides, *both, named, names=("moskovian", None), pivot_name="anglian")
    expected = {"en": "anglian", "ru": "moskovian", "fr": "français"}
    for examples in (lessons[-1].left, lessons[-1].right):
        for text in examples:
            word, name = text.split(" is ")
            assert name == next(expected[key] for key in expected if word[0] in LETTERS[key])
    # The pair without seeds has a space of two views whatever its pivots' spaces are.
    assert spaces == [("twoview", ("moskovian", "français"))]


words = st.lists(st.sampled_from("abcdefgh"), max_size=8, unique=True)


@given(words, words)
def test_shared_pivot_words_are_dealt_to_one_of_the_two(one: list[str], other: list[str]) -> None:
    first = Lexicon([(w, f"x{w}") for w in one])
    second = Lexicon([(w, f"y{w}") for w in other])
    left, right = without_shared_pivots(first, second)
    assert not set(left.targets) & set(right.targets)
    assert set(left.targets) | set(right.targets) == set(one) | set(other)
    assert set(one) - set(other) <= set(left.targets)
    shared = set(one) & set(other)
    kept = len(shared & set(left.targets))
    assert kept in (len(shared) // 2, (len(shared) + 1) // 2)


def test_a_pair_asked_for_the_other_way_round_has_its_seeds(
    vectors: dict[str, Embeddings], config: Config
) -> None:
    seeds = {("en", "fr"): lexicon("en", "fr")}
    found = prepare_multilingual(vectors, seeds, config, pairs=[("fr", "en")])
    assert list(found) == [("fr", "en")]
    assert found["fr", "en"].seeds == len(seeds["en", "fr"])
    assert found["fr", "en"].fitted.space.source.language == "fr"


def test_what_is_missing_is_said(vectors: dict[str, Embeddings], config: Config) -> None:
    with pytest.raises(InputError, match="seeds of at least one"):
        prepare_multilingual(vectors, {}, config)
    with pytest.raises(InputError, match="no vectors for xx"):
        prepare_multilingual(vectors, {("en", "xx"): lexicon("en", "fr")}, config)
    both = {("en", "fr"): lexicon("en", "fr"), ("fr", "en"): lexicon("fr", "en")}
    with pytest.raises(InputError, match=r"both en-fr and fr-en have seeds; give one"):
        prepare_multilingual(vectors, both, config)
    seeds = {("en", "fr"): lexicon("en", "fr")}
    with pytest.raises(InputError, match=r"both en-fr and fr-en are asked for; give one"):
        prepare_multilingual(vectors, seeds, config, pairs=[("en", "fr"), ("fr", "en")])
    with pytest.raises(InputError, match="nothing to choose lambda on"):
        prepare_multilingual(vectors, seeds, config.replace(holdout=0.0))
    with pytest.raises(InputError, match="the scorer endings is named twice"):
        prepare_multilingual(
            vectors, seeds, config.replace(scorers=("endings", "endings", "cross-encoder"))
        )
    few = Lexicon(seeds["en", "fr"].pairs[:5])
    with pytest.raises(InputError, match=r"only 5 of 5 seed pairs .* at least 20"):
        prepare_multilingual(vectors, {("en", "fr"): few}, config)
    with pytest.raises(InputError, match="init is 'magic'"):
        prepare_multilingual(vectors, seeds, config, init="magic")
    with pytest.raises(InputError, match="share a cross-encoder"):
        prepare_multilingual(
            vectors, {("en", "fr"): lexicon("en", "fr")}, config.replace(scorers=("spelling",))
        )


@pytest.mark.usefixtures("ready_space")
def test_from_the_command_line(
    vectors: dict[str, Embeddings], encoder: Path, tmp_path: Path
) -> None:
    command = ["train-multilingual", "--encoder", str(encoder)]
    for language, side in vectors.items():
        side.save(tmp_path / f"{language}.vec")
        command += ["--vectors", f"{language}={tmp_path / language}.vec"]
    for other in ("fr", "ru"):
        file = tmp_path / f"en-{other}.tsv"
        file.write_text("".join(f"{a}\t{b}\n" for a, b in lexicon("en", other)), encoding="utf-8")
        command += ["--seeds", f"en-{other}={file}"]
    for setting in ("epochs=1", "n_neg=3", "n_cand=5", "n_rep=1", "n_aug=20"):
        command += ["--set", setting]
    outcome = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out")])
    assert outcome.exit_code == 0, outcome.output
    for pair in ("en-fr", "en-ru", "fr-ru"):
        assert Translator.load(tmp_path / "out" / pair).source.language == pair[:2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--vectors", "en"], "not of the form LANGUAGE=FILE"),
        (["--vectors", "en=a", "--vectors", "en=b"], "names en twice"),
        (["--vectors", "en=a", "--pairs", "enfr"], "expected two languages"),
        (["--vectors", "en=a", "--pairs", "en-fr"], "no vectors for fr"),
        (["--vectors", "en=a", "--vectors", "fr=b", "--name", "ru=x"], "--name names ru, which"),
        (["--vectors", "en=a", "--vectors", "fr=b", "--name", "ru"], "form LANGUAGE=NAME"),
    ],
)
def test_bad_options_are_said(options: list[str], said: str, tmp_path: Path) -> None:
    file = tmp_path / "s.tsv"
    file.write_text("a\tb\n", encoding="utf-8")
    command = [
        "train-multilingual",
        "-o",
        str(tmp_path / "out"),
        "--seeds",
        f"en-fr={file}",
        *options,
    ]
    outcome = CliRunner().invoke(app, command)
    assert isinstance(outcome.exception, InputError)
    assert said in str(outcome.exception)
