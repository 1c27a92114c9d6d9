"""Hostile and damaged input, full disks, interrupts: a sentence, and nothing lost."""

from __future__ import annotations

import errno
import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError

import blicer
from blicer import lite
from blicer.align import RCSLS, Contrastive, Procrustes
from blicer.align.space import Space
from blicer.calibration import Calibration
from blicer.cli import Terminated
from blicer.config import part_of
from blicer.crossencoder.model import Reranker
from blicer.embeddings import Embeddings
from blicer.errors import BlicerError, FileError, InputError
from blicer.files import check_writable
from blicer.io.dictionary import read_dictionary
from blicer.io.streams import Stream
from blicer.lexicon import Lexicon
from blicer.mixing import Mixture
from blicer.progress import printable
from blicer.scorers.spelling import Spelling
from blicer.training_pairs import Scaling
from blicer.translator import Translator
from sealing import reseal
from tiny_models import tiny_encoder, toy_pairs, two_sides

PROGRAM = [sys.executable, "-c", "from blicer.cli import main; main()"]
TERMINAL = ("\x1b[31mred\x07", "a\x9bb", "x\u202ey")


def small_translator() -> Translator:
    source, target = two_sides(30, 0.1)
    mixture = Mixture({"csls": 0.5, "spelling": 0.5})
    return Translator(Space(source, target), [Spelling()], mixture, Scaling(1.0, 0.0), n_cand=5)


# -- what is printed -------------------------------------------------------------------------------


@pytest.mark.parametrize("word", TERMINAL)
def test_no_word_steers_the_terminal(word: str, tmp_path: Path) -> None:
    assert not set(printable(f"{word}\tb\nc")) & set("\x1b\x07\x9b\u202e")
    assert printable("naïve\tдом\n学校") == "naïve\tдом\n学校"
    source, target = two_sides(30, 0.1)
    words = [word, *target.words[1:]]
    translator = small_translator()
    translator.space.target = Embeddings(words, target.vectors, "fr")
    translator.save(tmp_path / "t")
    asked = [*PROGRAM, "translate", str(tmp_path / "t"), source.words[0], "-k", "5"]
    for more in ([], ["--json"]):
        done = subprocess.run([*asked, *more], capture_output=True, text=True, check=True)
        assert not set(done.stdout + done.stderr) & set("\x1b\x07\x9b")


# -- values that no training writes ----------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"n_cand": float("inf")},
        {"n_cand": 0},
        {"n_cand": "28"},
        {"n_cand": 10**9},
        {"scaling": {"slope": float("nan"), "intercept": 0.0}},
        {"scaling": {"slope": 1.0, "intercept": float("inf")}},
        {"scaling": None},
        {"mixture": {"weights": {"csls": float("nan"), "spelling": 1.0}, "curve": []}},
        {"mixture": []},
        {"scorers": 5},
        {"scorers": [{"name": "spelling", "more": 1}, {"name": "os"}]},
        {"seeds": [["a"]]},
        {"seeds": 3},
        {"details": 4},
        {"calibration": {"intercept": 0}},
    ],
)
def test_bad_values_in_a_translator_are_a_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    small_translator().save(tmp_path / "t")
    reseal(tmp_path / "t", "translator.json", **change)
    with pytest.raises(FileError, match=r"translator.json"):
        Translator.load(tmp_path / "t")


@pytest.mark.parametrize("k", [0, -1, 10**9, "10", 1.5, None, True])
def test_bad_settings_of_a_space_are_a_sentence(tmp_path: Path, k: Any) -> None:
    small_translator().space.save(tmp_path / "s")
    reseal(tmp_path / "s", "space.json", settings={"k_csls": k})
    with pytest.raises(FileError, match="k_csls"):
        Space.load(tmp_path / "s")


