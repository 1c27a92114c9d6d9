"""``blicer align`` makes a space; ``blicer pairs`` writes what a cross-encoder is trained on."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import blicer
from blicer.align import METHODS, aligner_class
from blicer.cli import app, options
from blicer.config import ENOUGH_FOR_SUPERVISED, preset_for
from blicer.errors import BlicerError, InputError
from blicer.files import atomic_write, check_writable
from blicer.io.dictionary import tsv_row
from blicer.languages import language_name
from blicer.progress import note
from blicer.templates import Template

if TYPE_CHECKING:
    from blicer.align.base import Aligner
    from blicer.training_pairs import TrainingPairs

FILES = "files"
COLUMNS = ("source", "target", "score", "scaled", "label", "kind", "repeats", "left", "right")
_MODES = f"""supervised, semi_supervised or unsupervised; by default by the number of seeds (c1 and
c2: semi_supervised below {ENOUGH_FOR_SUPERVISED} pairs)."""


@app.command()
def align(
    method: Annotated[
        str, Argument(help=f"{options.listed(METHODS, FILES)} (already in one space).")
    ],
    source: options.SourceVectors,
    target: options.TargetVectors,
    output: options.Output,
    seeds: options.Seeds = None,
    mode: Annotated[str | None, Option(help=_MODES)] = None,
    init: options.Init = None,
    encoder: options.Encoder = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    max_words: options.MaxWords = None,
    keep_case: options.KeepCase = False,
    seed: Annotated[int | None, Option(help="Seed of the random draws.")] = None,
    device: options.Device = None,
    settings: Annotated[
        list[str] | None, Option("--set", help="A setting of the method, NAME=VALUE; repeatable.")
    ] = None,
    export_vec: Annotated[Path | None, Option(help="Folder for two .vec files beside.")] = None,
    force: Annotated[bool, Option("--force", help="Write it even if it did not converge.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Map two sets of word vectors into one space.

    Example: `blicer align vecmap wiki.en.vec wiki.fr.vec --seeds en-fr.tsv -o en-fr.space`

    Example, without seeds: `blicer align vecmap fi.vec et.vec --init encoder -o fi-et.space`
    """
    chosen = _method_settings(settings or [])
    chosen |= options.given(seed=seed, device=device, init=init, encoder=encoder)
    # Every name and value is checked before any file is read.
    aligner = None if method == FILES else _aligner(method, mode, seeds is not None, chosen)
    work = options.check_folder(output, "space")
    if export_vec is not None:
        check_writable(export_vec / "source.vec")
    lexicon = options.load_lexicon(seeds, keep_case) if seeds is not None else None
    if aligner is not None and lexicon and mode is None and "init" not in chosen:
        mode = type(aligner).usual_mode(preset_for(len(lexicon)))
        usual = _aligner(method, mode, True, chosen)
        if usual.settings != aligner.settings:
            note(f"{method}: {mode}, for {len(lexicon)} seed pairs (--mode chooses another)")
        aligner = usual
    left, right = (
        options.load_vectors(path, language, max_words=max_words, keep_case=keep_case)
        for path, language in ((source, source_language), (target, target_language))
    )
    if aligner is None:
        space = blicer.Space(left, right, method=FILES)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a failed run is reported below
            space = aligner.align(left, right, lexicon, work=work)
    if not space.settings.get("converged", True):
        verdict = space.settings.get("verdict", "the run did not converge")
        if not force:
            raise BlicerError(f"{verdict}; nothing was written to {output} (--force writes it)")
        note(verdict)
    # A name that is not UTF-8 can be opened but not written down.
    names = (os.fsencode(path).decode("utf-8", "replace") for path in (source, target))
    space.settings |= dict(zip(("source_file", "target_file"), names, strict=True))
    space.save(output)
    shutil.rmtree(work, ignore_errors=True)
    note(f"wrote {output}; next: blicer evaluate {output} TEST.tsv")
    for path in space.save_vec(export_vec) if export_vec is not None else []:
        note(f"wrote {path}")
    if as_json:
        facts: dict[str, Any] = {"space": str(output), "method": space.method, "dim": space.dim}
        for name, side in (("source", space.source), ("target", space.target)):
            facts[name] = {"words": len(side), "language": side.language}
        options.echo_json({**facts, "settings": space.settings})


