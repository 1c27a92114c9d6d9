"""What is built: its content, its dependencies, and that it runs where it is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import numpy as np
import pytest

import blicer
from blicer.align.space import Space
from blicer.crossencoder.model import Reranker
from blicer.embeddings import Embeddings
from blicer.mixing import CSLS, Mixture
from blicer.scorers.cross_encoder import CrossEncoderScorer
from blicer.training_pairs import Scaling
from blicer.translator import Translator
from tiny_models import tiny_encoder

ROOT = Path(__file__).parents[1]
OPTIONAL = ["pyarrow", "pandas", "polars", "matplotlib", "jinja2", "ray", "submitit", "peft"]
OPTIONAL += ["transformers", "fastapi", "uvicorn", "openpyxl", "genanki"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and a source archive; the wheel is built from the latter."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check"]
    done = subprocess.run([*command, "-o", folder, ROOT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_archives_have_what_they_need(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name == f"blicer-{blicer.__version__}-py3-none-any.whl"
    inside = set(zipfile.ZipFile(wheel).namelist())
    tracked = [path for path in (ROOT / "src").rglob("*") if path.is_file()]
    for path in tracked:
        if "__pycache__" not in path.parts:
            assert path.relative_to(ROOT / "src").as_posix() in inside
    for needed in ("py.typed", "lite/table.safetensors", "lite/NOTICE", "starter/NOTICE"):
        assert f"blicer/{needed}" in inside
    assert any(name.startswith("blicer/starter/") and "seeds" in name for name in inside)
    assert any(name.endswith(".dist-info/licenses/NOTICE") for name in inside)
    assert all(name.split("/")[0].startswith("blicer") for name in inside)
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "NOTICE", "README.md", "CITATION.cff"} <= names
    assert "tests/test_packaging.py" in names
    assert not [name for name in names if name.startswith(("results/", ".venv"))]


def test_the_metadata(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        facts = Parser().parsestr(archive.read(name).decode("utf-8"))
    required = facts.get_all("Requires-Dist") or []
    always = {re.split(r"[<>=;\[ ]", one)[0] for one in required if "extra ==" not in one}
    assert always.isdisjoint(OPTIONAL)
    assert {"numpy", "torch", "safetensors", "typer"} <= always
    assert facts["License-Expression"] == "Apache-2.0"
    versions = [one for one in facts.get_all("Classifier") or [] if "Python :: 3." in one]
    assert [one[-4:] for one in versions] == ["3.10", "3.11", "3.12", "3.13"]


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.*)$", text, re.MULTILINE)[1] == blicer.__version__  # type: ignore[index]


def test_the_wheel_runs_where_it_is_installed(built: Path, tmp_path: Path) -> None:
    """In an environment of its own that borrows the packages of this one, but not its blicer."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path, with_pip=False)
    python = tmp_path / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index"]
    subprocess.run([*pip, "--no-deps", wheel], check=True, capture_output=True)
    (own,) = (tmp_path / "lib").glob("python3*/site-packages")
    (own / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    environment = {"PATH": "", "HOME": str(tmp_path), "BLICER_CACHE": str(tmp_path / "cache")}

    def run(*command: object) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
        )
        return done.stdout

    assert run(tmp_path / "bin" / "blicer", "--version").split() == ["blicer", blicer.__version__]
    code = (
        "import blicer, blicer.lite, blicer.starter, json; print(json.dumps(["
        "blicer.__file__, blicer.lite.path().is_dir(), len(blicer.__all__)]))"
    )
    place, has_lite, names = json.loads(run(python, "-c", code))
    assert Path(place).is_relative_to(own)
    assert has_lite
    assert names == len(blicer.__all__)


def test_translating_needs_no_extra(tmp_path: Path) -> None:
    """The packages of the extras cannot be imported, and ``blicer translate`` works."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 8))
    space = Space(
        Embeddings([f"s{i}" for i in range(30)], vectors, "en"),
        Embeddings([f"t{i}" for i in range(30)], vectors, "fr"),
        method="files",
    )
    reranker = Reranker(tiny_encoder(tmp_path / "encoder"), max_length=16)
    scorers = [CrossEncoderScorer(reranker, "T1", ("", ""))]
    mixture = Mixture({CSLS: 0.99, "cross-encoder": 0.01})
    Translator(space, scorers, mixture, Scaling(0.5, 0.5), n_cand=5).save(tmp_path / "t")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({[*OPTIONAL, 'babel']})); "
        "from blicer.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "translate", tmp_path / "t", "s3"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("s3\tt3")
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", _text_vectors(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "pip install 'blicer[train]'" in done.stderr
    assert "Traceback" not in done.stderr


def _text_vectors(folder: Path) -> Path:
    path = folder / "a.vec"
    path.write_text("2 3\ncat 1 2 3\ndog 4 5 6\n")
    return path
