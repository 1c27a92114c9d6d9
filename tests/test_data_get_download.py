"""The downloader against a server that cuts, forgets, changes and lies."""

from __future__ import annotations

import gzip
import random
import shutil
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.datasets import download
from blicer.datasets.answers import DownloadError, Passing, no_connection
from blicer.datasets.download import Downloader, Patience
from blicer.datasets.part import Part
from blicer.datasets.watch import Watch, WordVectors
from blicer.errors import FileError
from flaky_server import HASTY, PATIENT, Site, serving

BODY = random.Random(7).randbytes(300_000)
PATH = "/some/file.tsv"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as running:
        running.files[PATH] = BODY
        yield running


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def downloader(waits: list[float]) -> Downloader:
    return Downloader(Patience(timeout=5, sleep=waits.append))


def fetch(
    downloader: Downloader, site: Site, folder: Path, path: str = PATH, watch: Watch | None = None
) -> bytes:
    target = folder / path.rsplit("/")[-1]
    with Part(target) as part:
        downloader.fetch(site.url + path, part, watch)
        part.become_target()
    assert [file.name for file in folder.iterdir()] == [target.name]  # nothing is left over
    return target.read_bytes()


def test_whole_file_in_one_request(downloader: Downloader, site: Site, tmp_path: Path) -> None:
    assert fetch(downloader, site, tmp_path) == BODY
    assert site.firsts() == [None]


@pytest.mark.parametrize("reset", [False, True])
def test_goes_on_where_the_connection_was_cut(
    downloader: Downloader, site: Site, tmp_path: Path, waits: list[float], reset: bool
) -> None:
    site.cuts, site.reset = [100_000, 0, 50_000], reset
    assert fetch(downloader, site, tmp_path) == BODY
    assert len(site.asked) == 4
    assert len(waits) == 3
    assert all(one.if_range == site.tag(BODY) for one in site.asked if one.first_byte)
    if not reset:  # a reset throws away what was under way
        assert site.firsts() == [None, 100_000, 100_000, 150_000]
        assert waits == [1, 2, 1]  # doubled without a new byte, from the start after one


@given(
    cuts=st.lists(st.integers(0, 2_000), max_size=5),
    body=st.binary(max_size=3_000),
    ranges=st.booleans(),
    etag=st.sampled_from(["strong", "weak", None]),
    modified=st.sampled_from(["Mon, 06 Jan 2020 10:00:00 GMT", None]),
    chunked=st.booleans(),
)
@settings(max_examples=60)
def test_cuts_anywhere_end_in_the_same_bytes(
    one_site: Site,
    cuts: list[int],
    body: bytes,
    ranges: bool,
    etag: str | None,
    modified: str | None,
    chunked: bool,
) -> None:
    body = b"." + body  # never the start of a web page, which is refused
    one_site.files, one_site.cuts = {PATH: body}, list(cuts)
    one_site.ranges, one_site.chunked = ranges, chunked
    one_site.etag, one_site.modified = etag, modified
    with tempfile.TemporaryDirectory() as folder:
        assert fetch(PATIENT, one_site, Path(folder)) == body


@pytest.fixture(scope="module")
def one_site() -> Iterator[Site]:
    with serving() as running:
        yield running


def test_server_that_ignores_range_starts_over(
    downloader: Downloader, site: Site, tmp_path: Path
) -> None:
    site.cuts, site.ranges = [120_000], False
    assert fetch(downloader, site, tmp_path) == BODY
    assert site.firsts() == [None, 120_000]


@pytest.mark.parametrize("if_range", [True, False])
@pytest.mark.parametrize("etag", ["strong", "weak"])
@pytest.mark.parametrize("longer", [-1000, 0, 1000])
def test_changed_file_is_never_put_together_from_two_versions(
    downloader: Downloader, site: Site, tmp_path: Path, if_range: bool, etag: str, longer: int
) -> None:
    new = random.Random(8).randbytes(len(BODY) + longer)
    site.cuts, site.if_range, site.etag = [200_000], if_range, etag

    def change(number: int) -> None:
        if number == 2:
            site.files[PATH] = new

    site.before = change
    assert fetch(downloader, site, tmp_path) == new


