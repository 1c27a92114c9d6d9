"""``blicer evaluate``: score a space or a translator against a test dictionary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blicer.cli import app

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from blicer.evaluation import Evaluation, System
    from blicer.lexicon import Lexicon


# === cli.inspect ===
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


# === cli.evaluate ===
@app.command()
def evaluate(
    system: Annotated[
        Path, typer.Argument(help="Folder of a saved space or translator.", metavar="SYSTEM")
    ],
    test: Annotated[
        Path | None, typer.Argument(help="Test dictionary.", metavar="TEST", show_default=False)
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(help="Source vectors of a space made elsewhere (then give TEST only)."),
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Target vectors of that space.")] = None,
    max_words: Annotated[
        int | None, typer.Option(min=1, help="Words read from --source and --target.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="OTHER", help="Second system: paired bootstrap test against it."),
    ] = None,
    per_query: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write rank and gold of every query (TSV).")
    ] = None,
    min_p1: Annotated[
        float | None,
        typer.Option(
            "--min-p1", min=0.0, max=1.0, help="Exit code 1 if forward P@1 is below this fraction."
        ),
    ] = None,
    bootstrap: Annotated[int, typer.Option(min=0, help="Draws for the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    keep_case: Annotated[
        bool, typer.Option("--keep-case", help="Do not fold case (test dictionary, vector files).")
    ] = False,
    split_targets: Annotated[
        str | None, typer.Option(help="Character between several targets in one cell.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of TEST if it is not UTF-8, such as latin-1.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (fractions).")] = False,
) -> None:
    """P@1, P@5, P@10 and MRR in both directions, with 95 % intervals.

    Over the queries that are in the vocabularies, and over all queries.

    Example: `blicer evaluate en-fr.space test.en-fr.tsv --json`

    Example: `blicer evaluate --source en.vec --target fr.vec test.en-fr.tsv`
    """
    from blicer.errors import InputError
    from blicer.evaluation import compare as compare_evaluations
    from blicer.evaluation import evaluate as run
    from blicer.files import check_writable
    from blicer.lexicon import Lexicon
    from blicer.progress import note

    from_files = source is not None or target is not None
    if from_files and (source is None or target is None):
        raise InputError("--source and --target go together: one vector file for each language")
    if from_files and test is not None:
        raise InputError("give either SYSTEM, or --source and --target, not both")
    test_file = system if from_files else test
    if test_file is None:
        raise InputError("the test dictionary is missing: blicer evaluate SYSTEM TEST")
    if per_query is not None:
        check_writable(per_query)
    lexicon = Lexicon.load(
        test_file, lowercase=not keep_case, encoding=encoding, split_targets=split_targets
    )
    if source is not None and target is not None:
        name, first = (
            f"{source}, {target}",
            system_of_files(source, target, max_words, lowercase=not keep_case),
        )
    else:
        name, first = str(system), load_system(system)
    for sentence in lexicon.coverage(first.source, first.target).lines():
        note(sentence)
    result = run(first, lexicon, bootstrap=bootstrap, seed=seed)
    output: dict[str, Any] = {"system": name, "test": str(test_file), **result.to_dict()}
    tables = [result.table(name)]
    if compare is not None:
        other = run(load_system(compare), lexicon, bootstrap=bootstrap, seed=seed)
        difference = compare_evaluations(result, other, bootstrap=bootstrap or 1000, seed=seed)
        output["other"] = {"system": str(compare), **other.to_dict()}
        output["comparison"] = difference.to_dict()
        tables += [other.table(str(compare)), difference.table(f"{name} minus {compare}")]
    if per_query is not None:
        write_per_query(per_query, first, lexicon, result)
    if as_json:
        typer.echo(json.dumps(output, ensure_ascii=False, indent=2))
    else:
        show(tables)
    if min_p1 is not None and result.forward["p@1"] < min_p1:
        note(f"forward P@1 is {result.forward['p@1']:.3f}, below {min_p1}")
        raise typer.Exit(1)


def show(tables: list[Any]) -> None:
    """Tables on standard output, never narrower than they need (a pipe has no width)."""
    import sys

    from rich.console import Console

    console = Console(markup=False)  # a name such as q[v2] is no markup
    if not sys.stdout.isatty():
        console = Console(width=200, markup=False)
    for table in tables:
        console.print(table)


def load_system(path: Path) -> System:
    """A saved space or translator."""
    from blicer.errors import FileError

    if (path / "translator.json").is_file():
        from blicer.translator import Translator

        translator: System = Translator.load(path)
        return translator
    if (path / "space.json").is_file():
        from blicer.align.space import Space

        space: System = Space.load(path)
        return space
    if path.is_file():
        raise FileError(
            path, "is a file; expected a saved space or translator, or --source and --target"
        )
    problem = "is neither a space nor a translator" if path.is_dir() else "does not exist"
    raise FileError(path, f"{problem}; expected a folder with space.json or translator.json")


def system_of_files(
    source: Path, target: Path, max_words: int | None, *, lowercase: bool = True
) -> System:
    """Two vector files that already are in one space."""
    from blicer.align.space import Space
    from blicer.embeddings import Embeddings

    space: System = Space(
        Embeddings.load(source, max_words=max_words, lowercase=lowercase),
        Embeddings.load(target, max_words=max_words, lowercase=lowercase),
        method="files",
        settings={"source": str(source), "target": str(target), "max_words": max_words},
    )
    return space


def write_per_query(path: Path, system: System, lexicon: Lexicon, result: Evaluation) -> None:
    """One line a query: direction, query, rank (0: none), in vocabulary, best guess, golds."""
    from blicer.evaluation import answerable_queries
    from blicer.files import atomic_write

    with atomic_write(path) as file:
        file.write("direction\tquery\trank\tin_vocabulary\tguess\tgold\n")
        for name, scores in result.directions():
            backward = name == "backward"
            gold = lexicon.reverse() if backward else lexicon
            sides = (system.target, system.source) if backward else (system.source, system.target)
            _, queries, _ = answerable_queries(gold, *sides)
            guesses = iter(best_guesses(system, queries, backward))
            for word, rank, known in zip(
                scores.words, scores.ranks, scores.answerable, strict=True
            ):
                guess = next(guesses) if known else ""
                golds = "; ".join(gold.targets[word])
                file.write(f"{name}\t{word}\t{rank}\t{int(known)}\t{guess}\t{golds}\n")


def best_guesses(system: Any, queries: NDArray[np.int64], reverse: bool) -> list[str]:
    """The first answer to each query; empty strings from a system that only gives ranks."""
    answers = system.source if reverse else system.target
    if hasattr(system, "best"):
        rows = system.best(queries, reverse=reverse)
    elif hasattr(system, "retriever") and not hasattr(system, "reranker"):
        rows = system.retriever.search(1, queries, reverse=reverse).indices[:, 0]
    else:
        return [""] * len(queries)
    return [answers.words[row] for row in rows]
