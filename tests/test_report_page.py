"""The report's files: a page that is whole, pictures, and names of any kind in both."""

from __future__ import annotations

import html
import re
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blicer.benchmark.report import write_report
from blicer.errors import MissingDependency
from report_outcomes import failure, outcome, report, two_setups, write_units


class Checker(HTMLParser):
    """Tags that are open, and everything that would be fetched."""

    VOID = frozenset(["meta", "input", "img"])

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "action", "data"):
                self.references.append(value or "")
            assert not name.startswith("on"), name
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert not checker.open
    return checker


def test_the_page_is_whole_and_needs_nothing_else(tmp_path: Path):
    alphas = [
        outcome({"space": (0.3, 0.3), "tuned": (0.4, 0.4)}, alpha=alpha, target="ru")
        for alpha in (0.5, 1.0)
    ]
    paths = write_report(write_units(tmp_path, [*two_setups(), *alphas]))
    found = checked(paths[1].read_text(encoding="utf-8"))
    assert found.references
    pictures = [one for one in found.references if one.startswith("data:image/svg+xml;base64,")]
    assert len(pictures) == 4
    links = set(found.references).difference(pictures)
    assert links
    assert links <= {f"#{name}" for name in found.ids}
    assert len(found.ids) == len(set(found.ids))
    style = paths[1].read_text(encoding="utf-8")
    assert "url(http" not in style
    assert "@import" not in style


def test_pictures_are_linked_and_well_formed(tmp_path: Path):
    paths = write_report(write_units(tmp_path, two_setups()))
    linked = re.findall(r"\]\((pictures/[^)]+)\)", paths[0].read_text(encoding="utf-8"))
    assert len(linked) == len(set(linked)) == 4
    assert {tmp_path / link for link in linked} == set((tmp_path / "pictures").iterdir())
    for link in linked:
        assert ElementTree.parse(tmp_path / link).getroot().tag.endswith("svg")


NASTY = [
    *("<script>alert(1)</script>", "a|b", "`x`", "_$x^2$", '" onload="x', "&amp;", "]]>"),
    *("\ud800", "\x00\x1b", "a\nb", "\\", "\\|", "日本語", "--", "../x"),
]
names = st.text(max_size=12) | st.sampled_from(NASTY)


def named(name: str, dataset: str, space: str, encoder: str, template: str, setup: str) -> dict:
    systems = {"space": (0.4, 0.4), "tuned": (0.5, 0.5), f"system {name}": (0.5, 0.5)}
    return outcome(
        systems,
        dataset=dataset,
        space=space,
        encoder=encoder,
        template=template,
        setup=setup,
        settings={name: name},
        default=f"system {name}",
    )


def check_files(paths: tuple[Path, Path]) -> str:
    """Nothing of a name has become markup; the page."""
    text = paths[1].read_text(encoding="utf-8")
    assert checked(text).tags <= {
        *("html", "head", "meta", "title", "style", "body", "main", "script", "h1", "h2", "h3"),
        *("p", "nav", "a", "div", "table", "thead", "tbody", "tr", "th", "td", "small", "button"),
        *("section", "input", "span", "details", "summary", "pre", "figure", "figcaption"),
        *("img", "strong"),
    }
    assert text.count("<script>") == 1
    lines = paths[0].read_text(encoding="utf-8").split("\n")
    for at, line in enumerate(lines):
        if re.fullmatch(r"\| ---.*\|", line):  # every row of a table is as wide as its head
            width = line.count("|")
            rest = at - 1
            while rest < len(lines) and lines[rest].startswith("|"):
                assert re.sub(r"\\.", "", lines[rest]).count("|") == width
                rest += 1
    return text


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names, dataset=names, space=names, encoder=names, template=names, setup=names)
def test_free_form_names_are_shown_as_they_are(
    tmp_path: Path, name, dataset, space, encoder, template, setup
):
    one = named(name, dataset, space, encoder, template, setup)
    for system in one["systems"].values():
        system["curve"] = []  # drawing takes most of the time, and has a test of its own
    text = check_files(write_report(write_units(tmp_path, [one, failure(f"why: {name}")])))
    shown = "".join(letter if letter.isprintable() else " " for letter in f"why: {name}").strip()
    assert html.escape(shown) in text


@pytest.mark.parametrize("name", NASTY)
def test_free_form_names_in_pictures(tmp_path: Path, name: str):
    paths = write_report(write_units(tmp_path, [named(*[name] * 6)]))
    check_files(paths)
    pictures = list((tmp_path / "pictures").iterdir())
    assert len(pictures) == 2  # the tuned encoder, the default system
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        said = "".join(root.itertext())
        shown = "".join(letter if letter.isprintable() else " " for letter in name).strip()
        assert shown in said


def test_hundreds_of_units(tmp_path: Path):
    outcomes = [
        outcome(
            {"space": (0.4, 0.4), "tuned": (0.5, 0.5), "tuned+endings": (0.5, 0.6)},
            source=f"a{source}",
            target=f"b{target}",
            space=space,
        )
        for source in range(8)
        for target in range(10)
        for space in ("c1", "vecmap", "rcsls")
    ]
    paths = write_report(write_units(tmp_path, outcomes))
    assert "480 of 480" in paths[0].read_text(encoding="utf-8")
    assert paths[1].stat().st_size < 3_000_000


def test_texts_of_the_page_are_those_of_the_markdown(tmp_path: Path):
    paths = write_report(write_units(tmp_path, two_setups()))
    text, page = (path.read_text(encoding="utf-8") for path in paths)
    shown = " ".join("".join(checked(page).text).split())
    prose = [line.lstrip("# ") for line in text.splitlines() if line and line[0] not in "|!-`b"]
    assert len(prose) > 20
    for line in prose:
        assert re.sub(r"\\(.)", r"\1", line).rstrip(":") in shown


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependency, match="jinja2"):
        report(two_setups())
