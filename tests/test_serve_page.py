"""The page of ``blicer serve`` in a real browser, on a small Japanese-Arabic translator."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pytest
import uvicorn

from blicer import Config, Embeddings, Lexicon, train
from blicer.serve import app as served
from blicer.serve.lookup import Lookup
from blicer.serve.store import Store

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
SCRIPT, MARKUP = "<script>alert(1)</script>", "<img src=x onerror=alert(2)>"
WORDS, SEEDS = 180, 120
SOURCE = [*(f"語{n}" for n in range(WORDS - 4)), "水", "Résumé", "東京", SCRIPT]
TARGET = [*(f"كلمة{n}" for n in range(WORDS - 4)), "ماء", "سيرة", "طوكيو", MARKUP]
VIEWS = ("entry", "map", "dictionary", "curate", "learn", "report")


# -- the server -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator that knows most words, trained on files that are still there."""
    place: Path = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(WORDS, 12)).astype(np.float32)
    turned = vectors @ np.linalg.qr(rng.normal(size=(12, 12)))[0]
    noisy = turned + 0.4 * rng.normal(size=turned.shape)
    sides = [(SOURCE, vectors, "ja"), (TARGET, noisy, "ar")]
    files = [place / f"{language}.vec" for _, _, language in sides]
    loaded = []
    for (words, rows, language), file in zip(sides, files, strict=True):
        Embeddings(words, rows).save(file)
        loaded.append(Embeddings.load(file, lowercase=False, language=language, cache=False))
    seeds = Lexicon([(SOURCE[n], TARGET[n]) for n in range(SEEDS)])
    config = Config.resolve(
        overrides={"space": "procrustes", "scorers": ["spelling", "frequency-match"]}
    )
    translator = train(*loaded, seeds, config)
    translator.details["vectors"] = {
        "files": [str(file) for file in files],
        "max_words": None,
        "lowercase": False,
    }
    translator.save(place / "translator")
    return place / "translator"


