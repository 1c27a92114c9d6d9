"""``blicer train``: vectors and seeds in, a translator out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blicer.cli import app

if TYPE_CHECKING:
    from blicer.translator import Translator


@app.command()
def train(
    seeds: Annotated[Path, typer.Option(help="Seed dictionary, source word first.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the translator.")],
    source: Annotated[
        Path | None, typer.Argument(help="Source vectors.", show_default=False)
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(help="Target vectors.", show_default=False)
    ] = None,
    space: Annotated[
        str, typer.Option(help="vecmap, rcsls, c1, procrustes, or the folder of a space.")
    ] = "vecmap",
    space_mode: Annotated[
        str,
        typer.Option(help="The space's mode, such as semi_supervised; by the preset if not given."),
    ] = "",
    preset: Annotated[
        str | None,
        typer.Option(help="supervised or semi_supervised; by the number of seeds if not given."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="lite (the default, embedded), or a Hugging Face name or folder, such as "
            "xlm-roberta-large, the paper's."
        ),
    ] = None,
    scorers: Annotated[
        str,
        typer.Option(
            help="What to mix with CSLS, comma-separated; by the encoder if not given: "
            "cross-encoder, and with lite also endings."
        ),
    ] = "",
    lam: Annotated[
        str | None, typer.Option("--lambda", help="auto, or a number from 0 to 1.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, NAME=VALUE; may be repeated.")
    ] = None,
    template: Annotated[str | None, typer.Option(help="T1 to T16, or a text with `[w]`.")] = None,
    holdout: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the seeds that λ is chosen on.")
    ] = 0.15,
    folds: Annotated[
        int,
        typer.Option(min=0, help="Cross-validation folds instead; 0: four for lite and few seeds."),
    ] = 0,
    refit: Annotated[
        bool, typer.Option(help="Fit on all seeds again after the choice of λ.")
    ] = True,
    source_language: Annotated[str | None, typer.Option(help="BCP 47 tag, such as en.")] = None,
    target_language: Annotated[str | None, typer.Option(help="BCP 47 tag, such as fr.")] = None,
    source_name: Annotated[
        str | None, typer.Option(help="What the source language calls itself.")
    ] = None,
    target_name: Annotated[
        str | None, typer.Option(help="What the target language calls itself.")
    ] = None,
    max_words: Annotated[int | None, typer.Option(min=1, help="Words read a side.")] = 200_000,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Do not fold case.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Align, train the reranker, choose λ on held-out seeds, and save a translator.

    The same command goes on where a killed run stopped.

    Example: `blicer train wiki.en.vec wiki.fr.vec --seeds en-fr.tsv --source-language en
    --target-language fr -o en-fr`
    """
    import shutil

    from blicer.align.space import Space
    from blicer.config import Config, parse_assignments
    from blicer.embeddings import Embeddings
    from blicer.errors import InputError
    from blicer.files import check_writable
    from blicer.lexicon import Lexicon
    from blicer.recipe import Recipe, defaults_for
    from blicer.train import train as run
    from blicer.train import work_folder

    overrides = parse_assignments(settings or [])
    for name, value in (("encoder", encoder), ("template", template)):
        if value is not None:
            overrides[name] = value
    if lam is not None:
        overrides |= parse_assignments([f"lambda={lam}"])
    check_writable(output)
    lexicon = Lexicon.load(seeds, lowercase=not keep_case)
    chosen = Config.resolve(
        preset, file=config, overrides=overrides, defaults=defaults_for(len(lexicon))
    )
    languages = (source_language, target_language)
    given: str | Space = space
    if Path(space).is_dir():
        given = Space.load(space)
        left, right = given.source, given.target
        for side, language in zip((left, right), languages, strict=True):
            side.language = language or side.language
    elif source is None or target is None:
        raise InputError("training needs two vector files, or a saved space with --space FOLDER")
    else:
        left, right = (
            Embeddings.load(path, max_words=max_words, lowercase=not keep_case, language=language)
            for path, language in zip((source, target), languages, strict=True)
        )
    recipe = Recipe(
        space=given,
        space_mode=space_mode,
        scorers=tuple(name.strip() for name in scorers.split(",") if name.strip()),
        holdout=holdout,
        folds=folds,
        refit=refit,
        names=(source_name, target_name),
        device=device,
    )
    work = work_folder(output)
    translator = run(left, right, lexicon, chosen, recipe, work_dir=work)
    translator.save(output)
    shutil.rmtree(work, ignore_errors=True)
    _report(translator, output, as_json)


def _report(translator: Translator, output: Path, as_json: bool) -> None:
    import json

    from blicer.progress import note

    mixture, calibration = translator.mixture, translator.calibration
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in mixture.weights.items())
    note(f"wrote {output}; mixing weights: {weights}")
    if calibration is not None and calibration.reliability is not None:
        note(
            f"confidence is off by {100 * calibration.reliability.error:.1f} points on average, "
            f"on {mixture.queries} held-out words"
        )
    note(
        f"next: blicer evaluate {output} TEST.tsv; blicer translate {output} WORD; "
        f"blicer induce {output} -o dictionary.tsv"
    )
    if as_json:
        typer.echo(json.dumps(translator.to_dict(), ensure_ascii=False, indent=2))
