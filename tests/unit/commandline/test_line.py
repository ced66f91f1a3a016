"""The words of a line."""

from __future__ import annotations

import pytest

from meshrt.commandline.line import Line
from meshrt.errors import SelectionError


def test_a_parenthesis_too_many_is_an_error_at_its_place() -> None:
    text = "t ranks(0)) p x"
    line = Line(text, [(0, 1), (2, 11), (12, 13), (14, 15)], typed=True)
    assert line.take() == "t"
    with pytest.raises(SelectionError, match="unmatched parenthesis") as caught:
        line.ranks()
    assert caught.value.span == (10, 11)
