"""The cross-encoder: training against hand-written loops, saving, loading, bad input."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder

from blicer.config import Config
from blicer.crossencoder.model import Reranker
from blicer.encoders.tuning import learning_rate_factor
from blicer.errors import BlicerError, FileError, InputError, MissingDependency
from tiny_models import tiny_encoder, toy_pairs

FAST: dict[str, Any] = {"device": "cpu", "epochs": 2, "batch_size": 16, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    kinds = {kind: tiny_encoder(root / kind, kind) for kind in ("bert", "xlmr", "electra")}
    return kinds | {"still": tiny_encoder(root / "still", dropout=0.0)}


def weights_of(reranker: Reranker) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in reranker.model.state_dict().items()}


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


# -- settings ------------------------------------------------------------------------------------


def test_presets_carry_the_papers_numbers() -> None:
    settings = Reranker().config
    assert (settings.epochs, settings.learning_rate, settings.weight_decay) == (3, 1.2e-5, 0.01)
    assert (settings.batch_size, settings.max_length, settings.warmup) == (256, 20, 0.1)
    assert settings.seed == 33
    few = Config.resolve("semi-supervised")
    assert Reranker(config=few).config.epochs == 5
    assert Reranker(config=few, epochs=2).config.epochs == 2
    # What `lite` needs is for those who train: ``Config.resolve``.
    assert Reranker("lite").config.learning_rate == 1.2e-5
    given = Config.resolve("semi_supervised", overrides={"encoder": "lite", "seed": 5})
    assert Reranker("lite", config=given).config == given
    assert Reranker("other", config=given, epochs=7).config == given.replace(
        encoder="other", epochs=7
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"epochs": 1.5}, "whole number"),
        ({"warmup": 2.0}, "at most 1"),
        ({"lr": 0.1}, "no setting 'lr'"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"preset": "superb"}, "superb"),
        ({"alpha": 0.5}, "alpha is not a setting of the cross-encoder"),
    ],
)
def test_settings_that_make_no_sense(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Reranker(**overrides)


def test_learning_rate_rises_then_falls() -> None:
    factors = [learning_rate_factor(step, 20, 0.1) for step in range(20)]
    assert factors[:4] == [0.0, 0.5, 1.0, pytest.approx(17 / 18)]
    assert factors[-1] == pytest.approx(1 / 18)
    assert learning_rate_factor(0, 5, 0.0) == 1.0


# -- training ------------------------------------------------------------------------------------


def plain_training(
    folder: Path, left: list[str], right: list[str], labels: list[float], settings: Config
) -> dict[str, torch.Tensor]:
    """Textbook loop: whole batches, whole table, stock AdamW. Dropout must be 0."""
    from blicer.encoders.loading import load_encoder

    model, tokenizer = load_encoder(folder, seed=settings.seed)
    model.train()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": rest}],
        weight_decay=0.0,
        lr=settings.learning_rate,
    )
    size = settings.batch_size
    per_epoch = -(-len(left) // size)
    step, total = 0, per_epoch * settings.epochs
    for epoch in range(settings.epochs):
        order = np.random.default_rng([settings.seed, epoch]).permutation(len(left))
        for start in range(0, len(left), size):
            rows = order[start : start + size]
            inputs = tokenizer(
                [left[i] for i in rows],
                [right[i] for i in rows],
                truncation=True,
                max_length=settings.max_length,
                padding=True,
                return_tensors="pt",
            )
            logits = model(**inputs).logits[:, 0]
            soft = torch.tensor([labels[i] for i in rows])
            torch.nn.BCEWithLogitsLoss()(logits, soft).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
            for group in optimiser.param_groups:
                factor = learning_rate_factor(step, total, settings.warmup)
                group["lr"] = settings.learning_rate * factor
            optimiser.step()
            optimiser.zero_grad()
            step += 1
    return model.state_dict()


@pytest.mark.parametrize("kind", ["bert", "xlmr", "electra"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])  # masks to add, and masks of yes and no
def test_a_spared_last_layer_changes_neither_logits_nor_gradients(
    encoders: dict[str, Path], kind: str, attention: str
) -> None:
    from transformers import AutoModelForSequenceClassification

    from blicer.encoders.loading import load_encoder

    spared, tokenizer = load_encoder(encoders[kind], seed=1)
    whole = AutoModelForSequenceClassification.from_pretrained(encoders[kind], num_labels=1)
    whole.load_state_dict(spared.state_dict())
    spared.set_attn_implementation(attention)
    inputs = tokenizer(["cat", "the dog"], ["chat", "maison"], padding=True, return_tensors="pt")
    outputs = [model.eval()(**inputs).logits for model in (spared, whole)]
    torch.testing.assert_close(*outputs)
    for logits in outputs:
        logits.sum().backward()
    for one, other in zip(spared.parameters(), whole.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None and other.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-4)


def test_same_as_a_textbook_loop(encoders: dict[str, Path]) -> None:
    left, right, labels = toy_pairs(50)
    ours = Reranker(encoders["still"], **FAST, micro_batch_size=5)
    ours.fit(left, right, labels)
    theirs = plain_training(encoders["still"], left, right, labels, ours.config)
    table = "bert.embeddings.word_embeddings.weight"
    mine = weights_of(ours)
    # Rows that never occur only decay in the textbook loop; here they stay as they were.
    used = np.unique(ours.pair_encoder.encode(left, right).ids)
    original = load_file(encoders["still"] / "model.safetensors")["embeddings." + table[16:]]
    unused = np.setdiff1d(np.arange(len(original)), used)
    assert torch.equal(mine[table][unused], original[unused])
    assert largest_difference({"": mine[table][used]}, {"": theirs[table][used]}) < 2e-5
    del mine[table], theirs[table]
    assert largest_difference(mine, theirs) < 2e-5


@pytest.mark.parametrize("kind", ["bert", "xlmr", "electra"])
def test_learns_and_gives_the_same_twice(encoders: dict[str, Path], kind: str) -> None:
    left, right, labels = toy_pairs(60)
    first = Reranker(encoders[kind], **FAST | {"epochs": 4}).fit(left, right, labels)
    torch.manual_seed(99)  # what else happens to the generator makes no difference
    second = Reranker(encoders[kind], **FAST | {"epochs": 4}).fit(left, right, labels)
    assert largest_difference(weights_of(first), weights_of(second)) == 0
    assert first.report_ is not None
    losses = first.report_.losses
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    other = Reranker(encoders[kind], **FAST | {"epochs": 4}, seed=1).fit(left, right, labels)
    assert largest_difference(weights_of(first), weights_of(other)) > 0


def test_training_leaves_the_callers_generator_alone(encoders: dict[str, Path]) -> None:
    left, right, labels = toy_pairs(20)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Reranker(encoders["bert"], **FAST).fit(left, right, labels)
    assert torch.equal(torch.rand(3), expected)


def test_a_weight_is_worth_that_many_repeats(encoders: dict[str, Path]) -> None:
    left, right, labels = toy_pairs(12)
    counts = [1 + i % 3 for i in range(12)]
    whole: dict[str, Any] = {**FAST, "batch_size": 64, "epochs": 3}
    weighted = Reranker(encoders["still"], **whole).fit(left, right, labels, counts)
    rows = [i for i, count in enumerate(counts) for _ in range(count)]
    repeated = Reranker(encoders["still"], **whole).fit(
        [left[i] for i in rows], [right[i] for i in rows], [labels[i] for i in rows]
    )
    assert largest_difference(weights_of(weighted), weights_of(repeated)) < 2e-5


def test_freezing_the_table(encoders: dict[str, Path]) -> None:
    left, right, labels = toy_pairs(40)
    start = weights_of(Reranker(encoders["bert"], device="cpu"))

    def moved(**overrides: Any) -> float:
        after = weights_of(Reranker(encoders["bert"], **FAST, **overrides).fit(left, right, labels))
        name = "bert.embeddings.word_embeddings.weight"
        return float((after[name] - start[name]).norm())

    whole = moved()
    assert moved(freeze_embeddings=1.0) == 0
    assert 0 < moved(freeze_embeddings=0.5) < whole


def test_average_is_the_mean_of_the_last_weights(
    encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from blicer.crossencoder import training

    seen: list[torch.Tensor] = []
    real = training.Run._step

    def watched(run: Any, step: int) -> float:
        loss = real(run, step)
        seen.append(run.trained["classifier.weight"].detach().clone())
        return loss

    monkeypatch.setattr(training.Run, "_step", watched)
    left, right, labels = toy_pairs(40)
    result = Reranker(encoders["bert"], **FAST, average_last=0.5).fit(left, right, labels)
    expected = torch.stack(seen[len(seen) // 2 :]).mean(0)
    torch.testing.assert_close(result.model.classifier.weight.detach(), expected)


def test_lora_is_merged_into_plain_weights(encoders: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("peft")
    left, right, labels = toy_pairs(40)
    start = weights_of(Reranker(encoders["bert"], device="cpu"))
    tuned = Reranker(encoders["bert"], **FAST, lora_rank=2)
    tuned.fit(left, right, labels, output_dir=tmp_path / "model")
    after = weights_of(tuned)
    query = "bert.encoder.layer.0.attention.self.query.weight"
    table = "bert.embeddings.word_embeddings.weight"
    assert torch.linalg.matrix_rank(after[query] - start[query], atol=1e-6) in (1, 2)
    assert torch.equal(after[table], start[table])
    assert not torch.equal(after["classifier.weight"], start["classifier.weight"])
    reference = CrossEncoder(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(
        reference.predict(list(zip(left, right, strict=True))), tuned.score(left, right), atol=1e-6
    )


def test_inputs_that_the_model_does_not_take_are_left_out(tmp_path: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel

    folder = tiny_encoder(tmp_path / "encoder")  # whose tokenizer gives token types
    shape = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2}
    DistilBertModel(DistilBertConfig(vocab_size=200, **shape)).save_pretrained(folder)
    left, right, labels = toy_pairs(10)
    scores = Reranker(folder, **FAST).fit(left, right, labels).score(left, right)
    assert np.isfinite(scores).all()


def test_lora_without_peft(encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = Reranker(encoders["bert"], **FAST, lora_rank=2)
    _ = reranker.model
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingDependency, match=r"pip install 'blicer\[lora\]'"):
        reranker.fit(["a"], ["b"], [1.0])


# -- scoring, saving, loading --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "xlmr", "electra"])
def test_saved_folder_is_a_plain_cross_encoder(
    encoders: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    left, right, labels = toy_pairs(30)
    right[0] = right[0] * 9  # longer than max_length
    ours = Reranker(encoders[kind], **FAST).fit(left, right, labels)
    ours.save(tmp_path / "model")
    scores = ours.score(left, right)
    theirs = CrossEncoder(str(tmp_path / "model"), device="cpu")
    assert theirs.max_seq_length == 20
    np.testing.assert_allclose(
        theirs.predict(list(zip(left, right, strict=True))), scores, atol=1e-6
    )
    again = Reranker.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(again.score(left, right), scores, atol=1e-7)
    assert again.config == ours.config
    assert again.report_ == ours.report_
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"README.md", "blicer.json", "config.json", "model.safetensors"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pth", ".pkl"))]
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\n")
    assert "Trained on 30 text pairs" in card
    assert "| epochs | 2 |" in card


def test_what_cross_encoder_saved_loads_here(encoders: dict[str, Path], tmp_path: Path) -> None:
    theirs = CrossEncoder(str(encoders["bert"]), num_labels=1, max_length=12, device="cpu")
    theirs.save_pretrained(str(tmp_path / "theirs"))
    left, right, _ = toy_pairs(20)
    expected = theirs.predict(list(zip(left, right, strict=True)))
    ours = Reranker.load(tmp_path / "theirs", device="cpu")
    assert ours.config.max_length == 12
    np.testing.assert_allclose(ours.score(left, right), expected, atol=1e-6)


@pytest.mark.parametrize(("labels", "said"), [(3, "with 3 labels"), (0, "BertModel")])
def test_what_has_no_head_of_one_label_is_not_loaded_with_a_random_one(
    encoders: dict[str, Path], tmp_path: Path, labels: int, said: str
) -> None:
    folder = encoders["bert"]
    if labels:
        folder = tmp_path / "theirs"
        theirs = CrossEncoder(str(encoders["bert"]), num_labels=labels, device="cpu")
        theirs.save_pretrained(str(folder))
    with pytest.raises(FileError, match=said):
        Reranker.load(folder, device="cpu")


def test_a_folder_of_other_files_is_not_replaced(encoders: dict[str, Path], tmp_path: Path) -> None:
    mine = tmp_path / "models" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("precious")
    reranker = Reranker(encoders["bert"], **FAST)
    with pytest.raises(FileError, match="exists and is not a saved cross-encoder"):
        reranker.save(mine.parent)
    with pytest.raises(FileError, match="exists and is not a saved cross-encoder"):
        reranker.fit(*toy_pairs(30), output_dir=mine.parent)
    assert mine.read_text() == "precious"
    assert reranker.report_ is None  # found before the training, not after it


def test_both_orders(encoders: dict[str, Path]) -> None:
    reranker = Reranker(encoders["bert"], device="cpu")
    left, right, _ = toy_pairs(10)
    there, back = reranker.score(left, right), reranker.score(right, left)
    np.testing.assert_allclose(
        reranker.score_both_orders(left, right), (there + back) / 2, atol=1e-6
    )
    order = np.array([0, 1] * 5)
    np.testing.assert_allclose(
        reranker.score_parts(left, right, order), np.where(order, back, there), atol=1e-6
    )


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (([], [], []), "0 left texts.* at least one"),
        ((["a"], ["b"], [1.2]), r"label 1\.2.* of pair 1 \('a', 'b'\)"),
        ((["a"], ["b"], [float("nan")]), "label nan"),
        ((["a"], ["b", "c"], [1.0]), "1 left texts, 2 right texts"),
        ((["a"], ["b"], [1.0, 0.0]), r"labels \(2,\)"),
        ((["a"], ["b"], [1.0], [-1.0]), "weights must be"),
    ],
)
def test_training_data_that_makes_no_sense(
    encoders: dict[str, Path], data: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Reranker(encoders["bert"], device="cpu").fit(*data)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("tokenizer", "has no tokenizer"),
        ("config.json", "config.json: cannot be read"),
        ("model.safetensors", "cannot be loaded as an encoder.*model.safetensors"),
        (None, "no such folder"),
    ],
)
def test_incomplete_encoder_folder(
    encoders: dict[str, Path], tmp_path: Path, missing: str | None, message: str
) -> None:
    folder = tmp_path / "encoder"
    if missing is not None:
        shutil.copytree(encoders["bert"], folder)
        for path in folder.glob(f"{missing}*"):
            path.unlink()
    with pytest.raises(FileError, match=message) as caught:
        Reranker(folder, device="cpu").score(["a"], ["b"])
    assert "\n" not in str(caught.value)


def test_damaged_weights(encoders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(encoders["bert"], folder)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match="cannot be loaded as an encoder") as caught:
        _ = Reranker(folder, device="cpu").model
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        OSError("We couldn't connect to the Hub.\nCheck your connection."),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    ],
)
def test_name_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def cut(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", cut)
    with pytest.raises(BlicerError, match="encoder 'some-encoder' could not be fetched") as caught:
        _ = Reranker("some-encoder", device="cpu").model
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stage", ["model", "tokenizer", "card"])
def test_full_disk_while_saving(
    encoders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    from safetensors import SafetensorError

    reranker = Reranker(encoders["bert"], device="cpu")
    place = tmp_path / "out" / "model"
    reranker.save(place)
    before = {path.name: path.read_bytes() for path in place.iterdir()}

    def full(*_: Any, **__: Any) -> None:
        if stage == "model":
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        if stage == "tokenizer":  # the package tokenizers has no type for it
            raise Exception("No space left on device (os error 28)")
        raise OSError(errno.ENOSPC, "No space left on device")

    if stage == "card":
        monkeypatch.setattr("blicer.crossencoder.model.model_card", full)
    else:
        monkeypatch.setattr(getattr(reranker, stage), "save_pretrained", full)
    with pytest.raises(FileError, match="No space left on device"):
        reranker.save(place)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert [path.name for path in place.parent.iterdir()] == ["model"]


def test_damaged_or_newer_configuration(encoders: dict[str, Path], tmp_path: Path) -> None:
    Reranker(encoders["bert"], device="cpu").save(tmp_path / "model")
    config = tmp_path / "model" / "blicer.json"
    sound = json.loads(config.read_text())
    damaged = [{"config": 3}, {"config": {"epochs": 0}}, {"training": {"x": 1}}]
    for text, message in [
        *(("{", "is not JSON"), ('{"format": 9}', "version.*format 9"), ("[1]", "is damaged")),
        *((json.dumps(sound | values), "is damaged") for values in damaged),
    ]:
        config.write_text(text)
        with pytest.raises(FileError, match=message):
            Reranker.load(tmp_path / "model")


def test_a_sentence_encoder_can_be_tuned_but_no_head_is_lost(tmp_path: Path) -> None:
    """Its pooling is not needed; a head that is a module of its own would be."""
    folder = tiny_encoder(tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    modules = [{"idx": n, "name": str(n), "path": "", "type": "x"} for n in range(3)]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert Reranker(folder).score(["casa"], ["house"]).shape == (1,)
    config["architectures"] = ["BertForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileError, match="lists 3 modules; expected a cross-encoder"):
        Reranker(folder).score(["casa"], ["house"])


def test_a_saved_folder_may_be_called_lite(
    encoders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = Reranker(encoders["bert"], device="cpu")
    reranker.save(tmp_path / "lite")
    monkeypatch.chdir(tmp_path)
    assert Reranker.load("lite", device="cpu").model.config.model_type == "bert"


ANSWERED_YES = """
import sys
from blicer.crossencoder.model import Reranker
from blicer.encoders.words import WordEncoder
from blicer.errors import InputError
uses = (lambda f: Reranker(f, device="cpu").model, WordEncoder, Reranker.load)
for use in uses:
    try:
        use(sys.argv[1])
    except InputError as error:
        print(error)
