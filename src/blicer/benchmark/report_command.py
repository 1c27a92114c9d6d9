"""The commands that make the same units again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from blicer.benchmark.dataset import LAYOUTS
from blicer.benchmark.report_cells import setup_order
from blicer.benchmark.report_layout import space_order
from blicer.benchmark.report_runs import Run

# What one command lists with commas between, in the order in which it is shown.
_LISTS = (
    "pairs",
    "setups",
    "spaces",
    "encoders",
    "templates",
    "alphas",
    "training-seeds",
)
_COLLECTIONS = ("xling", "panlex", "muse")
Command = tuple[frozenset[str], ...]  # one set for each of _LISTS


def commands(runs: Sequence[Run]) -> list[str]:
    """As few commands as the units allow; each makes units of this report and no others."""
    groups: dict[tuple[str, str, int, str, tuple[str, ...]], set[Command]] = {}
    for run in runs:
        fixed = (run.dataset, run.pivot, run.variant.max_words, run.variant.settings, run.asked)
        groups.setdefault(fixed, set()).add(_of_unit(run))
    shown = []
    for fixed, found in sorted(groups.items()):
        dataset, pivot, max_words, settings, systems = fixed
        data = ["--data", "DATA"] if dataset in _COLLECTIONS else []
        for command in sorted(_merged(found), key=lambda one: [sorted(part) for part in one]):
            parts = ["blicer", "benchmark", "run", _named(dataset), *data]
            for name, values in zip(_LISTS, command, strict=True):
                listed = ",".join(_in_order(name, values))
                if listed:
                    parts += [f"--{name}", listed]
            if systems:
                parts += ["--systems", ",".join(systems)]
            if max_words:
                parts += ["--max-words", str(max_words)]
            if pivot:
                parts += ["--pivot", pivot]
            for name, value in _settings(settings):
                parts += ["--set", f"{name}={value}"]
            shown.append(" ".join(shlex.quote(part) for part in [*parts, "-o", "OUT"]))
    return shown


def _named(dataset: str) -> str:
    """As the command line takes it: an own folder that is called as a collection by its path."""
    own = dataset.removeprefix("my-")
    return f"./{own}" if own != dataset and own in LAYOUTS else dataset


def _of_unit(run: Run) -> Command:
    space = f"{run.space}:{run.space_mode}" if run.space_mode else run.space
    values = (
        run.pair,
        run.setup,
        space,
        run.variant.encoder,
        "" if run.usual_template else run.variant.template,
        "" if run.usual_alpha else f"{run.variant.alpha:g}",
        str(run.training_seed),
    )
    return tuple(frozenset([value]) for value in values)


def _merged(found: set[Command]) -> set[Command]:
    """Join commands that differ in one list only, until none are left that do.

    What the encoder has unless told otherwise is an empty list and joins nothing else: it could
    not be told apart in a list.
    """
    before: set[Command] = set()
    while found != before:
        before = found
        for place in range(len(_LISTS)):
            groups: dict[tuple[bool, Command], frozenset[str]] = {}
            for command in found:
                rest = (*command[:place], *command[place + 1 :])
                key = ("" in command[place], rest)
                groups[key] = groups.get(key, frozenset()) | command[place]
            found = {(*rest[:place], values, *rest[place:]) for (_, rest), values in groups.items()}
    return found


def _in_order(name: str, values: frozenset[str]) -> list[str]:
    if name == "setups":
        return sorted(values, key=setup_order)
    if name == "spaces":
        return sorted(values, key=lambda one: (space_order(one.partition(":")[0]), one))
    return sorted(values, key=lambda one: (len(one), one) if name == "templates" else (0, one))


def _settings(text: str) -> list[tuple[str, str]]:
    given = json.loads(text) if text else {}
    return [
        ("lambda", "auto")
        if (name, value) == ("mixing_weight", None)
        else (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in given.items()
    ]
