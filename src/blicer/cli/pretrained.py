"""``blicer pretrained`` and ``blicer publish``: translators and dictionaries of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.filesize import decimal
from rich.table import Table
from typer import Argument, Option, Typer, echo

from blicer.cli import app, options
from blicer.errors import InputError
from blicer.progress import note

pretrained = Typer(
    name="pretrained", help="Get translators and dictionaries of others.", no_args_is_help=True
)
app.add_typer(pretrained)
_PLACE = "URL, file or folder of an index; by default the one that comes with blicer."
IndexPlace = Annotated[str | None, Option("--index", envvar="BLICER_INDEX", help=_PLACE)]


@pretrained.command("list")
def list_command(index: IndexPlace = None, as_json: options.AsJson = False) -> None:
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
        table.add_row(one.name, one.kind, pair, decimal(one.size), one.licence, one.about)
    options.echo_tables(table)


@pretrained.command("get")
def get_command(
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
    echo(f"{folder}: {entry.kind} {'-'.join(entry.languages)}, licence {entry.licence}")
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
