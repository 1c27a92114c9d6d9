"""The worked examples of ``CONTRIBUTING.md`` work as the text says: one file, one registry line.

Each example's code is written to a folder that is added to its package's path, and its line is
added to the registry that the text names. All else is the command line, as a user meets it.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

import blicer
import blicer.cli.commands  # registers the commands
from blicer.align.space import Space
from blicer.cli import app
from blicer.embeddings import Embeddings
from blicer.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGE = Path(blicer.__file__).parent


class Example(NamedTuple):
    """What a section of the guide asks for."""

    file: Path  # relative to the package
    code: str
    registry: str
    registry_file: Path
    imports: str  # what the registry's module has to import for the line
    line: str

    @classmethod
    def of(cls, title: str) -> Example:
        section = GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0]
        code, line = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
        file = re.search(r"complete one, `src/blicer/([\w/]+\.py)`", section)
        registry = re.search(
            r"The line in `(\w+)` of `src/blicer/([\w/]+\.py)`(?: \(with `([^`]+)`)?", section
        )
        assert file is not None
        assert registry is not None
        name, registry_file, imports = registry.groups()
        return cls(
            *(Path(file[1]), code), *(name, Path(registry_file), imports or ""), line.strip()
        )


def module_name(file: Path) -> str:
    return ".".join(["blicer", *file.with_suffix("").parts]).removesuffix(".__init__")


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], Example]]:
    """Add an example to the package, for one test."""
    names: list[str] = []

    def add(title: str) -> Example:
        example = Example.of(title)
        assert not (PACKAGE / example.file).exists(), "an example must not be a part already"
        folder = tmp_path / "parts" / example.file.parent
        folder.mkdir(parents=True, exist_ok=True)
        (folder / example.file.name).write_text(example.code, encoding="utf-8")
        name = module_name(example.file)
        names.append(name)
        parent = importlib.import_module(name.rpartition(".")[0])
        monkeypatch.setattr(parent, "__path__", [*parent.__path__, str(folder)])
        registry = importlib.import_module(module_name(example.registry_file))
        space = dict(vars(registry))
        exec(example.imports, space)
        (key, value), *rest = eval("{" + example.line + "}", space).items()
        assert not rest
        monkeypatch.setitem(getattr(registry, example.registry), key, value)
        return example

    yield add
    for name in names:
        sys.modules.pop(name, None)
        parent, _, own = name.rpartition(".")
        vars(sys.modules[parent]).pop(own, None)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def refused(*arguments: object) -> str:
    """The sentence with which a command ends."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, InputError), result.output
    return str(result.exception)


class Files(NamedTuple):
    source: Path
    target: Path
    seeds: Path
    x: np.ndarray
    y: np.ndarray


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """120 words in pairs of one short and one long word whose vectors can hardly be told apart."""
    random = np.random.default_rng(0)
    x = np.repeat(random.standard_normal((60, 8)), 2, axis=0)
    x += 0.01 * random.standard_normal(x.shape)
    y = x @ np.linalg.qr(random.standard_normal((8, 8)))[0]
    y += 0.02 * random.standard_normal(x.shape)
    long = ["", "aaaaaa"]
    Embeddings([f"s{i:03}{long[i % 2]}" for i in range(120)], x).save(tmp_path / "a.vec")
    Embeddings([f"t{i:03}{long[i % 2]}" for i in range(120)], y).save(tmp_path / "b.vec")
    seeds = [f"s{i:03}{long[i % 2]}\tt{i:03}{long[i % 2]}\n" for i in range(80)]
    (tmp_path / "seeds.tsv").write_text("".join(seeds))
    x, y = (Embeddings.load(tmp_path / name, cache=False).vectors for name in ("a.vec", "b.vec"))
    return Files(tmp_path / "a.vec", tmp_path / "b.vec", tmp_path / "seeds.tsv", x, y)


def translator(files: Files, folder: Path, **options: object) -> dict[str, object]:
    """Train with the given command-line options; what ``translator.json`` says."""
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    common = ("--seeds", files.seeds, "--device", "cpu", "-o", folder)
    run("train", files.source, files.target, *common, *arguments)
    values: dict[str, object] = json.loads((folder / "translator.json").read_text())
    return values


