"""Making spaces and translators: ``blicer align``, ``pairs``, ``train`` and ``config``."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from typer import Argument, Context, Option

import blicer
from blicer.align import METHODS, aligner_class
from blicer.cli import app, options
from blicer.config import AUTO, ENOUGH_FOR_SUPERVISED, describe, preset_for
from blicer.errors import BlicerError, FileError, InputError
from blicer.expectations import lines
from blicer.files import atomic_write, check_replaceable, check_writable, digest
from blicer.io.dictionary import tsv_row
from blicer.progress import note
from blicer.stage_cache import work_folder

if TYPE_CHECKING:
    from blicer.align.base import Aligner

FILES = "files"
WORDS_READ = 200_000
COLUMNS = ("source", "target", "score", "scaled", "label", "kind", "repeats", "left", "right")
_MODES = f"""supervised, semi_supervised or unsupervised; by default by the number of seeds (c1 and
c2: semi_supervised below {ENOUGH_FOR_SUPERVISED} pairs)."""
_METHODS = f"{options.any_of(METHODS, FILES)} (already in one space)."
_CURATED = """Dictionary that an editor has filled in (`blicer export --review`): accepted and
corrected pairs become seeds, rejected ones are known to be wrong; repeatable."""
_SPACES = f"{options.any_of(METHODS, 'the folder of a space')}; by default twoview."


@app.command()
@options.writes_output
def align(
    source: options.Vectors,
    target: options.Vectors,
    output: options.Output,
    seeds: options.Seeds = None,
    method: Annotated[str, Option("--space", help=_METHODS)] = "twoview",
    mode: Annotated[str | None, Option(help=_MODES)] = None,
    init: options.Init = None,
    encoder: options.Encoder = None,
    source_language: options.Language = None,
    target_language: options.Language = None,
    max_words: options.MaxWords = None,
    keep_case: options.KeepCase = False,
    encoding: options.Encoding = None,
    seed: Annotated[int | None, Option(help="Seed of the random draws.")] = None,
    device: options.Device = None,
    settings: Annotated[list[str] | None, Option("--set", help="NAME=VALUE; repeatable.")] = None,
    export_vec: Annotated[Path | None, Option(help="Folder for two .vec files beside.")] = None,
    force: Annotated[bool, Option("--force", help="Write it even if it did not converge.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Map two sets of word vectors into one space.

    Example: `blicer align wiki.en.vec wiki.fr.vec --seeds en-fr.tsv -o en-fr.space`

    Example, without seeds: `blicer align fi.vec et.vec -o fi-et.space`
    """
    work = options.check_folder(output, "space")
    if export_vec is not None:
        check_writable(export_vec / "source.vec")
    lexicon = options.load_lexicon(seeds, keep_case, encoding)
    texts = options.assigned("--set", settings, "NAME=VALUE")
    named = {"seed": seed, "device": device, "init": init, "encoder": encoder}
    chosen = {name: _value(text) for name, text in texts.items()}
    chosen |= {name: value for name, value in named.items() if value is not None}
    aligner = None if method == FILES else _aligner(method, mode, lexicon, chosen)
    left = options.load_vectors(source, source_language, max_words, keep_case)
    right = options.load_vectors(target, target_language, max_words, keep_case)
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
    space.settings["source_file"] = options.path_text(source)
    space.settings["target_file"] = options.path_text(target)
    instead = ", in place of the space that was there" if output.exists() else ""
    space.save(output)
    shutil.rmtree(work, ignore_errors=True)
    note(f"wrote {output}{instead}; next: blicer evaluate {output} TEST.tsv")
    for path in space.save_vec(export_vec) if export_vec is not None else []:
        note(f"wrote {path}")
    if as_json:
        facts: dict[str, Any] = {"space": str(output), "method": space.method, "dim": space.dim}
        for name, side in (("source", space.source), ("target", space.target)):
            facts[name] = {"words": len(side), "language": side.language}
        options.echo_json({**facts, "settings": space.settings})


def _value(text: str) -> Any:
    """A ``--set`` value: parsed as JSON if possible, else the text."""
    plain = {"none": "null", "true": "true", "false": "false"}.get(text.lower(), text)
    try:
        return json.loads(plain)
    except json.JSONDecodeError:
        return text


