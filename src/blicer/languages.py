"""Language tags, and autonyms: the ``[L]`` of a template (docs/method.md §3)."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from blicer.errors import InputError

# The names that the paper used; they override CLDR so that its experiments can be repeated.
_PAPER = (
    "en english, de deutsch, fi suomi, fr français, hr hrvatski, it italiano, ru русский, "
    "tr türkçe, bg български, ca català, he עברית, et eesti, hu magyar, ka ქართული"
)
PAPER_AUTONYMS: dict[str, str] = dict(entry.split(" ", 1) for entry in _PAPER.split(", "))

# language[-Script][-REGION]: all of RFC 5646 that changes a language's name, and more.
_TAG = re.compile(r"([a-z]{2,3})(?:-([a-z]{4}))?(?:-([a-z]{2}|[0-9]{3}))?", re.IGNORECASE)
# A language without a code: RFC 5646, private use.
_PRIVATE = re.compile(r"x(-[a-z0-9]{1,8})+", re.IGNORECASE)
# Two-letter codes that were renamed; three-letter codes are always looked up.
_RENAMED = {"in", "iw", "ji", "jw", "mo", "sh", "tl", "tw", "bh"}
_NO_LANGUAGE = {"und", "mul", "zxx", "mis"}  # codes that stand for no one language
_BRACKETED = re.compile(r"\s*[(（][^)）]*[)）]\s*")


@lru_cache(maxsize=256)
def validate_tag(tag: str) -> str:
    """The canonical form of a BCP 47 tag (``zh_tw`` -> ``zh-TW``, ``deu`` -> ``de``).

    A language without a code has a private tag, such as ``x-romani``.
    """
    written = str(tag).strip().replace("_", "-")
    if _PRIVATE.fullmatch(written):
        return written.lower()
    match = _TAG.fullmatch(written)
    if match is None or match[1].lower() in _NO_LANGUAGE:
        expected = "expected a BCP 47 tag such as 'en', 'pt-BR', 'yue', or 'x-mine' of your own"
        raise InputError(f"{tag!r} is not the tag of a language: {expected}")
    language, script, region = (part or "" for part in match.groups())
    language, script, region = language.lower(), script.title(), region.upper()
    if len(language) == 3 or language in _RENAMED:
        from babel.core import get_global

        language, *parts = get_global("language_aliases").get(language, language).split("_")
        for part in parts:  # sh is sr-Latn, prs is fa-AF
            if len(part) == 4:
                script = script or part
            else:
                region = region or part
    return "-".join(filter(None, (language, script, region)))


@lru_cache(maxsize=256)
def autonym(tag: str) -> str:
    """The language's own name for itself, in lower case: the paper's if it has one, else CLDR's."""
    canonical = validate_tag(tag)
    language = canonical.split("-")[0]
    if language in PAPER_AUTONYMS:
        return PAPER_AUTONYMS[language]
    from babel.core import Locale, UnknownLocaleError

    for identifier in (canonical.replace("-", "_"), language):  # the script may change the name
        try:
            locale = Locale.parse(identifier)
        except (UnknownLocaleError, ValueError):
            continue
        # babel returns English for some unknown tags.
        if locale.language == language and (name := locale.get_language_name(locale)):
            return unicodedata.normalize("NFC", _BRACKETED.sub(" ", name).strip().lower())
    raise InputError(
        f"no own name is known for the language {tag!r} (CLDR has none): give it with "
        "--source-name or --target-name, for instance --source-name 'lingua latina'"
    )


def language_name(tag: str | None, given: str | None = None, *, side: str = "source") -> str:
    """The name given by the user for the ``side`` ("source" or "target"), else the autonym."""
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
