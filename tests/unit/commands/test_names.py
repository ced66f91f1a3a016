"""``names`` shows what can be typed."""

from __future__ import annotations

from tests.unit.commands.prompts import Prompt


def test_names() -> None:
    body = {
        "actors": ["helper", "trainer"],
        "dims": ["hosts", "gpus"],
        "stopped": {"helper": [], "trainer": [0, 3]},
    }
    shown = Prompt({"inspect.names": body})("names")
    assert shown.text == "helper\ntrainer  stopped ranks: 0, 3\ndimensions: hosts, gpus" and shown.data == body
    nothing = Prompt({"inspect.names": {"actors": [], "dims": [], "stopped": {}}})
    assert nothing("names").text == "no actor yet"