"""


@pytest.mark.parametrize("part", ["config.json", "tokenizer_config.json"])
def test_code_that_comes_with_a_model_never_runs(tmp_path: Path, part: str) -> None:
    folder, trace = tiny_encoder(tmp_path / "encoder"), tmp_path / "it-ran"
    code = f"open({str(trace)!r}, 'w')\nclass Own: pass\nOwnConfig = OwnTokenizer = Own\n"
    (folder / "own.py").write_text(code)
    values = json.loads((folder / part).read_text())
    values["auto_map"] = {
        "AutoConfig": "own.OwnConfig",
        "AutoModel": "own.Own",
        "AutoModelForSequenceClassification": "own.Own",
        "AutoTokenizer": ["own.OwnTokenizer", "own.OwnTokenizer"],
    }
    values |= {"model_type": "own"} if part == "config.json" else {"tokenizer_class": "Own"}
    (folder / part).write_text(json.dumps(values))
    done = subprocess.run(
        [sys.executable, "-c", ANSWERED_YES, str(folder)],
        input="y\n" * 20,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not trace.exists()
    if part == "config.json":  # the other one is read by a tokenizer of transformers itself
        sentences = done.stdout.splitlines()
        assert len(sentences) == 3
        for sentence in sentences:
            assert sentence.startswith(str(folder))
            assert "blicer runs no code that comes with a model" in sentence
