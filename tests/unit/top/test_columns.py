"""What the columns mean is told on the screen and in the documentation."""

from __future__ import annotations

from meshrt.top.columns import COLUMNS, explained
from tests.support.programs import ROOT


def test_each_column_is_explained_in_lines_of_that_width() -> None:
    lines = explained(60).splitlines()
    titles = [line.split()[0] for line in lines if line[0] != " "]
    assert titles == [each.title for each in COLUMNS if each.help]
    assert {"SWAP", "NOTE"} <= set(titles) and max(map(len, lines)) <= 60
    assert "RSS      resident memory of the process" in lines


def test_the_page_has_each_column_with_a_meaning_of_its_own() -> None:
    page = (ROOT / "docs" / "top.md").read_text(encoding="utf-8")
    assert [each.title for each in COLUMNS if f"`{each.title}`" not in page] == ["RANK", "COORDS", "PID"]
