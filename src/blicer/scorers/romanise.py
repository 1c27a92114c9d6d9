"""A rough Latin spelling of a word, so that names and loans can be compared across scripts."""

from __future__ import annotations

import unicodedata

# Cyrillic and Greek by sound, as a reader would type them on a Latin keyboard.
_LETTERS = {
    **dict(zip("абвгдезийклмнопрстуфхыэ", "abvgdezijklmnoprstufhye", strict=True)),
    "ж": "zh",
    "ц": "ts",
    "ч": "ch",
    "ш": "sh",
    "щ": "sch",
    "ъ": "",
    "ь": "",
    "ю": "yu",
    "я": "ya",
    "ё": "e",
    "і": "i",
    "ї": "i",
    "є": "e",
    "ґ": "g",
    "ў": "u",
    "ђ": "dj",
    "ј": "j",
    "љ": "lj",
    "њ": "nj",
    "ћ": "c",
    "џ": "dz",
    "ѓ": "g",
    "ќ": "k",
    "ѕ": "z",
    **dict(zip("αβγδεζηικλμνξοπρσςτυφω", "avgdeziiklmnxoprsstyfo", strict=True)),
    "θ": "th",
    "χ": "ch",
    "ψ": "ps",
    "ß": "ss",
    "ø": "o",
    "æ": "ae",
    "œ": "oe",
    "ł": "l",
    "đ": "d",
    "ð": "d",
    "þ": "th",
    "ı": "i",
}


def romanise(word: str) -> str:
    """Lower case, Cyrillic and Greek in Latin letters, Latin letters without their marks.

    Letters of other scripts stay as they are.
    """
    letters: list[str] = []
    for character in unicodedata.normalize("NFKC", word).lower():
        if character in _LETTERS:
            letters.append(_LETTERS[character])
            continue
        plain = unicodedata.normalize("NFD", character)
        if len(plain) > 1 and (plain[0] in _LETTERS or plain[0].isascii()):
            letters.append(_LETTERS.get(plain[0], plain[0]))
        else:
            letters.append(character)
    return "".join(letters)
