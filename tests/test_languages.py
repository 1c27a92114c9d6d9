"""Autonyms: the paper's list, then CLDR; tags in every spelling that users have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from blicer.errors import InputError
from blicer.languages import autonym, language_name, validate_tag

METHOD_LIST = (
    "en english, de deutsch, fi suomi, fr français, hr hrvatski, it italiano, ru русский, "
    "tr türkçe, bg български, ca català, he עברית, et eesti, hu magyar, ka ქართული"
)


@pytest.mark.parametrize("entry", METHOD_LIST.split(", "))
def test_the_names_of_the_paper(entry: str) -> None:
    tag, name = entry.split(" ")
    assert autonym(tag) == name


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("es", "español"),
        ("nl", "nederlands"),
        ("pt-BR", "português"),
        ("zh_TW", "中文"),
        ("el", "ελληνικά"),
        ("ja", "日本語"),
        ("sr", "српски"),
        ("sr-Latn", "srpski"),
        ("az", "azərbaycan"),
        ("az-Cyrl", "азәрбајҹан"),
        ("ku", "kurdî"),  # CLDR: kurdî (kurmancî)
        ("yue", "粵語"),
        ("ru-Latn", "русский"),
        ("en-ZZ", "english"),
    ],
)
def test_other_languages_come_from_cldr(tag: str, name: str) -> None:
    assert autonym(tag) == name


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("en", "en"),
        ("EN", "en"),
        (" fr ", "fr"),
        ("pt-br", "pt-BR"),
        ("pt_BR", "pt-BR"),
        ("ZH_hant_tw", "zh-Hant-TW"),
        ("es-419", "es-419"),
        ("deu", "de"),
        ("ger", "de"),
        ("fra", "fr"),
        ("eng", "en"),
        ("est", "et"),
        ("iw", "he"),
        ("sh", "sr-Latn"),
        ("prs", "fa-AF"),
        ("yue", "yue"),
        ("x-romani", "x-romani"),
        ("X_Romani-Lovari", "x-romani-lovari"),
    ],
)
def test_tags_are_canonical(written: str, canonical: str) -> None:
    assert validate_tag(written) == canonical


@pytest.mark.parametrize(
    "tag", ["", "e", "en--us", "und", "mul", "en us", "123", "deutsch", "x-", "x"]
)
def test_what_is_no_tag(tag: str) -> None:
    with pytest.raises(InputError, match="expected a BCP 47 tag such as 'en'"):
        validate_tag(tag)


@pytest.mark.parametrize("tag", ["xyz", "grc", "arz", "x-mine"])
def test_a_language_that_cldr_cannot_name(tag: str) -> None:
    with pytest.raises(InputError, match=f"'{tag}'.*--source-name"):
        autonym(tag)


def test_a_given_name_wins() -> None:
    assert language_name("xyz", " my  language ") == "my language"
    assert language_name("de") == "deutsch"
    with pytest.raises(InputError, match="--target-name"):
        language_name(None, side="target")
    with pytest.raises(InputError, match="--source-name is empty"):
        language_name("de", "  ")


def test_the_list_of_the_paper_needs_no_babel() -> None:
    code = (
        "import sys; from blicer.languages import autonym; autonym('de'); "
        "print('babel' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
