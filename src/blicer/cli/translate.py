"""Using results: ``blicer inspect``, ``evaluate``, ``translate``, ``induce`` and ``export``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, FileBinaryRead, Option, echo

import blicer
from blicer import formats, inspection
from blicer.cli import app, options
from blicer.config import AUTO, MOST
from blicer.errors import EXIT_FAILURE, BlicerError, FileError, InputError
from blicer.files import STANDARD_OUTPUT, atomic_write, check_writable, open_descriptor
from blicer.io.dictionary import tsv_row
from blicer.languages import validate_tag
from blicer.lexicon import find_in_any_case
from blicer.progress import note, printable
from blicer.translations import Spellings

if TYPE_CHECKING:
    from blicer.evaluation import Evaluation
    from blicer.translations import Translation

MOST_SHOWN = 12  # values of a list
_KINDS = f"Read it as {options.any_of(inspection.KINDS)}."
_LEAST = "F1 counts entries that are at least as sure; by default those that induce gives."
_FORMATS = f"{options.any_of(formats.FORMATS)}; by default by the file's ending."
_BOTH = "Both directions in one dictionary; pairs found from both sides come first."
_REVIEW = f"Add columns for an editor to {options.any_of(formats.REVIEWED)}."
_TAG = "BCP 47 tag, where the dictionary file does not say."


@app.command()
def inspect(
    file: Annotated[Path, Argument(help="Vectors, a dictionary, a space or a translator.")],
    kind: Annotated[str | None, Option("--as", help=_KINDS)] = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what a vector or dictionary file contains and what is wrong with it.

    Exit code 2 when it cannot be read at all.

    Example: `blicer inspect seeds.en-fr.tsv`
    """
    try:
        facts = inspection.inspect(file, kind=kind, encoding=encoding)
    except BlicerError as error:
        if as_json:
            options.echo_json({"file": str(file), "error": str(error)}, indent=None)
            raise Exit(error.exit_code) from error
        raise
    if as_json:
        options.echo_json(facts)
        return
    problems = facts.pop("problems")
    echo(printable(f"{facts.pop('file')}: {facts.pop('kind')}"))
    for name, value in facts.items():
        echo(printable(f"  {name.replace('_', ' '):<18}{_shown(value)}"))
    said = "\n    ".join(["  to know:", *problems]) if problems else "  nothing to report"
    echo(printable(said))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    if isinstance(value, (list, tuple)):
        if len(value) > MOST_SHOWN:
            return f"{len(value)} values (--json prints them)"
        return ", ".join(
            " - ".join(map(_shown, one)) if isinstance(one, list) else _shown(one) for one in value
        )
    return "-" if value is None else str(value)


