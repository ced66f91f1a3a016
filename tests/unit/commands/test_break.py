"""``break`` tells of ranks where the place is not loaded, and remembers what was set here."""

from __future__ import annotations

from tests.unit.commands.prompts import Prompt


def test_what_is_told() -> None:
    body = {"id": 7, "place": "a.py:3", "condition": "", "once": True, "selection": "all", "ranks": None,
            "goes_with": 0, "lines": {}, "meshes": {"m1": "mesh1"}, "price": "it costs much", "near": ["b.py"],
            "states": {"bound": {"m1": [0]}, "pending": {"m1": [1]}, "no such line": {"m1": [2]}}}  # fmt: skip
    prompt = Prompt({"debug.break": body})
    lines = prompt("tbreak trainer a.py:3, x > 1 ranks(0:3)").text.splitlines()
    assert prompt.asked[0][1] == {
        "once": True, "goes": 0, "actor": "trainer", "place": "a.py:3", "condition": "x > 1", "ranks": "ranks(0:3)",
    }  # fmt: skip
    assert lines[0].startswith("breakpoint 7  a.py:3 on all once")
    assert "pending: not loaded yet (did you mean b.py?)" in lines[1]
    assert lines[2].endswith("no such line") and lines[3] == "it costs much"
    assert prompt.breaks == {7}