class Api:
    """What a program sees of a server: the oracle of what the page shows."""

    def __init__(self, base: str) -> None:
        self.base = base

    def get(self, path: str, **query: Any) -> Any:
        with urllib.request.urlopen(f"{self.base}{path}?{urlencode(query)}") as answer:
            return json.load(answer)

    def post(self, path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            self.base + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def decisions(self) -> list[tuple[str, str, str]]:
        rows = self.get("/decisions")["rows"]
        return [(row["source"], row["target"], row["verdict"]) for row in rows]


def wait_until_ready(api: Api) -> None:
    while not api.get("/info")["dictionary"]["ready"]:
        time.sleep(0.05)


@contextmanager
def running(folder: Path, store: Path, **options: Any) -> Iterator[str]:
    """The address of a server in this process."""
    web = served.create_app(folder, Lookup.load(folder), Store(store), **options)
    with served.listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(web, log_level="error", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def base(folder: Path) -> Iterator[str]:
    with running(folder, folder.with_name("decisions.sqlite")) as address:
        wait_until_ready(Api(address))
        yield address


@pytest.fixture
def api(base: str) -> Iterator[Api]:
    found = Api(base)
    yield found
    while found.decisions():
        found.post("/decisions/undo")


# -- the browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield found
        found.close()


Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, base: str, api: Api) -> Iterator[Open]:
    """Opens tabs of one window. No request may leave the machine, and no script may fail."""
    contexts, requests, errors = [], [], []

    def dialog(one: Any) -> None:
        if one.type == "alert":
            errors.append(f"alert {one.message}")
        one.accept()

    def make(fragment: str = "", *, context: Any = None, at: str = base, **options: Any) -> Any:
        if context is None:
            context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
            context.set_default_timeout(10_000)
            context.on("request", lambda one: requests.append(one.url))
            contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", dialog)
        page.on(
            "console",
            lambda said: (
                errors.append(said.text)
                if said.type == "error" and "Failed to load resource" not in said.text
                else None
            ),
        )
        page.goto(f"{at}/#{fragment}")
        page.wait_for_selector("main h1, main .failure", state="attached")
        return page

    yield make
    for context in contexts:
        context.close()
    assert requests
    outside = [
        url for url in requests if not re.match(r"http://127\.0\.0\.1:\d+/|data:|blob:", url)
    ]
    assert not outside
    assert not errors


def entry(word: str, *, reverse: bool = False) -> str:
    return f"view=entry&word={quote(word)}" + ("&reverse=1" if reverse else "")


def headword(page: Any) -> Any:
    return page.locator("main h1")


def candidate(page: Any, word: str) -> Any:
    link = page.get_by_role("link", name=word, exact=True)
    return page.locator("table.candidates tbody tr").filter(has=link)


def shown(page: Any) -> list[str]:
    return page.locator("table.candidates .translation a").all_text_contents()


# -- looking --------------------------------------------------------------------------------------


def test_search_ignores_case_and_accents(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("/")
    page.keyboard.type("resu")
    expect(page.get_by_role("option").first).to_contain_text("Résumé")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(headword(page)).to_have_text("Résumé")
    expect(headword(page)).to_be_focused()
    page.reload()
    expect(headword(page)).to_have_text("Résumé")
    page.go_back()
    expect(headword(page)).not_to_have_text("Résumé")


def test_arabic_is_found_from_either_direction_and_runs_to_the_left(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("combobox").fill("ما")
    page.get_by_role("option", name="ماء").click()
    expect(headword(page)).to_have_text("ماء")
    assert "reverse=1" in page.url
    word = headword(page).locator("bdi")
    assert word.evaluate("node => getComputedStyle(node).direction") == "rtl"
    assert word.get_attribute("lang") == "ar"
    expect(page.locator("table.candidates .translation a").first).to_have_text("水")


def test_search_waits_until_japanese_is_composed(open_page: Open) -> None:
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/complete" in one.url else None)
    page.get_by_role("combobox").focus()
    keyboard = page.context.new_cdp_session(page)
    keyboard.send(
        "Input.imeSetComposition", {"text": "みz", "selectionStart": 2, "selectionEnd": 2}
    )
    page.wait_for_timeout(250)
    assert not asked
    keyboard.send("Input.insertText", {"text": "水"})
    expect(page.get_by_role("option", name="水")).to_be_visible()


def test_entry_shows_what_the_server_knows(open_page: Open, api: Api) -> None:
    page = open_page(entry("水"))
    expected = api.get("/entry", word="水")
    expect(headword(page)).to_have_text("水")
    more = page.get_by_role("button", name=re.compile("Show all"))
    if more.count():
        more.click()
    assert shown(page) == [one["word"] for one in expected["candidates"]]
    numbers = page.locator("td.confidence .number").all_text_contents()
    assert numbers == [f"{one['confidence']:.2f}" for one in expected["candidates"]]
    bars = page.locator("td.shares [role=img]")
    for place, one in enumerate(expected["candidates"]):
        said = bars.nth(place).get_attribute("aria-label")
        for name, share in one["shares"].items():
            assert f"{name} {share:.2f}".replace("-0.00", "0.00") in said.replace("-0.00", "0.00")
    near = page.locator(".neighbours").first.locator("a").all_text_contents()
    assert near == [one["word"] for one in expected["own"]]


def test_sliders_rank_at_once_and_reset(open_page: Open, api: Api) -> None:
    page = open_page(entry("語130"))
    candidates = api.get("/entry", word="語130")["candidates"]
    weights = api.get("/info")["weights"] | {"csls": 0.0, "spelling": 0.0, "frequency-match": 1.0}
    for name in ("csls", "spelling", "frequency-match"):
        page.locator(f"[data-weight='{name}']").fill(str(weights[name]))

    def mixed(one: dict[str, Any]) -> float:
        return sum(weights[name] * value for name, value in one["parts"].items())

    # Python's sort is stable, as the page's is.
    expected = [
        one["word"] for one in sorted(candidates, key=lambda one: (-one["seed"], -mixed(one)))
    ]
    trained = [one["word"] for one in candidates]
    assert expected != trained
    assert shown(page) == expected[:8]
    expect(page.locator(".sliders [role=status]")).to_contain_text("trained weights")
    page.get_by_role("button", name="Reset").click()
    assert shown(page) == trained[:8]


def test_map_shows_both_vocabularies_and_leads_on(open_page: Open, api: Api) -> None:
    page = open_page("view=map&word=" + quote("水"))
    points = api.get("/map", word="水", n=30)["points"]
    expect(page.locator(".point")).to_have_count(len(points))
    assert set(page.locator(".point text").all_text_contents()) == {one["word"] for one in points}
    legend = page.locator(".legend").inner_text()
    assert "日本語" in legend
    assert "العربية" in legend
    page.locator(".point", has_text="ماء").first.click()
    expect(headword(page)).to_have_text("ماء")
    expect(page.locator(".point.asked text")).to_have_text("ماء")


def test_dictionary_sorts_filters_and_draws_few_rows(open_page: Open, api: Api) -> None:
    page = open_page("view=dictionary")
    rows = page.locator(".rows .row[data-ready]")
    expect(page.locator("p.facts")).to_contain_text(str(WORDS))
    assert rows.count() < 60 < WORDS
    page.get_by_role("button", name="Confidence").click()
    best = api.get("/dictionary", sort="confidence", order="desc", limit=5)["rows"]
    for place, row in enumerate(best):
        expect(rows.nth(place).locator(".cell.word")).to_have_text(row["source"])
    page.get_by_role("grid").focus()
    page.keyboard.press("End")
    last = api.get("/dictionary", sort="confidence", order="desc", offset=WORDS - 1)["rows"][0]
    expect(page.locator(".row.active .cell.word")).to_have_text(last["source"])
    page.get_by_label("Find").fill("RESUME")
    expect(rows).to_have_count(1)
    page.reload()
    expect(rows).to_have_count(1)
    rows.focus()
    page.keyboard.press("a")
    expect(rows.locator(".badge.accept")).to_have_text("✓ accepted")
    assert ("Résumé", rows.locator(".cell.translation").inner_text(), "accept") in api.decisions()
    page.get_by_label("Find").fill("")
    page.get_by_label("Show").select_option("accept")
    expect(rows).to_have_count(1)


def test_report_has_the_figures(open_page: Open, api: Api) -> None:
    page = open_page("view=report")
    expected = api.get("/info")["expected"]
    for way in ("forward", "backward"):
        expect(page.locator(".cards")).to_contain_text(f"{100 * expected[way]['precision']:.1f} %")
    loaded = "images => images.length && images.every(one => one.naturalWidth > 0)"
    page.wait_for_function(f"() => ({loaded})([...document.querySelectorAll('.pictures img')])")


def test_markup_in_words_stays_text(open_page: Open, api: Api) -> None:
    """The fixture fails on any alert."""
    api.post("/decisions", source=SCRIPT, target=MARKUP, verdict="correct", note=MARKUP, who=SCRIPT)
    page = open_page(entry(SCRIPT))
    expect(headword(page)).to_have_text(SCRIPT)
    for view in VIEWS:
        page.goto(f"{api.base}/#view={view}&word={quote(SCRIPT)}")
        page.wait_for_timeout(150)
        assert page.locator("main script, main img[src=x]").count() == 0
    page.keyboard.press("/")
    page.keyboard.type("<scr")
    page.get_by_role("option", name=SCRIPT).click()
    expect(headword(page)).to_have_text(SCRIPT)


# -- deciding -------------------------------------------------------------------------------------


def test_accept_reject_undo_and_reload(open_page: Open, api: Api) -> None:
    page = open_page(entry("水"))
    first, second = shown(page)[:2]
    page.get_by_role("button", name=f"Accept {first}", exact=True).click()
    expect(candidate(page, first).locator(".badge.accept")).to_have_text("accepted")
    page.get_by_role("button", name=f"Reject {second}", exact=True).click()
    expect(candidate(page, second).locator(".badge.reject")).to_have_text("rejected")
    assert set(api.decisions()) == {("水", first, "accept"), ("水", second, "reject")}
    page.reload()
    accept = page.get_by_role("button", name=f"Accept {first}", exact=True)
    expect(accept).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("u")
    expect(candidate(page, second).locator(".badge.reject")).to_have_count(0)
    accept.click()  # a pressed button takes its decision back
    expect(accept).to_have_attribute("aria-pressed", "false")
    assert api.decisions() == []


def test_a_decision_is_saved_only_once_the_server_says_so(open_page: Open, api: Api) -> None:
    page = open_page(entry("水"))
    first = shown(page)[0]
    held: list[Any] = []
    page.context.route("**/decisions", lambda route: held.append(route))
    page.keyboard.press("a")
    expect(candidate(page, first).locator(".badge")).to_have_text("saving …")
    held[0].abort()
    expect(candidate(page, first).locator(".badge")).to_have_text("not saved")
    expect(page.locator("#banner")).to_contain_text("1 decision is not saved")
    assert api.decisions() == []
    page.context.unroute("**/decisions")
    page.locator("#banner").get_by_role("button", name="Retry").click()
    expect(candidate(page, first).locator(".badge.accept")).to_have_text("accepted")
    expect(page.locator("#banner")).to_be_hidden()
    assert api.decisions() == [("水", first, "accept")]


def test_a_second_tab_sees_decisions(open_page: Open, api: Api) -> None:
    one = open_page(entry("水"))
    two = open_page(entry("水"), context=one.context)
    stranger = open_page(entry("水"))
    first = shown(two)[0]
    one.keyboard.press("a")
    expect(candidate(two, first).locator(".badge.accept")).to_have_text("accepted")
    # Another browser hears nothing until somebody looks at it.
    expect(candidate(stranger, first).locator(".badge.accept")).to_have_count(0)
    stranger.evaluate("dispatchEvent(new Event('focus'))")
    expect(candidate(stranger, first).locator(".badge.accept")).to_have_text("accepted")


def test_curation_by_keyboard_alone(open_page: Open, api: Api) -> None:
    queue = api.get("/queue", kind="frequent", limit=6)["rows"]
    words = [row["source"] for row in queue]
    page = open_page()
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.get_by_role("button", name="Frequent").focus()
    page.keyboard.press("Enter")

    def at(place: int) -> None:
        expect(page.locator(".entry h1")).to_have_text(words[place])
        expect(page.locator(".entry")).not_to_have_attribute("aria-busy", "true")

    at(0)
    page.keyboard.press("a")
    at(1)
    second = shown(page)[1]
    page.keyboard.press("2")
    at(2)
    page.keyboard.press("c")
    page.keyboard.type("see atlas")
    page.keyboard.press("Escape")
    page.keyboard.press("r")
    at(3)
    page.keyboard.press("t")
    page.keyboard.type("جديد")
    page.keyboard.press("Enter")
    at(4)
    page.keyboard.press("n")
    at(5)
    page.keyboard.press("p")
    at(4)
    expect(page.locator(".last .state")).to_contain_text("saved")
    assert api.decisions() == [
        (words[3], "جديد", "correct"),
        (words[2], queue[2]["target"], "reject"),
        (words[1], second, "accept"),
        (words[0], queue[0]["target"], "accept"),
    ]
    assert api.get("/decisions")["rows"][1]["note"] == "see atlas"
    page.keyboard.press("u")
    at(3)
    assert len(api.decisions()) == 3
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("a")  # no key decides behind a dialog
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert len(api.decisions()) == 3
    page.reload()
    at(3)


def test_fast_fingers_skip_no_word(open_page: Open, api: Api) -> None:
    words = [row["source"] for row in api.get("/queue", kind="frequent", limit=50)["rows"]]
    page = open_page("view=curate&kind=frequent")
    expect(page.locator(".entry h1")).to_have_text(words[0])
    press = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'a', bubbles: true}))"
    page.evaluate(f"() => {{ for (let n = 0; n < 4; n += 1) {press} }}")
    page.wait_for_function("() => !document.querySelector('.saving')")
    page.wait_for_timeout(200)
    place = words.index(page.locator(".entry h1").inner_text())
    assert place > 0
    assert {source for source, _, _ in api.decisions()} == set(words[:place])


