"""``blicer serve``: a page and an API to look at a dictionary, correct it, and learn from that."""
