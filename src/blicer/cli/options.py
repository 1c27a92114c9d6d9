"""Options shared by commands, each declared once, and helpers for commands.

Help texts list methods, scorers, presets and formats from the registries.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Context, Option, echo

import blicer
from blicer.align import METHODS
from blicer.config import (
    DEFAULT_ENCODER,
    ENCODERS,
    ENOUGH_FOR_SUPERVISED,
    PRESETS,
    Config,
    defaults_for,
    parse_assignments,
)
from blicer.errors import InputError
from blicer.files import check_replaceable, check_writable, locked
from blicer.progress import note
from blicer.scorers import SCORERS
from blicer.stage_cache import work_folder


def any_of(names: Iterable[str], *more: str) -> str:
    """``a, b or c``."""
    *first, last = [*names, *more]
    return f"{', '.join(first)} or {last}" if first else last


_BY_SEEDS = f"supervised from {ENOUGH_FOR_SUPERVISED} seed pairs on, below semi_supervised"
_BY_ENCODER = "; ".join(f"with {name} {', '.join(one.scorers)}" for name, one in ENCODERS.items())
_ENCODERS = f"""{DEFAULT_ENCODER} (embedded, the default), or a Hugging Face name or folder, such as
xlm-roberta-large, the paper's."""
_SCORERS = f"""What to mix with CSLS, comma-separated, of {", ".join(SCORERS)}; by default
cross-encoder, {_BY_ENCODER}."""
_SETTINGS = "One setting, NAME=VALUE; repeatable. See `blicer config`."
_STARTS = """Where a space without seeds starts: encoder, identical, numerals or distributions (the
paper's); by default
each in turn until one holds up."""
_LEAST = """Leave out what is less sure; by default a word's best translation is given, and others
that are likely right."""
_PROMISED = """Leave out so much that this share of the rest is right: 0.95 …"""

Vectors = Annotated[Path, Argument(help="File of word vectors.")]
TranslatorFolder = Annotated[Path, Argument(help="Folder that `blicer train` wrote.")]
Output = Annotated[Path, Option("--output", "-o", help="File or folder to write.")]
Seeds = Annotated[Path | None, Option(help="Seed dictionary, source word first.")]
MaxWords = Annotated[int | None, Option(min=1, help="Words read of each vector file.")]
KeepCase = Annotated[bool, Option("--keep-case", help="Do not fold case.")]
Encoding = Annotated[str | None, Option(help="Of a dictionary that is not UTF-8: latin-1 …")]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
Language = Annotated[str | None, Option(help="BCP 47 tag of these vectors, such as en.")]
Name = Annotated[str | None, Option(help="What this language calls itself, if its tag is unknown.")]

Preset = Annotated[str | None, Option(help=f"{any_of(PRESETS)}; by default {_BY_SEEDS}.")]
ConfigFile = Annotated[Path | None, Option("--config", help="TOML file of settings.")]
Settings = Annotated[list[str] | None, Option("--set", help=_SETTINGS)]
Encoder = Annotated[str | None, Option(help=_ENCODERS)]
Template = Annotated[str | None, Option(help="T1 to T16, or a text with `[w]` and perhaps `[L]`.")]
Space = Annotated[str | None, Option(help=f"{any_of(METHODS)}; by default twoview.")]
Scorers = Annotated[str | None, Option(help=_SCORERS)]
Init = Annotated[str | None, Option(help=_STARTS)]
Device = Annotated[str | None, Option(help="auto (the default), cpu, cuda, cuda:1 or mps.")]

K = Annotated[int, Option("-k", min=1, help="Translations a word, at most.")]
Reverse = Annotated[bool, Option("--reverse", help="From the target language back.")]
MinConfidence = Annotated[float | None, Option(min=0, max=1, help=_LEAST)]
AtPrecision = Annotated[float | None, Option(help=_PROMISED)]
SeedsAsEvidence = Annotated[
    bool, Option("--seeds-as-evidence", help="Let the model overrule the seeds.")
]


