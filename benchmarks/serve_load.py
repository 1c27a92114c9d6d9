"""How fast ``blicer serve`` answers, what it keeps in memory, and what a kill leaves.

    python -m benchmarks.serve_load demo-output/translator

Starts the server on this machine (its loopback only), with a dictionary of ``--words`` words a
side, waits until that is computed, and measures: how long a known word takes; requests a second
and the 99th percentile with 1, 8 and 64 clients; resident memory over 100,000 requests; decisions
after a kill -9 in the middle of 1,000. Everything is bounded in number and time. Writes
``results/serve.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from blicer.files import atomic_write
from blicer.serve.client import Client
from blicer.translator import Translator

OUTPUT = Path("results/serve.md")
CLIENTS = (1, 8, 64)
MOST_SECONDS = 600.0  # of the long run
DECISIONS = 1_000


class Server:
    """``blicer serve`` in a process of its own."""

    def __init__(self, translator: Path, decisions: Path, words: int) -> None:
        code = "from blicer.cli import main; main()"
        asked = ["serve", str(translator), "--port", "0", "--words", str(words)]
        asked += ["--decisions", str(decisions)]
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *asked],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "300"},
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"http://[^/]+", line):
                self.url = found[0]
                break
        else:
            raise SystemExit("the server did not start")
        self.seconds = time.perf_counter() - started
        self.client = Client(self.url)

    def ready(self) -> None:
        while not self.client.get("/info")["dictionary"]["ready"]:
            time.sleep(1)

    @property
    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def cpu_seconds(self) -> float:
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)


Requests = Iterator[bytes]


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def post(path: str, body: Any) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def ask(
    url: str, requests: Requests, ends: float, seen: Callable[[float, bytes], None]
) -> None:
    """Send requests one after the other over one connection; tell how long each took."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    with contextlib.closing(writer):
        for request in requests:
            started = time.perf_counter()
            if started > ends:
                return
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"the server answered {head[:60]!r}")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            assert length is not None
            body = await reader.readexactly(int(length[1]))
            seen(time.perf_counter() - started, body)


def times(
    url: str, clients: int, requests: Callable[[int], Requests], seconds: float
) -> list[float]:
    """How long each request of so many clients took."""
    found: list[float] = []

    async def run() -> None:
        ends = time.perf_counter() + seconds
        asked = [ask(url, requests(n), ends, lambda t, _: found.append(t)) for n in range(clients)]
        await asyncio.gather(*asked)

    asyncio.run(run())
    return found


