"""Importing this module registers every command, in the order in which help lists them."""

# ruff: noqa: F401
from blicer.cli import (
    align,
    benchmark,
    data,
    demo,
    evaluate,
    inspect,
    pairs,
    several,
    train,
    translate,
)
