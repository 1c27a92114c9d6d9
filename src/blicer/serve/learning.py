"""Learning from decisions: train again in a process of its own, then use the new translator.

``python -m blicer.serve.learning`` is that process: a JSON line on standard input says what to do,
notes go to standard error. Folders beside the translator: ``.learned`` while the new one is made,
``.previous`` is the one before the last learning.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from blicer.errors import BlicerError, FileError, InputError
from blicer.files import check_replaceable, followed, locked
from blicer.lexicon import Lexicon
from blicer.progress import note
from blicer.serve.lookup import LEAVE, Lookup
from blicer.serve.store import Store, beside
from blicer.translator import DESCRIPTION, Translator, read_translator

LEARNED, PREVIOUS = "learned", "previous"
FIT = "fitting on"  # begins the note before every fit
USUAL_SECONDS = 60.0  # of the first fit; of later ones what the last took
MOST_CHANGES = 500
SURE = 0.5  # confidence of entries whose change matters
LAST_LINES = 20
Pairs = list[tuple[str, str]]


def interrupted(translator: Path) -> bool:
    """Whether a kill (or a server that is at it right now) left the translator without its name."""
    both = [beside(translator, ending) / DESCRIPTION for ending in (PREVIOUS, LEARNED)]
    return not followed(translator).exists() and all(path.is_file() for path in both)


def check_translator(translator: Path) -> None:
    """Raise ``FileError`` if there is no translator, not even after ``recover``; changes nothing.

    For callers that have no lock yet.
    """
    there = beside(translator, PREVIOUS) if interrupted(translator) else translator
    read_translator(there)


def recover(translator: Path) -> None:
    """Finish an exchange of translators that a kill interrupted.

    Raises ``FileError`` if there was no kill: another server is exchanging them right now.
    """
    if not interrupted(translator):
        return
    with locked(translator):
        if interrupted(translator):
            # Learning and going back both stop here. Either folder is a translator; the earlier
            # one is safe.
            os.replace(beside(translator, PREVIOUS), followed(translator))


class Learner:
    """Runs one training at a time and hands over what it made.

    ``lookup``: what is in use. ``use``: is called with what to use from now on.
    ``vectors``: the two vector files, if the translator does not say or they have moved.
    """

    def __init__(
        self,
        folder: Path,
        store: Store,
        lookup: Lookup,
        use: Callable[[Lookup], None],
        vectors: Sequence[Path] | None = None,
    ) -> None:
        self.folder, self.store, self.vectors = followed(folder), store, vectors
        self._lookup, self._use = lookup, use
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._before: Lookup | None = None
        self._expected_before: Any = None
        self._state, self._message, self._progress = "idle", "", 0.0
        self._started: str | None = None
        if self.can_go_back:
            self._state, self._message, self._progress = "done", "learned before this start", 1.0
            with suppress(FileError, KeyError, AttributeError):
                self._expected_before = read_translator(self._previous)["details"]["expected"]

    @property
    def can_go_back(self) -> bool:
        return (self._previous / DESCRIPTION).is_file()

    @property
    def _previous(self) -> Path:
        return beside(self.folder, PREVIOUS)

    # -- what is asked for --------------------

    def start(self) -> None:
        """Begin to learn; raises ``Busy`` if that is going on already."""
        right, wrong = self.store.judged()
        if not right and not wrong:
            raise InputError("there is no decision to learn from yet")
        check_vectors(self._lookup.translator, self.vectors)
        self._check_folders()
        job = {
            "translator": str(self.folder),
            "output": str(beside(self.folder, LEARNED)),
            "right": right.pairs,
            "wrong": wrong.pairs,
            "vectors": [str(path) for path in self.vectors] if self.vectors else None,
        }
        self._begin("learning", lambda: self._learn(job))

    def back(self) -> None:
        """Use the translator before the last learning again."""
        if not self.can_go_back:
            raise InputError("there is no earlier translator to go back to")
        self._check_folders()
        self._begin("going back", self._go_back)

    def stop(self) -> None:
        """End a training that is going on, and say what became of it; other work is finished."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            note("learning was interrupted: the translator is as it was; every decision is kept")
        if self._thread is not None:
            self._thread.join(LEAVE)

    def report(self) -> dict[str, Any]:
        """How far it is, and what the last learning changed as far as that is computed."""
        changes, now = self._changes(), self._lookup.translator.details.get("expected")
        learned = self._before is not None or self.can_go_back
        return {
            "state": self._state,
            "message": self._message,
            "progress": round(self._progress, 3),
            "started": self._started,
            "expected_before": self._expected_before if learned else now,
            "expected_after": now if learned else None,
            "changes": changes[:MOST_CHANGES],
            "n_changes": len(changes),
            "n_sure_changes": sum(map(_sure, changes)),
            "can_go_back": self.can_go_back and self._state != "running",
        }

    def _changes(self) -> list[dict[str, Any]]:
        """First translations that are others than before: of sure entries, then frequent words."""
        found: list[dict[str, Any]] = []
        for reverse in (False, True) if self._before is not None else ():
            assert self._before is not None
            old, new = (one.dictionaries[reverse].rows for one in (self._before, self._lookup))
            found += [
                {
                    "word": after.source,
                    "reverse": reverse,
                    "rank": after.rank,
                    "before": before.target,
                    "after": after.target,
                    "confidence_before": before.confidence,
                    "confidence_after": after.confidence,
                }
                for before, after in zip(old, new, strict=False)
                if before.target != after.target
            ]
        return sorted(found, key=lambda one: (not _sure(one), one["rank"]))

    def _check_folders(self) -> None:
        """Raise ``FileError`` now if a folder that will be replaced holds a user's own files."""
        for ending in (LEARNED, PREVIOUS):
            _check_ours(beside(self.folder, ending))

    # -- in a thread of its own --------------------

    def _begin(self, what: str, run: Callable[[], str]) -> None:
        with self._lock:
            if self._state == "running":
                raise Busy(f"{self._message or 'learning'}: wait until that is done")
            self._state, self._message, self._progress = "running", what, 0.0
            self._started = datetime.now(timezone.utc).isoformat(timespec="seconds")

        def guarded() -> None:
            try:
                with locked(self.folder):  # it is replaced
                    said = run()
            except Exception as error:  # anything else would leave it running for ever
                sentence = str(error) if isinstance(error, BlicerError) else repr(error)
                self._state, self._message = "failed", sentence
            else:
                self._state, self._message, self._progress = "done", said, 1.0

        self._thread = threading.Thread(target=guarded, daemon=True, name="blicer-learning")
        self._thread.start()

    def _learn(self, job: dict[str, Any]) -> str:
        self._train(job)
        self._message = "loading the new translator"
        output = Path(job["output"])
        new = Lookup.load(output, self._lookup.words)
        new.warm()
        _delete(self._previous)
        _exchange_folders(self.folder, self._previous, output)
        self._exchange(new)
        count = len(job["right"]), len(job["wrong"])
        return f"learned from {count[0]} right and {count[1]} wrong translations"

    def _go_back(self) -> str:
        self._message = "loading the earlier translator"
        old = Lookup.load(self._previous, self._lookup.words)
        old.warm()
        aside = beside(self.folder, LEARNED)
        _delete(aside)
        _exchange_folders(self.folder, aside, self._previous)
        self._exchange(old)
        _delete(aside)
        return "back at the translator before the last learning"

    def _exchange(self, new: Lookup) -> None:
        self._before, self._lookup = self._lookup, new
        self._expected_before = self._before.translator.details.get("expected")
        self._use(new)

    def _train(self, job: dict[str, Any]) -> None:
        """Run the training process and follow its notes."""
        process = subprocess.Popen(
            [sys.executable, "-m", "blicer.serve.learning"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "500"},
        )
        self._process = process
        assert process.stdin is not None
        assert process.stderr is not None
        last: deque[str] = deque(maxlen=LAST_LINES)
        pace = Pace()
        with process:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()  # it stays open: its end tells the process that we are gone
            reader = threading.Thread(target=_read_lines, args=(process.stderr, last, pace))
            reader.start()
            while reader.is_alive():
                reader.join(0.5)
                self._progress = pace.share()
                self._message = last[-1] if last else self._message
            process.stdin.close()
        if process.returncode:
            said = [line for line in last if line.startswith("blicer: ")]
            sentence = said[-1].removeprefix("blicer: ") if said else "\n".join(last)
            raise BlicerError(sentence or f"learning ended with code {process.returncode}")


