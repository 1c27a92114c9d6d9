"""Importing this module registers every command, in the order in which help lists them."""
