"""``blicer pairs``: the file says what the model will be taught."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from blicer.cli import app
from blicer.cli.train import COLUMNS
from blicer.errors import FileError, InputError

run = CliRunner()


@pytest.fixture
def space(tmp_path: Path) -> Path:
    from blicer.align.space import Space
    from blicer.embeddings import Embeddings

    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((40, 6)).astype(np.float32)
    noisy = vectors + 0.5 * generator.standard_normal(vectors.shape).astype(np.float32)
    source = Embeddings([f"s{i}" for i in range(40)], vectors, language="en")
    target = Embeddings([f"t{i}" for i in range(40)], noisy, language="fr")
    folder = tmp_path / "space"
    Space(source, target, method="test", settings={}).save(folder)
    return folder


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    path = tmp_path / "seeds.tsv"
    path.write_text("".join(f"s{i}\tt{i}\n" for i in range(10)) + "s1\tabsent\ngone\tt1\n")
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_file_holds_the_training_set(space: Path, seeds: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "pairs.tsv"
    arguments = ["pairs", str(space), "--seeds", str(seeds), "-o", str(output), "--json"]
    arguments += ["--encoder", "xlm-roberta-large", "--preset", "supervised"]
    done = run.invoke(app, [*arguments, "--set", "n_neg=5", "--set", "alpha=0.5"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    rows = read(output)

    assert list(rows[0]) == list(COLUMNS)
    positives = [row for row in rows if row["kind"] == "seed"]
    negatives = [row for row in rows if row["kind"] == "negative"]
    assert [(row["source"], row["target"]) for row in positives] == [
        (f"s{i}", f"t{i}") for i in range(10)
    ]
    assert len(positives) + len(negatives) == len(rows)
    assert {row["repeats"] for row in positives} == {"9"}
    assert {row["repeats"] for row in negatives} == {"1"}
    slope, intercept = summary["scaling"]["slope"], summary["scaling"]["intercept"]
    for row in rows:
        scaled = slope * float(row["score"]) + intercept
        label = 0.5 * scaled + (0.5 if row["kind"] == "seed" else 0.0)
        assert float(row["scaled"]) == pytest.approx(scaled, abs=1e-5)
        assert float(row["label"]) == pytest.approx(label, abs=1e-5)
        assert row["left"] == f"{row['source']} (english)!"
        assert row["right"] == f"{row['target']} (français)!"

    assert (summary["seeds"], summary["negatives"]) == (10, len(negatives))
    assert summary["examples"] == 2 * sum(int(row["repeats"]) for row in rows)
    assert (summary["coverage"]["pairs"], summary["coverage"]["pairs_found"]) == (12, 10)
    assert summary["config"]["alpha"] == 0.5


def test_unless_told_otherwise_the_pairs_are_those_of_blicer_train(
    space: Path, tmp_path: Path
) -> None:
    from blicer.config import Config, defaults_for

    seeds = tmp_path / "cased.tsv"
    seeds.write_text("".join(f"S{i}\tT{i}\n" for i in range(10)))
    arguments = ["pairs", str(space), "--seeds", str(seeds), "-o", str(tmp_path / "pairs.tsv")]
    done = run.invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["config"] == Config.resolve(defaults=defaults_for(10)).to_dict()
    assert (summary["config"]["encoder"], summary["seeds"]) == ("lite", 10)
    assert summary["silver"] > 0
    done = run.invoke(app, [*arguments, "--keep-case"])
    assert "none of the 10 seed pairs are in both vocabularies" in str(done.exception)


def test_silver_pairs_without_seeds(space: Path, tmp_path: Path) -> None:
    output, settings = tmp_path / "pairs.tsv", tmp_path / "settings.toml"
    settings.write_text('preset = "unsupervised"\nn_aug = 12\nn_neg = 3\n')
    names = ["--template", "[w], [L]", "--source-name", "Old English", "--set", "k_csls=5"]
    done = run.invoke(
        app, ["pairs", str(space), "-o", str(output), "--config", str(settings), *names]
    )
    assert done.exit_code == 0, done.output
    rows = read(output)
    assert sum(row["kind"] == "silver" for row in rows) == 12
    assert rows[0]["left"] == f"{rows[0]['source']}, Old English"
    assert rows[0]["right"] == f"{rows[0]['target']}, français"
    assert not done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--preset", "supervised"], "supervised needs a seed dictionary: .*--seeds FILE"),
        (["--seeds", "{seeds}", "--template", "no slot"], "has no slot"),
        (
            ["--seeds", "{seeds}", "--set", "alpha=7"],
            "alpha is 7.0; expected a number",
        ),
        (["--seeds", "{seeds}", "--set", "alfa=7"], "did you mean 'alpha'"),
        (["--seeds", "{seeds}", "--preset", "super"], "expected one of supervised"),
    ],
)
def test_bad_arguments_write_nothing(
    space: Path, seeds: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    output = tmp_path / "pairs.tsv"
    filled = [argument.format(seeds=seeds) for argument in arguments]
    done = run.invoke(app, ["pairs", str(space), "-o", str(output), *filled])
    assert isinstance(done.exception, InputError)
    with pytest.raises(InputError, match=sentence):
        raise done.exception
    assert not output.exists()


def test_swapped_seeds_are_explained(space: Path, tmp_path: Path) -> None:
    swapped = tmp_path / "swapped.tsv"
    swapped.write_text("t1\ts1\nt2\ts2\n")
    output = tmp_path / "pairs.tsv"
    done = run.invoke(app, ["pairs", str(space), "--seeds", str(swapped), "-o", str(output)])
    assert isinstance(done.exception, InputError)
    assert "none of the 2 seed pairs are in both vocabularies" in str(done.exception)
    assert "swapped" in str(done.exception)


def test_an_output_that_cannot_be_written_is_found_first(
    space: Path, seeds: Path, tmp_path: Path
) -> None:
    output = tmp_path / "seeds.tsv" / "pairs.tsv"  # its folder is a file
    done = run.invoke(app, ["pairs", str(space), "--seeds", str(seeds), "-o", str(output)])
    assert isinstance(done.exception, FileError)
    assert "cannot be written" in str(done.exception)


def test_a_language_without_a_name(space: Path, seeds: Path, tmp_path: Path) -> None:
    from blicer.align.space import Space
    from blicer.embeddings import Embeddings

    loaded = Space.load(space)
    nameless = Embeddings(loaded.source.words, loaded.source.vectors)
    folder, output = tmp_path / "nameless", tmp_path / "pairs.tsv"
    Space(nameless, loaded.target, method="test", settings={}).save(folder)
    arguments = ["pairs", str(folder), "--seeds", str(seeds), "-o", str(output)]
    done = run.invoke(app, [*arguments, "--template", "T15"])
    assert isinstance(done.exception, InputError)
    assert "--source-name" in str(done.exception)
    # A template without [L] needs no name.
    assert run.invoke(app, [*arguments, "--template", "T1"]).exit_code == 0
    assert read(output)[0]["left"] == "s0"


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from blicer.cli import app; "
        "done = CliRunner().invoke(app, ['pairs', '--help']); "
        "print('blicer pairs en-fr' in done.stdout, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