def least_confidence(
    translator: blicer.Translator, min_confidence: float | None, at_precision: float | None
) -> float | None:
    """The least confidence by either option, or None."""
    if at_precision is None:
        return min_confidence
    if min_confidence is not None:
        raise InputError("give either --min-confidence or --at-precision, not both")
    least = translator.confidence_for(at_precision)
    note(
        f"right in {at_precision:.1%} of held-out words: entries of confidence {least:.3f} or more"
    )
    return least


def assigned(option: str, values: list[str] | None, form: str) -> dict[str, str]:
    """The values of an option NAME=VALUE, by name; raises if a name is given twice."""
    found: dict[str, str] = {}
    for value in values or []:
        name, _, text = (part.strip() for part in value.partition("="))
        if not name or not text:
            raise InputError(f"{option} {value!r} is not of the form {form}")
        if name in found:
            raise InputError(f"{option} names {name} twice")
        found[name] = text
    return found


def configure(context: Context, seeds: blicer.Lexicon | None, **changed: Any) -> Config:
    """The configuration from a command's options.

    An option with the name of a setting sets it; ``--set`` sets any other. The number of seeds
    decides the default preset. ``changed``: values that replace those of options.
    """
    said = {**context.params, **changed}
    named = [one.name for one in fields(Config) if said.get(one.name) is not None]
    texts = [*(said["settings"] or []), *(f"{name}={said[name]}" for name in named)]
    defaults = {"encoder": DEFAULT_ENCODER} if seeds is None else defaults_for(len(seeds))
    overrides = parse_assignments(texts)
    return Config.resolve(file=said["config"], overrides=overrides, defaults=defaults)


def load_vectors(
    path: Path, language: str | None, max_words: int | None, keep_case: bool
) -> blicer.Embeddings:
    return blicer.Embeddings.load(
        path, max_words=max_words, lowercase=not keep_case, language=language
    )


def path_text(path: Path) -> str:
    """The path as text; bytes of its name that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def vector_files(
    source: Path, target: Path, max_words: int | None, keep_case: bool
) -> dict[str, Any]:
    """The vectors that a translator is trained on, so that it can be trained again."""
    files = [path_text(path.absolute()) for path in (source, target)]
    return {"files": files, "max_words": max_words, "lowercase": not keep_case}


def load_lexicon(
    path: Path | None, keep_case: bool, encoding: str | None = None
) -> blicer.Lexicon | None:
    if path is None:
        return None
    return blicer.Lexicon.load(path, lowercase=not keep_case, encoding=encoding)


def check_apart(written: Path | None, *read: Any) -> None:
    """Raise if a command would write to one of the files that it reads."""
    if written is None or not written.exists():
        return
    for path in (path for one in read for path in (one if isinstance(one, list) else [one])):
        if isinstance(path, Path) and path.exists() and path.samefile(written):
            raise InputError(f"{written} is read by this command: name another output")


def writes_output(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command so that it locks its ``output``, which must be none of its inputs.

    (``sources`` are dictionaries, which may be written again.) When interrupted, it prints what is
    kept and how to continue.
    """

    @wraps(command)
    def alone(*args: Any, **values: Any) -> None:
        output = values["output"]
        apart = (one for name, one in values.items() if name not in ("output", "sources"))
        check_apart(output, *apart)
        with locked(output):
            try:
                command(*args, **values)
            except KeyboardInterrupt as stopped:
                was = "as it was before" if Path(output).exists() else "not written"
                again = shlex.join(["blicer", *sys.argv[1:]])
                raise type(stopped)(
                    f"interrupted; {output} is {was}, finished steps are kept, and the same "
                    f"command goes on from there: {again}"
                ) from stopped

    return alone


def check_folder(output: Path, what: str) -> Path:
    """Raise if a space or translator cannot be written there; returns the folder for caches."""
    check_replaceable(output, f"{what}.json", f"a {what}")
    check_writable(output)
    return work_folder(output)


def echo_json(value: Any, *, indent: int | None = 2) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    # Control characters that JSON does not escape.
    echo(re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text))


def echo_tables(*tables: Any) -> None:
    """Tables on standard output, never narrower than they need (a pipe has no width)."""
    Console(markup=False, width=None if sys.stdout.isatty() else 200).print(*tables)
