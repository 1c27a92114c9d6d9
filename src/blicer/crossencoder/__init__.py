"""The cross-encoder (docs/method.md §3 and §4); ``blicer.crossencoder.model.Reranker`` first."""
