"""What is published: for each collection its addresses, file names and known checksums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

_XLING = "https://raw.githubusercontent.com/codogogo/xling-eval/master/bli_datasets"
_PANLEX = "https://github.com/cambridgeltl/panlex-bli/raw/master"
_MUSE = "https://dl.fbaipublicfiles.com/arrival/dictionaries"
_FASTTEXT = "https://dl.fbaipublicfiles.com/fasttext"

# Each pair is published in one order only, and the folder is named after it.
_XLING_PAIRS = (
    "de-fi de-fr de-hr de-it de-ru de-tr en-de en-fi en-fr en-hr en-it en-ru en-tr fi-fr fi-hr "
    "fi-it fi-ru hr-fr hr-it hr-ru it-fr ru-fr ru-it tr-fi tr-fr tr-hr tr-it tr-ru"
)
_PANLEX_LANGUAGES = "bg ca eo et eu fi he hu id ka ko lt no th tr"
_MUSE_WITH_ENGLISH = (
    "af ar bg bn bs ca cs da de el es et fa fi fr he hi hr hu id it ja ko lt lv mk ms nl no pl pt "
    "ro ru sk sl sq sv ta th tl tr uk vi zh"
)
_MUSE_AMONG_THEMSELVES = "de es fr it pt"
_CRAWL_LANGUAGES = (
    "af als am an ar arz as ast az azb ba bar bcl be bg bh bn bo bpy br bs ca ce ceb ckb co cs cv "
    "cy da de diq dv el eml en eo es et eu fa fi fr frr fy ga gd gl gom gu gv he hi hif hr hsb ht "
    "hu hy ia id ilo io is it ja jv ka kk km kn ko ku ky la lb li lmo lt lv mai mg mhr min mk ml "
    "mn mr mrj ms mt mwl my myv mzn nah nap nds ne new nl nn no nso oc or os pa pam pfl pl pms pnb "
    "ps pt qu rm ro ru sa sah sc scn sco sd sh si sk sl so sq sr su sv sw ta te tg th tk tl tr tt "
    "ug uk ur uz vec vi vls vo wa war xmf yi yo zea zh"
)


@dataclass(frozen=True)
class Item:
    """One published file."""

    url: str
    file: str  # where it goes, below the folder of all data
    sha256: str | None = None
    vectors: bool = False
    members: tuple[tuple[str, str], ...] = ()  # of an archive: (name inside, where it goes)


@dataclass(frozen=True)
class Collection:
    name: str
    about: str
    page: str  # where a person reads about it
    names: tuple[str, ...]  # pairs or languages; empty when only the publisher's page lists them
    sizes: tuple[int, ...] = ()  # source words of its training files
    vectors: bool = False
    both_orders: bool = True

    def to_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "about": self.about,
            "page": self.page,
            "languages" if self.vectors else "pairs": list(self.names),
            "sizes": [short_size(size) for size in self.sizes],
        }


def _ordered(languages: list[str]) -> list[str]:
    return [f"{a}-{b}" for a in languages for b in languages if a != b]


_MUSE_PAIRS = sorted(
    {f"en-{one}" for one in _MUSE_WITH_ENGLISH.split()}
    | {f"{one}-en" for one in _MUSE_WITH_ENGLISH.split()}
    | set(_ordered(_MUSE_AMONG_THEMSELVES.split()))
)

COLLECTIONS: dict[str, Collection] = {
    one.name: one
    for one in (
        Collection(
            "xling",
            "XLING dictionaries (Glavaš et al. 2019): 28 pairs of 8 languages",
            "https://github.com/codogogo/xling-eval",
            tuple(_XLING_PAIRS.split()),
            sizes=(500, 1000, 3000, 5000),
            both_orders=False,
        ),
        Collection(
            "panlex",
            "PanLex-BLI dictionaries (Vulić et al. 2019): 15 languages, 210 ordered pairs",
            "https://github.com/cambridgeltl/panlex-bli",
            tuple(_ordered(_PANLEX_LANGUAGES.split())),
            sizes=(500, 1000, 2000, 5000),
        ),
        Collection(
            "muse",
            "MUSE dictionaries (Conneau et al. 2018): 44 languages from and to English; "
            "de, es, fr, it and pt also among themselves",
            "https://github.com/facebookresearch/MUSE",
            tuple(_MUSE_PAIRS),
            sizes=(5000,),
        ),
        Collection(
            "fasttext-wiki",
            "fastText vectors of Wikipedia: 294 languages, 300 dimensions",
            "https://fasttext.cc/docs/en/pretrained-vectors.html",
            (),
            vectors=True,
        ),
        Collection(
            "fasttext-cc",
            "fastText vectors of Common Crawl and Wikipedia: 158 languages, 300 dimensions",
            "https://fasttext.cc/docs/en/crawl-vectors.html",
            tuple(_CRAWL_LANGUAGES.split()),
            vectors=True,
        ),
    )
}


@lru_cache(maxsize=1)
def checksums() -> dict[str, str]:
    """SHA-256 of the published files for which it is known, by where they go."""
    text = resources.files("blicer.datasets").joinpath("checksums.tsv").read_text("utf-8")
    return dict(line.split("\t") for line in text.splitlines()[1:])


def short_size(size: int) -> str:
    """5000 as XLING writes it: ``5k``."""
    return f"{size // 1000}k" if size % 1000 == 0 else str(size)


def xling_items(pair: str, training: Iterable[int]) -> list[Item]:
    parts = [f"train.freq.{short_size(size)}" for size in training] + ["test.freq.2k"]
    files = [f"{pair}/yacle.{part}.{pair}.tsv" for part in parts]
    return [Item(f"{_XLING}/{file}", *_known(f"xling/{file}")) for file in files]


def panlex_items(pairs: Iterable[str], training: Iterable[int]) -> list[Item]:
    """One archive a source language, however many of its pairs are wanted."""
    parts = [f"train.{size}" for size in training] + ["test.2000"]
    members: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        files = [f"{pair}.{part}.cc.trans" for part in parts]
        archive = f"lexicons/{pair.split('-')[0]}-l2.zip"
        members.setdefault(archive, []).extend((file, f"panlex/{pair}/{file}") for file in files)
    return [
        Item(f"{_PANLEX}/{archive}", *_known(f"panlex/{archive}"), members=tuple(inside))
        for archive, inside in members.items()
    ]


def muse_items(pair: str, training: Iterable[int]) -> list[Item]:
    files = [f"{pair}.0-{size}.txt" for size in training] + [f"{pair}.5000-6500.txt"]
    return [Item(f"{_MUSE}/{file}", *_known(f"muse/{file}")) for file in files]


def vector_item(collection: str, language: str) -> Item:
    if collection == "fasttext-wiki":
        path, file = "vectors-wiki", f"wiki.{language}.vec"
    else:
        path, file = "vectors-crawl", f"cc.{language}.300.vec.gz"
    return Item(f"{_FASTTEXT}/{path}/{file}", f"vectors/{file}", vectors=True)


def _known(file: str) -> tuple[str, str | None]:
    return file, checksums().get(file)
