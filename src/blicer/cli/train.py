"""``blicer train-several``: several languages, one cross-encoder, a translator for every pair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blicer.cli import app

if TYPE_CHECKING:
    from blicer.translator import Translator


# === cli.train ===
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
    from blicer.multilingual import prepare_zero_shot
    from blicer.pipeline import Recipe, defaults_for
    from blicer.pipeline import train as run
    from blicer.stage_cache import work_folder
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
    from blicer.config import get_preset
    from blicer.errors import InputError

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


# === cli.several ===
@app.command(name="train-several")
def train_several(
    vectors: Annotated[
        list[str], typer.Option(help="LANGUAGE=FILE, for each language, such as en=wiki.en.vec.")
    ],
    seeds: Annotated[
        list[str],
        typer.Option(help="PAIR=FILE, for each pair with seeds, such as en-fr=my.tsv."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder; a translator for each pair in it.")
    ],
    names: Annotated[
        list[str] | None,
        typer.Option("--name", help="LANGUAGE=NAME: what a language calls itself; repeatable."),
    ] = None,
    pairs: Annotated[
        str, typer.Option(help="Pairs to make translators for, comma-separated; all if not given.")
    ] = "",
    space: Annotated[str, typer.Option(help="vecmap, rcsls, c1, c2 or procrustes.")] = "vecmap",
    init: Annotated[
        str, typer.Option(help="Where the space of a pair without seeds starts; see blicer train.")
    ] = "auto",
    encoder: Annotated[
        str | None, typer.Option(help="lite (the default), or a Hugging Face name or folder.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="By the smallest seed dictionary if not given.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, NAME=VALUE; may be repeated.")
    ] = None,
    max_words: Annotated[int | None, typer.Option(min=1, help="Words read a side.")] = 200_000,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Do not fold case.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
) -> None:
    """Train one cross-encoder on the seeds of several pairs; use it for all pairs.

    A pair without seeds gets an unsupervised space. The same command goes on after a kill.

    Example: `blicer train-several --vectors en=en.vec --vectors fr=fr.vec --vectors ru=ru.vec
    --seeds en-fr=en-fr.tsv --seeds en-ru=en-ru.tsv -o models`, which also makes models/fr-ru.
    """
    import shutil

    from blicer.config import Config, parse_assignments
    from blicer.embeddings import Embeddings
    from blicer.errors import FileError, InputError
    from blicer.files import check_replaceable, check_writable
    from blicer.lexicon import Lexicon
    from blicer.multilingual import all_pairs, prepare_several
    from blicer.pipeline import Recipe, defaults_for
    from blicer.progress import note
    from blicer.stage_cache import work_folder
    from blicer.translator import DESCRIPTION

    files = {language: Path(file) for language, file in assigned("--vectors", vectors).items()}
    lexicons = {
        as_pair("--seeds", name): Lexicon.load(path, lowercase=not keep_case)
        for name, path in assigned("--seeds", seeds).items()
    }
    wanted = [as_pair("--pairs", name.strip()) for name in pairs.split(",") if name.strip()]
    check_languages(files, [*lexicons, *wanted])
    called = assigned("--name", names or [], "LANGUAGE=NAME")
    if unknown := sorted(set(called) - set(files)):
        raise InputError(f"--name names {unknown[0]}, which there are no vectors for")
    overrides = parse_assignments(settings or [])
    if encoder is not None:
        overrides["encoder"] = encoder
    fewest = min(len(lexicon) for lexicon in lexicons.values())
    chosen = Config.resolve(preset, file=config, overrides=overrides, defaults=defaults_for(fewest))
    if output.exists() and not output.is_dir():
        raise FileError(output, "is a file; expected the name of a folder")
    check_writable(output / "translator")
    work = work_folder(output)
    for pair in wanted or all_pairs(files, lexicons):
        check_replaceable(output / "-".join(pair), DESCRIPTION, "a translator")
    sides = {
        language: Embeddings.load(
            path, max_words=max_words, lowercase=not keep_case, language=language
        )
        for language, path in files.items()
    }
    prepared = prepare_several(
        sides,
        lexicons,
        chosen,
        Recipe(space=space, device=device),
        names=called,
        pairs=wanted or None,
        init=init,
        work_dir=work,
    )
    for pair, one in prepared.items():
        translator = one.translator()
        translator.save(output / "-".join(pair))
        weights = ", ".join(f"{k} {v:.2f}" for k, v in translator.mixture.weights.items())
        note(f"wrote {output / '-'.join(pair)}; mixing weights: {weights}")
    shutil.rmtree(work, ignore_errors=True)


def assigned(option: str, values: list[str], form: str = "NAME=FILE") -> dict[str, str]:
    """NAME=FILE options by name; a name given twice is the user's mistake."""
    from blicer.errors import InputError

    found: dict[str, str] = {}
    for value in values:
        name, equals, file = value.partition("=")
        if not equals or not name.strip() or not file.strip():
            raise InputError(f"{option} {value!r} is not of the form {form}")
        if name.strip() in found:
            raise InputError(f"{option} names {name.strip()} twice")
        found[name.strip()] = file.strip()
    return found


def as_pair(option: str, name: str) -> tuple[str, str]:
    from blicer.errors import InputError

    source, dash, target = name.partition("-")
    if not dash or not source or not target or source == target:
        raise InputError(f"{option} names {name!r}; expected two languages, such as en-fr")
    return source, target


def check_languages(files: dict[str, Path], pairs: list[tuple[str, str]]) -> None:
    from blicer.errors import InputError

    for pair in pairs:
        for language in pair:
            if language not in files:
                raise InputError(
                    f"there are no vectors for {language}, which {'-'.join(pair)} needs: give "
                    f"--vectors {language}=FILE"
                )