@app.command()
def evaluate(
    system: Annotated[Path, Argument(metavar="SYSTEM", help="Folder of a space or translator.")],
    test: Annotated[Path, Argument(metavar="TEST", help="Test dictionary.")],
    compare: Annotated[Path | None, Option(help="Other system: paired bootstrap test.")] = None,
    per_query: Annotated[Path | None, Option(help="TSV file for every query's rank.")] = None,
    bootstrap: Annotated[int, Option(min=0, help="Draws for the intervals.")] = 1000,
    seed: Annotated[int, Option(min=0, help="Seed of the draws.")] = 0,
    min_confidence: Annotated[float | None, Option(min=0, max=1, help=_LEAST)] = None,
    details: Annotated[bool, Option("--details", help="All figures, and groups of words.")] = False,
    pictures: Annotated[Path | None, Option(help="Folder for SVG pictures.")] = None,
    keep_case: options.KeepCase = False,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
) -> None:
    """P@k, MRR, F1, average precision and calibration in both directions (JSON: fractions).

    Over the queries that are in the vocabularies, and over all queries, with 95 % intervals.
    `--details` adds coverage at a precision, reliability, and groups of words: frequent and rare
    ones, names, inflected forms, and those whose translation is out of vocabulary.

    Vectors that share a space already become a folder by `blicer align --space files`.

    Example: `blicer evaluate en-fr.space test.en-fr.tsv --json`
    """
    from blicer.evaluation import compare as compare_evaluations

    if per_query is not None:
        options.check_apart(per_query, test)
        check_writable(per_query)
    if pictures is not None:
        from blicer import plots  # says now if matplotlib is missing

        check_writable(pictures / "risk-coverage.svg")
    lexicon = blicer.Lexicon.load(test, lowercase=not keep_case, encoding=encoding)
    name, first = str(system), load_system(system)
    for sentence in lexicon.coverage(first.source, first.target).lines():
        note(sentence)
    asked: dict[str, Any] = {
        "bootstrap": bootstrap,
        "seed": seed,
        "min_confidence": min_confidence,
    }
    known = getattr(first, "seeds", None) or blicer.Lexicon([])
    if both := len(set(known.pairs) & set(lexicon.pairs)):
        share = f"{both} of {len(lexicon)} test pairs are seeds of this translator"
        note(f"{share}: what is measured on them says nothing about other words")
    results = {name: blicer.evaluate(first, lexicon, **asked)}
    result = results[name]
    for sentence in result.notes():
        note(sentence)
    if compare is not None:
        results[str(compare)] = blicer.evaluate(load_system(compare), lexicon, **asked)
        *_, other = results.values()
        difference = compare_evaluations(result, other, bootstrap=bootstrap or 1000, seed=seed)
    if per_query is not None:
        _write_per_query(per_query, first, lexicon, result)
    if pictures is not None:
        for file_name, picture in plots.of_evaluation(result).items():
            with atomic_write(pictures / file_name) as file:
                file.write(picture)
            note(f"wrote {pictures / file_name}")
    if as_json:
        output = {"system": name, "test": str(test), **result.to_dict(details=True)}
        output["min_confidence"] = min_confidence
        if compare is not None:
            output["other"] = {"system": str(compare), **other.to_dict(details=True)}
            output["comparison"] = difference.to_dict()
        options.echo_json(output)
        return
    tables = []
    for title, one in results.items():
        tables += [one.table(title, details=details), *(one.details() if details else ())]
    if compare is not None:
        tables.append(difference.table(f"{name} minus {compare}"))
    options.echo_tables(*tables)


def load_system(path: Path) -> Any:
    """A saved space or translator."""
    kind = inspection.kind_of(path)
    if kind == "translator":
        return blicer.Translator.load(path)
    if kind == "space":
        return blicer.Space.load(path)
    raise FileError(path, "is neither a space nor a translator (see blicer align --space files)")


def _write_per_query(path: Path, system: Any, lexicon: blicer.Lexicon, result: Evaluation) -> None:
    """One line a query: direction, query, rank (0: none), in vocabulary, guess, golds."""
    from blicer.evaluation import answerable_queries

    with atomic_write(path) as file:
        file.write(tsv_row(("direction", "query", "rank", "in_vocabulary", "guess", "gold")))
        sides, gold = (system.source, system.target), lexicon
        for name, scores in result.directions():
            _, queries, _ = answerable_queries(gold, *sides)
            guesses = iter(system.best(queries, reverse=name == "backward"))
            rows = zip(scores.words, scores.ranks, scores.answerable, strict=True)
            for word, rank, known in rows:
                guess = sides[1].words[next(guesses)] if known else ""
                cells = (str(rank), str(int(known)), guess, "; ".join(gold.targets[word]))
                file.write(tsv_row((name, word, *cells)))
            sides, gold = sides[::-1], lexicon.reverse()


