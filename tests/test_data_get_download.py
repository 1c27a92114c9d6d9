"""The downloader against a server that cuts, forgets, changes and lies."""

from __future__ import annotations

import errno
import fcntl
import gzip
import random
import ssl
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer import download
from blicer.download import Check, DownloadError, Part
from blicer.errors import FileError
from flaky_server import HASTY, Site, serving

BODY = random.Random(7).randbytes(300_000)
PATH = "/some/file.tsv"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as running:
        running.files[PATH] = BODY
        yield running


def fetch(
    site: Site, folder: Path, path: str = PATH, check: Check = float, **patience: float
) -> bytes:
    part = Part(folder / path.rsplit("/")[-1])
    patience = {"timeout": 5, **patience}
    download.fetch(site.url + path, part, check, **patience)  # type: ignore[arg-type]
    part.become_target()
    assert [file.name for file in folder.iterdir()] == [part.target.name]  # nothing is left over
    return part.target.read_bytes()


def test_whole_file_in_one_request(site: Site, tmp_path: Path) -> None:
    assert fetch(site, tmp_path) == BODY
    assert site.firsts() == [None]


@pytest.mark.parametrize("reset", [False, True])
def test_goes_on_where_the_connection_was_cut(site: Site, tmp_path: Path, reset: bool) -> None:
    site.cuts, site.reset = [100_000, 0, 50_000], reset
    assert fetch(site, tmp_path) == BODY
    assert len(site.asked) == 4
    assert len(site.waits) == 3
    assert all(one.if_range == site.tag(BODY) for one in site.asked if one.first_byte)
    if not reset:  # a reset throws away what was under way
        assert site.firsts() == [None, 100_000, 100_000, 150_000]
        assert site.waits == [1, 2, 1]  # doubled without a new byte, from the start after one


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
        assert fetch(one_site, Path(folder), attempts=12) == body


@pytest.fixture(scope="module")
def one_site() -> Iterator[Site]:
    with serving() as running:
        yield running


def test_server_that_ignores_range_starts_over(site: Site, tmp_path: Path) -> None:
    site.cuts, site.ranges = [120_000], False
    assert fetch(site, tmp_path) == BODY
    assert site.firsts() == [None, 120_000]


@pytest.mark.parametrize("if_range", [True, False])
@pytest.mark.parametrize("etag", ["strong", "weak"])
@pytest.mark.parametrize("longer", [-1000, 0, 1000])
def test_changed_file_is_never_put_together_from_two_versions(
    site: Site, tmp_path: Path, if_range: bool, etag: str, longer: int
) -> None:
    new = random.Random(8).randbytes(len(BODY) + longer)
    site.cuts, site.if_range, site.etag = [200_000], if_range, etag

    def change(number: int) -> None:
        if number == 2:
            site.files[PATH] = new

    site.before = change
    assert fetch(site, tmp_path) == new


def test_file_that_became_shorter_than_what_had_come(site: Site, tmp_path: Path) -> None:
    site.cuts, site.etag = [200_000], None
    site.before = lambda number: site.files.update({PATH: BODY[:1000] if number > 1 else BODY})
    assert fetch(site, tmp_path) == BODY[:1000]


def test_file_that_never_stays_the_same_is_given_up(site: Site, tmp_path: Path) -> None:
    site.cuts = [1000] * 100
    site.before = lambda number: site.files.update({PATH: BODY + bytes(number)})
    with pytest.raises(DownloadError):
        fetch(site, tmp_path)
    assert len(site.asked) < 20


def test_server_that_goes_on_elsewhere_is_not_believed(site: Site, tmp_path: Path) -> None:
    site.cuts, site.off_by = [120_000], 10
    assert fetch(site, tmp_path) == BODY
    assert site.firsts() == [None, 120_000, None]


def test_silent_server_is_asked_again(site: Site, tmp_path: Path) -> None:
    site.before = lambda number: time.sleep(0.4 if number == 1 else 0)
    assert fetch(site, tmp_path, timeout=0.1) == BODY
    assert site.waits


def test_another_run_goes_on(site: Site, tmp_path: Path) -> None:
    site.cuts = [100_000, 0]
    with pytest.raises(DownloadError, match=r"100\.0 kB are kept: the same command goes on"):
        fetch(site, tmp_path, **HASTY)
    assert (tmp_path / "file.tsv.part").read_bytes() == BODY[:100_000]
    with pytest.raises(DownloadError):
        fetch(site, tmp_path, **HASTY)
    assert fetch(site, tmp_path, **HASTY) == BODY
    assert site.firsts() == [None, 100_000, 100_000]


