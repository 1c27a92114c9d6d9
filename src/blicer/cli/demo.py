"""``blicer demo``: the whole way on the pair that comes with the package."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from blicer.cli import app

DIRECTIONS = {"forward": "en-ru", "backward": "ru-en"}
METRICS = {"p@1": "P@1", "p@5": "P@5", "mrr": "MRR"}
TITLES = {"corrected": "Put right by reranking", "spoiled": "Spoiled by reranking"}


@app.command()
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

    given = [name.strip() for name in scorers.split(",") if name.strip()]
    results = run(output, words=words, settings={"scorers": given, "device": device})
    if as_json:
        typer.echo(json.dumps(results, ensure_ascii=False, indent=2))
    else:
        show(results)


def show(results: dict[str, Any]) -> None:
    """Print tables and sentences."""
    from rich.console import Console
    from rich.table import Table

    width = None if sys.stdout.isatty() else 100
    console = Console(highlight=False, markup=False, width=width)
    pair, mixture, files = results["pair"], results["mixture"], results["files"]

    title = f"{pair['test_words']} test words en-ru, per cent (95 % interval)"
    table = Table("direction", "system", title=title, title_justify="left")
    for name in METRICS.values():
        table.add_column(name, justify="right", no_wrap=True)
    for direction, name in DIRECTIONS.items():
        for system in results["systems"]:
            last = system is results["systems"][-1]
            scores = (score(system[direction], metric) for metric in METRICS)
            first = name if system is results["systems"][0] else ""
            style = "bold" if last else None
            table.add_row(first, system["name"], *scores, style=style, end_section=last)
    console.print(table)
    for direction, name in DIRECTIONS.items():
        gain, counts = results["gain"][direction], results["changes"]["counts"][direction]
        low, high = gain["p@1"]["interval"]
        console.print(
            f"{name}: reranking changes P@1 by {100 * gain['p@1']['difference']:+.1f} points "
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
    for kind, title in TITLES.items():
        heads = ("word", "before", "after", "dictionary says")
        table = Table(*heads, title=title, title_justify="left")
        for row in results["changes"][kind]:
            table.add_row(row["word"], row["before"], row["after"], ", ".join(row["gold"]))
        if table.rows:
            console.print(table)
    console.print(
        f"\nWrote {files['page']} (open it in a browser), {files['dictionary']} "
        f"({results['dictionary']['entries']} entries), {files['translator']}, {files['results']} "
        f"in {sum(results['seconds'].values()):.0f} s.\n\nNext, with files of your own:",
        soft_wrap=True,
    )
    for command in results["next"]:
        console.print(f"  {command}", soft_wrap=True)


def score(scores: dict[str, Any], metric: str) -> str:
    value = f"{100 * scores[metric]:.1f}"
    if f"{metric}_interval" not in scores:
        return value
    low, high = scores[f"{metric}_interval"]
    return f"{value} ({100 * low:.1f}-{100 * high:.1f})"