@app.command()
def translate(
    translator: options.TranslatorFolder,
    words: Annotated[list[str] | None, Argument(help="Words; or --file, or a pipe.")] = None,
    file: Annotated[FileBinaryRead | None, Option(metavar="FILE", help="A word a line.")] = None,
    k: options.K = MOST,
    reverse: options.Reverse = False,
    min_confidence: options.MinConfidence = None,
    at_precision: options.AtPrecision = None,
    seeds_as_evidence: options.SeedsAsEvidence = False,
    device: options.Device = None,
    as_json: options.AsJson = False,
) -> None:
    """Translate words, from arguments, a file or a pipe.

    Exit code 1 when not one of the words is in the vocabulary.

    Example: `blicer translate en-fr house dog -k 3`
    """
    if words and file is not None:
        raise InputError("give either words or --file, not both")
    words = [word.strip() for word in words or [] if word.strip()]
    if not words and (file is not None or not sys.stdin.isatty()):
        name = file.name if file else "standard input"
        try:
            lines = (file or sys.stdin.buffer).read().decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise FileError(name, f"is not UTF-8 ({error})") from error
        words = [line.strip() for line in lines if line.strip()]
        if words and "\t" in words[0]:
            raise FileError(
                name,
                "has a tab, as a table has; expected a word a line (cut -f1 TABLE | blicer "
                "translate TRANSLATOR asks for the first column)",
                line=1,
            )
    if not words:
        raise InputError("there is nothing to translate: give words, --file FILE, or a pipe")
    loaded = blicer.Translator.load(translator, device=device or AUTO)
    found = loaded.translate_stream(
        words,
        k,
        reverse=reverse,
        min_confidence=options.least_confidence(loaded, min_confidence, at_precision),
        seeds_as_evidence=seeds_as_evidence,
    )
    known, spellings = 0, None
    for entry in found:
        known += entry.known
        near: list[str] = []
        turned = False
        if not entry.known:
            spellings = spellings or Spellings((loaded.target if reverse else loaded.source).words)
            near = spellings.near(entry.word)
            others = loaded.source if reverse else loaded.target
            turned = not entry.known and bool(find_in_any_case([entry.word], others))
        if as_json:
            options.echo_json(asdict(entry) | ({"near": near} if near else {}), indent=None)
        else:
            echo(printable(f"{entry.word}\t{_answer(entry, near, turned, reverse)}"))
    if not known:
        raise Exit(EXIT_FAILURE)


def _answer(entry: Translation, near: Sequence[str], turned: bool, reverse: bool) -> str:
    """``turned``: whether the word is in the other vocabulary."""
    if not entry.known:
        hint = f"; did you mean {options.any_of(near)}?" if near else ""
        if turned:
            how = "without --reverse" if reverse else "with --reverse"
            hint += f"; the other language has it: ask {how}"
        return f"(not in the vocabulary{hint})"
    cells = []
    for candidate in entry.candidates:
        sure = "" if candidate.confidence is None else f" ({candidate.confidence:.2f})"
        if candidate.seed:
            sure = " (seed)"
        if entry.composed:
            sure = f" (of its parts{'' if not sure else ', ' + sure[2:-1]})"
        cells.append(f"{candidate.word}{sure}")
    if cells and entry.perhaps_none:
        cells.append("(perhaps no translation in the vocabulary)")
    return "\t".join(cells) or "(nothing sure enough)"


Words = Annotated[int | None, Option("--words", "-n", min=1, help="Most frequent.")]
FormatName = Annotated[str | None, Option("--format", help=_FORMATS)]
Both = Annotated[bool, Option("--both", help=_BOTH)]
Review = Annotated[bool, Option("--review", help=_REVIEW)]
Tag = Annotated[str | None, Option(help=_TAG)]


