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
from blicer.progress import note

if TYPE_CHECKING:
    from blicer.align.base import Aligner

FILES = "files"
COLUMNS = ("source", "target", "score", "scaled", "label", "kind", "repeats", "left", "right")
_MODES = f"""supervised, semi_supervised or unsupervised; by default by the number of seeds (c1 and
c2: semi_supervised below {ENOUGH_FOR_SUPERVISED} pairs)."""


@app.command()
def align(
    method: Annotated[
        str, Argument(help=f"{options.listed(METHODS, FILES)} (already in one space).")
    ],
    source: options.Vectors,
    target: options.Vectors,
    output: options.Output,
    seeds: options.Seeds = None,
    mode: Annotated[str | None, Option(help=_MODES)] = None,
    init: options.Init = None,
    encoder: options.Encoder = None,
    source_language: options.Language = None,
    target_language: options.Language = None,
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
    work = options.check_folder(output, "space")
    if export_vec is not None:
        check_writable(export_vec / "source.vec")
    lexicon = options.load_lexicon(seeds, keep_case) if seeds is not None else None
    texts = options.assigned("--set", settings, "NAME=VALUE")
    named = {"seed": seed, "device": device, "init": init, "encoder": encoder}
    chosen = {name: _value(text) for name, text in texts.items()}
    chosen |= {name: value for name, value in named.items() if value is not None}
    aligner = None if method == FILES else _aligner(method, mode, lexicon, chosen)
    left, right = (
        options.load_vectors(path, language, max_words, keep_case)
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


def _value(text: str) -> Any:
    """A ``--set`` value as Python's: JSON where it looks like it, otherwise the text."""
    plain = {"none": "null", "true": "true", "false": "false"}.get(text.lower(), text)
    try:
        return json.loads(plain)
    except json.JSONDecodeError:
        return text


def _aligner(
    method: str, mode: str | None, seeds: blicer.Lexicon | None, chosen: dict[str, Any]
) -> Aligner:
    """The method by its name, in the mode asked for or the one that fits the number of seeds."""
    if method not in METHODS:
        known = ", ".join([*METHODS, FILES])
        raise InputError(f"there is no method {method!r}; expected one of {known}")
    kind: type[Aligner] = aligner_class(method)
    if "seed" in chosen and "seed" not in kind.setting_names():
        del chosen["seed"]  # nothing is drawn at random in this method
    if mode is None and seeds is not None and "init" not in chosen:
        mode = kind.usual_mode(preset_for(len(seeds)))
        if kind.presets.get(mode) != kind.presets.get("supervised"):
            note(f"{method}: {mode}, for {len(seeds)} seed pairs (--mode chooses another)")
    mode = mode or "unsupervised"
    seeded = mode.replace("-", "_") in ("supervised", "semi_supervised")
    if seeds is None and (seeded or mode not in kind.presets):
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
    source_name: options.Name = None,
    target_name: options.Name = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the training pairs of a space: every positive and hard negative with its label.

    Each line of the table is shown to the model `repeats` times in each order.

    Example: `blicer pairs en-fr.space --seeds en-fr.tsv --set alpha=0.5 -o pairs.tsv`
    """
    from blicer.align.base import seed_indices
    from blicer.pipeline import NO_PAIRS, LanguagePair, training_pairs
    from blicer.training_pairs import COLUMNS as ARRAY_NAMES
    from blicer.training_pairs import KINDS

    lexicon = options.load_lexicon(seeds, keep_case) if seeds is not None else None
    count = None if lexicon is None else len(lexicon)
    chosen = options.configure(preset, config, settings, count, template=template, encoder=encoder)
    if lexicon is not None and chosen.preset == "unsupervised":
        raise InputError("the preset unsupervised takes no seeds: leave out one of the two")
    if lexicon is None and chosen.n_aug == 0:
        needed = "a seed dictionary: give --seeds FILE, or use --preset unsupervised"
        raise InputError(f"the preset {chosen.preset} needs {needed}")
    check_writable(output)
    loaded = blicer.Space.load(space)
    pair = LanguagePair(loaded.source, loaded.target, (source_name, target_name))
    words, names = (loaded.source.words, loaded.target.words), pair.names_for(chosen)
    indices, facts = NO_PAIRS, {}
    if lexicon is not None:
        indices = seed_indices(loaded.source, loaded.target, lexicon)
        coverage = lexicon.coverage(loaded.source, loaded.target)
        facts["coverage"] = coverage.to_dict()
        for line in coverage.lines():
            note(line)
    built = training_pairs(pair, loaded, indices, chosen)
    # Without repeats, the first half of the examples is every pair once, in the first order.
    shown = built.examples(*words, chosen.template, names, repeat=False)
    columns = [getattr(built, name) for name in ARRAY_NAMES]
    with atomic_write(output) as file:
        file.write(tsv_row(COLUMNS))
        for source, target, *numbers, kind, repeats, left, right in zip(
            *columns, shown.left, shown.right, strict=False
        ):
            cells = [words[0][source], words[1][target], *(f"{number:.6f}" for number in numbers)]
            file.write(tsv_row([*cells, KINDS[kind], str(repeats), left, right]))
    note(f"wrote {len(built)} pairs to {output}")
    if as_json:
        facts |= {"scaling": built.scaling.to_dict(), "config": chosen.to_dict()}
        options.echo_json({"output": str(output), **built.report.to_dict(), **facts})
