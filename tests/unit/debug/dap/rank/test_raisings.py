"""Expressions of breakpoints that raise: told at once when they are new, and then counted."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from meshrt.debug.dap.engine.expressions import Expressions
from meshrt.debug.dap.operations import Raising
from meshrt.debug.dap.rank.raisings import Raisings
from tests.unit.debug.fakes import FakeRankServices


class Timed(FakeRankServices):
    """Knows what is to be done, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[tuple[float, Any]] = []

    def call_later(self, seconds: float, function: Any) -> None:
        self.due.append((seconds, function))

    def run(self) -> list[float]:
        """Do it; returns in how many seconds it would have been done."""
        due, self.due = self.due, []
        for _, function in due:
            function()
        return [seconds for seconds, _ in due]


def test_a_new_one_is_told_at_once_and_a_loop_once_a_second() -> None:
    services, told = Timed(), list[Raising]()
    now = 100.0
    raisings = Raisings(services, told.extend, lambda: now)
    first = Raising("condition", "/src/a.py", 3, "nope", "NameError", "no nope")
    raisings.hear(first)
    raisings.hear(first)
    assert services.run() == [0.0]
    assert [(row.line, row.error, row.text, row.times) for row in told] == [(3, "NameError", "no nope", 2)]
    now += 0.25
    for _ in range(1000):
        raisings.hear(replace(first, text="another text"))
    raisings.hear(replace(first, line=4))
    assert services.run() == [0.75, 0.0]
    assert [(row.line, row.text, row.times) for row in told[1:]] == [(3, "no nope", 1000), (4, "no nope", 1)]
    # A look that finds nothing tells of nothing.
    now += 5.0
    raisings.hear(first)
    raisings.hear(first)
    assert services.run() == [0.0] and told[-1].times == 2 and len(told) == 4


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit


def test_nothing_that_an_expression_does_reaches_the_program() -> None:
    found, heard = Expressions(), list[Raising]()
    found.heard = heard.append
    frame, names = sys._getframe(), {"line": 7, "hit_condition": None, "condition": None, "expression": "'x'"}
    assert found.holds(SimpleNamespace(**{**names, "condition": "1 + 1"}), frame)
    for raising in ("nope", "exit()", "(_ for _ in ()).throw(Unspeakable)"):
        assert not found.holds(SimpleNamespace(**{**names, "condition": raising}), frame)
    info = SimpleNamespace(pydev_message="before")
    found.log(SimpleNamespace(**{**names, "expression": "'%s' % (nope,)"}), info, frame)
    assert info.pydev_message == ""
    found.log(SimpleNamespace(**names), info, frame)
    assert info.pydev_message == "x"
    assert [(each.what, each.line, each.error) for each in heard] == [
        ("condition", 7, "NameError"), ("condition", 7, "SystemExit"), ("condition", 7, "Unspeakable"),
        ("log", 7, "NameError"),
    ]  # fmt: skip
    assert heard[2].text == "(str() of the error raises SystemExit)"
