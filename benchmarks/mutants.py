"""Mutation testing: small changes of the code, each of which a test should notice.

pip install cosmic-ray
python -m benchmarks.mutants [--modules files,pages] [--sample 20] [--seed 0]

Needs the packages of the extra ``dev``, cosmic-ray, and a system that can fork. cosmic-ray's
operators change one place of one module; one more leaves a statement out. For each module a random
sample of places is drawn, and of each place one change; annotations are left alone. The module's
tests run on a copy of the repository until one fails or hangs. What none noticed goes to stderr.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy
import pandas
import parso
import pytest
import transformers
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider

ROOT = Path(__file__).resolve().parents[1]
MODULES = {  # and the tests that cover them
    "neighbours/retriever": "retrieval retrieval_scorers",
    "neighbours/kernels": "retrieval",
    "training_pairs": "pairs",
    "mixing": "mixing retrieval_scorers",
    "calibration": "calibration mutants",
    "crossencoder/scoring": "earlyexit scoring mutants",
    "align/checkpoint": "resume",
    "stage_cache": "stage_cache",
    "pages": "report_parts",
    "files": "files mutants",
}
READY = (hypothesis, pandas, transformers.BertModel)  # that a child need not import
LEFT_ALONE = ("string", "import_from", "import_name")
HANG_SECONDS = 90  # of computing; the tests of a module take 40 at most


class LeaveOut(Operator):  # type: ignore[misc]
    """A simple statement becomes ``pass``."""

    def mutation_positions(self, node: Any) -> Any:
        if node.type == "simple_stmt" and node.children[0].type not in LEFT_ALONE:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return parso.parse(" " * node.start_pos[1] + "pass\n")

    examples = tuple


PROVIDER = OperatorProvider()
CHANGES = {name: PROVIDER[name] for name in PROVIDER if not PROVIDER[name].arguments()}
CHANGES["LeaveOut"] = LeaveOut


def meaning(code: str) -> str:
    """The syntax tree without annotations."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        for name in {"annotation", "returns"} & vars(node).keys():
            setattr(node, name, None if name == "returns" else ast.Constant(0))
    return ast.dump(tree)


def places(code: str) -> list[list[str]]:
    """For each place of the code the names of the changes there."""
    found, nodes = defaultdict(list), list(ast_nodes(get_ast(code)))
    for name, change in CHANGES.items():
        every = (place for node in nodes for place in change().mutation_positions(node))
        for number, place in enumerate(every):
            found[place].append(f"{name}:{number}")
    return [found[place] for place in sorted(found)]


def drawn(code: str, seed: int) -> Iterator[tuple[str, str]]:
    """Names of changes, and the changed code, at places in random order."""
    draw = random.Random(seed)
    for choices in draw.sample(every := places(code), len(every)):
        change, number = (name := draw.choice(choices)).split(":")
        changed = mutate_code(code, CHANGES[change](), int(number))
        with suppress(SyntaxError):
            if changed and meaning(changed) != meaning(code):
                yield name, changed


def passes(copy: Path, tests: list[str]) -> bool:
    """Run tests in a forked process, which does not live for ever."""
    if (child := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (HANG_SECONDS, HANG_SECONDS))
        signal.alarm(10 * HANG_SECONDS)
        os.chdir(copy)
        for stream in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        sys.path[:0] = [str(copy / part) for part in ("src", "tests", ".")]
        os.environ |= {"PYTHONPATH": os.pathsep.join(sys.path[:3]), "PYTHONDONTWRITEBYTECODE": "1"}
        options = ["-x", "-q", "-p", "no:cacheprovider", "-k", "not bit_equal"]  # long ones
        os._exit(int(pytest.main([*options, *tests])))
    return os.waitpid(child, 0)[1] == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--modules", default=",".join(MODULES))
    for name, default in (("sample", 20), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    sys.dont_write_bytecode = True
    print("| module | places | changes | noticed |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "results"))
        for module in asked.modules.split(","):
            file = copy / f"src/blicer/{module}.py"
            tests = [f"tests/test_{name}.py" for name in MODULES[module].split()]
            code, tried, noticed = file.read_text(), 0, 0
            if not passes(copy, tests):
                raise RuntimeError(f"the tests of {module} fail without any change")
            for name, changed in islice(drawn(code, asked.seed), asked.sample):
                file.write_text(changed)
                tried += 1
                if not passes(copy, tests):
                    noticed += 1
                else:
                    lines = difflib.unified_diff(code.split("\n"), changed.split("\n"), n=0)
                    print(module, name, *list(lines)[3:], sep="\n", file=sys.stderr, flush=True)
            file.write_text(code)
            print(f"| {module} | {len(places(code))} | {tried} | {noticed} |", flush=True)


if __name__ == "__main__":
    main()
