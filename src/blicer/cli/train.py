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
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the translator.")],
    source: Annotated[
        Path | None, typer.Argument(help="Source vectors.", show_default=False)
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(help="Target vectors.", show_default=False)
    ] = None,
    seeds: Annotated[Path | None, typer.Option(help="Seed dictionary, source word first.")] = None,
    space: Annotated[
        str, typer.Option(help="vecmap, rcsls, c1, c2, procrustes, or the folder of a space.")
    ] = "vecmap",
    space_mode: Annotated[
        str,
        typer.Option(help="The space's mode, such as semi_supervised; by the preset if not given."),
    ] = "",
    preset: Annotated[
        str | None,
        typer.Option(
            help="supervised or semi_supervised (by the number of seeds if not given), "
            "unsupervised, zero-shot."
        ),
    ] = None,
    init: Annotated[
        str,
        typer.Option(
            help="Without seeds, where the space starts: encoder, identical, numerals, "
            "distributions (the paper's), or auto (each in turn until one holds up)."
        ),
    ] = "auto",
    pivot: Annotated[
        Path | None, typer.Option(help="Zero-shot: vectors of the pivot language.")
    ] = None,
    pivot_source: Annotated[
        Path | None, typer.Option(help="Zero-shot: seeds, pivot word first, source word second.")
    ] = None,
    pivot_target: Annotated[
        Path | None, typer.Option(help="Zero-shot: seeds, pivot word first, target word second.")
    ] = None,
    pivot_language: Annotated[
        str | None, typer.Option(help="BCP 47 tag of the pivot, such as en.")
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
    pivot_name: Annotated[
        str | None, typer.Option(help="What the pivot language calls itself.")
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

    Example, without seeds: `blicer train ru.vec fr.vec --preset unsupervised -o ru-fr`

    Example, with seeds to and from English only: `blicer train ru.vec fr.vec --preset zero-shot
    --pivot en.vec --pivot-source en-ru.tsv --pivot-target en-fr.tsv -o ru-fr`
    """
    import shutil

    from blicer.align import METHODS
    from blicer.align.space import Space
    from blicer.config import Config, parse_assignments, read_toml
    from blicer.embeddings import Embeddings
    from blicer.errors import InputError
    from blicer.files import check_replaceable, check_writable
    from blicer.lexicon import Lexicon
    from blicer.recipe import Recipe, defaults_for
    from blicer.several import prepare_zero_shot
    from blicer.stages import work_folder
    from blicer.train import train as run
    from blicer.translator import DESCRIPTION
    from blicer.unsupervised import train_unsupervised

    overrides = parse_assignments(settings or [])
    for name, value in (("encoder", encoder), ("template", template)):
        if value is not None:
            overrides[name] = value
    if lam is not None:
        overrides |= parse_assignments([f"lambda={lam}"])
    check_replaceable(output, DESCRIPTION, "a translator")
    check_writable(output)
    work = work_folder(output)
    pivots = {"--pivot": pivot, "--pivot-source": pivot_source, "--pivot-target": pivot_target}
    from_file = read_toml(config) if config is not None else {}
    asked = preset or overrides.get("preset") or from_file.get("preset")
    kind = setup(asked, has_seeds=seeds is not None, pivots=pivots)

    def read(path: Path, language: str | None) -> Embeddings:
        return Embeddings.load(
            path, max_words=max_words, lowercase=not keep_case, language=language
        )

    def lexicon(path: Path | None) -> Lexicon:
        return Lexicon.load(path, lowercase=not keep_case) if path is not None else Lexicon([])

    known = lexicon(seeds)
    defaults = defaults_for(len(known)) | ({"preset": kind} if kind != "seeds" else {})
    chosen = Config.resolve(preset, file=config, overrides=overrides, defaults=defaults)
    languages = (source_language, target_language)
    given: str | Space = space
    # A folder that is named like a method is not meant, unless its path says that it is.
    if space not in METHODS and Path(space).is_dir():
        if source is not None or target is not None:
            raise InputError(
                f"give either two vector files, or the saved space {space}: it holds its own"
            )
        given = Space.load(space)
        left, right = given.source, given.target
        for side, language in zip((left, right), languages, strict=True):
            side.language = language or side.language
    elif source is None or target is None:
        raise InputError("training needs two vector files, or a saved space with --space FOLDER")
    else:
        left, right = (
            read(path, language) for path, language in zip((source, target), languages, strict=True)
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
    if kind == "unsupervised":
        translator = train_unsupervised(left, right, chosen, recipe, init=init, work_dir=work)
    elif kind == "zero_shot":
        assert pivot is not None  # as checked
        middle = read(pivot, pivot_language)
        translator = prepare_zero_shot(
            middle,
            left,
            right,
            lexicon(pivot_source),
            lexicon(pivot_target),
            chosen,
            recipe,
            pivot_name=pivot_name,
            init=init,
            work_dir=work,
        ).translator()
    else:
        translator = run(left, right, known, chosen, recipe, work_dir=work)
    translator.save(output)
    shutil.rmtree(work, ignore_errors=True)
    _report(translator, output, as_json)


def setup(preset: str | None, *, has_seeds: bool, pivots: dict[str, Path | None]) -> str:
    """seeds, unsupervised or zero_shot, by what was given; what does not fit together is said."""
    from blicer.errors import InputError
    from blicer.presets import get_preset

    name = get_preset(preset).preset if preset is not None else None
    missing = [option for option, path in pivots.items() if path is None]
    if name == "zero_shot":
        if missing:
            raise InputError(f"the preset zero-shot needs {' and '.join(missing)}")
        if has_seeds:
            raise InputError("the preset zero-shot takes no --seeds of the pair itself")
        return name
    if len(missing) < len(pivots):
        raise InputError("a pivot is for --preset zero-shot")
    if name == "unsupervised":
        if has_seeds:
            raise InputError("the preset unsupervised takes no --seeds: leave one of the two out")
        return name
    if not has_seeds:
        raise InputError("no seeds were given: give --seeds FILE, or say --preset unsupervised")
    return "seeds"


def _report(translator: Translator, output: Path, as_json: bool) -> None:
    import json

    from blicer.progress import note

    mixture, calibration = translator.mixture, translator.calibration
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in mixture.weights.items())
    note(f"wrote {output}; mixing weights: {weights}")
    if "unsupervised" in translator.details:
        note("the weights were chosen without gold: take confidences as an order, not as chances")
    elif calibration is not None and calibration.reliability is not None:
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