def test_part_that_nothing_is_known_about_is_not_built_on(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.tsv.part").write_bytes(b"something else")
    assert fetch(site, tmp_path) == BODY
    assert site.firsts() == [None]


def test_part_from_elsewhere_outlives_an_address_without_the_file(
    site: Site, tmp_path: Path
) -> None:
    site.cuts = [100_000]
    with pytest.raises(DownloadError):
        fetch(site, tmp_path, **HASTY)
    with pytest.raises(DownloadError, match="is not there"):
        download.fetch(f"{site.url}/elsewhere/file.tsv", Part(tmp_path / "file.tsv"))
    assert fetch(site, tmp_path, **HASTY) == BODY
    assert site.firsts() == [None, None, 100_000]


def test_whole_part_needs_no_request(site: Site, tmp_path: Path) -> None:
    download.fetch(site.url + PATH, Part(tmp_path / "file.tsv"))  # killed before it got its name
    assert fetch(site, tmp_path) == BODY
    assert len(site.asked) == 1


def test_busy_server_is_asked_again_when_it_says(site: Site, tmp_path: Path) -> None:
    site.refusals = [(503, {}), (429, {"Retry-After": "7"}), (500, {"Retry-After": "9999"})]
    assert fetch(site, tmp_path) == BODY
    assert site.waits == [1, 7, 60]


@pytest.mark.parametrize("number", ["\u00b2", "9" * 5_000])
def test_numbers_that_are_none_are_ignored(site: Site, tmp_path: Path, number: str) -> None:
    site.refusals = [(503, {"Retry-After": number})]
    site.length, site.headers = False, {"Content-Length": number}
    assert fetch(site, tmp_path) == BODY
    assert site.waits == [1]


@pytest.mark.parametrize("to", ["http://[::1", "http://127.0.0.1:x/"])
def test_a_redirect_to_no_address(site: Site, tmp_path: Path, to: str) -> None:
    site.redirects[PATH] = to
    with pytest.raises(DownloadError, match="cannot be asked for"):
        fetch(site, tmp_path)


def test_archives_that_cannot_be_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as made:
        made.writestr("en-fr.txt", BODY)
    whole = archive.read_bytes()
    no_filter = whole.replace(whole[39:48], b"\x09\x04\x05\x00" + b"\xff" * 5, 1)
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("é.txt", b"")
    no_name = archive.read_bytes().replace("é".encode(), b"\xff\xff")
    for damaged in (no_filter, no_name):
        archive.write_bytes(damaged)
        with pytest.raises(FileError, match="cannot be unpacked"):
            download.extract(archive, tmp_path / "en-fr.txt")


def test_gives_up_after_as_many_attempts_as_told(site: Site, tmp_path: Path) -> None:
    site.refusals = [(503, {})] * 10
    with pytest.raises(DownloadError, match="503 Service Unavailable; try again later"):
        fetch(site, tmp_path)
    assert site.waits == [1, 2, 4, 8, 16]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [404, 403, 410])
def test_absent_file_is_not_asked_for_again(site: Site, tmp_path: Path, status: int) -> None:
    site.refusals = [(status, {})]
    with pytest.raises(DownloadError, match=rf"file\.tsv: is not there.*{status}") as caught:
        fetch(site, tmp_path)
    assert caught.value.absent
    assert len(site.asked) == 1


def test_redirects_keep_the_place(site: Site, tmp_path: Path) -> None:
    site.redirects["/short.tsv"] = site.url + PATH
    site.cuts = [70_000]
    assert fetch(site, tmp_path, "/short.tsv") == BODY
    assert site.firsts() == [None, None, 70_000, 70_000]


def test_unreachable_host_is_soon_given_up(site: Site, tmp_path: Path) -> None:
    dead = Site(url="http://127.0.0.1:9")  # discard: nobody listens
    with pytest.raises(DownloadError, match=r"no connection to 127\.0\.0\.1:9"):
        fetch(dead, tmp_path)
    assert site.waits == [1, 2]
    assert list(tmp_path.iterdir()) == []


