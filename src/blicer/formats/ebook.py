"""EPUB and Kindle dictionaries, made by the program ``pyglossary`` where the user has it.

It is under the GPL, so it is called as a program and never imported.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from blicer.dictionary import Dictionary
from blicer.errors import BlicerError
from blicer.files import open_output
from blicer.formats import stardict

PROGRAM = "pyglossary"


def write(path: Path, dictionary: Dictionary) -> None:
    program = shutil.which(PROGRAM)
    if program is None:
        raise BlicerError(
            f"EPUB and Kindle are made by the program {PROGRAM}, which is not installed: "
            "pip install pyglossary (GPL), or write StarDict (.ifo) and convert that"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stardict.write(folder / "dictionary.ifo", dictionary)
        made = folder / f"made{path.suffix.lower()}"
        command = [program, str(folder / "dictionary.ifo"), str(made), "--no-color"]
        command += ["--read-format=Stardict", "--ui=none"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if not made.is_file():
            said = (ran.stderr or ran.stdout).strip().splitlines() or ["no reason given"]
            raise BlicerError(f"{PROGRAM} wrote nothing ({said[-1]})")
        with open_output(path, "wb") as file:
            file.write(made.read_bytes())
