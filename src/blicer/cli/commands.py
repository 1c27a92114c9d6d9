"""Importing this module registers every command, in the order in which help lists them."""

from blicer.cli import align, data, demo, evaluate, inspect, pairs, train, translate  # noqa: F401
