"""The cross-encoder's workings: tokens of pairs, training, checkpoints, fast scoring.

``blicer.crossencoder.model.Reranker`` is the way in; nothing here knows of spaces or dictionaries.
"""
