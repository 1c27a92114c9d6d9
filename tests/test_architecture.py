"""The shape of the house: which module may import which, and how large it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "blicer"
# Modules and packages in the order in which data passes them. Nothing imports to its right, not
# even inside a function or for type checking; members of one group may import each other.
ORDER = [
    ["errors"],
    ["files", "progress", "devices", "languages", "regression"],
    ["stage_cache", "templates"],
    ["config"],
    ["io"],
    ["embeddings", "lexicon"],
    ["forms"],
    ["translations"],
    ["formats", "dictionary"],
    ["neighbours"],
    ["lite"],
    ["encoders"],
    ["align"],
    ["training_pairs"],
    ["crossencoder"],
    ["scorers"],
    ["metrics"],
    ["calibration"],
    ["mixing"],
    ["expectations"],
    ["breakdown"],
    ["translator", "evaluation"],
    ["pipeline"],
    ["multilingual"],
    ["pages"],
    ["starter", "plots", "inspection", "catalogue"],
    ["download", "demo"],
    ["pretrained"],
    ["benchmark"],
    ["serve"],
    ["cli"],
]
PLACE = {name: place for place, group in enumerate(ORDER) for name in group}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of blicer that a file imports, wherever in the file it does so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "blicer":
            module = (node.module or "").removeprefix("blicer").removeprefix(".")
            for name in node.names:
                inner = f"{module}.{name.name}".removeprefix(".")
                found.add(inner if inner in known else module)
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names if name.name.split(".")[0] == "blicer"]
            found |= {name.removeprefix("blicer").removeprefix(".") for name in names}
    return found - {""}


GRAPH = {name: imports(path, modules()) for name, path in modules().items()}


def test_every_module_has_a_place() -> None:
    assert {name.split(".")[0] for name in GRAPH if name and name != "__main__"} == set(PLACE)


@pytest.mark.parametrize("name", [name for name in GRAPH if name and name != "__main__"])
def test_nothing_is_imported_against_the_flow(name: str) -> None:
    place = PLACE[name.split(".")[0]]
    back = [other for other in GRAPH[name] if PLACE[other.split(".")[0]] > place]
    assert not back, f"{name} imports {back}, which come after it"


def test_there_is_no_import_cycle() -> None:
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"import cycle: {' -> '.join([*path, name])}"
        if name in done:
            return
        for other in GRAPH.get(name, ()):
            # A package's own __init__ is a registry of names; it imports its members on first use.
            if other != name and not name.startswith(f"{other}."):
                visit(other, (*path, name))
        done.add(name)

    for name in GRAPH:
        visit(name, ())


def test_hashes_are_made_in_one_place() -> None:
    users = [
        name for name, path in modules().items() if "import hashlib" in path.read_text("utf-8")
    ]
    assert users == ["files"]
