"""``blicer train-several``: several languages, one cross-encoder, a translator for every pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blicer.cli import app


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
    from blicer.progress import note
    from blicer.recipe import Recipe, defaults_for
    from blicer.several import all_pairs, prepare_several
    from blicer.stages import work_folder
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
