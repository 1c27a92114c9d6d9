"""Importing this module registers every command, in the order in which help lists them."""

# ruff: noqa: F401
from blicer.cli import align, benchmark, data, demo, evaluate, train, translate
from blicer.cli import align as pairs
from blicer.cli import evaluate as inspect
from blicer.cli import train as several
