"""``blicer data``, ``pretrained`` and ``publish``: what others published. ``blicer demo``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

from rich.filesize import decimal
from rich.table import Table
from typer import Argument, Exit, Option, Typer, echo

from blicer.catalogue import COLLECTIONS, find_collection, short_size
from blicer.cli import app, options, print_error
from blicer.download import FAILED, FETCHED, THERE, Outcome, get
from blicer.errors import EXIT_FAILURE, InputError
from blicer.progress import note, printable

data = Typer(name="data", help="Get published dictionaries and vectors.", no_args_is_help=True)
app.add_typer(data)
_WANTED = "Pairs of dictionaries such as en-fr, or `all`; languages of vectors such as en."


@data.command("get")
@options.writes_output
def get_data(
    collection: Annotated[str, Argument(help=f"{options.any_of(COLLECTIONS)}.")],
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
        echo(printable(f"{outcome.status:<14}{outcome.file}  ({', '.join(facts)})"))
    count = Counter(outcome.status for outcome in outcomes)
    size = decimal(sum(outcome.size for outcome in outcomes if outcome.status == FETCHED))
    others = ", ".join(f"{status} {count[status]}" for status in (THERE, FAILED))
    echo(printable(f"{output}: {FETCHED} {count[FETCHED]} ({size}), {others}"))
    for outcome in outcomes:
        if outcome.status == FAILED:
            print_error(outcome.problem)
    if count[FAILED]:
        raise Exit(EXIT_FAILURE)


@data.command("list")
def list_data(
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


# -- translators and dictionaries of others --------------------------------------------------------

pretrained = Typer(
    name="pretrained", help="Get translators and dictionaries of others.", no_args_is_help=True
)
app.add_typer(pretrained)
_PLACE = "URL, file or folder of an index; by default the one that comes with blicer."
IndexPlace = Annotated[str | None, Option("--index", envvar="BLICER_INDEX", help=_PLACE)]


@pretrained.command("list")
def list_pretrained(index: IndexPlace = None, as_json: options.AsJson = False) -> None:
    """List what an index has.

    Example: `blicer pretrained list --index https://example.org/blicer/index.json`
    """
    from blicer.pretrained import OURS, Index

    found = Index(index or OURS).entries.values()
    if as_json:
        options.echo_json(
            [{**vars(one), "size": one.size, "files": len(one.files)} for one in found]
        )
        return
    table = Table("name", "kind", "languages", "size", "licence", "about")
    for one in found:
        pair = "-".join(one.languages)
        texts = (one.name, one.kind, pair, decimal(one.size), one.licence, one.about)
        table.add_row(*map(_one_line, texts))
    options.echo_tables(table)


@pretrained.command("get")
def get_pretrained(
    name: Annotated[str, Argument(help="As `blicer pretrained list` has it.")],
    output: Annotated[Path | None, Option("--output", "-o", help="By default the name.")] = None,
    index: IndexPlace = None,
) -> None:
    """Fetch a translator or a dictionary; nothing but the published files is kept.

    Example: `blicer pretrained get en-ru-starter -o en-ru`
    """
    from blicer.pretrained import CARD, OURS, Index

    folder = output or Path(name)
    entry = Index(index or OURS).get(name, folder)
    pair = "-".join(entry.languages)
    echo(_one_line(f"{folder}: {entry.kind} {pair}, licence {entry.licence}"))
    note(f"{folder / CARD} says what it is")


@app.command()
def publish(
    source: Annotated[Path, Argument(help="Folder of a translator, or a dictionary file.")],
    output: Annotated[Path, Option("--output", "-o", help="Folder of the entry: its name.")],
    licence: Annotated[str, Option(help="Under which others may use it, such as CC-BY-4.0.")],
    languages: Annotated[str | None, Option(help="en-fr; of a dictionary.")] = None,
    about: Annotated[
        str, Option(help="What vectors and seeds it comes from, how good it is.")
    ] = "",
) -> None:
    """Make an entry that others can get: files, card and checksums; add it to the index beside it.

    Put the folder that holds index.json on any web server.

    Example: `blicer publish en-fr -o zoo/en-fr-wiki --licence CC-BY-SA-4.0`
    """
    from blicer.pretrained import INDEX
    from blicer.pretrained import publish as make_entry

    tags = None
    if languages is not None:
        one, _, other = languages.partition("-")
        if not one or not other:
            raise InputError(f"--languages is {languages!r}; expected two, such as en-fr")
        tags = (one, other)
    entry = make_entry(source, output, licence=licence, languages=tags, about=about)
    note(f"wrote {output} ({decimal(entry.size)}) and {output.parent / INDEX}")


def _one_line(text: str) -> str:
    """Text of somebody's index, without control characters and line ends."""
    return printable(" ".join(text.split()))


# -- the pair that comes with the package ----------------------------------------------------------


@app.command()
@options.writes_output
def demo(
    output: Annotated[Path, Option("--output", "-o", help="Folder for the results.")] = Path(
        "demo-output"
    ),
    words: Annotated[
        int | None, Option(min=100, help="Only the n most frequent words a side.")
    ] = None,
    scorers: Annotated[str, Option(help="What to mix with CSLS, comma-separated.")] = "",
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    as_json: Annotated[bool, Option("--json", help="Print the results as JSON.")] = False,
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
        options.echo_json(results)
    else:
        echo(render("demo.txt.j2", **results))
