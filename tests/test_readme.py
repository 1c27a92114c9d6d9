"""The README says what the files in ``results/`` say."""

from __future__ import annotations

import pytest

from tools.readme_figures import README, with_figures


def test_figures_are_those_of_the_results() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_figures(text) == text, "run: python -m tools.readme_figures"


def test_a_lost_section_is_named() -> None:
    text = README.read_text(encoding="utf-8").replace("<!-- /spaces -->", "")
    with pytest.raises(SystemExit, match="no section 'spaces'"):
        with_figures(text)