def test_file_that_became_shorter_than_what_had_come(
    downloader: Downloader, site: Site, tmp_path: Path
) -> None:
    site.cuts, site.etag = [200_000], None
    site.before = lambda number: site.files.update({PATH: BODY[:1000] if number > 1 else BODY})
    assert fetch(downloader, site, tmp_path) == BODY[:1000]


def test_file_that_never_stays_the_same_is_given_up(
    downloader: Downloader, site: Site, tmp_path: Path
) -> None:
    site.cuts = [1000] * 100
    site.before = lambda number: site.files.update({PATH: BODY + bytes(number)})
    with pytest.raises(DownloadError):
        fetch(downloader, site, tmp_path)
    assert len(site.asked) < 20


def test_server_that_goes_on_elsewhere_is_not_believed(
    downloader: Downloader, site: Site, tmp_path: Path
) -> None:
    site.cuts, site.off_by = [120_000], 10
    assert fetch(downloader, site, tmp_path) == BODY
    assert site.firsts() == [None, 120_000, None]


def test_silent_server_is_asked_again(site: Site, tmp_path: Path) -> None:
    site.before = lambda number: time.sleep(0.4 if number == 1 else 0)
    waits: list[float] = []
    assert fetch(Downloader(Patience(timeout=0.1, sleep=waits.append)), site, tmp_path) == BODY
    assert waits


def test_another_run_goes_on(site: Site, tmp_path: Path) -> None:
    site.cuts = [100_000, 0]
    with pytest.raises(DownloadError, match=r"100\.0 kB are kept: the same command goes on"):
        fetch(HASTY, site, tmp_path)
    assert (tmp_path / "file.tsv.part").read_bytes() == BODY[:100_000]
    with pytest.raises(DownloadError):
        fetch(HASTY, site, tmp_path)
    assert fetch(HASTY, site, tmp_path) == BODY
    assert site.firsts() == [None, 100_000, 100_000]


def test_part_that_nothing_is_known_about_is_not_built_on(
    downloader: Downloader, site: Site, tmp_path: Path
) -> None:
    (tmp_path / "file.tsv.part").write_bytes(b"something else")
    assert fetch(downloader, site, tmp_path) == BODY
    assert site.firsts() == [None]


def test_part_from_elsewhere_outlives_an_address_without_the_file(
    site: Site, tmp_path: Path
) -> None:
    site.cuts = [100_000]
    with pytest.raises(DownloadError):
        fetch(HASTY, site, tmp_path)
    with pytest.raises(DownloadError, match="is not there"), Part(tmp_path / "file.tsv") as part:
        HASTY.fetch(f"{site.url}/elsewhere/file.tsv", part)
    assert fetch(HASTY, site, tmp_path) == BODY
    assert site.firsts() == [None, None, 100_000]


def test_whole_part_needs_no_request(downloader: Downloader, site: Site, tmp_path: Path) -> None:
    with Part(tmp_path / "file.tsv") as part:
        downloader.fetch(site.url + PATH, part)  # killed before it got its name
    assert fetch(downloader, site, tmp_path) == BODY
    assert len(site.asked) == 1


def test_busy_server_is_asked_again_when_it_says(
    downloader: Downloader, site: Site, tmp_path: Path, waits: list[float]
) -> None:
    site.refusals = [(503, {}), (429, {"Retry-After": "7"}), (500, {"Retry-After": "9999"})]
    assert fetch(downloader, site, tmp_path) == BODY
    assert waits == [1, 7, 60]


def test_gives_up_after_as_many_attempts_as_told(
    downloader: Downloader, site: Site, tmp_path: Path, waits: list[float]
) -> None:
    site.refusals = [(503, {})] * 10
    with pytest.raises(DownloadError, match="503 Service Unavailable; try again later"):
        fetch(downloader, site, tmp_path)
    assert waits == [1, 2, 4, 8, 16]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [404, 403, 410])
