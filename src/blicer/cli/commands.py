"""Importing this module registers every command, in the order in which help lists them."""

from blicer.cli import evaluate, inspect, pairs  # noqa: F401
