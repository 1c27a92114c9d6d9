"""``blicer align``: two vector files and seeds in, a space out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blicer.cli import app

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.embeddings import Embeddings


@app.command()
def align(
    method: Annotated[
        str, typer.Argument(help="procrustes, vecmap, rcsls, c1, c2, or files (already aligned).")
    ],
    source: Annotated[Path, typer.Argument(help="Source vectors.")],
    target: Annotated[Path, typer.Argument(help="Target vectors.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the space.")],
    seeds: Annotated[Path | None, typer.Option(help="Seed dictionary, source word first.")] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="supervised, semi_supervised, unsupervised; if not given, by the number of seeds "
            "(c1 and c2 are semi_supervised below 3,000 pairs)."
        ),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="Where an unsupervised run starts: distributions (the paper's), encoder, "
            "identical or numerals."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Of c2 and of --init encoder: lite (embedded), a Hugging Face name or folder."
        ),
    ] = None,
    source_language: Annotated[str | None, typer.Option(help="BCP 47 tag, such as en.")] = None,
    target_language: Annotated[str | None, typer.Option(help="BCP 47 tag, such as fr.")] = None,
    max_words: Annotated[int | None, typer.Option(min=1, help="Words read a side.")] = None,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Do not fold case.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the random draws.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, NAME=VALUE; may be repeated.")
    ] = None,
    export_vec: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write two .vec files there.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write the space even if the run did not converge.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Map two sets of word vectors into one space.

    Example: `blicer align vecmap wiki.en.vec wiki.fr.vec --seeds en-fr.tsv -o en-fr.space`

    Example, without seeds: `blicer align vecmap fi.vec et.vec --init encoder -o fi-et.space`
    """
    import shutil
    import warnings

    from blicer.align.space import DESCRIPTION, Space
    from blicer.embeddings import Embeddings
    from blicer.errors import BlicerError
    from blicer.files import check_replaceable, check_writable
    from blicer.lexicon import Lexicon
    from blicer.progress import note
    from blicer.recipe import preset_for, usual_mode
    from blicer.stages import work_folder

    chosen = _settings(settings or [], seed=seed, device=device)
    chosen |= {k: v for k, v in (("init", init), ("encoder", encoder)) if v is not None}
    # Every name and value is checked before any file is read.
    aligner = None if method == "files" else _aligner(method, mode, seeds is not None, chosen)
    check_replaceable(output, DESCRIPTION, "a space")
    check_writable(output)
    work = work_folder(output)
    if export_vec is not None:
        check_writable(export_vec / "source.vec")
    lexicon = Lexicon.load(seeds, lowercase=not keep_case) if seeds is not None else None
    if aligner is not None and lexicon and mode is None and "init" not in chosen:
        mode = usual_mode(method, preset_for(len(lexicon)))
        usual = _aligner(method, mode, True, chosen)
        if usual.settings != aligner.settings:
            note(f"{method}: {mode}, for {len(lexicon)} seed pairs (--mode chooses another)")
        aligner = usual
    left, right = (
        Embeddings.load(path, max_words=max_words, lowercase=not keep_case, language=language)
        for path, language in ((source, source_language), (target, target_language))
    )
    if aligner is None:
        space = Space(left, right, method="files")
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a failed run is said below
            aligner.work = work
            space = aligner.align(left, right, lexicon)
    if not space.settings.get("converged", True):
        verdict = space.settings.get("verdict", "the run did not converge")
        if not force:
            raise BlicerError(f"{verdict}; nothing was written to {output} (--force writes it)")
        note(verdict)
    # A name that is not UTF-8 can be opened but not written down.
    names = (os.fsencode(path).decode("utf-8", "replace") for path in (source, target))
    space.settings |= dict(zip(("source_file", "target_file"), names, strict=True))
    space.save(output)
    shutil.rmtree(work, ignore_errors=True)
    note(f"wrote {output}; next: blicer evaluate {output} TEST.tsv")
    if export_vec is not None:
        for path in space.save_vec(export_vec):
            note(f"wrote {path}")
    if as_json:
        _print(space, output)


def _settings(assignments: list[str], *, seed: int | None, device: str) -> dict[str, Any]:
    """``--set`` values as Python's, with ``--seed`` and ``--device`` where they were given."""
    import json

    from blicer.errors import InputError

    chosen: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {assignment!r} is not of the form NAME=VALUE")
        plain = {"none": "null", "true": "true", "false": "false"}.get(text.strip().lower(), text)
        try:
            chosen[name.strip()] = json.loads(plain)
        except json.JSONDecodeError:
            chosen[name.strip()] = text.strip()
    if seed is not None:
        chosen["seed"] = seed
    if device != "auto":
        chosen["device"] = device
    return chosen


def _aligner(method: str, mode: str | None, has_seeds: bool, chosen: dict[str, Any]) -> Any:
    """The method by its name, in its mode (with seeds, supervised until they are counted)."""
    import blicer.align
    from blicer.errors import InputError

    if method not in blicer.align.METHODS:
        known = ", ".join([*blicer.align.METHODS, "files"])
        raise InputError(f"there is no method {method!r}; expected one of {known}")
    kind = getattr(blicer.align, blicer.align.METHODS[method])
    if "seed" in chosen and "seed" not in kind.setting_names():
        del chosen["seed"]  # nothing is drawn at random in this method
    mode = mode or ("supervised" if has_seeds and "init" not in chosen else "unsupervised")
    if not has_seeds and mode in ("supervised", "semi_supervised", "semi-supervised"):
        raise InputError(f"{method} in the mode {mode} needs seed pairs: give them with --seeds")
    if not has_seeds and mode not in kind.presets:
        raise InputError(f"{method} needs seed pairs: give them with --seeds")
    return kind.preset(mode, **chosen)


def _print(space: Space, output: Path) -> None:
    import json

    def side(embeddings: Embeddings) -> dict[str, Any]:
        return {"words": len(embeddings), "language": embeddings.language}

    described = {
        "space": str(output),
        "method": space.method,
        "dim": space.dim,
        "source": side(space.source),
        "target": side(space.target),
        "settings": space.settings,
    }
    typer.echo(json.dumps(described, ensure_ascii=False, indent=2))
