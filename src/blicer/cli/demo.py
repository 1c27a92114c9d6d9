"""``blicer demo``: the whole way on the pair that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blicer.cli import app

if TYPE_CHECKING:
    from rich.table import Table

METRICS = {"p@1": "P@1", "p@5": "P@5", "mrr": "MRR"}


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")] = Path(
        "demo-output"
    ),
    words: Annotated[
        int | None, typer.Option(min=100, help="Only the n most frequent words a side.")
    ] = None,
    scorers: Annotated[
        str | None, typer.Option(help="What to mix with CSLS, comma-separated.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Align, rerank and evaluate the English-Russian starter pair; needs no file and no network.

    Writes a translator, a dictionary and a page to look at.

    Example: `blicer demo -o demo-output`
    """
    import json

    from blicer.demo import Plan, run

    given = tuple(name.strip() for name in (scorers or "").split(",") if name.strip())
    results = run(output, Plan(words=words, scorers=given or None, device=device))
    if as_json:
        typer.echo(json.dumps(results, ensure_ascii=False, indent=2))
    else:
        show(results)


def show(results: dict[str, Any]) -> None:
    """Tables and sentences on standard output."""
    import sys

    from rich.console import Console

    width = None if sys.stdout.isatty() else 100
    console = Console(highlight=False, markup=False, width=width)
    pair, mixture = results["pair"], results["mixture"]
    console.print(score_table(results))
    for name, gain in (
        ("en-ru", results["gain"]["forward"]),
        ("ru-en", results["gain"]["backward"]),
    ):
        one = gain["p@1"]
        low, high = one["interval"]
        counts = results["changes"]["counts"]["forward" if name == "en-ru" else "backward"]
        console.print(
            f"{name}: reranking changes P@1 by {100 * one['difference']:+.1f} points "
            f"({100 * low:+.1f} to {100 * high:+.1f}, 95 %): {counts['corrected']} of "
            f"{gain['queries']} words put right, {counts['spoiled']} spoiled.",
            soft_wrap=True,
        )
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in mixture["weights"].items())
    console.print(
        f"λ = {1 - mixture['weights']['csls']:.2f} (weights: {weights}), chosen on "
        f"{mixture['queries']} words held out of the {pair['seed_pairs']} seed pairs.\n",
        soft_wrap=True,
    )
    for kind in ("corrected", "spoiled"):
        if results["changes"][kind]:
            console.print(word_table(results["changes"][kind], kind))
    files = results["files"]
    console.print(
        f"\nWrote {files['page']} (open it in a browser), {files['dictionary']} "
        f"({results['dictionary']['entries']} entries), {files['translator']}, {files['results']} "
        f"in {sum(results['seconds'].values()):.0f} s.",
        soft_wrap=True,
    )
    console.print("\nNext, with files of your own:")
    for command in results["next"]:
        console.print(f"  {command}", soft_wrap=True)


def score_table(results: dict[str, Any]) -> Table:
    from rich.table import Table

    pair = results["pair"]
    table = Table(
        title=f"{pair['test_words']} test words en-ru, per cent (95 % interval)",
        title_justify="left",
    )
    table.add_column("direction")
    table.add_column("system")
    for title in METRICS.values():
        table.add_column(title, justify="right", no_wrap=True)
    for direction, name in (("forward", "en-ru"), ("backward", "ru-en")):
        for at, system in enumerate(results["systems"]):
            last = at + 1 == len(results["systems"])
            table.add_row(
                name if at == 0 else "",
                system["name"],
                *(score(system[direction], metric) for metric in METRICS),
                style="bold" if last else None,
                end_section=last,
            )
    return table


def score(scores: dict[str, Any], metric: str) -> str:
    value = f"{100 * scores[metric]:.1f}"
    if f"{metric}_interval" not in scores:
        return value
    low, high = scores[f"{metric}_interval"]
    return f"{value} ({100 * low:.1f}-{100 * high:.1f})"


def word_table(rows: list[dict[str, Any]], kind: str) -> Table:
    from rich.table import Table

    title = "Put right by reranking" if kind == "corrected" else "Spoiled by reranking"
    table = Table(title=title, title_justify="left")
    for column in ("word", "before", "after", "dictionary says"):
        table.add_column(column)
    for row in rows:
        table.add_row(row["word"], row["before"], row["after"], ", ".join(row["gold"]))
    return table
