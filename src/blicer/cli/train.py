"""``blicer train`` and ``train-multilingual`` make translators; ``config`` lists settings."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Argument, Option

import blicer
from blicer.align import METHODS
from blicer.cli import app, options
from blicer.config import AUTO, describe
from blicer.errors import FileError, InputError
from blicer.files import check_replaceable, check_writable
from blicer.progress import note
from blicer.stage_cache import work_folder

WORDS_READ = 200_000
_SPACES = f"{options.listed(METHODS, 'the folder of a space')}; by default vecmap."


@app.command()
def train(
    output: options.Output,
    source: Annotated[Path | None, Argument(help="Source vectors.")] = None,
    target: Annotated[Path | None, Argument(help="Target vectors.")] = None,
    seeds: options.Seeds = None,
    space: Annotated[str | None, Option(help=_SPACES)] = None,
    space_mode: Annotated[str | None, Option(help="Of the space; by default the preset's.")] = None,
    preset: options.Preset = None,
    init: options.Init = None,
    pivot: Annotated[Path | None, Option(help="Zero-shot: vectors of the pivot.")] = None,
    pivot_source: Annotated[Path | None, Option(help="Source seeds, pivot word first.")] = None,
    pivot_target: Annotated[Path | None, Option(help="Target seeds, pivot word first.")] = None,
    encoder: options.Encoder = None,
    scorers: options.Scorers = None,
    mixing_weight: Annotated[str | None, Option("--lambda", help="auto, or from 0 to 1.")] = None,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    template: options.Template = None,
    holdout: Annotated[float | None, Option(help="Share of the seeds that λ is chosen on.")] = None,
    folds: Annotated[int | None, Option(help="Cross-validation folds instead.")] = None,
    refit: Annotated[bool | None, Option(help="Fit on all seeds after the choice of λ.")] = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    pivot_language: options.PivotLanguage = None,
    source_name: options.SourceName = None,
    target_name: options.TargetName = None,
    pivot_name: options.PivotName = None,
    max_words: options.MaxWords = WORDS_READ,
    keep_case: options.KeepCase = False,
    device: options.Device = None,
    as_json: options.AsJson = False,
) -> None:
    """Align, train the reranker, choose λ on held-out seeds, and save a translator.

    The same command goes on where a killed run stopped.

    Example: `blicer train wiki.en.vec wiki.fr.vec --seeds en-fr.tsv --source-language en
    --target-language fr -o en-fr`

    Example, without seeds: `blicer train ru.vec fr.vec --preset unsupervised -o ru-fr`

    Example, with seeds to and from English only: `blicer train ru.vec fr.vec --preset zero-shot
    --pivot en.vec --pivot-source en-ru.tsv --pivot-target en-fr.tsv -o ru-fr`
    """
    work = options.check_folder(output, "translator")
    # A folder that is named like a method is not meant, unless its path says that it is.
    saved = Path(space) if space and space not in METHODS and Path(space).is_dir() else None
    named = options.given(
        encoder=encoder,
        template=template,
        mixing_weight=mixing_weight,
        scorers=scorers,
        space=None if saved else space,
        space_mode=space_mode,
        holdout=holdout,
        folds=folds,
        refit=refit,
        device=device,
    )
    chosen = options.configure(preset, config, settings, None, named)
    pivots = {"--pivot": pivot, "--pivot-source": pivot_source, "--pivot-target": pivot_target}
    _check_setup(chosen.preset, seeds is not None, pivots)
    lexicon = options.load_lexicon(seeds, keep_case) if seeds is not None else None
    if lexicon is not None:
        chosen = options.configure(preset, config, settings, len(lexicon), named)

    def read(path: Path, language: str | None) -> blicer.Embeddings:
        return options.load_vectors(path, language, max_words=max_words, keep_case=keep_case)

    given = None
    if saved is not None:
        if source is not None or target is not None:
            raise InputError(f"give either two vector files, or the saved space {space}")
        given = blicer.Space.load(saved)
        left, right = given.source, given.target
        left.language = source_language or left.language
        right.language = target_language or right.language
    elif source is None or target is None:
        raise InputError("training needs two vector files, or a saved space with --space FOLDER")
    else:
        left, right = read(source, source_language), read(target, target_language)
    names, start = (source_name, target_name), init or AUTO
    if lexicon is not None:
        translator = blicer.train(
            left, right, lexicon, chosen, space=given, names=names, work_dir=work
        )
    elif pivot is None or pivot_source is None or pivot_target is None:
        translator = blicer.train_unsupervised(
            left, right, chosen, space=given, names=names, init=start, work_dir=work
        )
    else:
        translator = blicer.prepare_zero_shot(
            read(pivot, pivot_language),
            left,
            right,
            options.load_lexicon(pivot_source, keep_case),
            options.load_lexicon(pivot_target, keep_case),
            chosen,
            names=names,
            pivot_name=pivot_name,
            init=start,
            work_dir=work,
        ).translator()
    translator.save(output)
    shutil.rmtree(work, ignore_errors=True)
    _report(translator, output)
    if as_json:
        options.echo_json(translator.to_dict())


def _check_setup(preset: str, has_seeds: bool, pivots: dict[str, Path | None]) -> None:
    """Raise if seeds, pivot and preset do not fit together."""
    missing = [option for option, path in pivots.items() if path is None]
    without_seeds = preset in ("zero_shot", "unsupervised")
    shown = preset.replace("_", "-")
    if preset == "zero_shot" and missing:
        raise InputError(f"the preset {shown} needs {' and '.join(missing)}")
    if preset != "zero_shot" and len(missing) < len(pivots):
        raise InputError("a pivot is for --preset zero-shot")
    if without_seeds and has_seeds:
        raise InputError(f"the preset {shown} takes no --seeds: leave one of the two out")
    if not without_seeds and not has_seeds:
        raise InputError("no seeds were given: give --seeds FILE, or say --preset unsupervised")


def _report(translator: blicer.Translator, output: Path) -> None:
    mixture, calibration = translator.mixture, translator.calibration
    note(f"wrote {output}; mixing weights: {_weights(translator)}")
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


def _weights(translator: blicer.Translator) -> str:
    return ", ".join(f"{name} {weight:.2f}" for name, weight in translator.mixture.weights.items())


@app.command()
def train_multilingual(
    vectors: Annotated[list[str], Option(help="LANGUAGE=FILE, such as en=wiki.en.vec; repeat.")],
    seeds: Annotated[list[str], Option(help="PAIR=FILE, such as en-fr=my.tsv; repeat.")],
    output: options.Output,
    names: Annotated[list[str] | None, Option("--name", help="LANGUAGE=ITS OWN NAME.")] = None,
    pairs: Annotated[str, Option(help="Pairs to write, comma-separated; by default all.")] = "",
    space: options.Space = None,
    init: options.Init = None,
    encoder: options.Encoder = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    max_words: options.MaxWords = WORDS_READ,
    keep_case: options.KeepCase = False,
    device: options.Device = None,
) -> None:
    """Train one cross-encoder on the seeds of several pairs; use it for all pairs.

    Writes a folder with a translator for each pair. A pair without seeds gets an unsupervised
    space. The same command goes on after a kill.

    Example: `blicer train-multilingual --vectors en=en.vec --vectors fr=fr.vec --vectors ru=ru.vec
    --seeds en-fr=en-fr.tsv --seeds en-ru=en-ru.tsv -o models`, which also makes models/fr-ru.
    """
    from blicer.multilingual import all_pairs

    files = {language: Path(file) for language, file in _assigned("--vectors", vectors).items()}
    lexicons = {
        _pair("--seeds", name): options.load_lexicon(Path(path), keep_case)
        for name, path in _assigned("--seeds", seeds).items()
    }
    wanted = [_pair("--pairs", name.strip()) for name in pairs.split(",") if name.strip()]
    for pair in [*lexicons, *wanted]:
        if missing := [language for language in pair if language not in files]:
            needed = f"{'-'.join(pair)} needs: give --vectors {missing[0]}=FILE"
            raise InputError(f"there are no vectors for {missing[0]}, which {needed}")
    called = _assigned("--name", names or [], "LANGUAGE=NAME")
    if unknown := sorted(set(called) - set(files)):
        raise InputError(f"--name names {unknown[0]}, which there are no vectors for")
    fewest = min(len(lexicon) for lexicon in lexicons.values())
    named = options.given(encoder=encoder, space=space, device=device)
    chosen = options.configure(preset, config, settings, fewest, named)
    if output.exists() and not output.is_dir():
        raise FileError(output, "is a file; expected the name of a folder")
    check_writable(output / "translator")
    work = work_folder(output)
    for pair in wanted or all_pairs(files, lexicons):
        check_replaceable(output / "-".join(pair), "translator.json", "a translator")
    prepared = blicer.prepare_multilingual(
        {
            language: options.load_vectors(path, language, max_words=max_words, keep_case=keep_case)
            for language, path in files.items()
        },
        lexicons,
        chosen,
        names=called,
        pairs=wanted or None,
        init=init or AUTO,
        work_dir=work,
    )
    for pair, one in prepared.items():
        translator, folder = one.translator(), output / "-".join(pair)
        translator.save(folder)
        note(f"wrote {folder}; mixing weights: {_weights(translator)}")
    shutil.rmtree(work, ignore_errors=True)


def _assigned(option: str, values: list[str], form: str = "NAME=FILE") -> dict[str, str]:
    """NAME=FILE options by name; a name given twice raises ``InputError``."""
    found: dict[str, str] = {}
    for value in values:
        name, _, file = (part.strip() for part in value.partition("="))
        if not name or not file:
            raise InputError(f"{option} {value!r} is not of the form {form}")
        if name in found:
            raise InputError(f"{option} names {name} twice")
        found[name] = file
    return found


def _pair(option: str, name: str) -> tuple[str, str]:
    source, _, target = name.partition("-")
    if not source or not target or source == target:
        raise InputError(f"{option} names {name!r}; expected two languages, such as en-fr")
    return source, target


@app.command()
def config(as_json: options.AsJson = False) -> None:
    """List every setting of a training run: default, values, what uses it, what it means.

    Set them with `--set NAME=VALUE`, or in a TOML file given with `--config`. Unless told otherwise
    `blicer train` takes the encoder lite, and the preset that fits the number of seeds.

    Example: `blicer config`
    """
    rows = describe()
    if as_json:
        options.echo_json(rows)
        return
    table = Table("setting", "default", "expected", "group", "meaning")
    for row in rows:
        default = "" if row["default"] in ((), {}) else str(row["default"])
        table.add_row(row["name"], default, row["expected"], row["group"], row["help"])
    options.echo_tables(table)
