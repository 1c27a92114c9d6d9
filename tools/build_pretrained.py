"""Make the dictionary that comes with blicer, from the translator that ``blicer demo`` writes.

blicer demo -o demo-output
python -m tools.build_pretrained demo-output/translator
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

from blicer.expectations import lines
from blicer.io.dictionary import tsv_row
from blicer.pretrained import OURS, publish
from blicer.translator import Translator

NAME, WORDS, LEAST = "en-ru-starter", 8_000, 0.3


def main(folder: str) -> None:
    translator = Translator.load(folder)
    words = translator.source.words[:WORDS]
    rows = [["source", "target", "confidence"]]
    for entry in translator.translate_stream(words, 3, min_confidence=LEAST):
        rows += [[entry.word, one.word, f"{one.confidence:.2f}"] for one in entry.candidates]
    said = lines(translator.details["expected"], ("en", "ru"))[0]
    about = (
        f"The {WORDS:,} most frequent English words of the starter pair with up to three Russian "
        f"translations that are at least {LEAST:.0%} sure; {said}; vectors: GloVe and navec"
    )
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "dictionary.tsv.gz"
        text = "".join(map(tsv_row, rows)).encode("utf-8")
        file.write_bytes(gzip.compress(text, mtime=0))
        publish(file, OURS.parent / NAME, licence="Apache-2.0", languages=("en", "ru"), about=about)


if __name__ == "__main__":
    main(*sys.argv[1:])