def _sure(change: dict[str, Any]) -> bool:
    """Whether either translation was likely right: others come and go with every training."""
    return max(change["confidence_before"] or 0.0, change["confidence_after"] or 0.0) >= SURE


def _check_ours(folder: Path) -> None:
    if folder.is_symlink():
        raise FileError(folder, "is a link; it is left as it is: move it away")
    check_replaceable(folder, DESCRIPTION, "a translator")


def _delete(folder: Path) -> None:
    """Delete a translator if it is there; a folder with a user's files raises ``FileError``."""
    _check_ours(folder)
    if not folder.exists():
        return
    try:
        for inside in folder.iterdir():
            if inside.is_dir():
                shutil.rmtree(inside)
            elif inside.name != DESCRIPTION:
                inside.unlink()
        shutil.rmtree(folder)  # its description last: after a kill it is still known as ours
    except OSError as error:
        raise FileError(folder, f"cannot be deleted ({error.strerror or error})") from error


def _exchange_folders(folder: Path, old: Path, new: Path) -> None:
    """Move ``folder`` to ``old`` and ``new`` to its place; ``recover`` finishes it after a kill."""
    os.replace(folder, old)
    try:
        os.replace(new, folder)
    except OSError:
        os.replace(old, folder)
        raise


class Busy(BlicerError):
    """Something is going on that cannot go on twice."""