def _aligner(
    method: str, mode: str | None, seeds: blicer.Lexicon | None, chosen: dict[str, Any]
) -> Aligner:
    """The aligner in the given mode, or in the one for the number of seeds."""
    kind = aligner_class(method)
    if "seed" in chosen and "seed" not in kind.setting_names():
        del chosen["seed"]  # this method is deterministic
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
    context: Context,
    space: Annotated[Path, Argument(help="Folder of a space, as `blicer align` writes it.")],
    output: options.Output,
    seeds: options.Seeds = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    template: options.Template = None,
    encoder: options.Encoder = None,
    keep_case: options.KeepCase = False,
    encoding: options.Encoding = None,
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
    from blicer.training_pairs import COLUMNS as ARRAYS
    from blicer.training_pairs import KINDS

    lexicon = options.load_lexicon(seeds, keep_case, encoding)
    chosen = options.configure(context, lexicon, space=None)
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
        facts["coverage"] = asdict(coverage)
        for line in coverage.lines():
            note(line)
    built = training_pairs(loaded, indices, chosen)
    # Without repeats, the first half of the examples is every pair once, in the first order.
    shown = built.examples(*words, chosen.template, names, repeat=False)
    columns = [*(getattr(built, name) for name in ARRAYS), shown.left, shown.right]
    with atomic_write(output) as file:
        file.write(tsv_row(COLUMNS))
        for source, target, *numbers, kind, repeats, left, right in zip(*columns, strict=False):
            cells = [words[0][source], words[1][target], *(f"{number:.6f}" for number in numbers)]
            file.write(tsv_row([*cells, KINDS[kind], str(repeats), left, right]))
    note(f"wrote {len(built)} pairs to {output}")
    if as_json:
        facts |= {"scaling": built.scaling.to_dict(), "config": chosen.to_dict()}
        options.echo_json({"output": str(output), **asdict(built.report), **facts})


