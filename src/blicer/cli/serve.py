"""``blicer serve``: the page and the API of a translator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from blicer.cli import app, options
from blicer.errors import InputError
from blicer.pages import needed
from blicer.progress import note


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
    vectors: Annotated[
        tuple[Path, Path] | None, Option(help="What it was trained on, if moved since: two files.")
    ] = None,
) -> None:
    """Look at a dictionary, correct it, and learn from the corrections: a page and an API.

    Nothing leaves this machine. Decisions are on disk once they are acknowledged.

    Example: `blicer serve en-fr`
    """
    from blicer.serve import app as served
    from blicer.serve import learning
    from blicer.serve.guard import is_loopback
    from blicer.serve.lookup import Lookup
    from blicer.serve.store import Store

    with needed("uvicorn", "blicer serve", "serve"):
        import uvicorn
    if token is not None and (not token.isascii() or not token.strip()):
        raise InputError("--token is empty or not ASCII; expected letters and digits")
    if token is None and not is_loopback(host):
        raise InputError(f"--host {host} lets other machines in: give a --token for them")
    listening = served.listen(host, port)
    with listening:
        store = Store(decisions or learning.beside(translator, "decisions.sqlite"))
        try:
            learning.recover(translator)
            lookup = Lookup.load(translator)
            web = served.create_app(
                *(translator, lookup, store), host=host, token=token, vectors=vectors
            )
            note(f"decisions: {store.path} ({len(store)} so far)")
            note(f"open {served.address(listening, token)} (ctrl-C stops)")
            config = uvicorn.Config(
                web,
                log_level="warning",
                access_log=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=5,
                limit_concurrency=1_000,
                server_header=False,
                lifespan="on",
            )
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            store.close()
