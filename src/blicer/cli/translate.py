"""``blicer translate`` and ``blicer induce``: translations of some words, or of all."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, echo

import blicer
from blicer.cli import app, options
from blicer.config import AUTO
from blicer.dictionary import FORMATS, format_of
from blicer.dictionary import induce as write_dictionary
from blicer.errors import EXIT_FAILURE, FileError, InputError
from blicer.files import check_writable
from blicer.progress import note

if TYPE_CHECKING:
    from blicer.translator import Translation


@app.command()
def translate(
    translator: options.TranslatorFolder,
    words: Annotated[list[str] | None, Argument(help="Words; or --file, or a pipe.")] = None,
    file: Annotated[Path | None, Option(help="Words, one a line.")] = None,
    k: options.K = 1,
    reverse: options.Reverse = False,
    min_confidence: options.MinConfidence = 0.0,
    device: options.Device = None,
    as_json: options.AsJson = False,
) -> None:
    """Translate words, from arguments, a file or a pipe.

    Exit code 1 when not one of the words is in the vocabulary.

    Example: `blicer translate en-fr house dog -k 3`
    """
    asked = _words(words, file)
    if not asked:
        raise InputError("there is nothing to translate: give words, --file FILE, or a pipe")
    loaded = blicer.Translator.load(translator, device=device or AUTO)
    found = loaded.translate_stream(asked, k, reverse=reverse, min_confidence=min_confidence)
    known = 0
    for entry in found:
        known += entry.known
        if as_json:
            options.echo_json(asdict(entry), indent=None)
        else:
            echo(_line(entry))
    if not known:
        raise Exit(EXIT_FAILURE)


@app.command()
def induce(
    translator: options.TranslatorFolder,
    output: options.Output,
    words: Annotated[int | None, Option("--words", "-n", min=1, help="Most frequent.")] = None,
    k: options.K = 1,
    reverse: options.Reverse = False,
    min_confidence: options.MinConfidence = 0.0,
    format: Annotated[
        str | None, Option(help=f"{options.listed(FORMATS)}; by default by the file's ending.")
    ] = None,
    device: options.Device = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a dictionary of the n most frequent words, or of all.

    The same command goes on where a killed run stopped.

    Example: `blicer induce en-fr -n 20000 -k 3 --min-confidence 0.5 -o en-fr.tsv`
    """
    format_of(output, format)
    if output.is_dir():
        raise FileError(output, "is a folder; expected the name of a dictionary file")
    check_writable(output)
    loaded = blicer.Translator.load(translator, device=device or AUTO)
    done = write_dictionary(
        loaded,
        output,
        words=words,
        k=k,
        min_confidence=min_confidence,
        reverse=reverse,
        format=format,
    )
    note(
        f"wrote {done.entries} entries for {done.translated} of {done.words} words to {done.path}"
        + (f"; {done.words - done.translated} had nothing sure enough" if min_confidence else "")
    )
    if as_json:
        counts = {"words": done.words, "translated": done.translated, "entries": done.entries}
        options.echo_json({"output": str(done.path), **counts}, indent=None)


def _words(words: list[str] | None, file: Path | None) -> list[str]:
    if words and file is not None:
        raise InputError("give either words or --file, not both")
    if words:
        return words
    try:
        if file is not None:
            text = file.read_bytes().decode("utf-8-sig")
        elif sys.stdin is not None and not sys.stdin.isatty():
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        else:
            return []
    except OSError as error:
        raise FileError(file or "-", f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise FileError(file or "standard input", f"is not UTF-8 ({error})") from error
    return [line.strip() for line in text.split("\n") if line.strip()]


def _line(entry: Translation) -> str:
    if not entry.known:
        near = f"; near: {', '.join(entry.near)}" if entry.near else ""
        return f"{entry.word}\t(not in the vocabulary{near})"
    if not entry.candidates:
        return f"{entry.word}\t(nothing sure enough)"
    cells = []
    for candidate in entry.candidates:
        sure = "" if candidate.confidence is None else f" ({candidate.confidence:.2f})"
        cells.append(f"{candidate.word}{sure}")
    return entry.word + "\t" + "\t".join(cells)