class Pace:
    """How far a training is, by the fits that have begun and how long they take."""

    def __init__(self) -> None:
        self.fits, self.total, self.last = 0, 2, USUAL_SECONDS
        self.began = time.monotonic()

    def hear(self, line: str) -> None:
        if line.startswith(FIT):
            now = time.monotonic()
            if self.fits:
                self.last = now - self.began
            self.fits, self.began = self.fits + 1, now
            words = line.rstrip(")").split()
            if "(fold" in words:  # "… (fold 1 of 3)"
                self.total = int(words[-1]) + 1

    def share(self) -> float:
        if not self.fits:
            return 0.0
        inside = min(0.95, (time.monotonic() - self.began) / self.last)
        return min(0.98, (self.fits - 1 + inside) / self.total)


def _read_lines(stream: Any, last: deque[str], pace: Pace) -> None:
    for line in stream:
        if text := line.strip():
            last.append(text)
            pace.hear(text)


# -- the process ----------------------------------------------------------------------------------


def check_vectors(translator: Translator, given: Sequence[Path | str] | None) -> dict[str, Any]:
    """How the vectors that the translator was trained on are loaded again, or why they are not."""
    recorded = translator.details.get("vectors")
    how: dict[str, Any] = dict(recorded) if isinstance(recorded, dict) else {}
    if given:
        how = {**how, "files": [str(path) for path in given], "starter": False}
    if how.get("starter"):
        return how
    if not how.get("files"):
        raise InputError(
            "the translator does not say which vectors it was trained on: start the server with "
            "--vectors SOURCE TARGET"
        )
    if gone := [path for path in how["files"] if not Path(path).exists()]:
        raise InputError(
            f"the vectors {gone[0]} are not there any more: start the server with "
            "--vectors SOURCE TARGET"
        )
    return how


def load_vectors(translator: Translator, given: Sequence[str] | None) -> list[Any]:
    """The vectors of both languages, as they were before they were mapped into one space."""
    from blicer import Embeddings, starter

    how = check_vectors(translator, given)
    most = how.get("max_words")
    if how.get("starter"):
        pair = starter.load()
        return [side.head(most or len(side)) for side in (pair.source, pair.target)]
    sides = (translator.source, translator.target)
    return [
        Embeddings.load(
            path, max_words=most, lowercase=how.get("lowercase", True), language=side.language
        )
        for path, side in zip(how["files"], sides, strict=True)
    ]


def retrain(
    translator: Translator, right: Lexicon, wrong: Lexicon, vectors: Sequence[str] | None = None
) -> Translator:
    """Train again with right pairs as further seeds, and wrong ones as negatives.

    What earlier learnings added is left out first, because those decisions may have been undone.
    """
    from blicer.config import Config
    from blicer.pipeline import train

    learned = translator.details.get("learned", {})
    earlier = {name: {(a, b) for a, b in learned.get(name, ())} for name in ("seeds", "wrong")}
    dropped = [(a, b) for a, b in learned.get("dropped", ())]
    given = [pair for pair in translator.seeds if pair not in earlier["seeds"]] + dropped
    bad = [pair for pair in translator.wrong if pair not in earlier["wrong"] and pair not in right]
    seeds, wrongs = Lexicon([*given, *right]), Lexicon([*bad, *wrong])
    source, target = load_vectors(translator, vectors)
    used = translator.details["config"]
    usual = Config.for_seeds(len(translator.seeds)).for_training(translator.details["seeds"])
    config = Config.for_seeds(len(seeds))
    if used != usual.to_dict() and used["preset"] in ("supervised", "semi_supervised"):
        config = Config.from_dict(used)  # the user's own choice
    names = next((one.names for one in translator.scorers if hasattr(one, "names")), ("", ""))
    new = train(
        source, target, seeds, config, wrong=wrongs, names=(names[0] or None, names[1] or None)
    )
    new.details["vectors"] = check_vectors(translator, vectors)
    known = set(given)
    new.details["learned"] = {
        "seeds": [pair for pair in right if pair not in known],
        "wrong": [pair for pair in wrong if pair not in set(bad)],
        "dropped": [pair for pair in given if pair in wrongs],
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    return new


def _leave_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """The training process."""
    from blicer import progress

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if hasattr(os, "nice"):
        os.nice(5)  # requests come first
    progress.enable()
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    right, wrong = (Lexicon(map(tuple, job[name])) for name in ("right", "wrong"))
    try:
        old = Translator.load(job["translator"])
        retrain(old, right, wrong, job["vectors"]).save(job["output"])
    except BlicerError as error:
        sys.stderr.write(f"blicer: {error}\n")
        sys.stderr.flush()
        os._exit(error.exit_code)
    os._exit(0)


if __name__ == "__main__":
    main()