def translating(words: list[str], seed: int, number: int = 10**9) -> Requests:
    """Requests for translations of random words."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        yield post("/translate", {"words": [words[int(rng.integers(len(words)))]]})


def looking(words: list[str], seed: int) -> Requests:
    """What a page asks for: completion, entry, a page of the dictionary, a queue."""
    rng = np.random.default_rng(seed)
    while True:
        word = words[int(rng.integers(len(words)))]
        yield get(f"/complete?q={quote(word[:3])}")
        yield get(f"/entry?word={quote(word)}")
        yield get(f"/dictionary?offset={int(rng.integers(500))}&limit=50")
        yield get("/queue?kind=uncertain&limit=10")


def known_words(server: Server, frequent: list[str], rare: list[str]) -> list[str]:
    """Rows: what is asked, median and 99th percentile."""
    lines = ["| one client | median ms | 99th percentile ms |", "|---|---|---|"]

    def once(words: list[str], make: Callable[[str], bytes]) -> list[float]:
        return times(server.url, 1, lambda _: iter([make(word) for word in words]), 300)

    translated = lambda word: post("/translate", {"words": [word]})  # noqa: E731
    entered = lambda word: get(f"/entry?word={quote(word)}")  # noqa: E731
    for name, words, make in (
        ("translate a known word", frequent[:500], translated),
        ("translate a word not asked for before", rare[:300], translated),
        ("entry of a known word, first time", frequent[500:700], entered),
        ("the same entries again", frequent[500:700], entered),
    ):
        took = 1000 * np.array(once(words, make))
        lines.append(f"| {name} | {np.median(took):.1f} | {np.percentile(took, 99):.1f} |")
        print(lines[-1], flush=True)
    return lines


def load(server: Server, words: list[str], seconds: float) -> list[str]:
    lines = [
        "| request | clients | requests a second | median ms | 99th percentile ms | CPU ms each |"
    ]
    lines += ["|---|---|---|---|---|---|"]
    for name, requests in (
        ("translate a known word", lambda n: translating(words, n)),
        ("what the page asks", lambda n: looking(words, n)),
    ):
        for clients in CLIENTS:
            before = server.cpu_seconds
            took = 1000 * np.array(times(server.url, clients, requests, seconds))
            spent = 1000 * (server.cpu_seconds - before) / len(took)
            figures = [np.median(took), np.percentile(took, 99), spent]
            cells = [name, str(clients), f"{len(took) / seconds:.0f}"]
            cells += [f"{one:.1f}" for one in figures]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return lines


def memory(server: Server, words: list[str], number: int) -> list[str]:
    """Resident memory while many requests for any words are answered, by 8 clients."""
    lines = ["| requests | resident MB |", "|---|---|", f"| 0 | {server.megabytes:.0f} |"]
    done, part, ends = 0, number // 10, time.perf_counter() + MOST_SECONDS
    while done < number and (left := ends - time.perf_counter()) > 0:
        each = lambda n: translating(words, done + n, part // 8)  # noqa: B023, E731
        done += len(times(server.url, 8, each, left))
        lines.append(f"| {done:,} | {server.megabytes:.0f} |")
        print(lines[-1], flush=True)
    return lines


def killed(translator: Path, folder: Path) -> str:
    """Kill the server in the middle of decisions of 8 clients; count those that are there again."""
    store = folder / "killed.sqlite"
    server, acknowledged = Server(translator, store, 1), set[int]()

    def deciding(client: int) -> Requests:
        for number in range(DECISIONS // 8):
            pair = {"source": f"s{client}", "target": f"t{number}", "verdict": "accept"}
            yield post("/decisions", pair)

    def heard(_: float, body: bytes) -> None:
        acknowledged.add(json.loads(body)["id"])
        if len(acknowledged) == DECISIONS // 2:
            server.end(signal.SIGKILL)

    async def run() -> None:
        ends = time.perf_counter() + 120
        asked = [ask(server.url, deciding(n), ends, heard) for n in range(8)]
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(run())
    again = Server(translator, store, 1)
    kept = {one["id"] for one in again.client.decisions()}
    again.end(signal.SIGTERM)
    lost = len(acknowledged - kept)
    return (
        f"Kill -9 in the middle of {DECISIONS:,} decisions by 8 clients: {len(acknowledged)} were "
        f"acknowledged before it, {lost} of them lost ({len(kept)} on disk)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("translator", type=Path)
    parser.add_argument("--words", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--requests", type=int, default=100_000)
    arguments = parser.parse_args()
    vocabulary = Translator.load(arguments.translator).source.words
    frequent, rare = vocabulary[: arguments.words], vocabulary[arguments.words :]
    with tempfile.TemporaryDirectory() as folder:
        server = Server(arguments.translator, Path(folder) / "d.sqlite", arguments.words)
        print(f"started in {server.seconds:.1f} s", flush=True)
        server.ready()
        text = [
            "# `blicer serve` under load",
            "",
            _ABOUT.format(os.cpu_count(), os.getloadavg()[0]),
            "",
        ]
        text += [*known_words(server, frequent, rare), ""]
        text += [*load(server, frequent, arguments.seconds), ""]
        text += ["Memory while 8 clients translate words drawn from the most frequent ones:", ""]
        text += [*memory(server, frequent, arguments.requests), ""]
        code = server.end(signal.SIGTERM)
        text += [killed(arguments.translator, Path(folder))]
        text += [
            "",
            f"Start until the page is there: {server.seconds:.1f} s; SIGTERM: code {code}.",
        ]
    with atomic_write(OUTPUT) as file:
        file.write("\n".join(text) + "\n")


_ABOUT = """`python -m benchmarks.serve_load TRANSLATOR` on the starter pair (30,000 words a side),
{} cores that the clients share with the server, loopback. A known word is one of the dictionary
that the server has computed since its start. Other work on the machine slows all but the last
column of the second table, what the server itself computes; the load average at the start was
{:.1f}."""

if __name__ == "__main__":
    main()
