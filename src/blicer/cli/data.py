"""``blicer data``: published dictionaries and vectors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

from rich.filesize import decimal
from typer import Argument, Exit, Option, Typer, echo

from blicer.catalogue import COLLECTIONS, find_collection, short_size
from blicer.cli import app, options, print_error
from blicer.download import FAILED, FETCHED, THERE, Outcome, get
from blicer.errors import EXIT_FAILURE

data = Typer(name="data", help="Get published dictionaries and vectors.", no_args_is_help=True)
app.add_typer(data)
_WANTED = "Pairs of dictionaries such as en-fr, or `all`; languages of vectors such as en."


@data.command("get")
@options.writes_output
def get_command(
    collection: Annotated[str, Argument(help=f"{options.listed(COLLECTIONS)}.")],
    wanted: Annotated[
        list[str] | None, Argument(metavar="PAIR_OR_LANGUAGE...", help=_WANTED, show_default=False)
    ] = None,
    output: options.Output = Path("data"),
    first: Annotated[int | None, Option(min=1, help="Only so many words of vectors.")] = None,
) -> None:
    """Fetch dictionaries or vectors into a folder.

    What is there is not fetched again, and a broken transfer goes on where it was. Checksums are
    compared where they are known. Exit code 1 when a file failed; the others are there.

    Examples: `blicer data get xling en-fr -o data`;
    `blicer data get fasttext-wiki en fr --first 200000 -o data`
    """
    outcomes: list[Outcome] = []
    for outcome in get(collection, wanted or [], output, first=first):
        outcomes.append(outcome)
        facts = [decimal(outcome.size)] if outcome.problem is None else ["see below"]
        facts += [f"{outcome.words} words"] if outcome.words is not None else []
        facts += ["checksum right"] if outcome.verified else []
        echo(f"{outcome.status:<14}{outcome.file}  ({', '.join(facts)})")
    count = Counter(outcome.status for outcome in outcomes)
    size = decimal(sum(outcome.size for outcome in outcomes if outcome.status == FETCHED))
    others = ", ".join(f"{status} {count[status]}" for status in (THERE, FAILED))
    echo(f"{output}: {FETCHED} {count[FETCHED]} ({size}), {others}")
    for outcome in outcomes:
        if outcome.status == FAILED:
            print_error(outcome.problem)
    if count[FAILED]:
        raise Exit(EXIT_FAILURE)


@data.command("list")
def list_command(
    collection: Annotated[
        str | None, Argument(help="One collection, with all its pairs or languages.")
    ] = None,
) -> None:
    """Say what can be got.

    Example: `blicer data list muse`
    """
    chosen = [find_collection(collection)] if collection else list(COLLECTIONS.values())
    for one in chosen:
        echo(f"{one.name}: {one.about}")
        echo(f"  published at {one.page}")
        if one.sizes:
            echo(f"  training sizes: {' '.join(map(short_size, one.sizes))}")
        if collection and one.names:
            echo(f"  {'languages' if one.vectors else 'pairs'}: {' '.join(one.names)}")
    if not collection:
        echo("All pairs or languages of one: blicer data list NAME")
