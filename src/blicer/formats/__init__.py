"""Readers and writers of vector files: one module a format, behind ``blicer.Embeddings``."""
