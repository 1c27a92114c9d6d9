"""Language tags, and autonyms: the ``[L]`` of a template (docs/method.md §3)."""

from __future__ import annotations

import re
import unicodedata
from difflib import get_close_matches
from functools import lru_cache

from blicer.errors import InputError

# The names that the paper used; they win over CLDR so that its experiments can be repeated.
_PAPER = (
    "en english, de deutsch, fi suomi, fr français, hr hrvatski, it italiano, ru русский, "
    "tr türkçe, bg български, ca català, he עברית, et eesti, hu magyar, ka ქართული"
)
PAPER_AUTONYMS: dict[str, str] = dict(entry.split(" ", 1) for entry in _PAPER.split(", "))

# language[-extlang][-Script][-REGION][-variants and extensions], RFC 5646 without the rare forms
_TAG = re.compile(
    r"(?P<language>[a-z]{2,3})(?:-(?P<extlang>[a-z]{3}))?"
    r"(?:-(?P<script>[a-z]{4}))?"
    r"(?:-(?P<region>[a-z]{2}|[0-9]{3}))?"
    r"(?P<rest>(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*(?:-[a-z0-9](?:-[a-z0-9]{1,8})+)*)",
    re.IGNORECASE,
)
# Two-letter codes that were renamed; three-letter codes are always looked up.
_RENAMED = {"in", "iw", "ji", "jw", "mo", "sh", "tl", "tw", "bh"}
_NO_LANGUAGE = {"und", "mul", "zxx", "mis"}  # codes that stand for no one language
_DOTLESS = {"tr", "az"}  # their dotless ı is the lower case of I
_BRACKETED = re.compile(r"\s*[(（][^)）]*[)）]\s*")


@lru_cache(maxsize=256)
def validate_tag(tag: str) -> str:
    """The canonical form of a BCP 47 tag (``zh_tw`` -> ``zh-TW``, ``deu`` -> ``de``)."""
    match = _TAG.fullmatch(str(tag).strip().replace("_", "-"))
    if match is None or match["language"].lower() in _NO_LANGUAGE:
        expected = "expected a BCP 47 tag such as 'en', 'pt-BR' or 'yue'"
        raise InputError(f"{tag!r} is not the tag of a language: {expected}{_suggestion(str(tag))}")
    # zh-yue is the old way to write yue
    language = (match["extlang"] or match["language"]).lower()
    script, region = (match["script"] or "").title(), (match["region"] or "").upper()
    if len(language) == 3 or language in _RENAMED:
        from babel.core import get_global

        language, *parts = get_global("language_aliases").get(language, language).split("_")
        for part in parts:  # sh is sr-Latn, prs is fa-AF
            if len(part) == 4:
                script = script or part
            else:
                region = region or part
    return "-".join(filter(None, (language, script, region))) + match["rest"].lower()


@lru_cache(maxsize=256)
def autonym(tag: str) -> str:
    """The language's own name for itself, in lower case: the paper's if it has one, else CLDR's."""
    canonical = validate_tag(tag)
    language = canonical.split("-")[0]
    if language in PAPER_AUTONYMS:
        return PAPER_AUTONYMS[language]
    from babel.core import Locale, UnknownLocaleError

    # The script may change the name (az-Cyrl); variants and extensions never do.
    short = "_".join(part for part in canonical.split("-")[:3] if len(part) <= 4)
    for identifier in (short, language):
        try:
            locale = Locale.parse(identifier)
        except (UnknownLocaleError, ValueError):
            continue
        # babel answers some unknown tags with English: that is no answer.
        if locale.language == language and (name := locale.get_language_name(locale)):
            return _lower(_BRACKETED.sub(" ", name).strip(), language)
    raise InputError(
        f"no own name is known for the language {tag!r} (CLDR has none): give it with "
        "--source-name or --target-name, for instance --source-name 'lingua latina'"
    )


def language_name(tag: str | None, given: str | None = None, *, side: str = "source") -> str:
    """The name that the user gave for the ``side`` ("source" or "target"), else the autonym."""
    if given is not None:
        name = " ".join(given.split())
        if not name:
            raise InputError(f"--{side}-name is empty: expected what the language calls itself")
        return name
    if tag is None:
        raise InputError(
            f"the language of the {side} words is not known, and the template names it: give its "
            f"own name with --{side}-name (for instance 'english'), or use a template without [L]"
        )
    return autonym(tag)


def _lower(name: str, language: str) -> str:
    """Lower case by the rules of the language itself."""
    if language in _DOTLESS:
        name = name.replace("İ", "i").replace("I", "ı")
    return unicodedata.normalize("NFC", name.lower())


def _suggestion(text: str) -> str:
    """For somebody who wrote ``german`` or ``deutsch``: the tag to write instead."""
    from babel.core import Locale

    names = {name.lower(): tag for tag, name in Locale("en").languages.items()}
    names |= {name: tag for tag, name in PAPER_AUTONYMS.items()}
    near = get_close_matches(text.strip().lower(), names, n=1, cutoff=0.8)
    return f" (did you mean {names[near[0]].replace('_', '-')!r}?)" if near else ""
