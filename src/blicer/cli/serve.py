"""``blicer serve``: the page and the API of a translator."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Option

from blicer.cli import app, options
from blicer.errors import InputError, needed
from blicer.progress import note

DICTIONARY_WORDS = 20_000


@app.command()
def serve(
    translator: options.TranslatorFolder,
    port: Annotated[int, Option(min=0, max=65535, help="0: any that is free.")] = 8642,
    host: Annotated[str, Option(help="Another than this machine needs --token.")] = "127.0.0.1",
    token: Annotated[
        str | None, Option(envvar="BLICER_TOKEN", help="What clients must know to be answered.")
    ] = None,
    decisions: Annotated[
        Path | None, Option(help="File of decisions; by default TRANSLATOR.decisions.sqlite.")
    ] = None,
    words: Annotated[
        int, Option("--words", "-n", min=1, help="Frequent words a side that one can browse.")
    ] = DICTIONARY_WORDS,
    vectors: Annotated[
        tuple[Path, Path] | None, Option(help="What it was trained on, if moved since: two files.")
    ] = None,
) -> None:
    """Look at a dictionary, correct it, and learn from the corrections: a page and an API.

    Nothing leaves this machine. Decisions are on disk once they are acknowledged.

    Example: `blicer serve en-fr`
    """
    from blicer.serve.store import Store, beside

    with needed("fastapi", "blicer serve", "serve"):
        import uvicorn

        from blicer.serve.guard import is_loopback
    if token is not None and (not token.isascii() or not token.strip()):
        raise InputError("--token is empty or not ASCII; expected letters and digits")
    if token is None and not is_loopback(host):
        raise InputError(f"--host {host} lets other machines in: give a --token for them")
    from blicer.serve.learning import check_translator, recover

    check_translator(translator)  # before there is a store beside it
    store = Store(decisions or beside(translator, "decisions.sqlite"))
    try:
        recover(translator)
        from blicer.serve import app as served
        from blicer.serve.lookup import Lookup

        with served.listen(host, port) as listening:
            lookup = Lookup.load(translator, words)
            web = served.create_app(
                translator, lookup, store, host=host, token=token, vectors=vectors
            )
            note(f"decisions: {store.path} ({len(store)} so far)")
            note(f"open {served.address(listening, token)} (ctrl-C stops)")
            config = uvicorn.Config(web, **served.SETTINGS)
            # uvicorn shuts down cleanly, then raises the signal that ended it once more.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[listening])
            note("stopped")
    finally:
        store.close()
