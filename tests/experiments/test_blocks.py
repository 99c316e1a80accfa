"""A table from the cells, between two markers of a page that is written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedforget.errors import InputError
from fedforget.experiments.pages import write_block


def test_a_block_is_replaced_between_its_markers(tmp_path: Path):
    page = tmp_path / "README.md"
    page.write_text("Above.\n<!-- t -->\nold\n<!-- /t -->\nBelow.\n")
    for _ in range(2):
        write_block(page, "t", "| new |")
        assert page.read_text() == "Above.\n<!-- t -->\n| new |\n<!-- /t -->\nBelow.\n"


@pytest.mark.parametrize("text", ["", "<!-- t -->", "<!-- /t -->"])
def test_a_page_without_the_markers_stays_as_it_is(tmp_path: Path, text: str):
    page = tmp_path / "README.md"
    page.write_text(text)
    with pytest.raises(InputError, match=r"has no place for t; put <!-- t --> and <!-- /t --> where it belongs\."):
        write_block(page, "t", "| new |")
    assert page.read_text() == text
