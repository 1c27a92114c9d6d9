"""``blicer pairs``: write what the cross-encoder will be taught, to be read before training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blicer.cli import app

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.embeddings import Embeddings
    from blicer.templates import Template
    from blicer.training_pairs import TrainingPairs


# === cli.align ===
@app.command()
def align(
    method: Annotated[
        str, typer.Argument(help="procrustes, vecmap, rcsls, c1, c2, or files (already aligned).")
    ],
    source: Annotated[Path, typer.Argument(help="Source vectors.")],
    target: Annotated[Path, typer.Argument(help="Target vectors.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the space.")],
    seeds: Annotated[Path | None, typer.Option(help="Seed dictionary, source word first.")] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="supervised, semi_supervised, unsupervised; if not given, by the number of seeds "
            "(c1 and c2 are semi_supervised below 3,000 pairs)."
        ),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="Where an unsupervised run starts: distributions (the paper's), encoder, "
            "identical or numerals."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Of c2 and of --init encoder: lite (embedded), a Hugging Face name or folder."
        ),
    ] = None,
    source_language: Annotated[str | None, typer.Option(help="BCP 47 tag, such as en.")] = None,
    target_language: Annotated[str | None, typer.Option(help="BCP 47 tag, such as fr.")] = None,
    max_words: Annotated[int | None, typer.Option(min=1, help="Words read a side.")] = None,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Do not fold case.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the random draws.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, NAME=VALUE; may be repeated.")
    ] = None,
    export_vec: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write two .vec files there.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write the space even if the run did not converge.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Map two sets of word vectors into one space.

    Example: `blicer align vecmap wiki.en.vec wiki.fr.vec --seeds en-fr.tsv -o en-fr.space`

    Example, without seeds: `blicer align vecmap fi.vec et.vec --init encoder -o fi-et.space`
    """
    import shutil
    import warnings

    from blicer.align.space import DESCRIPTION, Space
    from blicer.embeddings import Embeddings
    from blicer.errors import BlicerError
    from blicer.files import check_replaceable, check_writable
    from blicer.lexicon import Lexicon
    from blicer.pipeline import preset_for, usual_mode
    from blicer.progress import note
    from blicer.stage_cache import work_folder

    chosen = _settings(settings or [], seed=seed, device=device)
    chosen |= {k: v for k, v in (("init", init), ("encoder", encoder)) if v is not None}
    # Every name and value is checked before any file is read.
    aligner = None if method == "files" else _aligner(method, mode, seeds is not None, chosen)
    check_replaceable(output, DESCRIPTION, "a space")
    check_writable(output)
    work = work_folder(output)
    if export_vec is not None:
        check_writable(export_vec / "source.vec")
    lexicon = Lexicon.load(seeds, lowercase=not keep_case) if seeds is not None else None
    if aligner is not None and lexicon and mode is None and "init" not in chosen:
        mode = usual_mode(method, preset_for(len(lexicon)))
        usual = _aligner(method, mode, True, chosen)
        if usual.settings != aligner.settings:
            note(f"{method}: {mode}, for {len(lexicon)} seed pairs (--mode chooses another)")
        aligner = usual
    left, right = (
        Embeddings.load(path, max_words=max_words, lowercase=not keep_case, language=language)
        for path, language in ((source, source_language), (target, target_language))
    )
    if aligner is None:
        space = Space(left, right, method="files")
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a failed run is said below
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
    if export_vec is not None:
        for path in space.save_vec(export_vec):
            note(f"wrote {path}")
    if as_json:
        _print(space, output)


def _settings(assignments: list[str], *, seed: int | None, device: str) -> dict[str, Any]:
    """``--set`` values as Python's, with ``--seed`` and ``--device`` where they were given."""
    import json

    from blicer.errors import InputError

    chosen: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {assignment!r} is not of the form NAME=VALUE")
        plain = {"none": "null", "true": "true", "false": "false"}.get(text.strip().lower(), text)
        try:
            chosen[name.strip()] = json.loads(plain)
        except json.JSONDecodeError:
            chosen[name.strip()] = text.strip()
    if seed is not None:
        chosen["seed"] = seed
    if device != "auto":
        chosen["device"] = device
    return chosen


def _aligner(method: str, mode: str | None, has_seeds: bool, chosen: dict[str, Any]) -> Any:
    """The method by its name, in its mode (with seeds, supervised until they are counted)."""
    import blicer.align
    from blicer.errors import InputError

    if method not in blicer.align.METHODS:
        known = ", ".join([*blicer.align.METHODS, "files"])
        raise InputError(f"there is no method {method!r}; expected one of {known}")
    kind = blicer.align.aligner_class(method)
    if "seed" in chosen and "seed" not in kind.setting_names():
        del chosen["seed"]  # nothing is drawn at random in this method
    mode = mode or ("supervised" if has_seeds and "init" not in chosen else "unsupervised")
    if not has_seeds and mode in ("supervised", "semi_supervised", "semi-supervised"):
        raise InputError(f"{method} in the mode {mode} needs seed pairs: give them with --seeds")
    if not has_seeds and mode not in kind.presets:
        raise InputError(f"{method} needs seed pairs: give them with --seeds")
    return kind.preset(mode, **chosen)