def test_keys_work_on_a_keyboard_of_another_script(open_page: Open, api: Api) -> None:
    page = open_page(entry("水"))
    first = shown(page)[0]
    press = "dispatchEvent(new KeyboardEvent('keydown', {key: 'ф', code: 'KeyA', bubbles: true}))"
    page.evaluate(f"document.body.{press}")
    expect(candidate(page, first).locator(".badge.accept")).to_have_text("accepted")
    assert api.decisions() == [("水", first, "accept")]


def test_learn_and_go_back(open_page: Open, api: Api) -> None:
    before = api.get("/info")["seeds"]
    for n in range(SEEDS, SEEDS + 20):
        api.post("/decisions", source=SOURCE[n], target=TARGET[n], verdict="accept")
    page = open_page("view=learn")
    page.get_by_role("button", name="Learn now").click()
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_role("heading", name="What changed")).to_be_visible(timeout=60_000)
    assert api.get("/info")["seeds"] > before
    caption = page.locator(".changes caption")
    wait_until_ready(api)
    changed = api.get("/learn")["n_changes"]
    expect(caption).to_contain_text(f"{changed} first translation", timeout=15_000)
    page.get_by_role("button", name="Go back").click()
    expect(page.get_by_role("button", name="Learn now")).to_be_visible(timeout=30_000)
    expect(page.get_by_role("button", name="Go back")).to_have_count(0)
    end = time.monotonic() + 30  # the page may be drawn anew while the server goes back
    while api.get("/info")["seeds"] != before and time.monotonic() < end:
        time.sleep(0.05)
    assert api.get("/info")["seeds"] == before
    assert len(api.decisions()) == 20


