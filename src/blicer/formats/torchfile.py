"""ContrastiveBLI's pair of files (``x_emb.pt``, ``x_voc.npy``), or any tensor + vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blicer.errors import FileError
from blicer.formats.collect import select_rows
from blicer.formats.detect import partner_matrix, partner_vocabulary
from blicer.formats.report import LoadReport
from blicer.formats.vocabulary import find_vocabulary, read_vocabulary


def read_torch(
    path: Path,
    report: LoadReport,
    *,
    max_words: int | None,
    lowercase: bool,
    vocabulary: Path | None,
) -> tuple[list[str], np.ndarray]:
    if path.name.endswith("_voc.npy"):
        vocabulary, path = vocabulary or path, partner_matrix(path)
    if vocabulary is None:
        partner = partner_vocabulary(path)
        paired = path.name.endswith("_emb.pt") and partner.is_file()
        vocabulary = partner if paired else find_vocabulary(path)
    matrix = _read_tensor(path)
    words, skip = read_vocabulary(vocabulary, len(matrix), report)
    return select_rows(words, matrix, report, max_words=max_words, lowercase=lowercase, skip=skip)


def _read_tensor(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileError(path, "does not exist; expected the vectors that go with the words")
    import torch

    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises many kinds for a file that is cut off or holds more than tensors.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(
            path, f"holds no plain tensor, and nothing else is executed here ({reason[:200]})"
        ) from error
    usable = isinstance(value, torch.Tensor) and value.ndim == 2 and not value.is_complex()
    if not usable or value.shape[1] == 0:
        found = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value)
        raise FileError(path, f"expected a 2-d tensor, one row a word; found {found}")
    matrix: np.ndarray = value.detach().to(torch.float32).contiguous().numpy()
    return matrix
