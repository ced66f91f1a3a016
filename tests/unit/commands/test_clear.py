"""``clear`` asks a person before it deletes everything."""

from __future__ import annotations

import pytest

from tests.unit.commands.prompts import Prompt

_ROW = {"id": 1, "place": "a.py:3", "condition": "", "once": False, "selection": "all", "ranks": None, "goes_with": 0}
_SHOWN: dict[str, object] = {"hits": {}, "lines": {}, "problems": {}, "left": {}, "pending": {}}


@pytest.mark.parametrize(
    ("line", "says", "rows", "question", "ids"),
    [
        ("clear", None, [_ROW], "", []),  # a script
        ("clear", "y", [_ROW], "delete the breakpoint? [y/N] ", []),
        ("clear", "yes", [_ROW, _ROW], "delete all 2 breakpoints? [y/N] ", []),
        ("clear", "", [_ROW], "delete the breakpoint? [y/N] ", None),
        ("clear", "n", [], "", []),
        ("clear all", "n", [_ROW], "", []),
        ("clear 1,2 3", "n", [_ROW], "", [1, 2, 3]),
    ],
)
def test_who_is_asked(
    line: str, says: str | None, rows: list[dict[str, object]], question: str, ids: list[int] | None
) -> None:
    shown = {"breaks": [row | _SHOWN for row in rows], "problems": {}, "meshes": {}}
    prompt = Prompt({"debug.breaks": shown, "debug.clear": {"breaks": rows}}, says)
    outcome = prompt(line)
    assert prompt.questions == ([question] if question else [])
    cleared = [body for operation, body in prompt.asked if operation == "debug.clear"]
    assert cleared == ([] if ids is None else [{"ids": ids}])
    if ids is None:
        assert outcome.text.startswith("not deleted; ")
    else:
        assert outcome.text.count("deleted 1  a.py:3") == len(rows)