@app.command()
@options.writes_output
def induce(
    translator: options.TranslatorFolder,
    output: options.Output,
    words: Words = None,
    k: options.K = MOST,
    reverse: options.Reverse = False,
    both: Both = False,
    min_confidence: options.MinConfidence = None,
    at_precision: options.AtPrecision = None,
    seeds_as_evidence: options.SeedsAsEvidence = False,
    format: FormatName = None,
    review: Review = False,
    shard: Annotated[str, Option(metavar="I/N", help="Only part I of N of the words.")] = "1/1",
    device: options.Device = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a dictionary of the n most frequent words, or of all.

    The same command goes on where a killed run stopped, and words that were scored once are not
    scored again: another format, `-k` or threshold takes seconds. `-o -` is standard output.
    `blicer export part1.tsv part2.tsv -o all.tsv` brings parts of `--shard` together.

    Example: `blicer induce en-fr -n 20000 -k 3 --min-confidence 0.5 -o en-fr.tsv`
    """
    _check_output(output, format, as_json)
    loaded = blicer.Translator.load(translator, device=device or AUTO)
    found = loaded.induce(
        words,
        k,
        reverse=reverse,
        both=both,
        shard=shard,
        min_confidence=options.least_confidence(loaded, min_confidence, at_precision),
        seeds_as_evidence=seeds_as_evidence,
    )
    _write(found, output, format, review, as_json)


@app.command()
@options.writes_output
def export(
    sources: Annotated[
        list[Path], Argument(metavar="SOURCE...", help="A translator, or dictionary files.")
    ],
    output: options.Output,
    words: Words = None,
    k: Annotated[int | None, Option("-k", min=1, help="Translations a word, at most.")] = None,
    reverse: options.Reverse = False,
    both: Both = False,
    min_confidence: options.MinConfidence = None,
    at_precision: options.AtPrecision = None,
    format: FormatName = None,
    review: Review = False,
    source_language: Tag = None,
    target_language: Tag = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the dictionary of a translator, or a dictionary file, in the format of your trade.

    The file's ending or `--format` says which; docs/export.md shows them all.

    Example: `blicer export en-fr -n 20000 --at-precision 0.9 -o en-fr.tmx`

    Several dictionary files become one, each pair as the first of them has it.

    Example: `blicer export en-fr.xlsx -o en-fr.ifo --source-language en --target-language fr`
    """
    _check_output(output, format, as_json, sources)
    source = sources[0]
    if len(sources) == 1 and source.is_dir():
        loaded = blicer.Translator.load(source)
        least = options.least_confidence(loaded, min_confidence, at_precision)
        found = loaded.induce(words, k or MOST, reverse=reverse, both=both, min_confidence=least)
    else:
        if both or at_precision is not None:
            raise InputError("--both and --at-precision need a translator; this is a dictionary")
        from blicer.dictionary import joined

        found = joined([blicer.Dictionary.load(path) for path in sources])
        found = (found.reverse() if reverse else found).best(k, min_confidence)
        if words is not None:
            found = found.of(one for word in list(found.words)[:words] for one in found[word])
    tags = {"source": source_language, "target": target_language}
    named: Any = {side: validate_tag(tag) for side, tag in tags.items() if tag is not None}
    found.about = replace(found.about, **named)
    _write(found, output, format, review, as_json)


def _check_output(
    output: Path, format: str | None, as_json: bool, sources: Sequence[Path] = ()
) -> None:
    """Raise now, not after the work, if the dictionary cannot be written or would replace work."""
    name = formats.check_output(output, format)
    check_writable(output)
    other = output.is_file() and output not in sources and open_descriptor(output) is None
    if other and name in formats.REVIEWED and output.stat().st_size:
        _check_replaced(output, name)
    if as_json and open_descriptor(output) == STANDARD_OUTPUT:
        raise InputError("--json and the dictionary cannot both go to standard output")


def _check_replaced(output: Path, name: str) -> None:
    """Raise unless a table that exists is a dictionary of ours that no editor has worked on."""
    rather = "choose another name, or remove it"
    try:
        old = blicer.Dictionary.load(output, name)
    except BlicerError as error:  # a wrong verdict, or a table of something else
        raise InputError(f"{output} would be replaced, but it is {error}: {rather}") from error
    if old.is_reviewed:
        raise InputError(f"{output} holds an editor's work: {rather}")
    if name in ("tsv", "csv") and formats.plain(output) == output:
        with output.open(encoding="utf-8-sig") as file:
            titles = file.readline(1000)
        if not all(title in titles for title in ("source", "target", "confidence")):
            raise InputError(f"{output} is no dictionary that blicer wrote: {rather}")


def _write(
    found: blicer.Dictionary, output: Path, format: str | None, review: bool, as_json: bool
) -> None:
    found.save(output, format, review=review)
    translated = len(found.words)
    if open_descriptor(output) is None:
        unsure = found.asked - translated
        rest = f"; {unsure} had nothing sure enough" if unsure > 0 else ""
        note(f"wrote {output} of {len(found)} entries for {translated} words{rest}")
    if "" in (found.about.source, found.about.target) and formats.names_languages(output, format):
        note(
            "a language is not known and called 'und': name it with --source-language, --target-"
            "language of blicer export"
        )
    if as_json:
        facts = {"words": found.asked, "translated": translated, "entries": len(found)}
        options.echo_json({"output": str(output), **facts}, indent=None)
