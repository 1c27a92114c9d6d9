"""``blicer align`` as a user meets it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from blicer.align import Space, VecMap
from blicer.cli import main
from blicer.embeddings import Embeddings


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["blicer", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return Outcome(int(caught.value.code or 0), out, err)

    return call


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Two vector files that are rotations of each other, and seeds for fifty words of them."""
    random = np.random.default_rng(0)
    x = random.standard_normal((150, 10))
    y = x @ np.linalg.qr(random.standard_normal((10, 10)))[0]
    Embeddings([f"s{i}" for i in range(150)], x).save(tmp_path / "a.vec")
    Embeddings([f"t{i}" for i in range(150)], y).save(tmp_path / "b.vec")
    (tmp_path / "seeds.tsv").write_text("".join(f"s{i}\tt{i}\n" for i in range(50)))
    return tmp_path / "a.vec", tmp_path / "b.vec", tmp_path / "seeds.tsv"


def test_seeds_in_another_encoding(run, files, tmp_path: Path) -> None:
    source, target, seeds = files
    latin, space = tmp_path / "latin.tsv", tmp_path / "space"
    latin.write_bytes(seeds.read_bytes() + "père\tvater\n".encode("latin-1"))
    call = ("align", source, target, "--space", "procrustes", "--seeds", latin, "-o", space)
    assert "0xE8" in run(*call).err
    assert run(*call, "--encoding", "latin-1").code == 0


@pytest.mark.parametrize("method", ["procrustes", "vecmap"])
def test_align_then_evaluate(run, files, tmp_path: Path, method: str) -> None:
    source, target, seeds = files
    space = tmp_path / "out" / "space"
    outcome = run(
        *("align", source, target, "--space", method, "--seeds", seeds, "-o", space, "--json"),
        *("--source-language", "en", "--target-language", "fr", "--device", "cpu"),
    )
    assert outcome.code == 0, outcome.err
    described = json.loads(outcome.out)
    assert described["method"] == method
    assert described["source"] == {"words": 150, "language": "en"}
    assert described["settings"]["device"] == "cpu"
    test = tmp_path / "test.tsv"
    test.write_text("".join(f"s{i}\tt{i}\n" for i in range(50, 150)))
    scores = json.loads(run("evaluate", space, test, "--json").out)
    assert scores["forward"]["p@1"] == 1.0
    assert scores["backward"]["p@1"] == 1.0


def test_the_mode_goes_with_the_number_of_seeds_unless_given(run, files, tmp_path: Path) -> None:
    """C1's rounds, steps and negatives for few seeds are others than for many (method §6)."""
    source, target, seeds = files
    plain = ("align", source, target, "--seeds", seeds, "-o", tmp_path / "s", "--json")
    few = run(*plain, "--space", "c1")
    assert few.code == 0, few.err
    assert "c1: semi_supervised, for 50 seed pairs" in few.err
    settings = json.loads(few.out)["settings"]
    assert (settings["rounds"], settings["steps"], settings["train_on_mined"]) == (3, 50, True)
    asked = run(*plain, "--space", "c1", "--mode", "supervised")
    settings = json.loads(asked.out)["settings"]
    assert (settings["rounds"], settings["steps"], settings["train_on_mined"]) == (2, 200, False)
    assert "semi_supervised" not in asked.err
    closed = run(*plain, "--space", "vecmap")  # self-learning is asked for, never assumed
    assert json.loads(closed.out)["settings"]["self_learning"] is False


def test_set_max_words_and_export(run, files, tmp_path: Path) -> None:
    source, target, seeds = files
    outcome = run(
        *("align", source, target, "--space", "vecmap", "--seeds", seeds, "-o", tmp_path / "s"),
        *("--set", "reweight=1.0", "--set", "max_iterations=none", "--max-words", 100),
        *("--export-vec", tmp_path / "vec", "--seed", 7),
    )
    assert outcome.code == 0, outcome.err
    space = Space.load(tmp_path / "s")
    assert (space.settings["reweight"], space.settings["seed"]) == (1.0, 7)
    assert space.settings["max_iterations"] is None
    assert len(space.source) == 100
    assert (tmp_path / "vec" / "source.vec").read_text().startswith("100 10\n")
    assert (tmp_path / "vec" / "target.vec").is_file()