def test_nan_never_becomes_a_confidence() -> None:
    values: dict[str, Any] = {
        "right": [0.0, [1.0]],
        "here": [0.0, [1.0]],
        "absent": [{"intercept": 0.0, "slope": 1.0}] * 2,
        "ranks": [[1.0, 3.0, 8.0]] * 2,
        "usual": None,
        "reliability": None,
    }
    Calibration.from_dict(values)
    for name, wrong in (
        ("right", [float("nan"), [1.0]]),
        ("here", [0.0, [float("inf")]]),
        ("absent", [{"intercept": 0.0, "slope": float("nan")}] * 2),
        ("ranks", [[float("nan"), 3.0, 8.0]] * 2),
        ("usual", [0.0, float("inf")]),
    ):
        with pytest.raises(ValueError, match="finite"):
            Calibration.from_dict(values | {name: wrong})
    for name, wrong in (("ranks", [[3.0, 8.0]] * 2), ("usual", []), ("usual", [0.0])):
        with pytest.raises(ValueError, match="unpack"):
            Calibration.from_dict(values | {name: wrong})


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": -1},
        {"num_hidden_layers": 10**6},
        {"hidden_size": 10**9},
        {"vocab_size": 0},
        {"hidden_size": "32"},
        {"num_attention_heads": 0},
    ],
)
def test_bad_sizes_of_an_encoder_are_a_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = tiny_encoder(tmp_path / "e")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(FileError, match=r"config.json"):
        _ = Reranker(folder, device="cpu").model


def test_a_model_with_code_of_its_own_asks_nothing(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "e")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    program = f"""
from blicer.crossencoder.model import Reranker
try:
    Reranker({str(folder)!r}, device="cpu").model
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input="y\n" * 9, capture_output=True, text=True, check=True
    )
    assert "code of its own" in done.stdout
    assert "[y/N]" not in done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()


# -- training that leaves the finite numbers -------------------------------------------------------


def test_a_loss_that_is_not_finite_stops(tmp_path: Path) -> None:
    left, right, labels = toy_pairs()
    reranker = Reranker(
        tiny_encoder(tmp_path / "e"), device="cpu", learning_rate=1e30, batch_size=16, warmup=0.0
    )
    with pytest.raises(BlicerError, match=r"learning_rate is 1e\+30"):
        reranker.fit(left, right, labels, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_last_step_counts_too(tmp_path: Path) -> None:
    left, right, labels = toy_pairs()
    reranker = Reranker(
        tiny_encoder(tmp_path / "e"),
        device="cpu",
        learning_rate=1e38,
        batch_size=64,
        warmup=0.0,
        epochs=1,
    )
    with pytest.raises(BlicerError, match="training failed"):
        reranker.fit(left, right, labels)


def test_maps_that_are_not_finite_stop() -> None:
    source, target = two_sides(60, 0.1)
    seeds = np.stack([np.arange(40)] * 2, axis=1)
    x, y = (torch.from_numpy(side.vectors) for side in (source, target))
    broken = (torch.full((x.shape[1], x.shape[1]), torch.nan),) * 2
    with pytest.raises(BlicerError, match="training failed"):
        Contrastive(device="cpu", steps=2, negatives=5).descend(x, y, seeds, broken, "steps")
    space = RCSLS(device="cpu", learning_rate=1e38, iterations=4).fit(source, target, seeds)
    assert np.isfinite(space.source.vectors).all()


# -- files -----------------------------------------------------------------------------------------


def limited() -> None:
    """In a child: no more than 3 GB of memory."""
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))


def read_in_child(path: str) -> str:
    program = f"""
from blicer.errors import FileError
from blicer.io.dictionary import read_dictionary
try:
    print(len(read_dictionary({path!r})[0]))
except FileError as error:
    print("FileError", error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=limited,
        timeout=120,
    )
    return done.stdout


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_file_without_end_is_a_sentence() -> None:
    assert "FileError /dev/zero" in read_in_child("/dev/zero")


