"""The cross-encoder's workings: tokens of pairs, training, checkpoints, fast scoring.

``blicer.reranker.Reranker`` is the way in; nothing here knows of spaces or dictionaries.
"""
