"""``blicer pairs``: write what the cross-encoder will be taught, to be read before training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blicer.cli import app

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings
    from blicer.pairs import TrainingPairs
    from blicer.templates import Template

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
    from blicer.align.base import seeds_to_indices
    from blicer.align.space import Space
    from blicer.config import Config, parse_assignments
    from blicer.errors import InputError
    from blicer.files import check_writable
    from blicer.languages import language_name
    from blicer.lexicon import Lexicon
    from blicer.pairs import build_pairs
    from blicer.progress import note
    from blicer.recipe import DEFAULT_ENCODER, defaults_for
    from blicer.templates import Template

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
        indices = seeds_to_indices(loaded.source, loaded.target, lexicon)
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
    from blicer.pairs import KINDS

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
