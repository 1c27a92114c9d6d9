"""Which format a file has, told from its content; the name only helps where content cannot."""

from __future__ import annotations

import struct
from pathlib import Path

from blicer.errors import FileError
from blicer.io.streams import Stream, compression, first_bytes
from blicer.io.text import is_number, tokens_of

# === formats.detect ===
FORMATS = ("text", "word2vec", "fasttext", "npy", "contrastive", "folder")
FASTTEXT_MAGIC = struct.pack("<i", 793712314)
NPY_MAGIC = b"\x93NUMPY"
_TORCH_LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
_SNIFFED = 1 << 16
_NUMERIC = frozenset(b"0123456789.-+eE \t\r\n")
_MOSTLY = 0.5


def recognise_format(path: Path) -> str:
    """One of ``FORMATS``, or one sentence that says why it is none."""
    if path.is_dir():
        return "folder"
    start = first_bytes(path)
    if not start:
        raise FileError(path, "is empty")
    if start.startswith(NPY_MAGIC):
        return _npy_or_vocabulary(path)
    if start.startswith(_TORCH_LEGACY) or _is_torch_archive(path, start):
        return "contrastive"
    with Stream(path) as stream:
        return _of_content(path, stream.peek(_SNIFFED))


def _of_content(path: Path, head: bytes) -> str:
    if not head:
        raise FileError(path, "is empty")
    if head.startswith(FASTTEXT_MAGIC):
        return "fasttext"
    if head.startswith(NPY_MAGIC):
        raise FileError(path, "is a compressed .npy; decompress it first")
    if head[0] == 0x80 and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise FileError(
            path,
            "is a Python pickle, which is never executed here; save the vectors in another form "
            "(in gensim: model.wv.save_word2vec_format('vectors.vec'))",
        )
    if head.startswith(b"\x89HDF\r\n"):
        raise FileError(path, "is HDF5; expected word vectors: save them as text or .npy")
    if _is_word2vec_binary(head):
        return "word2vec"
    if _is_old_fasttext(path, head):
        return "fasttext"
    return "text"


def _is_word2vec_binary(head: bytes) -> bool:
    """A header line of two numbers, then a word, a space and bytes that are not digits."""
    line, end, rest = head.partition(b"\n")
    fields = line.split()
    if not end or len(fields) != 2 or not all(field.isdigit() for field in fields):
        return False
    dim = int(fields[1])
    sample = rest[: max(64, 4 * dim)]
    tokens = tokens_of(rest.partition(b"\n")[0])
    if not sample or (len(tokens) > 1 and is_number(tokens[-1])):
        return False
    numeric = sum(byte in _NUMERIC for byte in sample)
    return numeric < _MOSTLY * len(sample) and _looks_binary(sample, dim)


def _looks_binary(sample: bytes, dim: int) -> bool:
    """The bytes after the first word are floats of a sensible size, or hold control characters."""
    control = sum(byte < 32 and byte not in b"\t\r\n" for byte in sample)
    if control:
        return True
    start = sample.find(b" ") + 1
    count = min(dim, (len(sample) - start) // 4)
    if start == 0 or count <= 0:
        return False
    values = struct.unpack_from(f"<{count}f", sample, start)
    return all(value == 0 or 1e-12 < abs(value) < 1e6 for value in values)


def _is_old_fasttext(path: Path, head: bytes) -> bool:
    """fastText before it had a magic number: twelve small integers and a fraction."""
    if len(head) < 56 or path.suffix != ".bin":
        return False
    fields = struct.unpack_from("<12i", head)
    (sampling,) = struct.unpack_from("<d", head, 48)
    dim, window, epochs, _, _, word_ngrams, loss, model, bucket, minn, maxn, _ = fields
    return (
        0 < dim <= 10_000
        and 0 < window <= 1_000
        and 0 <= epochs <= 100_000
        and 0 < word_ngrams <= 100
        and loss in (1, 2, 3)
        and model in (1, 2, 3)
        and bucket >= 0
        and 0 <= minn <= 100
        and 0 <= maxn <= 100
        and 0 <= sampling <= 1
    )


def _is_torch_archive(path: Path, start: bytes) -> bool:
    if compression(start) != "zip":
        return False
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, OSError):
        # A cut-off archive has lost its table of contents, but not its name.
        return path.suffix in (".pt", ".pth", ".bin")


def _npy_or_vocabulary(path: Path) -> str:
    """ContrastiveBLI's ``x_voc.npy`` stands for the pair it makes with ``x_emb.pt``."""
    return "contrastive" if path.name.endswith("_voc.npy") else "npy"


def partner_matrix(path: Path) -> Path:
    return path.with_name(path.name.removesuffix("_voc.npy") + "_emb.pt")


def partner_vocabulary(path: Path) -> Path:
    return path.with_name(path.name.removesuffix("_emb.pt") + "_voc.npy")