@app.command()
@options.writes_output
def train(
    context: Context,
    output: options.Output,
    source: Annotated[Path | None, Argument(help="Source vectors.")] = None,
    target: Annotated[Path | None, Argument(help="Target vectors.")] = None,
    seeds: options.Seeds = None,
    curated: Annotated[list[Path] | None, Option(help=_CURATED)] = None,
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
    source_language: options.Language = None,
    target_language: options.Language = None,
    pivot_language: options.Language = None,
    source_name: options.Name = None,
    target_name: options.Name = None,
    pivot_name: options.Name = None,
    max_words: options.MaxWords = WORDS_READ,
    keep_case: options.KeepCase = False,
    encoding: options.Encoding = None,
    device: options.Device = None,
    suspects: Annotated[
        Path | None, Option(help="TSV for seed pairs that look wrong, the clearest first.")
    ] = None,
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
    from blicer.encoders.loading import encoder_version

    work = options.check_folder(output, "translator")
    if suspects is not None:
        options.check_apart(suspects, source, target, seeds, curated)
        check_writable(suspects)
    # A name of a method means the method, even if there is a folder of that name.
    saved = Path(space) if space and space not in METHODS and Path(space).is_dir() else None
    method = None if saved else space
    pivots = {"--pivot": pivot, "--pivot-source": pivot_source, "--pivot-target": pivot_target}
    given_seeds = seeds is not None or bool(curated)
    _check_setup(options.configure(context, None, space=method).preset, given_seeds, pivots)
    known = options.load_lexicon(seeds, keep_case, encoding)
    lexicon, wrong = _judged(known, curated or [], keep_case)
    chosen = options.configure(context, lexicon, space=method)
    how: dict[str, Any] = {"names": (source_name, target_name), "work_dir": work}
    if saved is not None:
        if source is not None or target is not None:
            raise InputError(f"give either two vector files, or the saved space {space}")
        given = how["space"] = blicer.Space.load(saved)
        left, right = given.source, given.target
        left.language = source_language or left.language
        right.language = target_language or right.language
    elif source is None or target is None:
        raise InputError("training needs two vector files, or a saved space with --space FOLDER")
    else:
        left = options.load_vectors(source, source_language, max_words, keep_case)
        right = options.load_vectors(target, target_language, max_words, keep_case)
    done: blicer.Translator | None = None
    if pivot is None or pivot_source is None or pivot_target is None:
        if init is not None:
            chosen = chosen.replace(space_settings={**chosen.space_settings, "init": init})
        given_data = [one for side in (left, right) for one in (side.words, side.vectors)]
        judged = [list(one.listed()) if one is not None else None for one in (lexicon, wrong)]
        made_from = digest(
            *given_data,
            *judged,
            [chosen.to_dict(), source_name, target_name, left.language, right.language],
            encoder_version(chosen.encoder),
        )
        done = _finished(output, made_from)
        translator = done or blicer.train(left, right, lexicon, chosen, wrong=wrong, **how)
        translator.details["made_from"] = made_from
    else:
        translator = blicer.prepare_zero_shot(
            options.load_vectors(pivot, pivot_language, max_words, keep_case),
            left,
            right,
            blicer.Lexicon.load(pivot_source, lowercase=not keep_case, encoding=encoding),
            blicer.Lexicon.load(pivot_target, lowercase=not keep_case, encoding=encoding),
            chosen,
            names=(source_name, target_name),
            pivot_name=pivot_name,
            init=init or AUTO,
            work_dir=work,
        ).translator()
    if source is not None and target is not None:
        translator.details["vectors"] = options.vector_files(source, target, max_words, keep_case)
    if done is None:
        translator.save(output)
        shutil.rmtree(work, ignore_errors=True)
        note(f"wrote {output}; mixing weights: {translator.mixture}")
    _report(translator, suspects)
    note(
        f"next: blicer evaluate {output} TEST.tsv; blicer translate {output} WORD; "
        f"blicer induce {output} -o dictionary.tsv"
    )
    if as_json:
        options.echo_json(translator.to_dict())


def _finished(output: Path, made_from: str) -> blicer.Translator | None:
    """The translator in ``output``, if the same command made it."""
    from blicer.translator import DESCRIPTION

    if not (output / DESCRIPTION).is_file():
        return None
    try:
        there = blicer.Translator.load(output)
    except BlicerError as error:
        note(f"{output} will be replaced: what is there cannot be read ({error})")
        return None
    if there.details.get("made_from") != made_from:
        note(f"{output} will be replaced: the translator there was made of other data or settings")
        return None
    note(f"{output}: was already trained with this data and these settings; it is left as it is")
    return there


def _report(translator: blicer.Translator, suspects: Path | None) -> None:
    """Print the expected precision, advice, and how many seeds look wrong."""
    details, calibration = translator.details, translator.calibration
    names = (translator.source.language or "source", translator.target.language or "target")
    if "expected" in details:
        for line in lines(details["expected"], names):
            note(line)
        if details["advice"]:
            note(f"this is poor: {details['advice']}")
    else:
        note(
            "there is no estimate of P@1: no seed pair could be held out"
            if details["seeds"]
            else "without seeds there is no estimate of P@1"
        )
    if "unsupervised" in details:
        note("the weights were chosen without gold: take confidences as an order, not as chances")
    elif calibration is not None and calibration.reliability is not None:
        found = calibration.reliability
        note(
            f"confidence is off by {100 * found.error:.1f} points on average on held-out words "
            f"({100 * found.others:.1f} for translations after the first)"
        )
    listed = details.get("suspects", [])
    if suspects is not None:
        with atomic_write(suspects) as file:
            titles = ["source", "target", "instead_of_target", "confidence"]
            file.write(tsv_row([*titles, "instead_of_source", "back_confidence"]))
            for row in listed:
                cells = [f"{one:.4f}" if isinstance(one, float) else one for one in row.values()]
                file.write(tsv_row(cells))
        note(f"wrote {len(listed)} suspicious seed pairs to {suspects}")
    elif listed:
        note(
            f"{len(listed)} seed pairs are contradicted in both directions, the model not having "
            "seen them: wrong, or rare meanings (--suspects FILE lists them, the clearest first)"
        )


def _judged(
    seeds: blicer.Lexicon | None, curated: list[Path], keep_case: bool
) -> tuple[blicer.Lexicon | None, blicer.Lexicon]:
    """The seeds plus pairs that editors accepted or corrected; the pairs that they rejected."""
    right = list(seeds.listed()) if seeds is not None else []
    wrong: list[tuple[str, str]] = []
    for path in curated:
        good, bad = blicer.Dictionary.load(path).curated()
        if not good and not bad:
            raise FileError(path, "has no verdict in it; expected accept or reject in that column")
        note(f"{path}: {len(good)} pairs are right, {len(bad)} are wrong")
        for pairs, into in ((good, right), (bad, wrong)):
            into += [pair if keep_case else (pair[0].lower(), pair[1].lower()) for pair in pairs]
    return blicer.Lexicon(right) if right else seeds, blicer.Lexicon(wrong)


def _check_setup(preset: str, has_seeds: bool, pivots: dict[str, Path | None]) -> None:
    """Raise if seeds, pivot and preset do not fit together."""
    missing = [option for option, path in pivots.items() if path is None]
    if preset == "zero_shot" and missing:
        raise InputError(f"the preset zero-shot needs {' and '.join(missing)}")
    if preset != "zero_shot" and len(missing) < len(pivots):
        raise InputError("a pivot is for --preset zero-shot")
    if preset == "zero_shot" and has_seeds:
        raise InputError("the preset zero-shot takes no --seeds: leave one of the two out")
    if preset not in ("zero_shot", "unsupervised") and not has_seeds:
        raise InputError("no seeds were given: give --seeds FILE, or say --preset unsupervised")


@app.command()
@options.writes_output
def train_multilingual(
    context: Context,
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
    encoding: options.Encoding = None,
    device: options.Device = None,
) -> None:
    """Train one cross-encoder on the seeds of several pairs; use it for all pairs.

    Writes a folder with a translator for each pair. A pair without seeds gets an unsupervised
    space. The same command goes on after a kill.

    Example: `blicer train-multilingual --vectors en=en.vec --vectors fr=fr.vec --vectors ru=ru.vec
    --seeds en-fr=en-fr.tsv --seeds en-ru=en-ru.tsv -o models`, which also makes models/fr-ru.
    """
    from blicer.multilingual import all_pairs, check_pairs

    files = options.assigned("--vectors", vectors, "LANGUAGE=FILE")
    lexicons = {
        _pair("--seeds", name, files): blicer.Lexicon.load(
            path, lowercase=not keep_case, encoding=encoding
        )
        for name, path in options.assigned("--seeds", seeds, "PAIR=FILE").items()
    }
    wanted = [_pair("--pairs", name.strip(), files) for name in pairs.split(",") if name.strip()]
    check_pairs(files, lexicons, wanted)
    called = options.assigned("--name", names, "LANGUAGE=NAME")
    if unknown := sorted(set(called) - set(files)):
        raise InputError(f"--name names {unknown[0]}, which there are no vectors for")
    chosen = options.configure(context, min(lexicons.values(), key=len))
    check_writable(output / "translator")
    work = work_folder(output)
    for pair in wanted or all_pairs(files, lexicons):
        check_replaceable(output / "-".join(pair), "translator.json", "a translator")
    loaded = {
        language: options.load_vectors(Path(path), language, max_words, keep_case)
        for language, path in files.items()
    }
    how: dict[str, Any] = {"names": called, "init": init or AUTO, "work_dir": work}
    prepared = blicer.prepare_multilingual(loaded, lexicons, chosen, pairs=wanted or None, **how)
    for pair, one in prepared.items():
        translator, folder = one.translator(), output / "-".join(pair)
        read = (Path(files[pair[0]]), Path(files[pair[1]]), max_words, keep_case)
        translator.details["vectors"] = options.vector_files(*read)
        translator.save(folder)
        note(f"wrote {folder}; mixing weights: {translator.mixture}")
    shutil.rmtree(work, ignore_errors=True)


def _pair(option: str, name: str, languages: Iterable[str]) -> tuple[str, str]:
    """The two languages of ``en-fr``, or of ``x-mine-fr`` if there are vectors of ``x-mine``."""
    known = (tag for tag in languages if name.startswith(f"{tag}-"))
    source = max(known, key=len, default=name.partition("-")[0])
    target = name[len(source) + 1 :]
    if not source or not target or source == target:
        raise InputError(f"{option} names {name!r}; expected two languages, such as en-fr")
    return source, target


@app.command()
def config(
    space: Annotated[str | None, Option(help=f"Settings of {options.any_of(METHODS)}.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """List every setting of a training run: default, other defaults, values, what it means.

    Set them with `--set NAME=VALUE`, or in a TOML file given with `--config`. Unless told otherwise
    `blicer train` takes the encoder lite, and the preset that fits the number of seeds.

    `--space METHOD` lists those of a method, which `blicer align --set NAME=VALUE` takes, and
    `blicer train` in the TOML table `space_settings`.

    Example: `blicer config --space c1`
    """
    rows = describe() if space is None else describe(aligner_class(space))
    if as_json:
        options.echo_json(rows)
        return
    table = Table("setting", "default", "other defaults", "expected", "meaning")
    for row in rows:
        default = "" if row["default"] in ((), {}) else str(row["default"])
        table.add_row(row["name"], default, row["others"], row["expected"], row["help"])
    options.echo_tables(table)