def test_a_bomb_is_not_unpacked_whole(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.tsv.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        for _ in range(700):
            file.write(b"a\tb\n" * (1 << 18))
    assert bomb.stat().st_size < 1 << 25
    assert "unpacks to more than" in read_in_child(str(bomb))


def test_a_limit_is_the_last_byte_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    with Stream(tmp_path / "f") as stream:
        assert stream.read_all(limit=5) == b"12345"
    with Stream(tmp_path / "f") as stream, pytest.raises(FileError, match="is larger"):
        stream.read_all(limit=4)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_first_line_without_end_is_a_sentence_or_a_word(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "d.csv"
    path.write_text("x" * 140_000 + f"{delimiter}b\n" + f'"cat"{delimiter}"chat"\n' * 3)
    try:
        pairs, _ = read_dictionary(path)
        assert ("cat", "chat") in pairs or ('"cat"', '"chat"') in pairs
    except FileError as error:
        assert "line 1" in str(error)  # noqa: PT017


def test_a_pipe_that_nobody_writes_to_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="empty"):
        read_dictionary(tmp_path / "pipe")


@pytest.mark.parametrize("kind", ["sparse", "quantised", "meta", "expanded", "list", "bool"])
def test_odd_tensors_are_a_sentence(tmp_path: Path, kind: str) -> None:
    value: Any = torch.ones(3, 2)
    if kind == "sparse":
        value = value.to_sparse()
    elif kind == "quantised":
        value = torch.quantize_per_tensor(value, 0.1, 0, torch.qint8)
    elif kind == "meta":
        value = torch.ones(3, 2, device="meta")
    elif kind == "expanded":
        value = torch.ones(1, 1).expand(1 << 20, 1 << 12)
    elif kind == "list":
        value = [value]
    elif kind == "bool":
        value = value > 5
    torch.save(value, tmp_path / "v.pt")
    (tmp_path / "v.vocab.txt").write_text("a\nb\nc\n")
    if kind == "bool":
        assert not Embeddings.load(tmp_path / "v.pt").vectors.any()
        return
    with pytest.raises(FileError, match=r"v.pt|words but the matrix"):
        Embeddings.load(tmp_path / "v.pt")


def test_another_file_of_the_same_size_and_time_is_read(tmp_path: Path) -> None:
    path, other = tmp_path / "v.vec", tmp_path / "other.vec"
    path.write_text("2 2\naa 1 0\nbb 0 1\n")
    other.write_text("2 2\ncc 1 0\ndd 0 1\n")
    when = time.time_ns() - 10**10
    for file in (path, other):
        os.utime(file, ns=(when, when))
    assert Embeddings.load(path).words == ["aa", "bb"]
    os.replace(other, path)
    assert Embeddings.load(path).words == ["cc", "dd"]


def test_swapped_rows_in_the_cache_are_read_again(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "v.vec"
    path.write_text("2 2\naa 1 0\nbb 0 1\n")
    os.utime(path, ns=(10**18, 10**18))
    first = Embeddings.load(path)
    (entry,) = (own_cache / "vectors").iterdir()
    content = entry.read_bytes()
    rows = first.vectors.tobytes()
    swapped = content.replace(rows, rows[8:] + rows[:8])
    assert swapped != content
    entry.write_bytes(swapped)
    np.testing.assert_array_equal(Embeddings.load(path).vectors, first.vectors)


# -- the embedded model ----------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["truncated", "zeroed", "missing"])
def test_a_damaged_cached_lite_is_built_again(damage: str) -> None:
    folder = lite.path()
    model = folder / "model.safetensors"
    content = model.read_bytes()
    if damage == "truncated":
        model.write_bytes(content[: len(content) // 2])
    elif damage == "zeroed":
        model.write_bytes(content[:-1000] + bytes(1000))
    else:
        (folder / "config.json").unlink()
    assert lite.path() == folder
    assert model.read_bytes() == content
    assert (folder / "config.json").is_file()


# -- a full disk -----------------------------------------------------------------------------------


def full(*_: Any, **__: Any) -> None:
    raise SafetensorError("I/O error: No space left on device (os error 28)")


def test_a_full_disk_is_a_sentence_and_the_old_space_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = small_translator().space
    space.measure_hubness()
    space.save(tmp_path / "out")
    before = (tmp_path / "out" / "space.json").read_bytes()
    monkeypatch.setattr("blicer.align.space.save_file", full)
    with pytest.raises(FileError, match=r"out: cannot be written .*No space left"):
        space.save(tmp_path / "out")
    assert (tmp_path / "out" / "space.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    monkeypatch.undo()
    space.save(tmp_path / "out")


def test_a_full_cache_does_not_stop_lite(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = safetensors.torch.save_file

    def full_cache(tensors: Any, path: Path, **more: Any) -> None:
        if Path(path).is_relative_to(own_cache):
            full()
        write(tensors, path, **more)

    monkeypatch.setattr("safetensors.torch.save_file", full_cache)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = lite.path()
    assert found.is_relative_to(tmp_path)
    assert (found / "model.safetensors").stat().st_size > 1e8


def test_a_full_disk_names_the_place_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(FileError, match=rf"{tmp_path}/out/\w+.safetensors: cannot be written"):
        small_translator().space.save(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_link_to_itself_is_a_sentence(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(FileError, match="is a link to itself"):
        check_writable(loop)
    with pytest.raises(FileError, match="cannot be written"):
        check_writable(loop / "inside")


@pytest.mark.parametrize("shard", ["1/" + "9" * 5_000, "9" * 5_000 + "/1", "2/1", "0/1"])
def test_shards_that_are_none(shard: str) -> None:
    with pytest.raises(InputError, match="expected I/N"):
        part_of(10, shard)


@pytest.mark.parametrize("command", [["config"], ["--help"], ["data", "list"]])
def test_a_closed_output_is_a_sentence(command: list[str]) -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, *command]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "blicer: standard output is closed: send it to a file, or to /dev/null\n"


def test_a_closed_output_is_no_file_of_ours(tmp_path: Path) -> None:
    """The next file that is opened would get its number, and what was meant for the terminal."""
    (tmp_path / "d.tsv").write_text("cat\tchat\n")
    export = ["export", str(tmp_path / "d.tsv"), "-o", "-"]
    for closed in (">&-", ">&- 2>&-", "<&- >&-"):
        shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, *export]
        done = subprocess.run(shell, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
    assert (tmp_path / "d.tsv").read_text() == "cat\tchat\n"


def test_a_closed_input_is_empty(tmp_path: Path) -> None:
    small_translator().save(tmp_path / "t")
    shell = ["sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM, "translate", str(tmp_path / "t")]
    done = subprocess.run(shell, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("error", ["MemoryError()", "RecursionError('maximum')"])
def test_the_last_resort_is_a_sentence(error: str) -> None:
    code = f"import blicer.cli\ndef boom(): raise {error}\nblicer.cli.app = boom\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "blicer.cli.main()"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("blicer: ")
    assert done.stderr.count("\n") == 1


# -- interrupts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-C", "SIGTERM"]
)
def test_an_interrupt_says_what_was_kept_and_what_to_type(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    source, target = two_sides(900, 0.1)
    for name, side in (("s", source), ("t", target)):
        side.save(tmp_path / f"{name}.vec")
    Lexicon(list(zip(source.words[:200], target.words[:200], strict=True))).save(tmp_path / "d.tsv")
    out = tmp_path / "space"
    arguments = ["align", str(tmp_path / "s.vec"), str(tmp_path / "t.vec"), "-o", str(out)]
    arguments += ["--seeds", str(tmp_path / "d.tsv"), "--space", "vecmap"]
    arguments += ["--mode", "semi_supervised", "--set", "patience=100000"]
    child = subprocess.Popen(
        [*PROGRAM, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        # What a shell runs in the background ignores ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    lock = tmp_path / ".space.lock"
    while not (lock.is_file() and lock.read_text()):
        time.sleep(0.05)
    time.sleep(1.0)
    child.send_signal(sent)
    _, said = child.communicate(timeout=60)
    assert child.returncode == code
    lines = [line for line in said.splitlines() if line.startswith("blicer:")]
    assert len(lines) == 1
    assert f"{out} is not written" in lines[0]
    assert f"blicer align {tmp_path / 's.vec'}" in lines[0]
    assert "Traceback" not in said
    assert not out.exists()
    assert not lock.exists()


def test_sigterm_is_an_interrupt() -> None:
    assert issubclass(Terminated, KeyboardInterrupt)


# -- the Python API --------------------------------------------------------------------------------


def test_arguments_of_another_type_are_a_sentence() -> None:
    source, target = two_sides(30, 0.1)
    translator = small_translator()
    wrong: list[Any] = [
        lambda: Procrustes().align("en.vec", target, Lexicon([])),  # type: ignore[arg-type]
        lambda: Procrustes().align(source, None, Lexicon([])),  # type: ignore[arg-type]
        lambda: Procrustes().align(source, target, [("a", "b")]),  # type: ignore[arg-type]
        lambda: blicer.train(source, target, "seeds.tsv"),  # type: ignore[arg-type]
        lambda: blicer.train(source, target, None, {"epochs": 1}),  # type: ignore[arg-type]
        lambda: blicer.evaluate(translator, "test.tsv"),  # type: ignore[arg-type]
        lambda: blicer.evaluate("folder", Lexicon([("a", "b")])),  # type: ignore[arg-type]
        lambda: blicer.evaluate(translator, Lexicon([("a", "b")]), bootstrap="9"),  # type: ignore[arg-type]
        lambda: translator.translate([None]),  # type: ignore[list-item]
        lambda: translator.translate(["a"], k="3"),  # type: ignore[arg-type]
    ]
    for call in wrong:
        with pytest.raises(InputError, match="expected"):
            call()


def test_a_string_is_one_word() -> None:
    translator = small_translator()
    word = translator.source.words[3]
    assert translator.translate(word) == translator.translate([word])[0]


# -- the same command again ------------------------------------------------------------------------


def test_a_finished_training_is_not_run_again(tmp_path: Path) -> None:
    source, target = two_sides(200, 0.05)
    for name, side in (("s", source), ("t", target)):
        side.save(tmp_path / f"{name}.vec")
    Lexicon(list(zip(source.words[:120], target.words[:120], strict=True))).save(tmp_path / "d.tsv")
    arguments = ["train", str(tmp_path / "s.vec"), str(tmp_path / "t.vec")]
    arguments += ["--seeds", str(tmp_path / "d.tsv"), "--space", "procrustes", "--scorers"]
    arguments += ["spelling", "-o", str(tmp_path / "out")]

    def run(*more: str) -> tuple[str, int]:
        done = subprocess.run(
            [*PROGRAM, *arguments, *more], capture_output=True, text=True, check=True
        )
        return done.stderr, (tmp_path / "out" / "translator.json").stat().st_ino

    _, first = run()
    said, second = run()
    assert "was already trained" in said
    assert first == second
    said, third = run("--set", "split_seed=5")
    assert "will be replaced" in said
    assert third != first


def test_a_copied_translator_is_verified_as_well(tmp_path: Path) -> None:
    small_translator().save(tmp_path / "t")
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    Translator.load(tmp_path / "copy")
    file = tmp_path / "copy" / "space" / "source.safetensors"
    content = bytearray(file.read_bytes())
    content[-60] ^= 1
    file.write_bytes(content)
    with pytest.raises(FileError, match=r"source.safetensors: is damaged"):
        Translator.load(tmp_path / "copy")
