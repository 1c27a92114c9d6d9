"""No seeds: which start is taken, what λ is chosen on, and what is said when nothing works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import blicer.pipeline as chain
from blicer.align import two_view
from blicer.align.space import Space
from blicer.align.vecmap import VecMap
from blicer.cli import app
from blicer.config import Config
from blicer.embeddings import Embeddings
from blicer.encoders.words import WordEncoder
from blicer.errors import BlicerError, InputError
from blicer.lexicon import Lexicon
from blicer.pipeline import LanguagePair, Pairs, find_space, prepare, train
from tiny_models import spelled, tiny_encoder, two_sides

WORDS = 200


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def sides() -> tuple[Embeddings, Embeddings]:
    return two_sides(WORDS, 0.4)


@pytest.fixture
def config(encoder: Path) -> Config:
    overrides = {"encoder": str(encoder), "epochs": 1, "n_neg": 4, "n_cand": 6, "n_rep": 1}
    overrides |= {"n_aug": 100, "batch_size": 64, "learning_rate": 1e-3}
    return Config.resolve("unsupervised", overrides=overrides)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def naive_mutual(x: np.ndarray, y: np.ndarray) -> set[tuple[int, int]]:
    """Pairs that are each other's best by CSLS, with ten neighbours for the hubness."""
    cosine = unit(x) @ unit(y).T
    hub_x = np.sort(cosine, axis=1)[:, -10:].mean(axis=1)
    hub_y = np.sort(cosine, axis=0)[-10:].mean(axis=0)
    csls = 2 * cosine - hub_x[:, None] - hub_y[None, :]
    return {(i, int(j)) for i, j in enumerate(csls.argmax(axis=1)) if csls[:, j].argmax() == i}


def test_mutual_neighbours_by_a_naive_search(sides: tuple[Embeddings, Embeddings]) -> None:
    x, y = (unit(side.vectors).astype(np.float32) for side in sides)
    found = VecMap().mutual(torch.from_numpy(x), torch.from_numpy(y)).tolist()
    assert len(found) > WORDS // 10
    assert sorted(map(tuple, found)) == sorted(naive_mutual(x, y))


def two_noisy_views(noise: float) -> list[np.ndarray]:
    """Vectors of 400 words that differ by a rotation and noise, and an encoder's of the same."""
    rng = np.random.default_rng(5)
    words = rng.normal(size=(400, 16))
    turn = np.linalg.qr(rng.normal(size=(16, 16)))[0]
    own = rng.normal(size=(400, 16))

    def seen(rows: np.ndarray) -> np.ndarray:
        return unit(rows + noise * rng.normal(size=rows.shape)).astype(np.float32)

    return [seen(words), seen(words @ turn), seen(own), seen(own)]


def view(monkeypatch: pytest.MonkeyPatch, left: np.ndarray, right: np.ndarray) -> None:
    """Let the encoder's vectors be these."""
    own = [torch.from_numpy(side) for side in (left, right)]
    monkeypatch.setattr(two_view, "encoder_view", lambda *_: own)


def pair_of(left: np.ndarray, right: np.ndarray) -> LanguagePair:
    words = range(len(left))
    return LanguagePair(
        Embeddings([f"s{i}" for i in words], left), Embeddings([f"t{i}" for i in words], right)
    )


def right(space: Space) -> float:
    best = space.retriever.search(1).indices[:, 0]
    return float((best == np.arange(len(best))).mean())


