"""``blicer inspect``: what a file contains and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from blicer.cli import app

MOST_SHOWN = 12  # of a list


@app.command()
def inspect(
    file: Annotated[
        Path, typer.Argument(help="A vector file, a dictionary, or a saved space or translator.")
    ],
    kind: Annotated[
        str | None,
        typer.Option("--as", help="Read it as vectors, dictionary, space or translator."),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(help="Encoding of a dictionary that is not UTF-8, such as latin-1."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a vector or dictionary file contains and what is wrong with it.

    Exit code 2 when it cannot be read at all.

    Example: `blicer inspect seeds.en-fr.tsv`
    """
    from blicer import inspection
    from blicer.errors import BlicerError

    try:
        facts = inspection.inspect(file, kind=kind, encoding=encoding)
    except BlicerError as error:
        if not as_json:
            raise
        typer.echo(json.dumps({"file": str(file), "error": str(error)}, ensure_ascii=False))
        raise typer.Exit(error.exit_code) from error
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2, default=str))
        return
    problems = facts.pop("problems")
    typer.echo(f"{facts.pop('file')}: {facts.pop('kind')}")
    for name, value in facts.items():
        typer.echo(f"  {name.replace('_', ' '):<18}{_shown(value)}")
    typer.echo("  nothing to report" if not problems else "  to know:")
    for sentence in problems:
        typer.echo(f"    {sentence}")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    if isinstance(value, (list, tuple)):
        if len(value) > MOST_SHOWN:
            return f"{len(value)} values (--json prints them)"
        parts = [
            " - ".join(map(str, one)) if isinstance(one, list) else _shown(one) for one in value
        ]
        return ", ".join(parts)
    return "-" if value is None else str(value)