def _print(space: Space, output: Path) -> None:
    import json

    def side(embeddings: Embeddings) -> dict[str, Any]:
        return {"words": len(embeddings), "language": embeddings.language}

    described = {
        "space": str(output),
        "method": space.method,
        "dim": space.dim,
        "source": side(space.source),
        "target": side(space.target),
        "settings": space.settings,
    }
    typer.echo(json.dumps(described, ensure_ascii=False, indent=2))


# === cli.pairs ===
COLUMNS = ("source", "target", "score", "scaled", "label", "kind", "repeats", "left", "right")


@app.command()
def pairs(
    space: Annotated[Path, typer.Argument(help="Folder of a space, as `blicer align` writes it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="TSV file to write.")],
    seeds: Annotated[
        Path | None,
        typer.Option(help="Seed dictionary; none for the preset unsupervised."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="supervised, semi_supervised, unsupervised or zero_shot."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file of settings."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting, NAME=VALUE; may be repeated."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(help="T1 to T16, or a text with `[w]` and, if wanted, `[L]`."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="The encoder that will be taught, which has settings of its own; lite."),
    ] = None,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Do not fold case.")] = False,
    source_name: Annotated[
        str | None,
        typer.Option(help="What the source language calls itself, if CLDR does not know."),
    ] = None,
    target_name: Annotated[
        str | None,
        typer.Option(help="What the target language calls itself, if CLDR does not know."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Write the training pairs of a space: every positive and hard negative with its label.

    Each line is shown to the model `repeats` times in each order.

    Example: `blicer pairs en-fr.space --seeds en-fr.tsv --set alpha=0.5 -o pairs.tsv`
    """
    from blicer.align.base import seed_indices
    from blicer.align.space import Space
    from blicer.config import Config, parse_assignments
    from blicer.errors import InputError
    from blicer.files import check_writable
    from blicer.languages import language_name
    from blicer.lexicon import Lexicon
    from blicer.pipeline import DEFAULT_ENCODER, defaults_for
    from blicer.progress import note
    from blicer.templates import Template
    from blicer.training_pairs import build_pairs

    overrides = parse_assignments(settings or [])
    if template is not None:
        overrides["template"] = template
    if encoder is not None:
        overrides["encoder"] = encoder
    lexicon = Lexicon.load(seeds, lowercase=not keep_case) if seeds is not None else None
    usual = defaults_for(len(lexicon)) if lexicon is not None else {"encoder": DEFAULT_ENCODER}
    resolved = Config.resolve(preset, file=config, overrides=overrides, defaults=usual)
    if seeds is not None and resolved.preset == "unsupervised":
        raise InputError(
            f"the preset unsupervised takes no seeds, and --seeds {seeds} was given: leave it out, "
            "or use --preset semi_supervised"
        )
    if seeds is None and resolved.n_aug == 0:
        raise InputError(
            f"the preset {resolved.preset} needs a seed dictionary: give one with --seeds FILE, "
            "or use --preset unsupervised"
        )
    check_writable(output)
    loaded = Space.load(space)
    text = Template.parse(resolved.template)
    names = ("", "")
    if text.needs_language:
        names = (
            language_name(loaded.source.language, source_name, side="source"),
            language_name(loaded.target.language, target_name, side="target"),
        )

    indices = coverage = None
    if lexicon is not None:
        indices = seed_indices(loaded.source, loaded.target, lexicon)
        coverage = lexicon.coverage(loaded.source, loaded.target)
    loaded.use_k_csls(resolved.k_csls)
    built = build_pairs(loaded.retriever, indices, resolved, coverage=coverage)
    write_tsv(output, built, loaded.source, loaded.target, text, names)

    for line in built.report.lines():
        note(line)
    note(f"wrote {len(built)} pairs to {output}")
    if as_json:
        import json

        summary = {
            "output": str(output),
            **built.report.to_dict(),
            "scaling": built.scaling.to_dict(),
            "config": resolved.to_dict(),
        }
        typer.echo(json.dumps(summary, ensure_ascii=False, indent=2))


def write_tsv(
    path: Path,
    built: TrainingPairs,
    source: Embeddings,
    target: Embeddings,
    template: Template,
    names: tuple[str, str],
) -> None:
    """One line per pair, in the order of the training set (positives first)."""
    from blicer.files import atomic_write
    from blicer.training_pairs import KINDS

    # Without repeats, the first half of the examples is every pair once, in the first order.
    shown = built.examples(source.words, target.words, template, names, repeat=False)
    rows = zip(
        (_cell(source.words[index]) for index in built.source.tolist()),
        (_cell(target.words[index]) for index in built.target.tolist()),
        (f"{value:.6f}" for value in built.score.tolist()),
        (f"{value:.6f}" for value in built.scaled.tolist()),
        (f"{value:.6f}" for value in built.label.tolist()),
        (KINDS[kind] for kind in built.kind.tolist()),
        (str(weight) for weight in built.weight.tolist()),
        map(_cell, shown.left[: len(built)]),
        map(_cell, shown.right[: len(built)]),
        strict=True,
    )
    with atomic_write(path) as file:
        file.write("\t".join(COLUMNS) + "\n")
        file.writelines("\t".join(row) + "\n" for row in rows)


def _cell(text: str) -> str:
    """A word with a tab or a line end in it must not break the table."""
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
