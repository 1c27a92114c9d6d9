"""`lite`: the small multilingual cross-encoder that comes with blicer.

The package carries its table of word pieces as uint8 codes, apart from the net. ``path()`` puts the
two together, once, into an ordinary Hugging Face folder in the user's cache.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from blicer.errors import BlicerError, FileError
from blicer.files import atomic_folder, cache_folder, file_sha256, read_json

NAME = "lite"
HERE = Path(__file__).parent
TABLE, NET, MANIFEST = "table.safetensors", "net.safetensors", "manifest.json"
COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "README.md", "NOTICE")
TABLE_WEIGHT = "electra.embeddings.word_embeddings.weight"


def path() -> Path:
    """A folder that ``AutoModelForSequenceClassification`` and ``CrossEncoder`` load."""
    folder = cache_folder() / f"{NAME}-{version()}"
    if not (folder / "model.safetensors").is_file():
        try:
            with atomic_folder(folder) as temporary:
                assemble(temporary)
        except BlicerError:
            # Another process was faster, or the cache cannot be written.
            if not (folder / "model.safetensors").is_file():
                folder = Path(tempfile.mkdtemp(prefix=f"blicer-{NAME}-"))
                assemble(folder)
    return folder


def version() -> str:
    """Hash of all the files that the model is made of."""
    if not (HERE / MANIFEST).is_file():
        raise FileError(HERE / MANIFEST, "is missing; this copy of blicer comes without `lite`")
    return file_sha256(HERE / MANIFEST)[:12]


def assemble(folder: Path) -> None:
    """Write the whole model into ``folder``: weights in fp32, configuration, tokenizer, card."""
    import torch
    from safetensors.torch import load_file, save_file

    check_files()
    table = load_file(HERE / TABLE)
    weights = {name: tensor.float() for name, tensor in load_file(HERE / NET).items()}
    weights[TABLE_WEIGHT] = torch.addcmul(table["low"], table["codes"].float(), table["scale"])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name in COPIED:
        shutil.copyfile(HERE / name, folder / name)


def check_files() -> None:
    """Raise if a file is missing or not as built (SHA-256 in the manifest)."""
    for name, expected in read_json(HERE / MANIFEST)["files"].items():
        if not (HERE / name).is_file() or file_sha256(HERE / name) != expected["sha256"]:
            raise FileError(HERE / name, "is missing or damaged; install blicer again")
