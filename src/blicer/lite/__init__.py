"""`lite`: the small multilingual cross-encoder that comes with blicer.

The package has its table of word pieces as codes of few bits, and the net in a file of its own.
``path()`` assembles them, once, to an ordinary Hugging Face folder in the user's cache. The package
also has static vectors of the word pieces of a hundred languages (``blicer.encoders.static``).
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blicer.errors import BlicerError, FileError
from blicer.files import (
    atomic_folder,
    cache_folder,
    file_sha256,
    read_json,
    verify,
    write_marker,
)
from blicer.progress import note

NAME, MARKER = "lite", "blicer-lite.json"
HERE = Path(__file__).parent
TABLE, NET, MANIFEST = "table.safetensors", "net.safetensors", "manifest.json"
STATIC, PIECES = "static.safetensors", "pieces.txt"  # read by blicer.encoders.static
COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "README.md", "NOTICE")
TABLE_WEIGHT = "electra.embeddings.word_embeddings.weight"


def path() -> Path:
    """A folder that ``AutoModelForSequenceClassification`` and ``CrossEncoder`` load."""
    folder = cache_folder() / f"{NAME}-{version()}"
    if not _is_sound(folder):
        try:
            with atomic_folder(folder) as temporary:
                assemble(temporary)
                write_marker(temporary, MARKER, {"format": NAME})
        except BlicerError as error:
            # Another process was faster, or the cache cannot be written.
            if not _is_sound(folder):
                note(f"{NAME} is put together in a temporary folder ({error})")
                folder = Path(tempfile.mkdtemp(prefix=f"blicer-{NAME}-"))
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                assemble(folder)
    return folder


def _is_sound(folder: Path) -> bool:
    """Whether there is an assembled model that is not damaged."""
    if not (folder / MARKER).is_file():
        return False
    try:
        values = read_json(folder / MARKER)
        return isinstance(values, dict) and verify(folder, MARKER, values)
    except BlicerError as error:
        note(f"the cached {NAME} is damaged and is built again ({error})")
        return False


def version() -> str:
    """Hash of all files of the model."""
    if not (HERE / MANIFEST).is_file():
        raise FileError(HERE / MANIFEST, "is missing; this copy of blicer comes without `lite`")
    return file_sha256(HERE / MANIFEST)[:12]


def assemble(folder: Path) -> None:
    """Write the whole model into ``folder``: weights in fp32, configuration, tokenizer, card."""
    import torch
    from safetensors.torch import load_file, save_file

    check_files()
    table = load_file(HERE / TABLE)
    codes = torch.cat([torch.from_numpy(unpack(table["planes"].numpy())), table["codes"]], dim=1)
    weights = {name: tensor.float() for name, tensor in load_file(HERE / NET).items()}
    weights[TABLE_WEIGHT] = torch.addcmul(table["low"], codes.float(), table["scale"])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name in COPIED:
        shutil.copyfile(HERE / name, folder / name)


def unpack(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes (rows, columns) from bit planes (rows, bits, columns / 8), highest bit first."""
    codes = np.zeros((len(planes), 8 * planes.shape[2]), np.uint8)
    for plane in planes.transpose(1, 0, 2):
        codes = codes << 1 | np.unpackbits(plane, axis=1)
    return codes


def check_files(*names: str) -> None:
    """Raise if a file (by default any) is missing, or differs from the manifest's SHA-256."""
    files = read_json(HERE / MANIFEST)["files"]
    for name, expected in ((name, files[name]) for name in names or files):
        if not (HERE / name).is_file() or file_sha256(HERE / name) != expected["sha256"]:
            raise FileError(HERE / name, "is missing or damaged; install blicer again")
