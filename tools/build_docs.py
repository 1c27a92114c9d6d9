"""Write the pages of the documentation that follow from the code: settings, commands, API.

python -m tools.build_docs

``tests/test_docs.py`` compares them. ``make docs`` builds the site from all pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from blicer.align import METHODS, aligner_class
from blicer.cli import app
from blicer.config import CHOICE, PAIRS, RUN, SPACE, TRAINING, describe
from blicer.files import atomic_write
from blicer.scorers import SCORERS, scorer_class

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = ROOT / "src" / "blicer" / "__init__.pyi"
GENERATED = "<!-- Written by `python -m tools.build_docs`. -->"
KINDS = {"int": "NUMBER", "float": "NUMBER", "Path": "PATH", "bool": ""}


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *([_cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return re.sub(r"\s+", " ", str(value)).replace("|", "\\|").replace("<", "&lt;").strip()


def code(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"`{text}`" if text and value != {} else ""


# -- settings --------------------------------------------------------------------------------------


def settings() -> str:
    """Every setting of a training run, of each space, and every scorer."""
    parts = [
        "# Settings",
        GENERATED,
        "`blicer config` prints this list. On the command line: `--set NAME=VALUE`. In a file: "
        "`NAME = VALUE` in TOML, given with `--config FILE`. In Python: "
        "`blicer.Config.for_seeds(len(seeds), NAME=VALUE)`.\n\n"
        "The defaults are the paper's, for many seeds. What a preset (or a mode of a space) and "
        "the encoder `lite` change stands beside them ([method, §10](method.md#s10)): "
        "`blicer train` takes `lite` unless told otherwise, and below 3,000 seeds the preset "
        "`semi_supervised`. "
        "The settings that a training used are saved with its translator.",
    ]
    rows = describe()
    for group in (SPACE, PAIRS, TRAINING, CHOICE, RUN):
        parts += [f"## {group.capitalize()}", _settings(r for r in rows if r["group"] == group)]
    parts.append("## Spaces\n\nSettings of `blicer align --set` and of `space_settings`.")
    for method in METHODS:
        kind = aligner_class(method)
        parts += [f"### {method}", _first_line(kind), _settings(describe(kind))]
    parts += ["## Scorers", table(("scorer", "what it is"), _scorers())]
    return "\n\n".join(parts) + "\n"


def _settings(rows: Iterable[dict[str, Any]]) -> str:
    cells = (
        (code(r["name"]), code(r["default"]), r["others"], r["expected"], r["help"]) for r in rows
    )
    return table(("name", "default", "other defaults", "values", "meaning"), cells)


def _scorers() -> Iterator[tuple[str, str]]:
    for name in SCORERS:
        yield code(name), _first_line(scorer_class(name))


def _first_line(kind: Any) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


# -- commands --------------------------------------------------------------------------------------


def commands() -> str:
    """Every command with its arguments and options, as ``--help`` shows them."""
    parts = [
        "# Commands",
        GENERATED,
        "`blicer COMMAND --help` shows the same. `-q` before the command silences progress and "
        "notes. Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted.",
    ]
    for name, command in _walk(typer.main.get_command(app), "blicer"):
        arguments = [p for p in command.params if not _is_option(p)]
        usage = [name, *(_usage(one) for one in arguments), "[OPTIONS]"]
        parts += [f"## {name}", f"```text\n{' '.join(usage)}\n```", command.help]
        rows = [_row(one) for one in command.params if one.help and not one.hidden]
        parts.append(table(("argument or option", "", "meaning"), rows))
    return "\n\n".join(parts) + "\n"


def _walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for part, below in getattr(command, "commands", {}).items():
        yield from _walk(below, f"{name} {part}")
    if not getattr(command, "commands", None):
        yield name, command


def _is_option(parameter: Any) -> bool:
    return str(parameter.opts[0]).startswith("-")


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _row(one: Any) -> tuple[str, str, str]:
    if not _is_option(one):
        return code(_usage(one)), "", one.help
    kind = getattr(one.type_descriptor.annotation, "__name__", "str")
    value = one.metavar or ("" if one.is_flag else KINDS.get(kind, "TEXT"))
    names = ", ".join(code(name) for name in (*one.opts, *one.secondary_opts))
    notes = ["required"] if one.required else []
    if one.default not in (None, False, "") and not callable(one.default):
        notes.append(f"default {code(one.default)}")
    return names, code(value), f"{one.help} ({', '.join(notes)})" if notes else one.help


# -- API -------------------------------------------------------------------------------------------


def api() -> str:
    """The public names of the package; mkdocstrings fills in their docstrings."""
    found = re.findall(r"^from ([\w.]+) import (\w+) as", PUBLIC.read_text("utf-8"), re.MULTILINE)
    names = sorted(found, key=lambda one: (one[1][0].isupper(), one[1].lower()))
    parts = [
        "# Python API",
        GENERATED,
        "These names are what `import blicer` offers; they are typed (`py.typed`). Torch and "
        "transformers are loaded when something needs them. Wrong arguments raise "
        "`blicer.BlicerError` with a sentence.",
        *(
            f"::: {module}.{name}\n    options:\n      heading: blicer.{name}\n"
            f"      toc_label: blicer.{name}"
            for module, name in names
        ),
    ]
    return "\n\n".join(parts) + "\n"


PAGES = {"settings.md": settings, "commands.md": commands, "api.md": api}


def main() -> None:
    for name, make in PAGES.items():
        with atomic_write(ROOT / "docs" / name) as file:
            file.write(make())


if __name__ == "__main__":
    main()
