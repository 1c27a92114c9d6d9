"""Every reader on damaged files: a sentence or a result, never a traceback, a hang or a bad result.

python tests/fuzz.py --seconds 600 [--readers text,translator] [--seed 0]

A bounded mutator: files that are right are cut, flipped, spliced and filled with numbers and
brackets that readers dislike. Work is done in child processes of limited memory, so that a crash of
one is seen and counted. Files with checksums must not be accepted if what they hold has changed.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

MEMORY = 6 << 30  # bytes of address space of a child; torch alone maps 3 GB
HANG_SECONDS = 20.0
SLICE_SECONDS = 200.0  # that a child works before the next one
WORDS = ["cat", "dog", "house", "naïve", "дом", "学校"]
NASTY = (
    *(b"\0", b"\xff" * 9, b"[" * 3000, b'{"a":' * 900, b"9" * 5000, b"NaN", b"-1", b"1e999"),
    *(b"null", b"\n", b"\r", b"\t", b'"', b"\xef\xbb\xbf", b"\x80\x04", b"\\", b"Infinity"),
    *(struct.pack("<q", value) for value in (-1, 0, 1 << 31, 1 << 40, (1 << 63) - 1)),
    *(struct.pack("<i", value) for value in (-1, 0x7FFFFFFF)),
)


class Reader(NamedTuple):
    """How to make a right file or folder, and how to read it."""

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    """Returns what tells results apart."""
    checked: bool = False
    """Whether a change must be noticed (checksums)."""


def vectors() -> Any:
    import numpy as np

    from blicer.embeddings import Embeddings

    rows = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32)
    return Embeddings(WORDS, rows, "en")


def load_vectors(path: Path) -> Any:
    from blicer.embeddings import Embeddings

    loaded = Embeddings.load(path, cache=False)
    return loaded.words, loaded.vectors.tobytes()


def text(path: Path) -> None:
    vectors().save(path.with_suffix(".vec"))
    path.with_suffix(".vec").rename(path)


def packed(pack: Callable[[bytes], bytes], content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(pack(content)) and None


def word2vec(path: Path) -> None:
    rows = vectors()
    content = b"%d %d\n" % rows.vectors.shape
    for word, row in zip(rows.words, rows.vectors, strict=True):
        content += word.encode() + b" " + row.tobytes() + b"\n"
    path.write_bytes(content)


def fasttext(path: Path) -> None:
    rows = vectors()
    settings = struct.pack("<12id", 5, 5, 5, 1, 5, 1, 1, 1, 2, 10, 3, 6, 1e-4)
    content = struct.pack("<ii", 793712314, 12) + settings
    content += struct.pack("<3i2q", len(rows), len(rows), 0, 10, -1)
    for word in rows.words:
        content += word.encode() + b"\0" + struct.pack("<qb", 5, 0)
    matrix = rows.vectors.tobytes() + bytes(4 * 5 * 10)
    path.write_bytes(content + b"\0" + struct.pack("<2q", len(rows) + 10, 5) + matrix)


def npy(path: Path) -> None:
    import numpy as np

    with path.open("wb") as file:
        np.save(file, vectors().vectors)
    path.with_suffix(".vocab.txt").write_text("\n".join(WORDS))


def torch_file(path: Path) -> None:
    import torch

    torch.save(torch.from_numpy(vectors().vectors), path)
    path.with_suffix(".vocab.txt").write_text("\n".join(WORDS))


def safetensors(path: Path) -> None:
    from blicer.io.matrices import write_safetensors

    rows = vectors()
    write_safetensors(path, rows.words, rows.vectors, {"language": "en"})


DICTIONARY = "\n".join(f"{word}\t{word[::-1]}" for word in WORDS).encode()
TABLE = b'source,target,score\n"cat","chat",0.9\n"dog","chien, chienne",0.5\n'


def read_lexicon(path: Path) -> Any:
    from blicer.io.dictionary import read_dictionary

    return read_dictionary(path)[0]


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("wiki.vec", "2 2\na 1 0\nb 0 1\n")


def read_settings(path: Path) -> Any:
    from blicer.config import Config

    return Config.resolve(file=path).to_dict()


def space(path: Path) -> None:
    from blicer.align.space import Space

    made = Space(vectors(), vectors(), settings={"k_csls": 2})
    made.measure_hubness()
    made.save(path)


def read_space(path: Path) -> Any:
    from blicer.align.space import Space

    found = Space.load(path)
    found.retriever.search(2)
    return found.source.words, found.source.vectors.tobytes(), found.target.vectors.tobytes()


def translator(path: Path) -> None:
    import numpy as np

    from blicer.align.space import Space
    from blicer.mixing import Mixture
    from blicer.scorers.endings import Endings
    from blicer.scorers.transducer import Transducer
    from blicer.training_pairs import Scaling
    from blicer.translator import Translator

    scorers: list[Any] = [Endings(), Transducer()]
    marks = np.array([True, False] * 3)
    for scorer in scorers:
        scorer.fit(WORDS, WORDS[::-1], marks)
    weights = {"csls": 0.5, "endings": 0.25, "transducer": 0.25}
    Translator(
        Space(vectors(), vectors()), scorers, Mixture(weights), Scaling(1.0, 0.0), n_cand=3
    ).save(path)


def read_translator(path: Path) -> Any:
    from blicer.translator import Translator

    found = Translator.load(path, device="cpu")
    return found.to_dict(), [str(one) for one in found.translate(WORDS)]


def cross_encoder(path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from blicer.crossencoder.model import Reranker
    from tiny_models import tiny_encoder

    Reranker(tiny_encoder(path.with_name("encoder"), "xlmr"), device="cpu").save(path)


def read_cross_encoder(path: Path) -> Any:
    from blicer.crossencoder.model import Reranker

    return Reranker.load(path, device="cpu").score(["cat"], ["dog"]).tobytes()


def unsealed(make: Callable[[Path], None], *markers: str) -> Callable[[Path], None]:
    """The same folder as older versions wrote it, without checksums."""

    def made(path: Path) -> None:
        make(path)
        for marker in markers:
            values = json.loads((path / marker).read_text())
            kept = {key: values[key] for key in values.keys() - {"sha256", "seal"}}
            (path / marker).write_text(json.dumps(kept))

    return made


def state(path: Path) -> None:
    import torch

    from blicer.align import checkpoint

    checkpoint.SECONDS = 0.0
    kept = checkpoint.Checkpoint(path, "run")
    kept.save({"x": torch.arange(9)}, {"step": 3})


def read_state(path: Path) -> Any:
    from blicer.align.checkpoint import Checkpoint

    found = Checkpoint(path, "run").load()
    return None if found is None else (found[0]["x"].tolist(), found[1])


READERS: dict[str, Reader] = {
    "text": Reader(text, load_vectors),
    "text.gz": Reader(packed(gzip.compress, b"2 2\na 1 0\nb 0 1\n"), load_vectors),
    "text.zip": Reader(zipped, load_vectors),
    "word2vec": Reader(word2vec, load_vectors),
    "fasttext": Reader(fasttext, load_vectors),
    "npy": Reader(npy, load_vectors),
    "torch": Reader(torch_file, load_vectors),
    "safetensors": Reader(safetensors, load_vectors),
    "dictionary": Reader(packed(bytes, DICTIONARY), read_lexicon),
    "dictionary.csv": Reader(packed(bytes, TABLE), read_lexicon),
    "dictionary.xz": Reader(packed(lzma.compress, DICTIONARY), read_lexicon),
    "dictionary.bz2": Reader(packed(bz2.compress, DICTIONARY), read_lexicon),
    "settings": Reader(
        packed(bytes, b'epochs = 2\nencoder = "lite"\nalpha = 0.5\n'), read_settings
    ),
    "space": Reader(space, read_space, checked=True),
    "translator": Reader(translator, read_translator, checked=True),
    "cross-encoder": Reader(cross_encoder, read_cross_encoder, checked=True),
    "state": Reader(state, read_state, checked=True),
    "old space": Reader(unsealed(space, "space.json"), read_space),
    "old translator": Reader(
        unsealed(translator, "translator.json", "space/space.json"), read_translator
    ),
    "old cross-encoder": Reader(unsealed(cross_encoder, "blicer.json"), read_cross_encoder),
}


def mutated(content: bytes, draw: random.Random) -> bytes:
    """The content after one to four changes."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(data) + 1)
        # Headers decide most, so half of the changes are near the beginning.
        if draw.random() < 0.5:
            place = min(place, draw.randrange(200))
        length = draw.randrange(1, 64)
        kind = draw.randrange(7)
        if kind == 0 and data:
            data[min(place, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[place:]
        elif kind == 2:
            del data[place : place + length]
        elif kind == 3:
            data[place:place] = draw.choice(NASTY)
        elif kind == 4:
            found = draw.choice(NASTY)
            data[place : place + len(found)] = found
        elif kind == 5:
            other = draw.randrange(len(data) + 1)
            data[place : place + length] = data[other : other + length]
        else:
            data[place:place] = data[place : place + length] * draw.randrange(1, 50)
    return bytes(data)


class Hang(BaseException):
    """The reader took too long."""


def attempt(reader: Reader, path: Path, right: Any) -> tuple[str, str]:
    """What became of reading: refused, accepted, wrong, hang or traceback; and the details."""
    from blicer.errors import BlicerError

    def give_up(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        found = reader.read(path)
    except BlicerError:
        return "refused", ""
    except Hang:
        return "hang", ""
    except BaseException:
        return "traceback", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if found is None:
        return "refused", ""
    return ("wrong" if reader.checked and found != right else "accepted"), ""


def work(names: list[str], seed: int, seconds: float, folder: Path) -> None:
    """In a child: inputs until the time is over; one line of JSON for each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ["BLICER_CACHE"] = str(folder / "cache")
    draw, end, number = random.Random(seed), time.monotonic() + seconds, 0
    ready: dict[str, Any] = {}
    while time.monotonic() < end:
        name = names[number % len(names)]
        number += 1
        reader, good = READERS[name], folder / "good" / name
        if name not in ready:
            good.mkdir(parents=True)
            reader.make(good / "it")
            ready[name] = reader.read(good / "it")
        shutil.rmtree(folder / "bad", ignore_errors=True)
        shutil.copytree(good, folder / "bad")
        files = sorted(path for path in (folder / "bad" / "it").rglob("*") if path.is_file())
        file = draw.choice(files or [folder / "bad" / "it"])
        file.write_bytes(mutated(file.read_bytes(), draw))
        print(json.dumps([name, file.name, "started"]), flush=True)
        outcome, details = attempt(reader, folder / "bad" / "it", ready[name])
        kept = ""
        if outcome in ("traceback", "wrong", "hang"):
            kept = str(folder.with_name(f"kept-{seed}-{number}"))
            shutil.copytree(folder / "bad", kept, dirs_exist_ok=True)
        print(json.dumps([name, file.name, outcome, details, kept]), flush=True)


def run(seconds: float, names: list[str], seed: int, keep: Path) -> tuple[Counter[Any], list[Any]]:
    """Children one after the other; counts of (reader, outcome), and what went wrong."""
    counts: Counter[Any] = Counter()
    failures: list[Any] = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        seed += 1
        folder = keep / f"run-{seed}"
        arguments = ["--worker", str(folder), "--seed", str(seed), "--readers", ",".join(names)]
        command = [sys.executable, __file__, *arguments]
        command += ["--seconds", str(min(left, SLICE_SECONDS))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        for name, file, outcome, *more in lines:
            if outcome != "started":
                counts[name, outcome] += 1
                if outcome in ("traceback", "wrong", "hang"):
                    failures.append([name, file, outcome, *more])
        if done.returncode and lines:
            counts[lines[-1][0], "crash"] += 1
            failures.append([*lines[-1], f"exit {done.returncode}", done.stderr[-2000:]])
        elif done.returncode:
            raise RuntimeError(done.stderr)
        shutil.rmtree(folder, ignore_errors=True)
    return counts, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=Path)
    asked = parser.parse_args()
    names = asked.readers.split(",")
    if asked.worker is not None:
        work(names, asked.seed, asked.seconds, asked.worker)
        return 0
    keep = Path(tempfile.mkdtemp(prefix="blicer-fuzz-"))
    counts, failures = run(asked.seconds, names, asked.seed, keep)
    outcomes = ("refused", "accepted", "wrong", "traceback", "hang", "crash")
    print("reader".ljust(20), *(one.rjust(10) for one in outcomes))
    for name in [*names, "all"]:
        row = [
            sum(n for (who, what), n in counts.items() if what == one and name in (who, "all"))
            for one in outcomes
        ]
        print(name.ljust(20), *(str(one).rjust(10) for one in row))
    for failure in failures[:20]:
        print("\n".join(map(str, failure)), end="\n\n")
    if failures:
        print(f"inputs are kept in {keep}")
    else:
        shutil.rmtree(keep, ignore_errors=True)
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