def test_files_that_are_already_aligned(run, files, tmp_path: Path) -> None:
    source, target, _ = files
    assert run("align", source, target, "--space", "files", "-o", tmp_path / "s").code == 0
    space = Space.load(tmp_path / "s")
    assert space.method == "files"
    np.testing.assert_allclose(space.source.vectors, Embeddings.load(source).vectors, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["wordmap"], "'wordmap'; expected one of twoview, procrustes, vecmap"),
        (["procrustes"], "procrustes needs seed pairs (mode: unsupervised): give"),
        (["vecmap", "--mode", "semi_supervised"], "needs seed pairs (mode: semi_supervised): give"),
        (["vecmap", "--mode", "magic"], "vecmap needs seed pairs"),
        (["vecmap", "--set", "words"], "is not of the form NAME=VALUE"),
        (["vecmap", "--set", "wrods=5"], "vecmap has no setting 'wrods'"),
        (["vecmap", "--set", "words=many"], "words is 'many'; expected a whole number"),
    ],
)
def test_mistakes_are_one_sentence(run, tmp_path: Path, arguments, expected: str) -> None:
    """Found before any file is opened: the vector files do not even exist here."""
    method, *rest = arguments
    outcome = run(
        *("align", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "s"), "--space", method, *rest
    )
    assert outcome.code == 2
    assert expected in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "s").exists()


def test_output_is_checked_first(run, files, tmp_path: Path, monkeypatch) -> None:
    """No work is done for an output that cannot be written or must not be replaced."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("loaded before the output was checked")

    monkeypatch.setattr(Embeddings, "load", never)
    source, target, seeds = files
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    outcome = run("align", source, target, "--space", "vecmap", "--seeds", seeds, "-o", folder)
    assert (outcome.code, (folder / "notes.txt").read_text()) == (2, "mine")
    assert "is not a space; it is left as it is" in outcome.err
    below_a_file = source / "space"
    outcome = run(
        "align", source, target, "--space", "vecmap", "--seeds", seeds, "-o", below_a_file
    )
    assert outcome.code == 2
    assert "cannot be written" in outcome.err


def test_swapped_seeds(run, files, tmp_path: Path) -> None:
    source, target, seeds = files
    outcome = run(
        "align", target, source, "--space", "procrustes", "--seeds", seeds, "-o", tmp_path / "s"
    )
    assert outcome.code == 2
    assert "the columns are swapped (50 of 50 pairs" in outcome.err
    assert not (tmp_path / "s").exists()


def test_failed_run_writes_nothing_unless_forced(run, files, tmp_path: Path, monkeypatch) -> None:
    source, target, _ = files

    def failed(
        self: VecMap, left: Embeddings, right: Embeddings, pairs: object, **_: object
    ) -> Space:
        outcome = {"converged": False, "verdict": "it failed; try seeds"}
        return Space(left, right, method="vecmap", settings=outcome)

    monkeypatch.setattr(VecMap, "fit", failed)
    out = tmp_path / "s"
    outcome = run("align", source, target, "--space", "vecmap", "--mode", "unsupervised", "-o", out)
    assert outcome.code == 1
    assert "it failed; try seeds; nothing was written" in outcome.err
    assert not out.exists()
    forced = run(
        "align", source, target, "--space", "vecmap", "--mode", "unsupervised", "-o", out, "--force"
    )
    assert forced.code == 0
    assert Space.load(out).settings["converged"] is False


def test_help_has_an_example(run) -> None:
    outcome = run("align", "--help")
    assert outcome.code == 0
    assert "blicer align wiki.en.vec" in outcome.out
