"""Vector files: the first words of them, how much is there."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.download import FAILED, FETCHED, THERE, Outcome
from blicer.embeddings import Embeddings
from flaky_server import HASTY, Site, fetch_from, serving

WIKI = "/fasttext/vectors-wiki/"
CRAWL = "/fasttext/vectors-crawl/"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def one_site() -> Iterator[Site]:
    with serving() as running:
        yield running


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [one.status for one in outcomes]


def vec(words: int, dim: int = 3, said: int | None = None, end: bytes = b"\n") -> bytes:
    rows = [b"w%d " % n + b" ".join(b"%d.5" % (n + d) for d in range(dim)) for n in range(words)]
    return b"\n".join([b"%d %d" % (words if said is None else said, dim), *rows]) + end


def naive_first(text: bytes, n: int) -> bytes:
    """The oracle: all lines in memory, blank ones dropped; a tab marks a header that was cut."""
    header, *lines = text.decode().split("\n")
    words = [line for line in lines if line.strip()]
    mark = "\t" if len(words) >= n else ""
    return "\n".join([f"{len(words[:n])} {header.split()[1]}{mark}", *words[:n], ""]).encode()


@given(
    words=st.integers(1, 60),
    first=st.integers(1, 70),
    packed=st.booleans(),
    ranges=st.booleans(),
    end=st.sampled_from([b"\n", b"", b"\n\n \n"]),
    cuts=st.lists(st.integers(0, 900), max_size=4),
)
@settings(max_examples=60)
def test_first_words_are_the_same_wherever_the_stream_is_cut(
    one_site: Site,
    words: int,
    first: int,
    packed: bool,
    ranges: bool,
    end: bytes,
    cuts: list[int],
) -> None:
    text = vec(words, said=words + 5, end=end)
    one_site.cuts, one_site.ranges = list(cuts), ranges
    one_site.files = {CRAWL + "cc.en.300.vec.gz": gzip.compress(text), WIKI + "wiki.en.vec": text}
    name = "fasttext-cc" if packed else "fasttext-wiki"
    with tempfile.TemporaryDirectory() as folder:
        (outcome,) = fetch_from(one_site, Path(folder), name, "en", first=first)
        file = Path(folder) / "vectors" / ("cc.en.300.vec" if packed else "wiki.en.vec")
        assert file.read_bytes() == naive_first(text, first)
        assert outcome.words == min(words, first)
        assert [one.name for one in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("packed", [False, True])
def test_first_words_end_the_connection(site: Site, tmp_path: Path, packed: bool) -> None:
    text = vec(12_000, dim=300)  # 25 megabytes, more than the system keeps under way
    body = gzip.compress(text, 0) if packed else text
    path = CRAWL + "cc.en.300.vec.gz" if packed else WIKI + "wiki.en.vec"
    site.files[path] = body
    name = "fasttext-cc" if packed else "fasttext-wiki"
    assert statuses(fetch_from(site, tmp_path, name, "en", first=100)) == [FETCHED]
    assert site.sent < len(body) / 2
    (file,) = (tmp_path / "vectors").glob("*.vec")
    assert file.read_bytes() == naive_first(text, 100)


def test_first_words_load_as_vectors(site: Site, tmp_path: Path) -> None:
    site.files[CRAWL + "cc.en.300.vec.gz"] = gzip.compress(vec(20))
    fetch_from(site, tmp_path, "fasttext-cc", "en", first=5)
    loaded = Embeddings.load(tmp_path / "vectors" / "cc.en.300.vec", cache=False)
    assert loaded.words == ["w0", "w1", "w2", "w3", "w4"]
    assert loaded.vectors[4].tolist() == [4.5, 5.5, 6.5]


def test_how_many_words_are_there_decides(site: Site, tmp_path: Path) -> None:
    site.files[WIKI + "wiki.en.vec"] = vec(20)
    file = tmp_path / "vectors" / "wiki.en.vec"

    def status_and_words(first: int | None) -> tuple[str, int | None]:
        (outcome,) = fetch_from(site, tmp_path, "fasttext-wiki", "en", first=first)
        return outcome.status, outcome.words

    assert status_and_words(5) == (FETCHED, 5)
    assert status_and_words(5) == (THERE, 5)
    assert status_and_words(3) == (THERE, 5)
    assert status_and_words(8) == (FETCHED, 8)
    assert status_and_words(None) == (FETCHED, 20)
    assert file.read_bytes() == vec(20)
    assert status_and_words(None) == (THERE, 20)
    assert status_and_words(1000) == (THERE, 20)  # all that there are
    assert len(site.firsts()) == 3


def test_vectors_of_the_user_are_kept(site: Site, tmp_path: Path) -> None:
    site.files[WIKI + "wiki.en.vec"] = vec(20)
    file = tmp_path / "vectors" / "wiki.en.vec"
    file.parent.mkdir()
    file.write_bytes(vec(7))
    for first in (6, 8, None):
        (kept,) = fetch_from(site, tmp_path, "fasttext-wiki", "en", first=first)
        assert (kept.status, kept.words) == (THERE, 7)
    assert file.read_bytes() == vec(7)


def test_part_of_first_words_serves_the_whole(site: Site, tmp_path: Path) -> None:
    packed = gzip.compress(vec(5000), 1)
    site.files[CRAWL + "cc.en.300.vec.gz"], site.cuts = packed, [1000]
    assert fetch_from(site, tmp_path, "fasttext-cc", "en", first=4000, **HASTY)[0].status == FAILED
    assert statuses(fetch_from(site, tmp_path, "fasttext-cc", "en")) == [FETCHED]
    assert site.firsts() == [None, 1000]
    assert (tmp_path / "vectors" / "cc.en.300.vec.gz").read_bytes() == packed


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"the 0.1 0.2\n", "expected the number of words and the dimension"),
        (b"<html>please log in</html>", "a web page came instead"),
        (b"", "on its first line, found ''"),
    ],
)
def test_what_is_no_vector_file_is_not_kept(
    site: Site, tmp_path: Path, body: bytes, problem: str
) -> None:
    site.files[WIKI + "wiki.en.vec"] = body
    (outcome,) = fetch_from(site, tmp_path, "fasttext-wiki", "en")
    assert problem in str(outcome.problem)
    assert list((tmp_path / "vectors").iterdir()) == []


def test_the_header_tells_a_cut_where_the_server_does_not(site: Site, tmp_path: Path) -> None:
    site.files[WIKI + "wiki.en.vec"] = vec(20)
    site.length = False
    site.cuts = [150]
    (outcome,) = fetch_from(site, tmp_path, "fasttext-wiki", "en")
    assert (outcome.status, outcome.words) == (FETCHED, 20), site.asked
    assert (tmp_path / "vectors" / "wiki.en.vec").read_bytes() == vec(20)


def test_the_whole_file_takes_the_place_of_its_first_words(site: Site, tmp_path: Path) -> None:
    site.files[CRAWL + "cc.en.300.vec.gz"] = gzip.compress(vec(20))
    fetch_from(site, tmp_path, "fasttext-cc", "en", first=5)
    assert (tmp_path / "vectors" / "cc.en.300.vec").is_file()
    (whole,) = fetch_from(site, tmp_path, "fasttext-cc", "en")
    assert (whole.status, whole.words) == (FETCHED, 20)
    names = sorted(path.name for path in (tmp_path / "vectors").iterdir())
    assert names == ["cc.en.300.vec.gz"]
    # One that somebody else put there stays.
    (tmp_path / "vectors" / "cc.en.300.vec.gz").unlink()
    (tmp_path / "vectors" / "cc.en.300.vec").write_bytes(vec(3))
    (again,) = fetch_from(site, tmp_path, "fasttext-cc", "en")
    assert again.status == FETCHED
    assert (tmp_path / "vectors" / "cc.en.300.vec").read_bytes() == vec(3)
