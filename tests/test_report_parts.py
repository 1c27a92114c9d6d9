"""Counting, correction for many tests, cells and commands, each against something simpler."""

from __future__ import annotations

import base64
import statistics
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blicer.benchmark.cells import holm, main_cells, read, setup_order, tally
from blicer.pages import (
    Strong,
    environment,
    fill,
    html_cell,
    markdown,
    number_columns,
    plural,
    render,
    table_rows,
)
from report_outcomes import outcome, write_units


def cells_of(outcomes):
    with TemporaryDirectory() as folder:
        return read(write_units(Path(folder), outcomes))[-1]


def step_down(p_values: list[float], level: float) -> list[bool]:
    """Holm as he wrote it: reject from the smallest p up, until one is not small enough."""
    rejected = [False] * len(p_values)
    left = len(p_values)
    for place in sorted(range(len(p_values)), key=lambda place: p_values[place]):
        if p_values[place] * left >= level:
            break
        rejected[place] = True
        left -= 1
    return rejected


@given(
    st.lists(st.floats(0, 1) | st.sampled_from([0.0001, 0.001, 0.01]), max_size=40),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_holm_is_the_step_down_test(p_values, level):
    found = holm(pd.Series(p_values, dtype=float))
    assert [p < level for p in found] == step_down(p_values, level)


def test_holm_by_hand():
    found = holm(pd.Series([0.01, 0.04, None, 0.03]))  # one was not tested
    assert found.tolist() == pytest.approx([0.03, 0.06, float("nan"), 0.06], nan_ok=True)
    assert not len(holm(pd.Series(dtype=float)))


@pytest.mark.parametrize(
    ("gains", "p_values", "p"),
    [
        ((0.1, 0.2), (0.001, 0.03), 0.03),
        ((0.1, -0.2), (0.001, 0.03), 1.0),
        ((-0.1, -0.2), (0.01, 0.001), 0.01),
        ((0.1, 0.0), (0.01, 1.0), 1.0),
    ],
)
def test_training_seeds_that_disagree_claim_nothing(gains, p_values, p):
    outcomes = [
        outcome(
            {"space": (0.5, 0.5), "tuned": (0.5 + gain, 0.5 + gain)},
            training_seed=seed,
            p_value=one,
        )
        for seed, (gain, one) in enumerate(zip(gains, p_values, strict=True))
    ]
    assert cells_of(outcomes).query("system == 'tuned'")["p"].tolist() == [p, p]


fractions = st.integers(0, 20).map(lambda number: number / 20)
measured = st.tuples(
    fractions, fractions, fractions, fractions, st.sampled_from([0.001, 0.04, 0.3])
)


@given(st.lists(measured, min_size=1, max_size=6), st.integers(1, 3))
def test_won_and_lost_and_level_are_all(figures, seeds):
    outcomes = [
        outcome(
            {"space": (a, b), "tuned": (c, d)},
            target=f"t{place // seeds}",
            training_seed=place % seeds,
            default="tuned",
            p_value=p,
        )
        for place, (a, b, c, d, p) in enumerate(figures)
    ]
    cells = cells_of(outcomes)
    found = tally(cells[cells["default"]], [("xling", "5k")])
    # By hand: the gains of a direction, its mean over the training seeds, and its sign.
    gains: dict[tuple[str, bool], list[float]] = {}
    for place, (a, b, c, d, _) in enumerate(figures):
        gains.setdefault((f"t{place // seeds}", False), []).append(c - a)
        gains.setdefault((f"t{place // seeds}", True), []).append(d - b)
    means = [round(statistics.fmean(one), 9) for one in gains.values()]
    assert found["won"] + found["lost"] + found["level"] == found["all"] == len(means)
    assert found["won"] == sum(mean > 0 for mean in means)
    assert found["lost"] == sum(mean < 0 for mean in means)
    assert found["holm"] <= found["significant"] <= found["won"]
    assert found["worse"] <= found["lost"]
    assert found["gain0"] == pytest.approx(100 * statistics.fmean(means), abs=1e-4)


def test_a_system_that_some_cells_lack_is_counted_where_it_is():
    outcomes = [
        outcome({"space": (0.4, 0.4), "tuned": (0.5, 0.5), "use": (0.3, 0.6)}),
        outcome({"space": (0.4, 0.4), "tuned": (0.5, 0.5)}, target="ru"),
    ]
    cells = cells_of(outcomes)
    assert tally(cells[cells["system"] == "tuned"], [])["all"] == 4
    found = tally(cells[cells["system"] == "use"], [])
    assert (found["won"], found["lost"], found["all"]) == (1, 1, 2)
    assert tally(cells[cells["system"] == "nothing"], [])["all"] == 0


def test_the_variant_of_most_cells_stands_for_a_setup():
    systems = {"space": (0.4, 0.4), "tuned": (0.5, 0.5)}
    outcomes = [outcome(systems, target=target) for target in ("fr", "ru")]
    outcomes += [outcome(systems, target="fr", template=f"T{number}") for number in (2, 3, 15)]
    chosen = main_cells(cells_of(outcomes))
    assert set(chosen["template"]) == {"T1"}
    assert chosen["cell"].nunique() == 4


def test_of_equally_many_the_usual_variant_stands_for_a_setup():
    systems = {"space": (0.4, 0.4), "tuned": (0.5, 0.5)}
    lite = [outcome(systems, alpha=alpha) for alpha in (0.0, 0.5, 1.0)]
    assert set(main_cells(cells_of(lite))["alpha"]) == {0.0}
    large = [
        outcome(systems, alpha=alpha, template="T15", encoder="xlm-roberta-large", setup=setup)
        for alpha in (0.0, 0.7, 1.0)
        for setup in ("5k", "1k")
    ]
    chosen = main_cells(cells_of(large))
    assert set(zip(chosen["setup"], chosen["alpha"], strict=True)) == {
        ("5k", 0.7),
        ("1k", 1.0),
    }  # the paper's


def test_other_data_are_other_cells_not_training_seeds():
    first = outcome({"space": (0.4, 0.4), "tuned": (0.5, 0.5)})
    second = outcome({"space": (0.4, 0.4), "tuned": (0.7, 0.7)}, training_seed=34)
    assert cells_of([first, second])["cell"].nunique() == 2
    second["data"]["test"] = "e" * 64
    assert cells_of([first, second])["cell"].nunique() == 4


def test_setups_in_order():
    given_order = ["zero-shot", "500", "own", "1k", "unsupervised", "5k", "k", "²"]
    ordered = sorted(given_order, key=setup_order)
    assert ordered == ["5k", "1k", "500", "unsupervised", "zero-shot", "k", "own", "²"]


def test_numbers_as_text():
    def shown(text, **values):
        return fill(text, values)

    assert shown("{x:+.2f}", x=12.345) == "+12.35"
    assert shown("{x:.1f}", x=-0.01) == "0.0"
    assert shown("{x:+.1f}", x=-0.01) == "+0.0"
    assert shown("{x:.1f}", x=-1.5) == "−1.5"
    assert shown("{x:.1f}", x=float("nan")) == shown("{x:.1f}", x=None) == "–"
    assert shown("{x:.1f} ± {y:.1f}", x=2.0, y=None) == "2.0"
    assert shown("{x:.1f} ({y:.1f})", x=2.0, y=3.0) == "2.0 (3.0)"
    assert shown("{x:.1f} ({y:.1f})", x=2.0, y=None) == "2.0"
    assert isinstance(shown("**{n} of {n}**", n=3), Strong)


def test_texts_are_shown_as_they_are():
    assert markdown("a|b*c_d <x> [y]") == r"a\|b\*c\_d \<x\> \[y\]"
    assert markdown("two\nlines") == "two lines"
    assert markdown(Strong("a")) == "**a**"
    assert html_cell("<b> (x & y)") == "&lt;b&gt; <small>(x &amp; y)</small>"
    assert html_cell(Strong("1")) == "<strong>1</strong>"
    assert html_cell("1 (of 2)") == "1 <small>(of 2)</small>"


HOSTILE = """<script>alert("1")</script> & 'x' | `y` (<i>z</i>)"""


class Seen(HTMLParser):
    """What a browser would make of a text: its tags and its characters."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text() | st.just(HOSTILE), st.booleans())
def test_no_text_of_a_cell_is_markup(text, bold):
    seen = Seen(html_cell(Strong(text) if bold else text))
    assert set(seen.tags) <= {"small", "strong"}
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    assert "".join(seen.text.split()) == "".join(plain.split())
    assert ("strong" in seen.tags) == bold


def test_cells_of_templates_are_escaped():
    template = environment().from_string("{{ text|cell }}")
    assert Seen(template.render(text=HOSTILE)).tags == ["small"]
    with pytest.raises(Exception, match=r"undefined|Undefined"):
        template.render(txt=HOSTILE)


def test_a_picture_stands_inline():
    svg = "<svg>é</svg>"
    text = environment().from_string("{{ svg|inline }}").render(svg=svg)
    assert base64.b64decode(text).decode() == svg
    with pytest.raises(Exception, match="no such template"):
        render("no such template")


def test_rows_that_share_a_title_have_it_once():
    frame = pd.DataFrame({"pair": ["en-fr", "en-fr", "en-ru"], "p": [0.5, None, 1.0]})
    rows = table_rows(frame, {"P@1": "{p:.1f}", "pair": "to {pair}"}, above="{pair}")
    assert rows == [
        ("en-fr", ["0.5", "to en-fr"]),
        ("", ["–", "to en-fr"]),
        ("en-ru", ["1.0", "to en-ru"]),
    ]
    assert table_rows([{"a": "x {y}", "b": "2"}]) == [("", ["x {y}", "2"])]
    assert number_columns(rows) == [True, False]


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1,234.5", "−2", "+0.5", "–", ""], True),
        (["12.0 ± 3", "<0.01"], True),
        (["1", "one"], False),
        (["a 1"], False),
    ],
)
def test_columns_of_numbers(texts, numbers):
    assert number_columns([("", [text]) for text in texts]) == [numbers]


def test_one_and_many():
    assert plural(1, "pair") == "1 pair"
    assert plural(0, "pair") == "0 pairs"
    assert plural(1234, "entry", "entries") == "1,234 entries"