# -- everybody ------------------------------------------------------------------------------------


def test_narrow_screens_do_not_scroll_sideways(open_page: Open) -> None:
    page = open_page(entry("水"))
    page.set_viewport_size({"width": 360, "height": 740})
    for view in VIEWS:
        page.evaluate("hash => { location.hash = hash }", f"view={view}&word=" + quote("水"))
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view


def test_dark_mode_is_the_systems_until_chosen(open_page: Open) -> None:
    page = open_page(color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(colour)
    page.get_by_role("button", name="Dark mode").click()
    light = page.evaluate(colour)
    assert light != dark
    page.reload()
    assert page.evaluate(colour) == light


def test_token_of_the_address_is_kept_and_taken_out(
    open_page: Open, folder: Path, tmp_path: Path
) -> None:
    with running(folder, tmp_path / "own.sqlite", token="secret") as at:
        page = open_page("view=report", at=at)
        expect(headword(page)).to_contain_text("token")
        page.get_by_label("Token").fill("secret")
        page.keyboard.press("Enter")
        expect(headword(page)).to_have_text("Report")
        page = open_page("token=secret&view=report", at=at)
        expect(headword(page)).to_have_text("Report")
        assert "secret" not in page.url
        page.reload()
        expect(headword(page)).to_have_text("Report")
        page.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, from npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, so there is no axe-core")
    place = tmp_path_factory.mktemp("axe")
    quiet = "--no-audit --no-fund --prefer-offline --ignore-scripts --silent".split()
    done = subprocess.run(
        [npm, "install", "axe-core@4", *quiet], cwd=place, timeout=60, check=False
    )
    script = place / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.is_file():
        pytest.skip("npm cannot install axe-core here")
    return script.read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_page: Open, api: Api, axe: str, scheme: str) -> None:
    api.post("/decisions", source="水", target="ماء", verdict="accept", note="sure")
    api.post("/decisions", source="水", target="سيرة", verdict="reject")
    page = open_page(color_scheme=scheme)
    page.evaluate(axe)
    # Only colours differ between the schemes.
    rules = {"resultTypes": ["violations"]}
    if scheme == "dark":
        rules["runOnly"] = ["color-contrast"]
    found = []
    for view in ("none", *VIEWS, "help"):
        if view == "help":
            page.keyboard.press("?")
        else:
            fragment = "view=entry" if view == "none" else f"view={view}&word=" + quote("水")
            page.evaluate("hash => { location.hash = hash }", fragment)
        page.wait_for_timeout(300)
        result = page.evaluate("options => axe.run(document, options)", rules)
        for one in result["violations"]:
            found.append((view, one["id"], [node["html"][:120] for node in one["nodes"][:3]]))
    assert not found
