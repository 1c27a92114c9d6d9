"""``blicer data``: published dictionaries and vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blicer.cli import app

if TYPE_CHECKING:
    from blicer.datasets import Outcome

data = typer.Typer(
    name="data", help="Get published dictionaries and vectors.", no_args_is_help=True
)
app.add_typer(data)


@data.command("get")
def get_command(
    collection: Annotated[
        str, typer.Argument(help="xling, panlex, muse, fasttext-wiki or fasttext-cc.")
    ],
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAIR_OR_LANGUAGE...",
            help="Pairs of dictionaries such as en-fr, or `all`; languages of vectors such as en.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of all data; files go below it.")
    ] = Path("data"),
    first: Annotated[
        int | None,
        typer.Option(min=1, help="Only so many words of a vector file, the most frequent ones."),
    ] = None,
    sizes: Annotated[
        str,
        typer.Option(help="Training dictionaries, such as 5k,1k; all if not given."),
    ] = "",
    mirror: Annotated[
        str | None,
        typer.Option(
            help="Address or folder to take the files from: with the publisher's paths, or filled "
            "by this command."
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Fetch anew what is there but is not known to be right."),
    ] = False,
    attempts: Annotated[
        int, typer.Option(min=1, help="Attempts in a row that may bring nothing new.")
    ] = 6,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fetch dictionaries or vectors into a folder.

    What is there is not fetched again, and a broken transfer goes on where it was. Checksums are
    compared where they are known. Exit code 1 when a file failed; the others are there.

    Examples: `blicer data get xling en-fr -o data`;
    `blicer data get fasttext-wiki en fr --first 200000 -o data`
    """
    import json

    from blicer.datasets import FAILED, Downloader, Patience, get
    from blicer.errors import EXIT_FAILURE
    from blicer.progress import console, note

    try:
        outcomes = get(
            collection,
            wanted or [],
            output,
            first=first,
            sizes=[size for size in sizes.replace(",", " ").split() if size],
            mirror=mirror,
            replace=replace,
            downloader=Downloader(Patience(attempts=attempts, timeout=timeout)),
            tell=None if as_json else _tell,
        )
    except KeyboardInterrupt:
        note("what has come is kept: the same command goes on from there")
        raise
    if as_json:
        facts = [outcome.to_dict() for outcome in outcomes]
        typer.echo(
            json.dumps({"folder": str(output), "files": facts}, ensure_ascii=False, indent=2)
        )
    else:
        typer.echo(_summary(outcomes, output))
    failed = [outcome for outcome in outcomes if outcome.status == FAILED]
    for outcome in failed:
        console.print(f"blicer: {outcome.problem}", markup=False, soft_wrap=True, style="red")
    if failed:
        raise typer.Exit(EXIT_FAILURE)


@data.command("list")
def list_command(
    collection: Annotated[
        str | None, typer.Argument(help="One collection, with all its pairs or languages.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what can be got.

    Example: `blicer data list muse`
    """
    import json

    from blicer.datasets import COLLECTIONS
    from blicer.datasets.catalogue import short_size
    from blicer.datasets.plan import find_collection

    chosen = [find_collection(collection)] if collection else list(COLLECTIONS.values())
    if as_json:
        facts = [one.to_dict() for one in chosen]
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    for one in chosen:
        typer.echo(f"{one.name}: {one.about}")
        typer.echo(f"  published at {one.page}")
        if one.sizes:
            typer.echo(f"  training sizes: {' '.join(map(short_size, one.sizes))}")
        if collection and one.names:
            typer.echo(f"  {'languages' if one.vectors else 'pairs'}: {' '.join(one.names)}")
    if not collection:
        typer.echo("All pairs or languages of one: blicer data list NAME")


def _tell(outcome: Outcome) -> None:
    from blicer.datasets import FAILED
    from blicer.datasets.answers import readable

    if outcome.status == FAILED:
        typer.echo(f"{FAILED:<14}{outcome.file}")
        return
    facts = [readable(outcome.size)]
    if outcome.words is not None:
        facts.append(f"{outcome.words} words")
    if outcome.verified:
        facts.append("checksum right")
    typer.echo(f"{outcome.status:<14}{outcome.file}  ({', '.join(facts)})")


def _summary(outcomes: list[Outcome], folder: Path) -> str:
    from blicer.datasets import FAILED, FETCHED, THERE
    from blicer.datasets.answers import readable

    of = {
        status: [one for one in outcomes if one.status == status]
        for status in (FETCHED, THERE, FAILED)
    }
    size = readable(sum(one.size for one in of[FETCHED]))
    return (
        f"{folder}: fetched {len(of[FETCHED])} ({size}), there already {len(of[THERE])}, "
        f"failed {len(of[FAILED])}"
    )
