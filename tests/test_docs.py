"""Every command and every Python block of README and documentation runs, on a small pair.

Each page has a folder with files of the names that pages use. The starter pair is cut to its most
frequent words, and training takes a cheap space, unless the page names one, and no encoder. What is
not run says why, in a comment before it; its options are checked all the same.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import typer

import blicer
from blicer import starter
from blicer.cli import app
from blicer.config import Config
from tools import build_docs, docs_hook

ROOT = Path(__file__).resolve().parents[1]
GENERATED = set(build_docs.PAGES)
PAGES = sorted(
    path
    for path in [ROOT / "README.md", *(ROOT / "docs").iterdir()]
    if path.suffix in (".md", ".ipynb") and path.name not in GENERATED
)
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>.+?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SHOWN = {"text", "json", "xml", "turtle", "math", "bibtex"}  # samples
NOT_OURS = {"pip", "make"}
MOST_NOT_RUN = 9
WORDS = 1500
PORT = "8642"


class Block(NamedTuple):
    language: str
    code: str
    not_run: str | None


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
        return [Block("python", "".join(cell["source"]), None) for cell in cells]
    return [Block(one["language"], one["code"], one["why"]) for one in BLOCK.finditer(text)]


def lines(code: str) -> list[str]:
    joined = code.replace("\\\n", " ").splitlines()
    return [bare for line in joined if (bare := re.sub(r"(^|\s)#\s.*", "", line).strip())]


# -- a small pair ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair() -> starter.Starter:
    """The starter pair with the most frequent words that its dictionaries have, and no others."""
    pair = starter.load()
    listed = [*pair.seeds, *pair.test]
    sides = []
    for side, known in zip(pair, map(set, zip(*listed, strict=True)), strict=False):
        rows = [row for row, word in enumerate(side.words) if word in known][:WORDS]
        kept = [side.words[row] for row in rows]
        sides.append(blicer.Embeddings(kept, side.vectors[rows], side.language))
    return pair._replace(source=sides[0], target=sides[1])


@pytest.fixture(scope="module")
def prepared(pair: starter.Starter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the names that pages use; fr is Russian too."""
    folder = tmp_path_factory.mktemp("files")
    pair.source.save(folder / "en.vec")
    for name in ("ru.vec", "fr.vec"):
        pair.target.save(folder / name)
    for name in ("en-ru.tsv", "en-fr.tsv"):
        pair.seeds.save(folder / name)
    pair.test.save(folder / "test.tsv")
    cheap = Config.for_seeds(len(pair.seeds), space="procrustes", scorers=["endings"])
    translator = blicer.train(pair.source, pair.target, pair.seeds, cheap)
    files = [str(folder / name) for name in ("en.vec", "ru.vec")]
    translator.details["vectors"] = {"files": files, "max_words": None, "lowercase": True}
    for name in ("en-ru", "en-fr"):
        translator.save(folder / name)
    return folder