def test_log_in_page_is_no_file(site: Site, tmp_path: Path) -> None:
    site.files[PATH] = b"\n <!DOCTYPE html><title>Hotel</title>"
    with pytest.raises(DownloadError, match="a web page came instead of the file"):
        fetch(site, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_packed_answer_is_refused(site: Site, tmp_path: Path) -> None:
    site.headers["Content-Encoding"] = "br"
    with pytest.raises(DownloadError, match=r"came packed \(br\)"):
        fetch(site, tmp_path)


def test_damaged_gzip_is_fetched_again(site: Site, tmp_path: Path) -> None:
    good = gzip.compress(b"2 1\n" + b"cat 1\n" * 20_000)
    bad = good[:100] + b"\0" * 50 + good[150:]
    path = "/a.vec.gz"
    site.before = lambda number: site.files.update({path: bad if number == 1 else good})
    check = download._WordCount(Part(tmp_path / "a.vec.gz"), None)
    assert fetch(site, tmp_path, path, check) == good
    assert site.firsts() == [None, None]


def test_gzip_knows_its_end_when_the_server_does_not(site: Site, tmp_path: Path) -> None:
    packed = gzip.compress(b"1 1\ncat 1\n") + gzip.compress(b"dog 2\n")  # two members
    site.files["/a.vec.gz"], site.length, site.cuts = packed, False, [10, 5]
    check = download._WordCount(Part(tmp_path / "a.vec.gz"), None)
    assert fetch(site, tmp_path, "/a.vec.gz", check) == packed
    assert check.words == 2


def test_a_file_without_length_has_a_limit(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "LIMIT_WITHOUT_LENGTH", 100_000)
    assert fetch(site, tmp_path) == BODY  # a file that says its length may be longer
    site.length = False
    with pytest.raises(DownloadError, match=r"has no end: 1\d\d\.\d kB came; nothing was kept"):
        fetch(site, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["file.tsv"]


@pytest.mark.parametrize("moment", ["before", "first bytes", "the rest"])
def test_a_planted_link_is_not_followed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Neither where the part goes, nor in place of a part that has been begun."""
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    part = folder / "file.tsv.part"
    victim.write_bytes(BODY[:100_000])  # what a server would be asked to go on after

    def plant(number: int = 0) -> None:
        if number in (0, 2):
            part.unlink(missing_ok=True)
            part.symlink_to(victim)

    if moment == "before":
        plant()
    elif moment == "the rest":
        site.cuts, site.before = [100_000], plant
    else:
        begin = Part.begin
        monkeypatch.setattr(Part, "begin", lambda *facts: [begin(*facts), plant()])
    assert fetch(site, folder) == BODY
    assert victim.read_bytes() == BODY[:100_000]
    assert not (folder / "file.tsv").is_symlink()


def test_two_processes_do_not_fill_one_part(site: Site, tmp_path: Path) -> None:
    def another(number: int) -> None:
        if number == 2:
            other = (tmp_path / "file.tsv.part").open("ab")
            fcntl.flock(other, fcntl.LOCK_EX)
            held.append(other)

    held: list[IO[bytes]] = []
    site.cuts, site.before = [100_000], another
    with pytest.raises(FileError, match="by another process"):
        fetch(site, tmp_path)
    held[0].close()
    assert fetch(site, tmp_path) == BODY


def test_full_disk_is_one_sentence(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_receive", full)
    with pytest.raises(FileError, match="the disk is full"):
        fetch(site, tmp_path)
    assert len(site.asked) == 1


def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The opener that ``fetch`` builds refuses certificates that nobody signed."""
    contexts: list[ssl.SSLContext] = []

    class Recorded(urllib.request.HTTPSHandler):
        def __init__(self, context: ssl.SSLContext) -> None:
            contexts.append(context)
            super().__init__(context=context)

    monkeypatch.setattr(download, "HTTPSHandler", Recorded)
    with pytest.raises(DownloadError, match="no connection"):
        download.fetch("https://127.0.0.1:9/a", Part(tmp_path / "a"), attempts=1)
    assert contexts[0].verify_mode == ssl.CERT_REQUIRED
    assert contexts[0].check_hostname


@pytest.mark.parametrize("to", ["http://example.org/a", "ftp://example.org/a"])
def test_redirect_away_from_https_is_refused(to: str) -> None:
    request = urllib.request.Request("https://example.org/a")
    with pytest.raises(DownloadError, match="not safe"):
        download._SafeRedirects().redirect_request(request, None, 302, "Found", None, to)