def test_absent_file_is_not_asked_for_again(
    downloader: Downloader, site: Site, tmp_path: Path, status: int
) -> None:
    site.refusals = [(status, {})]
    with pytest.raises(DownloadError, match=rf"file\.tsv: is not there.*{status}") as caught:
        fetch(downloader, site, tmp_path)
    assert caught.value.absent
    assert len(site.asked) == 1


def test_redirects_keep_the_place(downloader: Downloader, site: Site, tmp_path: Path) -> None:
    site.redirects["/short.tsv"] = site.url + PATH
    site.cuts = [70_000]
    assert fetch(downloader, site, tmp_path, "/short.tsv") == BODY
    assert site.firsts() == [None, None, 70_000, 70_000]


def test_unreachable_host_is_waited_for_once(
    downloader: Downloader, site: Site, tmp_path: Path, waits: list[float]
) -> None:
    dead = Site(url="http://127.0.0.1:9")  # discard: nobody listens
    with pytest.raises(DownloadError, match=r"no connection to 127\.0\.0\.1:9"):
        fetch(downloader, dead, tmp_path)
    assert waits == [1, 2]
    with pytest.raises(DownloadError, match="no connection"):
        fetch(downloader, dead, tmp_path, "/other.tsv")
    assert waits == [1, 2]


def test_log_in_page_is_no_file(downloader: Downloader, site: Site, tmp_path: Path) -> None:
    site.files[PATH] = b"\n <!DOCTYPE html><title>Hotel</title>"
    with pytest.raises(DownloadError, match="a web page came instead of the file"):
        fetch(downloader, site, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_packed_answer_is_refused(downloader: Downloader, site: Site, tmp_path: Path) -> None:
    site.headers["Content-Encoding"] = "br"
    with pytest.raises(DownloadError, match=r"came packed \(br\)"):
        fetch(downloader, site, tmp_path)


def test_damaged_gzip_is_fetched_again(downloader: Downloader, site: Site, tmp_path: Path) -> None:
    good = gzip.compress(b"2 1\n" + b"cat 1\n" * 20_000)
    bad = good[:100] + b"\0" * 50 + good[150:]
    path = "/a.vec.gz"
    site.before = lambda number: site.files.update({path: bad if number == 1 else good})
    assert fetch(downloader, site, tmp_path, path, WordVectors(packed=True)) == good
    assert site.firsts() == [None, None]


def test_gzip_knows_its_end_when_the_server_does_not(
    downloader: Downloader, site: Site, tmp_path: Path
) -> None:
    packed = gzip.compress(b"1 1\ncat 1\n") + gzip.compress(b"dog 2\n")  # two members
    site.files["/a.vec.gz"], site.length, site.cuts = packed, False, [10, 5]
    watch = WordVectors(packed=True)
    assert fetch(downloader, site, tmp_path, "/a.vec.gz", watch) == packed
    assert watch.words == 2


def test_two_processes_do_not_fill_one_part(tmp_path: Path) -> None:
    with Part(tmp_path / "a"), pytest.raises(FileError, match="by another process"):
        Part(tmp_path / "a").__enter__()


def test_full_disk_is_said_before_the_transfer(
    downloader: Downloader, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(10**6, 10**6 - 1000, 1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(FileError, match=r"needs 300\.0 kB, and 1\.0 kB are free"):
        fetch(downloader, site, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_certificates_are_checked() -> None:
    handlers = Downloader()._opener.handlers
    (secure,) = (one for one in handlers if isinstance(one, urllib.request.HTTPSHandler))
    assert secure._context.verify_mode == ssl.CERT_REQUIRED
    assert secure._context.check_hostname
    error = ssl.SSLCertVerificationError()
    error.verify_message = "self-signed certificate"
    told = no_connection("https://example.org/a", error)
    assert not isinstance(told, Passing)  # not tried again
    assert "the certificate of example.org is not valid here (self-signed" in str(told)


@pytest.mark.parametrize("to", ["http://example.org/a", "ftp://example.org/a"])
def test_redirect_away_from_https_is_refused(to: str) -> None:
    request = urllib.request.Request("https://example.org/a")
    with pytest.raises(DownloadError, match="not safe"):
        download._SafeRedirects().redirect_request(request, None, 302, "Found", None, to)
