"""The worked examples of ``CONTRIBUTING.md`` work as the text says: some code, one registry line.

Each example's file is written to a folder that is added to its package's path (or, where the text
says so, its code is run in the module that it belongs to), and its line is added to the registry
that the text names.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import blicer
from blicer.align import aligner_class
from blicer.config import Config
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.evaluation import evaluate
from blicer.lexicon import Lexicon
from blicer.pipeline import train
from blicer.translator import Translator
from test_architecture import PLACE

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGE = Path(blicer.__file__).parent
FILE = re.compile(r"complete one, (?:in )?`src/blicer/([\w/]+)\.py`")
REGISTRY = re.compile(r"The line in `(\w+)` of `src/blicer/([\w/]+)\.py`")


class Example(NamedTuple):
    """What a section of the guide asks for."""

    module: str
    code: str
    registry: str
    registry_module: str
    line: str

    @classmethod
    def of(cls, title: str) -> Example:
        section = GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0]
        code, line = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
        file, registry = FILE.search(section), REGISTRY.search(section)
        assert file is not None
        assert registry is not None
        return cls(module(file[1]), code, registry[1], module(registry[2]), line.strip())


def module(path: str) -> str:
    return f"blicer.{path.replace('/', '.')}".removesuffix(".__init__")


def entry(line: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Key and value of a registry line: ``key: value,`` or a named object."""
    if re.match(r'"[^"]+": ', line):
        ((key, value),) = eval("{" + line + "}", names).items()
        return key, value
    value = eval(line, names)
    return value.name, value


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Add an example to the package for one test, and import it."""
    written: list[str] = []

    def added(title: str) -> ModuleType:
        example = Example.of(title)
        registry = importlib.import_module(example.registry_module)
        if example.module == example.registry_module:
            names = dict(vars(registry))
            exec(example.code, names)
        else:
            names = vars(registry)
            parent, _, own = example.module.rpartition(".")
            package = importlib.import_module(parent)
            assert not hasattr(package, own), f"{example.module} is a part already"
            folder = tmp_path / "parts"
            folder.mkdir()
            (folder / f"{own}.py").write_text(example.code, encoding="utf-8")
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
            written.append(example.module)
        key, value = entry(example.line, dict(names))
        assert key not in getattr(registry, example.registry)
        monkeypatch.setitem(getattr(registry, example.registry), key, value)
        return importlib.import_module(example.module)

    yield added
    for name in written:
        sys.modules.pop(name, None)
        parent, _, own = name.rpartition(".")
        vars(sys.modules[parent]).pop(own, None)


@pytest.fixture(scope="module")
def sides() -> tuple[Embeddings, Embeddings]:
    """120 words in pairs of a short and a long one, whose vectors can hardly be told apart."""
    random = np.random.default_rng(0)
    x = np.repeat(random.standard_normal((60, 8)), 2, axis=0)
    x += 0.01 * random.standard_normal(x.shape)
    y = x @ np.linalg.qr(random.standard_normal((8, 8)))[0]
    y += 0.02 * random.standard_normal(x.shape)
    source, target = (
        [f"{letter}{i:03}{'aaaaaa' * (i % 2)}" for i in range(120)] for letter in "st"
    )
    return (
        Embeddings(source, x.astype(np.float32), "en"),
        Embeddings(target, y.astype(np.float32), "fr"),
    )


def lexicon(sides: tuple[Embeddings, Embeddings], first: int, last: int) -> Lexicon:
    return Lexicon(zip(*(side.words[first:last] for side in sides), strict=True))


def trained(sides: tuple[Embeddings, Embeddings], **settings: Any) -> Translator:
    config = Config.resolve("supervised", overrides={"encoder": "lite", **settings})
    return train(*sides, lexicon(sides, 0, 80), config)


def normalised(rows: np.ndarray) -> np.ndarray:
    """Unit length, centred, unit length, in float64."""
    rows = rows.astype(np.float64)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows - rows.mean(axis=0)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_an_aligner_is_one_file_and_one_line(
    add: Callable[[str], ModuleType], sides: tuple[Embeddings, Embeddings]
) -> None:
    with pytest.raises(InputError, match="'ridge'"):
        aligner_class("ridge")
    add("Add an aligner")
    aligner = aligner_class("ridge").preset("supervised", penalty=0.5, device="cpu")
    space = aligner.align(*sides, lexicon(sides, 0, 80))
    assert (space.method, space.settings["penalty"]) == ("ridge", 0.5)
    # Ridge regression as least squares with rows for the penalty below the data.
    x, y = (normalised(side.vectors) for side in sides)
    left = np.vstack([x[:80], np.sqrt(0.5) * np.eye(8)])
    weights = np.linalg.lstsq(left, np.vstack([y[:80], np.zeros((8, 8))]), rcond=None)[0]
    np.testing.assert_allclose(space.source.vectors, x @ weights, atol=1e-5)
    np.testing.assert_allclose(space.target.vectors, y, atol=1e-5)
    with pytest.raises(InputError, match=r"strength.*device, penalty"):
        aligner_class("ridge").preset("supervised", strength=1.0)
    with pytest.raises(InputError, match=r"penalty is 0.*above 0"):
        aligner_class("ridge").preset("supervised", penalty=0.0)
    translator = trained(sides, space="ridge", scorers=("spelling",))
    assert translator.space.method == "ridge"


def test_a_scorer_is_one_file_and_one_line(
    add: Callable[[str], ModuleType], sides: tuple[Embeddings, Embeddings], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="'length'"):
        trained(sides, scorers=("length",))
    scorer = add("Add a scorer").Length()
    np.testing.assert_allclose(scorer.score(["ab", "abc", ""], ["abcd", "abc", "a"]), [0.5, 1, 0])
    assert scorer.score([], []).shape == (0,)
    translator = trained(sides, space="procrustes", scorers=("length",))
    assert translator.mixture.names == ["csls", "length"]
    assert translator.mixture.weights["length"] > 0
    # Of words that were no seeds, vectors cannot tell the long from the short; lengths can.
    others = lexicon(sides, 80, 120)
    by_vectors, mixed = (evaluate(system, others) for system in (translator.space, translator))
    assert mixed.forward["p@1"] > 0.9 > by_vectors.forward["p@1"]
    translator.save(tmp_path / "saved")
    again = Translator.load(tmp_path / "saved")
    assert again.translate(sides[0].words) == translator.translate(sides[0].words)


def test_a_format_is_one_file_and_one_line(
    add: Callable[[str], ModuleType], sides: tuple[Embeddings, Embeddings], tmp_path: Path
) -> None:
    translator = trained(sides, space="procrustes", scorers=("spelling",))
    found = translator.induce(5, k=2, min_confidence=0.0)
    with pytest.raises(InputError, match=r"\.md"):
        found.save(tmp_path / "out.md")
    add("Add an export format")
    for name in ("out.md", "out.jsonl"):
        found.save(tmp_path / name)
    entries = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(entries) == 10
    lines = [f"| {e.source} | {e.target} | {e.confidence:.2f} |\n" for e in found]
    expected = "".join(["| source | target | confidence |\n|---|---|---|\n", *lines])
    assert (tmp_path / "out.md").read_text() == expected
    found.save(tmp_path / "out.txt", "md")
    assert (tmp_path / "out.txt").read_text() == expected


# -- the way through the code ---------------------------------------------------------------------


def section(title: str) -> str:
    return re.split(rf"\n###? {title}\n", GUIDE)[1].split("\n#")[0]


def test_the_layout_table_follows_the_order_of_modules() -> None:
    rows = [
        [name.rstrip("/").removesuffix(".py") for name in re.findall(r"`([\w/]+(?:\.py|/))`", line)]
        for line in section("The way through the code").splitlines()
        if line.startswith("| ")
    ]
    # base.py is in align/, as its row says.
    row_of = {name: row for row, names in enumerate(rows) for name in names if name != "base"}
    assert set(row_of) == set(PLACE)
    in_order = sorted(row_of, key=lambda name: (PLACE[name], row_of[name]))
    assert [row_of[name] for name in in_order] == sorted(row_of.values())


def test_the_main_path_is_short_enough_to_read() -> None:
    listed = re.findall(r"^\d\. `([\w/]+\.py)`", section("The main path, in reading order"), re.M)
    assert set(listed) == {
        "neighbours/retriever.py",
        "align/two_view.py",
        "align/vecmap.py",
        "training_pairs.py",
        "mixing.py",
        "pipeline.py",
        "translator.py",
    }
    lines = {name: len((PACKAGE / name).read_text().splitlines()) for name in listed}
    assert sum(lines.values()) < 3150, lines