def test_an_aligner_is_one_file_and_one_line(
    added: Callable[[str], Example], files: Files, tmp_path: Path
) -> None:
    align = ("align", "ridge", files.source, files.target, "--seeds", files.seeds)
    assert "'ridge'" in refused(*align, "-o", tmp_path / "space")  # not there yet
    added("Add an aligner")
    run(*align, "--mode", "supervised", "--set", "penalty=0.5", "-o", tmp_path / "space")
    space = Space.load(tmp_path / "space")
    assert (space.method, space.settings["penalty"]) == ("ridge", 0.5)

    def normalised(rows: np.ndarray) -> np.ndarray:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows - rows.mean(axis=0)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    x, y = normalised(files.x.astype(np.float64)), normalised(files.y.astype(np.float64))
    # Ridge regression as least squares with penalty rows below the data.
    below = np.sqrt(0.5) * np.eye(8)
    weights = np.linalg.lstsq(
        np.vstack([x[:80], below]), np.vstack([y[:80], np.zeros((8, 8))]), rcond=None
    )[0]
    np.testing.assert_allclose(space.source.vectors, x @ weights, atol=1e-5)
    np.testing.assert_allclose(space.target.vectors, y, atol=1e-5)

    trained = translator(files, tmp_path / "model", space="ridge", scorers="spelling")
    assert trained["details"]["space"] == "ridge"  # type: ignore[index]
    sentence = refused(*align, "-o", tmp_path / "other", "--set", "strength=1")
    assert "strength" in sentence
    assert "penalty, device" in sentence


def test_a_scorer_is_one_file_and_one_line(
    added: Callable[[str], Example], files: Files, tmp_path: Path
) -> None:
    train = ("train", files.source, files.target, "--seeds", files.seeds, "--scorers", "length")
    assert "'length'" in refused(*train, "-o", tmp_path / "model")
    added("Add a scorer")
    from blicer.scorers import length

    scores = length.Length().score(["ab", "abc", ""], ["abcd", "abc", "a"])
    np.testing.assert_allclose(scores, [0.5, 1.0, 0.0])
    assert length.Length().score([], []).shape == (0,)

    values = translator(files, tmp_path / "model", space="procrustes", scorers="length")
    weights = values["mixture"]["weights"]  # type: ignore[index]
    assert set(weights) == {"csls", "length"}
    assert weights["length"] > 0
    # Words that were no seeds: vectors cannot tell the long word of a pair, its length can.
    words = [f"s{i:03}aaaaaa" for i in range(81, 120, 2)]
    lines = run("translate", tmp_path / "model", *words).splitlines()
    right = [line.split("\t")[1].split(" ")[0] == "t" + line[1:10] for line in lines]
    assert sum(right) >= 19


def test_a_format_is_one_file_and_one_line(
    added: Callable[[str], Example], files: Files, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    translator(files, model, space="procrustes", scorers="spelling")
    induce = ("induce", model, "-k", 2, "-n", 5)
    assert ".md" in refused(*induce, "-o", tmp_path / "out.md")
    added("Add an export format")
    run(*induce, "-o", tmp_path / "out.md")
    run(*induce, "-o", tmp_path / "out.jsonl")
    entries = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(entries) == 10
    assert (tmp_path / "out.md").read_text() == "".join(
        [
            "| source | target | confidence |\n|---|---|---|\n",
            *(f"| {e['source']} | {e['target']} | {e['confidence']:.2f} |\n" for e in entries),
        ]
    )
    run(*induce, "--format", "md", "-o", tmp_path / "other.txt")
    assert (tmp_path / "other.txt").read_text() == (tmp_path / "out.md").read_text()


# -- the way through the code ---------------------------------------------------------------------


def section(title: str) -> str:
    return re.split(rf"\n###? {title}\n", GUIDE)[1].split("\n#")[0]


def test_the_layout_table_names_every_part_and_nothing_else() -> None:
    table = section("The way through the code")
    named = {
        name
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", table)
        if name != "base.py"  # in align/, as its row says
    }
    found = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
    }
    assert named == found - {"__init__.py", "__main__.py"}


def test_the_main_path_is_short_enough_to_read() -> None:
    listed = re.findall(r"^\d\. `([\w/]+\.py)`", section("The main path, in reading order"), re.M)
    assert set(listed) == {
        "neighbours/retriever.py",
        "align/vecmap.py",
        "training_pairs.py",
        "mixing.py",
        "pipeline.py",
        "translator.py",
    }
    lines = {name: len((PACKAGE / name).read_text().splitlines()) for name in listed}
    assert sum(lines.values()) < 3000, lines
