"""What commands share: options, each declared once, and helpers around them.

Methods, scorers, presets and formats in help texts are those of the registries.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Option, echo

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
from blicer.files import check_replaceable, check_writable
from blicer.scorers import SCORERS
from blicer.stage_cache import work_folder


def listed(names: Iterable[str], *more: str) -> str:
    """``a, b or c``."""
    *first, last = [*names, *more]
    return f"{', '.join(first)} or {last}"


_TAG = "Language of the {} vectors: a BCP 47 tag such as en."
_NAME = "What the {} language calls itself, if its tag does not tell."
_BY_SEEDS = f"supervised from {ENOUGH_FOR_SUPERVISED} seed pairs on, below semi_supervised"
_BY_ENCODER = "; ".join(f"with {name} {', '.join(one.scorers)}" for name, one in ENCODERS.items())

SourceVectors = Annotated[Path, Argument(help="Source vectors.")]
TargetVectors = Annotated[Path, Argument(help="Target vectors.")]
TranslatorFolder = Annotated[Path, Argument(help="Folder that `blicer train` wrote.")]
Output = Annotated[Path, Option("--output", "-o", help="File or folder to write.")]
Seeds = Annotated[Path | None, Option(help="Seed dictionary, source word first.")]
MaxWords = Annotated[int | None, Option(min=1, help="Words read of each vector file.")]
KeepCase = Annotated[bool, Option("--keep-case", help="Do not fold case.")]
Encoding = Annotated[str | None, Option(help="Of a dictionary that is not UTF-8: latin-1 …")]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]

SourceLanguage = Annotated[str | None, Option(help=_TAG.format("source"))]
TargetLanguage = Annotated[str | None, Option(help=_TAG.format("target"))]
PivotLanguage = Annotated[str | None, Option(help=_TAG.format("pivot"))]
SourceName = Annotated[str | None, Option(help=_NAME.format("source"))]
TargetName = Annotated[str | None, Option(help=_NAME.format("target"))]
PivotName = Annotated[str | None, Option(help=_NAME.format("pivot"))]

Preset = Annotated[str | None, Option(help=f"{listed(PRESETS)}; by default {_BY_SEEDS}.")]
ConfigFile = Annotated[Path | None, Option("--config", help="TOML file of settings.")]
Settings = Annotated[
    list[str] | None,
    Option("--set", help="One setting, NAME=VALUE; repeatable. See `blicer config`."),
]
Encoder = Annotated[
    str | None,
    Option(
        help=f"{DEFAULT_ENCODER} (embedded, the default), or a Hugging Face name or folder, such "
        "as xlm-roberta-large, the paper's."
    ),
]
Template = Annotated[str | None, Option(help="T1 to T16, or a text with `[w]` and perhaps `[L]`.")]
Space = Annotated[str | None, Option(help=f"{listed(METHODS)}; by default vecmap.")]
Scorers = Annotated[
    str | None,
    Option(
        help=f"What to mix with CSLS, comma-separated, of {', '.join(SCORERS)}; by default "
        f"cross-encoder, {_BY_ENCODER}."
    ),
]
Init = Annotated[
    str | None,
    Option(
        help="Where a space without seeds starts: encoder, identical, numerals or distributions "
        "(the paper's); by default `blicer train` tries each in turn."
    ),
]
Device = Annotated[str | None, Option(help="auto (the default), cpu, cuda, cuda:1 or mps.")]

K = Annotated[int, Option("-k", min=1, help="Translations a word, at most.")]
Reverse = Annotated[bool, Option("--reverse", help="From the target language back.")]
MinConfidence = Annotated[float, Option(min=0, max=1, help="Leave out what is less sure.")]


def given(**values: Any) -> dict[str, Any]:
    """The options that the user gave."""
    return {name: value for name, value in values.items() if value is not None}


def configure(
    preset: str | None,
    file: Path | None,
    assignments: list[str] | None,
    seeds: int | None,
    named: dict[str, Any],
) -> Config:
    """The settings that options describe, checked.

    ``assignments`` are those of ``--set``; ``named`` are settings with options of their own, which
    win. ``seeds``: number of seed pairs, which chooses the preset unless one is named.
    """
    texts = [f"{name}={named[name]}" for name in ("mixing_weight", "scorers") if name in named]
    overrides = named | parse_assignments([*(assignments or []), *texts])
    defaults = {"encoder": DEFAULT_ENCODER} if seeds is None else defaults_for(seeds)
    return Config.resolve(preset, file=file, overrides=overrides, defaults=defaults)


def load_vectors(
    path: Path, language: str | None = None, *, max_words: int | None, keep_case: bool
) -> blicer.Embeddings:
    return blicer.Embeddings.load(
        path, max_words=max_words, lowercase=not keep_case, language=language
    )


def load_lexicon(path: Path, keep_case: bool, **reading: str | None) -> blicer.Lexicon:
    return blicer.Lexicon.load(path, lowercase=not keep_case, **reading)  # type: ignore[arg-type]


def check_folder(output: Path, what: str) -> Path:
    """Raise if a space or translator may not be written there; returns a folder for caches."""
    check_replaceable(output, f"{what}.json", f"a {what}")
    check_writable(output)
    return work_folder(output)


def echo_json(value: Any, *, indent: int | None = 2) -> None:
    echo(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def echo_tables(*tables: Any) -> None:
    """Tables on standard output, never narrower than they need (a pipe has no width)."""
    console = Console(markup=False, width=None if sys.stdout.isatty() else 200)
    for table in tables:
        console.print(table)