def test_both_views_together_know_more_than_the_encoder_alone(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, own_x, own_y = two_noisy_views(0.6)
    view(monkeypatch, own_x, own_y)
    given = {"device": "cpu", "encoder": "another encoder"}  # `lite` has static vectors, too
    space = find_space(pair_of(x, y), config.replace(space_settings=given))
    assert space.settings["start"] == "encoder"
    assert space.dim == 32
    alone = Space(
        *(
            Embeddings(side.words, own)
            for side, own in zip((space.source, space.target), (own_x, own_y), strict=True)
        ),
        method="files",
    )
    assert right(space) > right(alone) + 0.1


def test_an_encoder_that_knows_nothing_is_found_out(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, own_x, own_y = two_noisy_views(0.3)
    order = np.random.default_rng(0).permutation(400)
    view(monkeypatch, own_x, own_y[order])
    with pytest.raises(BlicerError, match=r"did not find a common structure.*no space is handed"):
        find_space(pair_of(x, y), config.seedless("encoder"))


def verdicts(good: str | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Outcomes that converge from one start only; the starts that were tried."""
    tried: list[str] = []

    def verdict(self: Any, *_: Any, start: str, chance: float) -> dict[str, Any]:
        tried.append(start)
        return {"converged": start == good, "verdict": "it did not hold up"}

    monkeypatch.setattr("blicer.align.vecmap.VecMap.verdict", verdict)
    return tried


def test_starts_are_tried_until_one_holds_up(
    sides: tuple[Embeddings, Embeddings],
    config: Config,
    encoder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    tried = verdicts("distributions", monkeypatch)
    pair = LanguagePair(*sides, work=tmp_path)
    config = config.replace(space_settings={"encoder": str(encoder)})
    space = find_space(pair, config)
    # No word is spelled alike on both sides and there are no numerals, so these are not tried.
    assert tried == ["encoder", "distributions"]
    assert space.settings["start"] == "distributions"
    report = space.settings["tried"]
    assert [one["start"] for one in report] == ["encoder", "identical", "numerals", "distributions"]
    assert [one["converged"] for one in report] == [False, False, False, True]
    assert "no numeral" in report[2]["verdict"]
    tried.clear()
    find_space(pair, config)  # a second run takes what the first one kept
    assert not tried


def test_when_nothing_works_nothing_is_handed_over(
    sides: tuple[Embeddings, Embeddings], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = verdicts(None, monkeypatch)
    pair = LanguagePair(*sides)
    without = config.replace(space_settings={"encoder": "none"})
    with pytest.raises(BlicerError, match="did not hold up; no space is handed over"):
        find_space(pair, without)
    assert tried == ["distributions"]
    with pytest.raises(InputError, match="there is no encoder to start from"):
        find_space(pair, without.seedless("encoder"))
    with pytest.raises(InputError, match="init is 'magic'"):
        find_space(pair, config.seedless("magic"))
    with pytest.raises(InputError, match="procrustes needs seed pairs"):
        find_space(pair, config.replace(space="procrustes"))


def test_weights_are_chosen_on_pairs_that_nothing_saw(
    sides: tuple[Embeddings, Embeddings],
    config: Config,
    encoder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain, "SECOND_VIEW", str(encoder))
    given = Space(*sides, method="files")
    fits: list[tuple[Pairs, Pairs]] = []
    fit = chain.fit

    def spy(pairs, seeds, spaces, config, *, reserved=None):  # type: ignore[no-untyped-def]
        if reserved is not None:
            fits.append((seeds[0], reserved[0]))
            assert config.n_aug == 0  # no silver pair is mined again, held-out or not
        return fit(pairs, seeds, spaces, config, reserved=reserved)

    monkeypatch.setattr(chain, "fit", spy)
    chosen = config.replace(scorers=("cross-encoder",), holdout=0.2)
    prepared = prepare(*sides, None, chosen, space=given)
    ((rest, held),) = fits
    assert len(held) == 20
    for side in (0, 1):
        assert not set(rest[:, side]) & set(held[:, side])
        assert len(set(held[:, side])) == 20
    views = []
    for side in sides:
        own = WordEncoder(encoder, device="cpu").encode(side.words)
        views.append(np.concatenate([unit(side.vectors), unit(own)], axis=1))
    assert set(map(tuple, held.tolist())) <= naive_mutual(*views)
    assert prepared.notes["unsupervised"] == {"tried": [], "silver_pairs": 100, "chosen_on": 20}
    assert prepared.fitted.space is given
    assert prepared.fitted.pairs.report.silver == 100
    assert prepared.fitted.pairs.report.seeds == 0
    translator = prepared.translator()
    assert translator.mixture.queries == len(prepared.held_out.parts)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="no checked pair"):
        translator.confidence_for(0.9)


def test_words_without_a_mutual_neighbour_count_as_words_without_a_translation(
    config: Config, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "SECOND_VIEW", str(encoder))
    source, target = two_sides(WORDS, 2.0)
    source = source.head(WORDS - 50)
    space = Space(source, target, method="files", settings={"chosen_weight": 1.0})
    pair = LanguagePair(source, target)
    held, absent = chain.neighbours_in_two_views(pair, space, config, 100)
    mutual = naive_mutual(source.vectors, target.vectors)
    assert set(map(tuple, held.tolist())) <= mutual
    for one, side in zip(absent, (source, target), strict=True):
        alone = 1 - len(mutual) / len(side)
        assert 0.2 < alone < 0.9
        assert one.share(np.array([0, 7, 90])) == pytest.approx(np.full(3, alone))


def test_seeds_too_few_to_hold_some_out_are_used_all_the_same(
    sides: tuple[Embeddings, Embeddings],
    config: Config,
    encoder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain, "SECOND_VIEW", str(encoder))
    # Pairs that the space would never give as silver ones.
    wrong = [(sides[0].words[i], sides[1].words[i + 100]) for i in range(5)]
    config = config.replace(scorers=("spelling",))
    prepared = prepare(*sides, Lexicon(wrong), config, space=Space(*sides, method="files"))
    pairs = prepared.fitted.pairs
    taught = np.stack([pairs.source, pairs.target], axis=1)[pairs.is_positive].tolist()
    assert [[i, i + 100] in taught for i in range(5)] == [True] * 5
    assert (prepared.seeds, pairs.report.seeds, pairs.report.silver) == (5, 5, 100)
    assert prepared.held_out is not None
    assert prepared.notes["unsupervised"]["chosen_on"] > 0


def test_a_given_lambda_needs_nothing_to_choose_on(
    sides: tuple[Embeddings, Embeddings], config: Config
) -> None:
    space = Space(*sides, method="files")
    config = config.replace(scorers=("cross-encoder",), holdout=0.0)
    translator = train(*sides, None, config.replace(mixing_weight=0.4), space=space)
    assert translator.mixture.weights == {"csls": 0.6, "cross-encoder": 0.4}
    with pytest.raises(InputError, match="nothing to choose lambda on"):
        train(*sides, None, config, space=space)


def test_a_space_too_small_for_silver_pairs(config: Config) -> None:
    few = [Embeddings(list(letters), np.eye(5, dtype=np.float32)) for letters in ("abcde", "vwxyz")]
    config, space = config.replace(scorers=("spelling",)), Space(*few, method="files")
    with pytest.raises(BlicerError, match="silver pairs; training needs at least 20"):
        train(*few, None, config, space=space)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "no seeds were given"),
        (
            [
                *("--preset", "zero-shot", "--seeds", "x.tsv", "--pivot", "x.vec"),
                *("--pivot-source", "a.tsv", "--pivot-target", "b.tsv"),
            ],
            "takes no --seeds",
        ),
        (["--preset", "zero-shot", "--pivot", "x.vec"], "needs --pivot-source and --pivot-target"),
        (
            ["--preset", "supervised", "--seeds", "x.tsv", "--pivot", "x.vec"],
            "is for --preset zero",
        ),
    ],
)
def test_what_does_not_fit_together_is_said(options: list[str], said: str, tmp_path: Path) -> None:
    arguments = ["train", "a.vec", "b.vec", "-o", str(tmp_path / "out"), *options]
    outcome = CliRunner().invoke(app, arguments)
    assert isinstance(outcome.exception, InputError)
    assert said in str(outcome.exception)


def test_from_the_command_line(
    sides: tuple[Embeddings, Embeddings], encoder: Path, tmp_path: Path
) -> None:
    """Both sides spell numbers alike, so the start from identical words finds the map."""
    rng = np.random.default_rng(3)
    base = rng.normal(size=(WORDS, 12)).astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(12, 12)))[0].astype(np.float32)
    for side, vectors, letters in (("a", base, "abcdefghij"), ("b", base @ turn, "klmnopqrst")):
        words = [str(i) if i % 3 == 0 else spelled(i, letters) for i in range(WORDS)]
        Embeddings(words, vectors).save(tmp_path / f"{side}.vec")
    command = ["train", str(tmp_path / "a.vec"), str(tmp_path / "b.vec"), "--encoder", str(encoder)]
    command += ["--preset", "unsupervised", "--init", "identical", "--template", "T1"]
    for setting in ("epochs=1", "n_neg=3", "n_cand=5", "n_aug=60", "n_rep=1"):
        command += ["--set", setting]
    outcome = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out"), "--json"])
    assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "out" / "translator.json").is_file()
    assert not (tmp_path / "out.work").exists()
