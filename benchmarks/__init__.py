"""Benchmarks: each module has `run()` and prints what it measures."""
