from __future__ import annotations

import gzip
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

import blicer
from blicer import inspection
from blicer.cli import main
from blicer.cli import translate as evaluate_command
from blicer.errors import FileError
from blicer.lexicon import Lexicon


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Outcome]:
    """The command line as a user meets it: exit code, standard output, standard error."""
    monkeypatch.setenv("BLICER_CACHE", str(tmp_path / "cache"))

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["blicer", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return Outcome(int(caught.value.code or 0), out, err)

    return call


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    path = tmp_path / "seeds.tsv"
    path.write_text(
        "# by hand\nCat\tкот\ncat\tкошка\ndog\tсобака\nice cream\tмороженое\nalone\nмама\tmum\n"
    )
    return path


def test_inspect_dictionary(run, seeds: Path) -> None:
    outcome = run("inspect", seeds, "--json")
    assert outcome.code == 0
    facts = json.loads(outcome.out)
    assert facts["kind"] == "dictionary"
    assert facts["separator"] == "tab"
    assert (facts["pairs"], facts["source_words"], facts["target_words"]) == (5, 4, 5)
    assert (facts["targets_per_word"], facts["most_targets"]) == (1.25, 2)
    assert (facts["expressions"], facts["identical"]) == (1, 0)
    assert facts["sample"][0] == ["cat", "кот"]
    assert any("could not be read: line 6 (one column" in line for line in facts["problems"])
    assert any("1 line beginning with #" in line for line in facts["problems"])
    text = run("inspect", seeds)
    assert text.code == 0
    assert "seeds.tsv: dictionary" in text.out
    assert "could not be read: line 6 (one column" in text.out
    assert "cat - кот" in text.out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "source\ttarget\tconfidence\tscore\trank\ncat\tкот\t0.9\t0.5\t1\n"),
        ("a.csv", "source,target,confidence,score,rank\ncat,кот,0.9,0.5,1\n"),
    ],
)
def test_inspect_what_induce_writes(run, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    facts = json.loads(run("inspect", tmp_path / name, "--json").out)
    assert (facts["kind"], facts["pairs"], facts["sample"]) == ("dictionary", 1, [["cat", "кот"]])


def test_inspect_clean_dictionary(run, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("cat\tchat\n")
    assert "nothing to report" in run("inspect", tmp_path / "a.tsv").out


@pytest.mark.parametrize("kind", ["space", "translator"])
def test_inspect_of_a_damaged_folder(run, tmp_path: Path, kind: str) -> None:
    (tmp_path / f"{kind}.json").write_text("[1, 2]")
    outcome = run("inspect", tmp_path)
    assert outcome.code == 2
    assert f"{kind}.json: is not the description of a {kind}" in outcome.err


def test_inspect_says_what_cannot_be_read(run, tmp_path: Path) -> None:
    path = tmp_path / "latin.tsv"
    path.write_bytes("father\tpère\n".encode("latin-1"))
    outcome = run("inspect", path)
    assert outcome.code == 2
    assert "byte 0xE8 is not UTF-8" in outcome.err
    assert "Traceback" not in outcome.err
    as_json = run("inspect", path, "--json")
    assert as_json.code == 2
    assert "byte 0xE8" in json.loads(as_json.out)["error"]
    assert json.loads(run("inspect", path, "--encoding", "latin-1", "--json").out)["pairs"] == 1
    assert run("inspect", tmp_path / "nothing").code == 2
    assert "not a kind" in run("inspect", path, "--as", "poem").err


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.txt", b"cat chat\ndog chien\n", "dictionary"),
        ("a.txt", b"cat chat 0.5\ndog chien 0.25\n", "dictionary"),
        ("a.csv", b"cat,chat\n", "dictionary"),
        ("a.txt", b"2 4\ncat 0.1 0.2 -3e-5 1\ndog 1 2 3 4\n", "vectors"),
        ("a.txt", b"cat 0.1 0.2 -3e-5 1\ndog 1 2 3 4\n", "vectors"),
        ("a.txt.gz", gzip.compress(b"cat 0.1 0.2 -3e-5 1\n", mtime=0), "vectors"),
        ("a.tsv.gz", gzip.compress(b"cat\tchat\n", mtime=0), "dictionary"),
        ("a.vec", b"", "vectors"),
        ("a.vec.gz", b"", "vectors"),
        ("a.npy", b"\x93NUMPY", "vectors"),
        ("model", b"2 3\ncat \x00\x00\x80\x3f", "vectors"),
        ("model", b"\xba\x16\x4f\x2f\x0c\x00", "vectors"),
        ("empty", b"", "dictionary"),
    ],
)
def test_kind_is_found_from_name_and_content(
    tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert inspection.kind_of(tmp_path / name) == kind


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("seeds.tsv", pickle.dumps({"cat": "chat"}), "Python pickle"),
        ("vectors.bin", pickle.dumps([1.0], protocol=2), "Python pickle"),
        ("vectors.vec", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "PNG image"),
        ("paper", b"%PDF-1.7\n", "PDF document"),
    ],
)
def test_other_files_are_named(run, tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(content)
    outcome = run("inspect", tmp_path / name)
    assert outcome.code == 2
    assert f"{name}: is a {what}" in outcome.err


def test_inspect_rounds(run, tmp_path: Path) -> None:
    facts = {"curve": [[0.123456789, 0.5], [1.0, 2 / 3]], "lambda": 1 / 3, "file": "x"}
    monkey = pytest.MonkeyPatch()
    monkey.setattr(inspection, "inspect", lambda *_, **__: {"kind": "x", "problems": [], **facts})
    text = run("inspect", tmp_path).out
    monkey.undo()
    assert "0.1235 - 0.5, 1 - 0.6667" in text
    assert "0.3333" in text
    assert "0.33333" not in text


def test_kind_of_folders(tmp_path: Path) -> None:
    for name in ("space", "translator"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.json").write_text("{}")
        assert inspection.kind_of(tmp_path / name) == name
    assert inspection.kind_of(tmp_path) == "vectors"
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a" * 99)[:12])
    with pytest.raises(FileError, match="broken"):
        inspection.kind_of(tmp_path / "a.gz")


def test_inspect_vectors(run, tmp_path: Path) -> None:
    path = tmp_path / "en.vec"
    path.write_text("3 4\ncat 0 3 4 0\ndog 1 0 0 0\ncow 1 2\n")
    facts = json.loads(run("inspect", path, "--json").out)
    assert facts["kind"] == "vectors"
    assert (facts["words"], facts["dimension"]) == (2, 4)
    assert (facts["norms"]["smallest"], facts["norms"]["largest"]) == (1, 5)
    assert any("wrong length" in line for line in facts["problems"])
    text = run("inspect", path).out
    assert "en.vec: vectors" in text
    assert "cat, dog" in text
    assert "wrong length" in text


def test_inspect_vectors_that_cannot_be_read(run, tmp_path: Path) -> None:
    path = tmp_path / "en.vec"
    path.write_text("")
    outcome = run("inspect", path)
    assert outcome.code == 2
    assert str(path) in outcome.err
    assert "error" in json.loads(run("inspect", path, "--json").out)


class Cosine:
    """A fake saved system: ranks by cosine in a plain loop."""

    def __init__(self, source: dict[str, list[float]], target: dict[str, list[float]]) -> None:
        self.source, self.target = self._side(source), self._side(target)

    @staticmethod
    def _side(vectors: dict[str, list[float]]) -> SimpleNamespace:
        words = list(vectors)
        unit = [np.array(v) / np.linalg.norm(v) for v in vectors.values()]
        return SimpleNamespace(words=words, lookup={w: n for n, w in enumerate(words)}, unit=unit)

    def _order(self, query: int, reverse: bool) -> list[int]:
        asked, answers = (self.target, self.source) if reverse else (self.source, self.target)
        scores = [float(asked.unit[query] @ one) for one in answers.unit]
        return sorted(range(len(scores)), key=lambda at: (-scores[at], at))

    def gold_ranks(self, queries, golds, *, reverse: bool = False) -> np.ndarray:
        orders = [self._order(query, reverse) for query in queries]
        ranks = [
            1 + min(order.index(g) for g in gold) for order, gold in zip(orders, golds, strict=True)
        ]
        return np.array(ranks, dtype=np.int64)

    def best(self, queries, *, reverse: bool = False) -> np.ndarray:
        return np.array([self._order(query, reverse)[0] for query in queries])


GOOD = Cosine(
    {"cat": [1, 0, 0], "dog": [0, 1, 0], "cow": [0, 0, 1]},
    {"chat": [1, 0.1, 0], "chien": [0, 1, 0.1], "vache": [0.1, 0, 1]},
)
BAD = Cosine(
    {"cat": [1, 0, 0], "dog": [0, 1, 0], "cow": [0, 0, 1]},
    {"chat": [0, 1, 0], "chien": [0.2, 0.1, 1], "vache": [0, 0.1, 1]},
)


@pytest.fixture
def systems(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = {"good": GOOD, "bad": BAD}
    monkeypatch.setattr(evaluate_command, "load_system", lambda path: saved[path.name])


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    path = tmp_path / "test.tsv"
    path.write_text("cat\tchat\ncat\tminou\ndog\tchien\ncow\tvache\nemu\témeu\n")
    return path


def test_evaluate_json(run, systems: None, test_file: Path) -> None:
    outcome = run("evaluate", "good", test_file, "--json", "--bootstrap", 50)
    assert outcome.code == 0
    result = json.loads(outcome.out)
    assert result["forward"]["p@1"] == 1.0
    assert (result["forward"]["queries"], result["forward"]["coverage"]) == (3, 0.75)
    assert result["forward"]["all_queries"]["p@1"] == 0.75
    assert result["forward"]["p@1_interval"] == [1.0, 1.0]
    assert (result["backward"]["queries"], result["backward"]["coverage"]) == (3, 0.6)
    assert "emu" in outcome.err  # what is missing is said, but not on standard output
    assert "comparison" not in result


def test_evaluate_table_and_quiet(run, systems: None, test_file: Path) -> None:
    outcome = run("--quiet", "evaluate", "bad", test_file)
    assert outcome.err == ""
    assert "P@1" in outcome.out
    assert "in vocabulary" in outcome.out


def test_evaluate_compare(run, systems: None, test_file: Path) -> None:
    result = json.loads(run("evaluate", "good", test_file, "--compare", "bad", "--json").out)
    bad = result["other"]["forward"]["p@1"]
    assert bad < 1
    assert result["comparison"]["forward"]["p@1"]["difference"] == pytest.approx(1 - bad)
    assert 0 < result["comparison"]["forward"]["p@1"]["p_value"] <= 1
    assert "good minus bad" in run("evaluate", "good", test_file, "--compare", "bad").out


def test_evaluate_per_query(run, systems: None, test_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "ranks.tsv"
    assert run("evaluate", "bad", test_file, "--per-query", path).code == 0
    lines = path.read_text().splitlines()
    assert lines[0].split("\t") == ["direction", "query", "rank", "in_vocabulary", "guess", "gold"]
    assert len(lines) == 1 + 4 + 5
    rows = {tuple(line.split("\t")[:2]): line.split("\t")[2:] for line in lines[1:]}
    # cat: only 'chien' has a component along it, then 'chat' and 'vache' tie at 0, in order.
    assert rows["forward", "cat"] == ["2", "1", "chien", "chat; minou"]
    assert rows["forward", "emu"] == ["0", "0", "", "émeu"]


def test_evaluate_errors_are_one_sentence(run, test_file: Path, tmp_path: Path) -> None:
    for arguments, phrase in (
        ((tmp_path / "none", test_file), "does not exist"),
        ((tmp_path, test_file), "neither a space nor a translator"),
        (
            (test_file, test_file),
            "neither a space nor a translator (see blicer align --space files",
        ),
        ((tmp_path, tmp_path / "no.tsv"), "No such file"),
        ((tmp_path, test_file, "--per-query", test_file / "x.tsv"), "cannot be written"),
    ):
        outcome = run("evaluate", *arguments)
        assert outcome.code == 2, arguments
        assert phrase in outcome.err
        assert outcome.out == ""
        assert "Traceback" not in outcome.err


def test_saved_folders_go_to_their_loaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, file in (
        ("blicer.translator", "Translator", "translator.json"),
        ("blicer.align.space", "Space", "space.json"),
    ):
        fake = ModuleType(module)
        setattr(fake, name, SimpleNamespace(load=lambda path, name=name: (name, path)))
        monkeypatch.setitem(sys.modules, module, fake)
        folder = tmp_path / name
        folder.mkdir()
        (folder / file).write_text("{}")
        assert evaluate_command.load_system(folder) == (name, folder)


def test_help_has_examples(run) -> None:
    for command in ("inspect", "evaluate"):
        outcome = run(command, "--help")
        assert outcome.code == 0
        assert f"blicer {command} " in outcome.out
        assert "Example" in outcome.out


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """A saved space in which every word but one has its translation's vector."""
    from blicer.align.space import Space
    from blicer.embeddings import Embeddings

    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    source = Embeddings([f"s{n}" for n in range(40)], vectors, language="en")
    moved = vectors.copy()
    moved[3] = -vectors[3]
    target = Embeddings([f"t{n}" for n in range(40)], moved, language="fr")
    Space(source, target, method="procrustes", settings={"seed_pairs": 7}).save(tmp_path / "space")
    return tmp_path / "space"


def test_evaluate_a_saved_space(run, space: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.tsv"
    Lexicon((f"s{n}", f"t{n}") for n in range(20)).save(test)
    ranks = tmp_path / "ranks.tsv"
    outcome = run("evaluate", space, test, "--json", "--per-query", ranks)
    assert outcome.code == 0
    result = json.loads(outcome.out)
    assert result["forward"]["p@1"] == pytest.approx(19 / 20)
    assert (result["forward"]["queries"], result["forward"]["coverage"]) == (20, 1.0)
    rows = [line.split("\t") for line in ranks.read_text().splitlines()[1:]]
    for _, query, rank, _, guess, gold in rows:
        assert (rank == "1") == (guess == gold) == (query[1:] != "3")


@pytest.fixture
def translator(space: Path, tmp_path: Path) -> Path:
    """A saved translator of the same words, which looks at five candidates."""
    from blicer.align.space import Space
    from blicer.calibration import Absent, Calibration
    from blicer.mixing import CSLS, Mixture
    from blicer.training_pairs import Scaling
    from blicer.translator import Translator

    saved = Translator(
        Space.load(space),
        [],
        Mixture({CSLS: 1.0}),
        Scaling(0.5, 0.5),
        calibration=Calibration(
            (-2.0, (0.0, *(3.0, 3.0, 1.0, *[0.0] * 6) * 2)),
            (9.0, (0.0,) * 5),
            (Absent(), Absent()),
            ((0.0, 0.0, 1.0),) * 2,
        ),
        n_cand=5,
    )
    saved.save(tmp_path / "translator")
    return tmp_path / "translator"


def test_evaluate_details_and_pictures(run, translator: Path, space: Path, tmp_path: Path) -> None:
    test, pictures = tmp_path / "test.tsv", tmp_path / "new" / "pictures"
    pairs = [(f"s{n}", f"t{n}") for n in range(20)]
    Lexicon([*pairs, ("s20", "nowhere"), ("nowhere", "t20"), ("s1", "elsewhere")]).save(test)
    outcome = run("evaluate", translator, test, "--json", "--bootstrap", 20)
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["min_confidence"] is None
    forward = found["forward"]
    assert forward["p@1"] == 19 / 20
    assert forward["all_queries"]["right"] == 19 / 21  # s20 has an entry, "nowhere" has none
    assert forward["auc_absent"] is None
    assert 0 <= forward["all_queries"]["auc_absent"] <= 1
    unknown = forward["groups"]["frequency of the gold"]["out of vocabulary"]
    assert (unknown["all_queries"]["queries"], unknown["queries"]) == (1, 0)
    # Everyone counts as an entry: five candidates of 21 words, against 23 gold pairs.
    every = json.loads(run("evaluate", translator, test, "--json", "--min-confidence", 0).out)
    assert every["forward"]["all_queries"]["translations"] == 5
    assert every["forward"]["all_queries"]["precision"] == pytest.approx(
        every["forward"]["all_queries"]["recall"] * 23 / (5 * 21)
    )
    brief = run("evaluate", translator, test)
    assert "ece" in brief.out
    assert "reliability" not in brief.out
    outcome = run("evaluate", translator, test, "--details", "--pictures", pictures)
    assert outcome.code == 0
    assert "backward, reliability" in outcome.out
    assert "by frequency of the gold" in outcome.out
    names = {"reliability.forward.svg", "reliability.backward.svg", "risk-coverage.svg"}
    assert {file.name for file in pictures.iterdir()} == names
    for file in pictures.iterdir():
        assert file.read_text().startswith("<svg")
        assert str(file) in outcome.err
    # A space has no confidences: what needs them is missing, in a sentence.
    outcome = run("evaluate", space, test, "--json", "--pictures", tmp_path / "of-space")
    assert "no calibration" in outcome.err
    assert json.loads(outcome.out)["forward"]["ece"] is None
    assert json.loads(outcome.out)["forward"]["ap"] > 0
    assert [file.name for file in (tmp_path / "of-space").iterdir()] == ["risk-coverage.svg"]


def test_pictures_fail_before_the_work(run, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    outcome = run("evaluate", "none", "none", "--pictures", tmp_path / "file")
    assert outcome.code == 2
    assert "cannot be written" in outcome.err
    monkeypatch.delitem(sys.modules, "blicer.plots", raising=False)
    monkeypatch.delattr(blicer, "plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = run("evaluate", "none", "none", "--pictures", tmp_path / "folder")
    assert outcome.code == 1
    assert "blicer[demo]" in outcome.err


def test_inspect_a_saved_space(run, space: Path) -> None:
    facts = json.loads(run("inspect", space, "--json").out)
    assert (facts["kind"], facts["method"], facts["dim"]) == ("space", "procrustes", 8)
    assert facts["source"] == {"language": "en", "words": 40}