class Page:
    """Runs the blocks of one page, one after the other, in its folder."""

    def __init__(self, folder: Path, capture: Any) -> None:
        self.folder, self.capture = folder, capture
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.server: subprocess.Popen[bytes] | None = None
        self.port = PORT

    def run(self, block: Block) -> None:
        code = block.code.replace(PORT, self.port)
        if block.language == "python":
            exec(compile(code, "block", "exec"), self.names)
            return
        for line in lines(code):
            self.command(line.replace(PORT, self.port))

    def command(self, line: str) -> None:
        """One line: programs with pipes between them, of which the first may be ours."""
        data = b""
        for part in line.split(" | "):
            first, *words = shlex.split(part)
            if first in NOT_OURS:
                return
            if first == "blicer" and words[0] == "serve":
                self.serve(words)
            elif first == "blicer":
                data = self.blicer(words, data)
            else:
                done = subprocess.run(["bash", "-c", part], input=data, capture_output=True)
                assert done.returncode == 0, (line, done.stderr.decode())
                data = done.stdout

    def blicer(self, words: list[str], data: bytes) -> bytes:
        self.capture.readouterr()
        given, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
        try:
            app(words, standalone_mode=False)
        finally:
            sys.stdin = given
        printed: str = self.capture.readouterr().out
        return printed.encode("utf-8")

    def serve(self, words: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        main = "from blicer.cli import main; main()"
        command = [sys.executable, "-c", main, *words, "--port", self.port, "--words", "300"]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(600):
            assert self.server.poll() is None, "the server ended"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError("the server does not answer")

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(30)


@pytest.fixture
def page(
    pair: starter.Starter,
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Page]:
    for path in prepared.iterdir():
        copy = ["cp", "-r", str(path), str(tmp_path)]
        subprocess.run(copy, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(starter, "load", lambda: pair)
    resolve = Config.resolve.__func__  # type: ignore[attr-defined]

    def cheaply(kind: Any, preset: Any = None, **given: Any) -> Config:
        cheap = {"space": "procrustes", "scorers": ("endings",)}
        defaults = {**cheap, **(given.pop("defaults", None) or {})}
        config: Config = resolve(kind, preset, defaults=defaults, **given)
        scorers = [name for name in config.scorers if name != "cross-encoder"]
        return config.replace(scorers=scorers or ["endings"])

    monkeypatch.setattr(Config, "resolve", classmethod(cheaply))
    running = Page(tmp_path, capfd)
    yield running
    running.close()


# -- the tests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_blocks_run(path: Path, page: Page) -> None:
    for block in blocks(path):
        assert block.language in {*SHOWN, "bash", "python"}, block
        if block.language not in SHOWN and not block.not_run:
            page.run(block)


def check_options(line: str) -> None:
    """A command line of ours that names an option or a command that is not there raises."""
    first, *words = shlex.split(line)
    assert first == "blicer", line
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context("blicer", words)


def test_what_is_not_run_is_little_and_has_real_options() -> None:
    found = [one for path in PAGES for one in blocks(path) if one.not_run]
    assert len(found) <= MOST_NOT_RUN
    for block in found:
        for line in lines(block.code):
            if line.split()[0] not in NOT_OURS:
                check_options(line)


def test_examples_in_help_have_real_options() -> None:
    text = (ROOT / "docs" / "commands.md").read_text("utf-8")
    examples = re.findall(r"^Example[^`]*`(blicer [^`]+)`", text, re.MULTILINE)
    assert len(examples) > 10
    for example in examples:
        check_options(example)
    with pytest.raises(Exception, match="--no-such"):
        check_options("blicer serve en-fr --no-such")


def test_targets_and_extras_that_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for path in PAGES:
        text = path.read_text("utf-8")
        for target in re.findall(r"^make (\w+)", text, re.MULTILINE):
            assert f"\n{target}: " in makefile
        for extras in re.findall(r"'blicer\[([\w,]+)\]'", text):
            for extra in extras.split(","):
                assert re.search(rf"^{extra} = \[", project, re.MULTILINE), (path.name, extra)


@pytest.mark.parametrize("name", build_docs.PAGES)
def test_generated_pages_are_those_of_the_code(name: str) -> None:
    text = (ROOT / "docs" / name).read_text("utf-8")
    assert text == build_docs.PAGES[name](), "run: python -m tools.build_docs"


def test_links_lead_somewhere() -> None:
    for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        for target in re.findall(r"\]\((?!#|\w+:)([^)#\s]+)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), (path.name, target)


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text("utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        assert f": {path.name}" in listed, path.name


def test_formulas_and_links_on_the_site() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="method.md"))
    text = """`$x$` costs $5 or $x^2$.

```math
y \\tag{3}
```

```bash
echo $HOME $PATH
```

[card](../src/blicer/lite/README.md#limits), [figures](../results/serve.md), [top](#s1)"""
    written = docs_hook.on_page_markdown(text, page)
    assert len(page.formulas) == 2
    inline, display = page.formulas
    assert "<msup>" in inline
    assert "(3)" in display
    assert "`$x$` costs $5 or " in written
    assert "echo $HOME $PATH" in written
    assert "[card](model-card.md#limits), figures (`results/serve.md`), [top](#s1)" in written
    assert docs_hook.on_page_content(written, page).count("<math") == 2


def test_sentences_of_troubleshooting_are_the_programs() -> None:
    """Every part between the dots stands in the source, where strings may be split over lines."""
    sources = (path.read_text("utf-8") for path in (ROOT / "src" / "blicer").rglob("*.py"))
    source = re.sub(r"""["']\s*\n\s*f?["']""", "", "\n".join(sources))
    text = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    sentences = re.findall(r"^\*\*`(.+)`\*\*$", text, re.MULTILINE)
    assert len(sentences) > 20
    for sentence in sentences:
        for part in sentence.split("…"):
            assert part.strip() in source, sentence


def test_a_block_that_fails_is_seen(page: Page) -> None:
    with pytest.raises(AssertionError, match="no-such-file"):
        page.run(Block("bash", "cat no-such-file\n", None))
    with pytest.raises(blicer.BlicerError):
        page.run(Block("bash", "blicer translate no-such-folder house\n", None))
    page.run(Block("bash", "blicer translate en-ru time | grep -q время\n", None))
