"""Importing this module registers every command, in the order in which help lists them."""

from blicer.cli import pairs  # noqa: F401
