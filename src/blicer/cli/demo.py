"""``blicer demo``: the whole way on the pair that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blicer.cli import app
from blicer.cli.options import echo_json, writes_output


@app.command()
@writes_output
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")] = Path(
        "demo-output"
    ),
    words: Annotated[
        int | None, typer.Option(min=100, help="Only the n most frequent words a side.")
    ] = None,
    scorers: Annotated[str, typer.Option(help="What to mix with CSLS, comma-separated.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Align, rerank and evaluate the English-Russian starter pair; needs no file and no network.

    Writes a translator, a dictionary and a page to look at.

    Example: `blicer demo -o demo-output`
    """
    from blicer.demo import run
    from blicer.pages import render

    given = [name.strip() for name in scorers.split(",") if name.strip()]
    results = run(output, words=words, settings={"scorers": given, "device": device})
    if as_json:
        echo_json(results)
    else:
        typer.echo(render("demo.txt.j2", **results))
