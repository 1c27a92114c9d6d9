"""``docs/method.md``: every section and equation that the code cites is there, with our numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from blicer.align import aligner_class
from blicer.config import Config
from blicer.languages import autonym
from blicer.templates import TEMPLATES

ROOT = Path(__file__).resolve().parents[1]
DOC = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
CITING = ("src", "tests", "benchmarks", "tools")
TEXTS = {".py", ".md", ".toml"}
# "docs/method.md §2", "method §6.2", "method.md §1-2", "method §1 and §2"; a line may break before.
SECTIONS = re.compile(r"\bmethod(?:\.md)?[\s#]+(§[\d.]+(?:(?:, | and |-|–)§?[\d.]+)*)")
EQUATIONS = re.compile(r"\beqs?\.[\s#]+((?:\(\d+\)(?:, | and )?)+)")
# The private notes that this page has replaced; in two parts, so as not to be found here.
OLD_PAGE = re.compile("METHOD" + r"(?:\.md\b|\s+(?:§|section))")


def texts(*folders: str) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in TEXTS and path.is_file():
                yield path, path.read_text(encoding="utf-8")


def cited(pattern: re.Pattern[str], text: str) -> set[str]:
    numbers = " ".join(match.group(1) for match in pattern.finditer(text))
    return set(re.findall(r"\d+(?:\.\d+)?", numbers))


def sections() -> set[str]:
    return set(re.findall(r"^##+ §([\d.]+) ", DOC, flags=re.MULTILINE))


def equations() -> list[str]:
    return re.findall(r"\\tag\{(\d+)\}", DOC)


def test_how_citations_are_found() -> None:
    text = "(docs/method.md §6.2), method §1 and §2, the\n    # method\n    # §3, METHODS §9"
    assert cited(SECTIONS, text) == {"6.2", "1", "2", "3"}
    assert cited(SECTIONS, "docs/method.md §4-5. Then") == {"4", "5"}
    assert cited(EQUATIONS, "eq. (5), eqs. (6) and (7)") == {"5", "6", "7"}


def test_sections_are_numbered_as_the_code_cites_them() -> None:
    assert {str(number) for number in range(1, 11)} <= sections()
    assert {f"6.{number}" for number in range(1, 7)} <= sections()
    for section in sections():
        assert f'<a id="s{section}"></a>\n##' in DOC, section


def test_equations_are_numbered_in_order_and_anchored() -> None:
    assert equations() == [str(number) for number in range(1, len(equations()) + 1)]
    for number in equations():
        block = rf'<a id="eq-{number}"></a>\n```math\n[^`]*\\tag\{{{number}\}}\n```\n'
        assert re.search(block, DOC), number


@pytest.mark.parametrize("folder", [*CITING, "docs"])
def test_what_is_cited_exists(folder: str) -> None:
    for path, text in texts(folder):
        if path == Path(__file__).resolve():
            continue
        assert cited(SECTIONS, text) <= sections(), path
        assert cited(EQUATIONS, text) <= set(equations()), path


def test_links_and_sections_named_in_the_page_itself() -> None:
    anchors = set(re.findall(r'<a id="([^"]+)"', DOC))
    assert set(re.findall(r"\]\(#([^)]+)\)", DOC)) <= anchors
    assert set(re.findall(r"§(\d+(?:\.\d+)?)", DOC)) <= sections()
    for link in re.findall(r"\]\((?!#|https?:)([^)]+)\)", DOC):
        assert (ROOT / "docs" / link).exists(), link


@pytest.mark.parametrize("folder", [*CITING, "docs"])
def test_nothing_cites_the_page_that_this_one_replaced(folder: str) -> None:
    found = [str(path.relative_to(ROOT)) for path, text in texts(folder) if OLD_PAGE.search(text)]
    assert not found


def test_nor_does_a_page_at_the_top() -> None:
    for path in ROOT.glob("*.md"):
        assert not OLD_PAGE.search(path.read_text(encoding="utf-8")), path


def table(section: str, first: str) -> list[list[str]]:
    """Rows of the table of a section whose header starts with ``first``."""
    part = DOC.split(f'<a id="s{section}"></a>')[1]
    lines = part[part.index(f"\n| {first} |") :].strip().split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_presets_are_those_of_the_code() -> None:
    rows = table("3", "preset")
    assert [row[0] for row in rows] == [
        "supervised",
        "semi_supervised",
        "unsupervised",
        "zero_shot",
    ]
    for name, _, *numbers in rows:
        config = Config.resolve(name)
        values = [config.n_aug, config.n_rep, config.delta, config.alpha, config.epochs]
        assert [float(number) for number in numbers] == values, name


def test_lite_differs_from_the_paper_as_the_page_says() -> None:
    many, few = Config.resolve("supervised"), Config.resolve("semi_supervised")
    lite = Config.resolve("supervised", overrides={"encoder": "lite"})
    listed = set()
    for cell, papers, own in table("10", "setting"):
        name = cell.strip("`")
        listed.add(name)
        paper = papers.split(" / ")
        for text, config in ((paper[0], many), (paper[-1], few), (own, lite)):
            value = getattr(config, name)
            assert (text if isinstance(value, str) else float(text)) == value, name
    names = {field for field in vars(lite) if getattr(lite, field) != getattr(many, field)}
    assert names - listed == {"encoder", "micro_batch_size"}


def test_settings_of_c1_are_those_of_the_code() -> None:
    modes = ("supervised", "semi_supervised", "unsupervised")
    settings = [aligner_class("c1").preset(mode).settings for mode in modes]
    for cell, *texts_of_modes in table("6.4", "setting"):
        name = cell.split("`")[1]
        for text, values in zip(texts_of_modes, settings, strict=True):
            value = text == "yes" if text in ("yes", "no") else float(text.replace(",", ""))
            assert values[name] == value, name


def test_templates_are_those_of_the_code() -> None:
    cells = [cell for row in table("3", "text") for cell in row[1:]]
    found = {}
    for name, code in (cell.split(" ", 1) for cell in cells):
        quoted = code.startswith("``")  # a code span that holds a backtick itself
        found[name] = code[3:-3] if quoted else code[1:-1]
    assert found == TEMPLATES


def test_autonyms_are_those_of_the_code() -> None:
    listed = re.search(r"The paper's autonyms are: (.+?)\. All other", DOC)
    assert listed is not None
    pairs = [entry.split(" ") for entry in listed.group(1).split(", ")]
    assert len(pairs) == 14
    assert {tag: autonym(tag) for tag, _ in pairs} == dict(pairs)
