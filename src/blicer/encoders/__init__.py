"""Hugging Face encoders: loading them, vectors of words, tuning with checkpoints."""
