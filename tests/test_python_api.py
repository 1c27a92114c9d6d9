"""The package from Python: its names, checked arguments, and how its objects show themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import blicer
from blicer.align.space import Space
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, Mixture
from blicer.training_pairs import Scaling
from blicer.translations import Candidate, Translation
from blicer.translator import Translator

WORDS = Embeddings(["cat", "dog"], np.eye(2), "en")
SEEDS = Lexicon([("cat", "dog"), ("<b>", "&")])


def test_the_package_has_its_verbs_and_its_types() -> None:
    names = {"train", "evaluate", "compare", "Translator", "Translation", "Embeddings", "Lexicon"}
    assert names | {"Evaluation", "Space", "Config"} <= set(blicer.__all__)
    for name in blicer.__all__:
        assert getattr(blicer, name).__name__ == name
    assert (Path(blicer.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize(
    ("arguments", "name", "expected"),
    [
        (("en.vec", WORDS, SEEDS), "source", "Embeddings.load"),
        ((WORDS, Path("fr.vec"), SEEDS), "target", "Embeddings.load"),
        ((WORDS, WORDS, [("cat", "chat")]), "seeds", "Lexicon.load"),
        ((WORDS, WORDS, SEEDS, {"alpha": 1}), "config", "Config"),
    ],
)
def test_wrong_arguments_of_train(arguments: Any, name: str, expected: str) -> None:
    with pytest.raises(InputError, match=f"^{name} is a .*{expected}"):
        blicer.train(*arguments)


def test_wrong_arguments_of_align_and_evaluate() -> None:
    with pytest.raises(InputError, match=r"^seeds is a str"):
        blicer.Procrustes().align(WORDS, WORDS, "seeds.tsv")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^source is a ndarray"):
        blicer.Procrustes().align(np.eye(2), WORDS, SEEDS)  # type: ignore[arg-type]
    space = Space(WORDS, WORDS, method="files")
    with pytest.raises(InputError, match=r"^lexicon is a dict"):
        blicer.evaluate(space, {"cat": "dog"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^system is a str; expected a Space"):
        blicer.evaluate("en-fr", SEEDS)  # type: ignore[arg-type]


def test_objects_show_themselves_in_a_line() -> None:
    translator = Translator(
        Space(WORDS, WORDS, method="files"), [], Mixture({CSLS: 1.0}), Scaling(0.5, 0.5)
    )
    translator.target.language = None
    for one in (translator, translator.space, WORDS, SEEDS, blicer.evaluate(translator, SEEDS)):
        assert repr(one).startswith(f"{type(one).__name__}(")
        assert len(repr(one)) < 250
        assert "\n" not in repr(one)


def test_notebooks_get_escaped_tables() -> None:
    assert "<td>&lt;b&gt;</td><td>&amp;</td>" in SEEDS._repr_html_()
    found = Translation("<i>", (Candidate("<b>", 0.5, 0.25, forms=("x",)), Candidate("y", 1, None)))
    shown = found._repr_html_()
    assert "<td>&lt;i&gt;</td>" in shown
    assert "<td>&lt;b&gt;</td><td>0.25</td><td>x</td>" in shown
    many = Lexicon([(f"a{i}", f"b{i}") for i in range(50)])
    assert many._repr_html_().count("<tr>") == 12


def test_a_lexicon_as_a_data_frame() -> None:
    frame = SEEDS.to_pandas()
    assert list(frame.columns) == ["source", "target"]
    assert [tuple(row) for row in frame.itertuples(index=False)] == SEEDS.pairs
