"""``p`` and its kin differ in what they ask, and in how much they show."""

from __future__ import annotations

import pytest

from tests.unit.commands.prompts import Prompt

_LONG = "\n".join(map(str, range(200)))


def _answer(text: str) -> dict[str, object]:
    answers = [{"actor": "trainer", "kind": "answered", "ranks": [0, 1], "text": text}]
    return {"job": 1, "done": True, "waiting": {}, "answers": answers}


@pytest.mark.parametrize("word", ["p", "pp", "whatis", "source"])
def test_what_is_asked(word: str) -> None:
    prompt = Prompt({"debug.print": _answer("3")})
    assert prompt(f"{word} trainer ranks(0:2) 1 + 2").text == "[0-1] 3"
    asked = {"command": word, "actor": "trainer", "ranks": "ranks(0:2)", "expression": "1 + 2"}
    assert prompt.asked == [("debug.print", asked)]


def test_a_source_is_shown_whole() -> None:
    prompt = Prompt({"debug.print": _answer(_LONG)})
    assert "199" in prompt("source trainer x").text and "199" in prompt("p -v trainer x").text
    assert "100\n" not in prompt("p trainer x").text
