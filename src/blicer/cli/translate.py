"""``blicer translate`` and ``blicer induce``: translations of some words, or of all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blicer.cli import app

if TYPE_CHECKING:
    from blicer.translator import Translation

TRANSLATOR = Annotated[Path, typer.Argument(help="Folder of a translator.")]
K = Annotated[int, typer.Option("-k", min=1, help="Translations a word, at most.")]
REVERSE = Annotated[bool, typer.Option("--reverse", help="From the target language back.")]
CONFIDENCE = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Leave out what is less sure than this.")
]
DEVICE = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]


@app.command()
def translate(
    translator: TRANSLATOR,
    words: Annotated[
        list[str] | None, typer.Argument(help="Words; or give --file, or a pipe.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Words, one a line.")] = None,
    k: K = 1,
    reverse: REVERSE = False,
    min_confidence: CONFIDENCE = 0.0,
    device: DEVICE = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a word.")] = False,
) -> None:
    """Translate words, from arguments, a file or a pipe.

    Exit code 1 when not one of the words is in the vocabulary.

    Example: `blicer translate en-fr house dog -k 3`
    """
    from blicer.errors import EXIT_FAILURE, InputError
    from blicer.translator import Translator

    asked = _words(words, file)
    if not asked:
        raise InputError("there is nothing to translate: give words, --file FILE, or a pipe")
    loaded = Translator.load(translator, device=device)
    found = loaded.translate_stream(asked, k, reverse=reverse, min_confidence=min_confidence)
    known = 0
    for entry in found:
        known += entry.known
        typer.echo(_json(entry) if as_json else _line(entry))
    if not known:
        raise typer.Exit(EXIT_FAILURE)


@app.command()
def induce(
    translator: TRANSLATOR,
    output: Annotated[Path, typer.Option("--output", "-o", help="Dictionary to write.")],
    words: Annotated[
        int | None, typer.Option("--words", "-n", min=1, help="Only the n most frequent words.")
    ] = None,
    k: K = 1,
    reverse: REVERSE = False,
    min_confidence: CONFIDENCE = 0.0,
    format: Annotated[
        str | None, typer.Option(help="tsv, csv or jsonl; by the file's ending if not given.")
    ] = None,
    device: DEVICE = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Write a dictionary of the n most frequent words, or of all.

    The same command goes on where a killed run stopped.

    Example: `blicer induce en-fr -n 20000 -k 3 --min-confidence 0.5 -o en-fr.tsv`
    """
    import json

    from blicer.dictionary import format_of
    from blicer.dictionary import induce as run
    from blicer.errors import FileError
    from blicer.files import check_writable
    from blicer.progress import note
    from blicer.translator import Translator

    format_of(output, format)
    if output.is_dir():
        raise FileError(output, "is a folder; expected the name of a dictionary file")
    check_writable(output)
    loaded = Translator.load(translator, device=device)
    done = run(
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
        summary = {
            "output": str(done.path),
            "words": done.words,
            "translated": done.translated,
            "entries": done.entries,
        }
        typer.echo(json.dumps(summary, ensure_ascii=False))


def _words(words: list[str] | None, file: Path | None) -> list[str]:
    from blicer.errors import FileError, InputError

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


def _json(entry: Translation) -> str:
    import json
    from dataclasses import asdict

    return json.dumps(asdict(entry), ensure_ascii=False)
