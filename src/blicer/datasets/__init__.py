"""Published dictionaries and vectors, fetched into a folder: ``blicer data get``."""

from blicer.datasets.catalogue import COLLECTIONS, Collection
from blicer.datasets.download import Downloader, Patience
from blicer.datasets.fetching import FAILED, FETCHED, THERE, Outcome, get

__all__ = [
    "COLLECTIONS",
    "FAILED",
    "FETCHED",
    "THERE",
    "Collection",
    "Downloader",
    "Outcome",
    "Patience",
    "get",
]
