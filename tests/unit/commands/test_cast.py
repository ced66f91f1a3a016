"""``cast q`` asks first; other lines do not."""

from __future__ import annotations

from tests.unit.commands.prompts import Prompt

_ANSWER = {"job": 1, "done": True, "waiting": {}, "answers": [
    {"actor": "trainer", "kind": "answered", "ranks": [0, 1], "text": "3"}
]}  # fmt: skip


def test_a_person_is_asked_before_endpoints_are_aborted() -> None:
    prompt = Prompt({"debug.cast": _ANSWER}, "n")
    assert prompt("cast trainer ranks(0:2) q").text == "not aborted" and not prompt.asked
    assert prompt.questions == ["abort the endpoint of trainer on ranks(0:2)? the callers get errors [y/N] "]
    assert prompt("cast trainer ranks(0:2) p 1 + 2").text == "[0-1] 3" and len(prompt.questions) == 1
    prompt.says = "y"
    prompt("cast ranks(0) quit")
    assert prompt.asked[-1] == ("debug.cast", {"actor": "", "ranks": "ranks(0)", "line": "quit"})
    script = Prompt({"debug.cast": _ANSWER})
    assert script("cast trainer ranks(0) q").ok and not script.questions