def _method_settings(assignments: list[str]) -> dict[str, Any]:
    """``--set`` values as Python's: JSON where they look like it, otherwise texts."""
    chosen: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not name:
            raise InputError(f"--set {assignment!r} is not of the form NAME=VALUE")
        plain = {"none": "null", "true": "true", "false": "false"}.get(text.lower(), text)
        try:
            chosen[name] = json.loads(plain)
        except json.JSONDecodeError:
            chosen[name] = text
    return chosen


def _aligner(method: str, mode: str | None, has_seeds: bool, chosen: dict[str, Any]) -> Aligner:
    """The method by its name, in its mode (with seeds, supervised until they are counted)."""
    if method not in METHODS:
        known = ", ".join([*METHODS, FILES])
        raise InputError(f"there is no method {method!r}; expected one of {known}")
    kind: type[Aligner] = aligner_class(method)
    if "seed" in chosen and "seed" not in kind.setting_names():
        del chosen["seed"]  # nothing is drawn at random in this method
    mode = mode or ("supervised" if has_seeds and "init" not in chosen else "unsupervised")
    seeded = mode.replace("-", "_") in ("supervised", "semi_supervised")
    if not has_seeds and (seeded or mode not in kind.presets):
        raise InputError(f"{method} needs seed pairs (mode: {mode}): give them with --seeds")
    return kind.preset(mode, **chosen)


@app.command()
def pairs(
    space: Annotated[Path, Argument(help="Folder of a space, as `blicer align` writes it.")],
    output: options.Output,
    seeds: options.Seeds = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    template: options.Template = None,
    encoder: options.Encoder = None,
    keep_case: options.KeepCase = False,
    source_name: options.SourceName = None,
    target_name: options.TargetName = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the training pairs of a space: every positive and hard negative with its label.

    Each line of the table is shown to the model `repeats` times in each order.

    Example: `blicer pairs en-fr.space --seeds en-fr.tsv --set alpha=0.5 -o pairs.tsv`
    """
    from blicer.align.base import seed_indices
    from blicer.training_pairs import build_pairs

    lexicon = options.load_lexicon(seeds, keep_case) if seeds is not None else None
    count = None if lexicon is None else len(lexicon)
    named = options.given(template=template, encoder=encoder)
    chosen = options.configure(preset, config, settings, count, named)
    if lexicon is not None and chosen.preset == "unsupervised":
        raise InputError("the preset unsupervised takes no seeds: leave out one of the two")
    if lexicon is None and chosen.n_aug == 0:
        needed = "a seed dictionary: give --seeds FILE, or use --preset unsupervised"
        raise InputError(f"the preset {chosen.preset} needs {needed}")
    check_writable(output)
    loaded = blicer.Space.load(space)
    text, names = Template.parse(chosen.template), ("", "")
    if text.needs_language:
        names = (
            language_name(loaded.source.language, source_name, side="source"),
            language_name(loaded.target.language, target_name, side="target"),
        )
    indices = coverage = None
    if lexicon is not None:
        indices = seed_indices(loaded.source, loaded.target, lexicon)
        coverage = lexicon.coverage(loaded.source, loaded.target)
    loaded.use_k_csls(chosen.k_csls)
    built = build_pairs(loaded.retriever, indices, chosen, coverage=coverage)
    _write_pairs(output, built, loaded, text, names)
    for line in built.report.lines():
        note(line)
    note(f"wrote {len(built)} pairs to {output}")
    if as_json:
        facts = {"scaling": built.scaling.to_dict(), "config": chosen.to_dict()}
        options.echo_json({"output": str(output), **built.report.to_dict(), **facts})


def _write_pairs(
    path: Path,
    built: TrainingPairs,
    space: blicer.Space,
    template: Template,
    names: tuple[str, str],
) -> None:
    """One line a pair, in the order of the training set (positives first)."""
    from blicer.training_pairs import KINDS

    source, target = space.source.words, space.target.words
    # Without repeats, the first half of the examples is every pair once, in the first order.
    shown = built.examples(source, target, template, names, repeat=False)
    with atomic_write(path) as file:
        file.write(tsv_row(COLUMNS))
        for row in range(len(built)):
            words = source[built.source[row]], target[built.target[row]]
            numbers = (built.score[row], built.scaled[row], built.label[row])
            kind, repeats = KINDS[built.kind[row]], str(built.weight[row])
            texts = shown.left[row], shown.right[row]
            file.write(tsv_row([*words, *(f"{n:.6f}" for n in numbers), kind, repeats, *texts]))
