"""The rows of one rank: what is too small for a row of its own, and what has had none for want of time."""

from __future__ import annotations

from typing import Any

from meshrt.hooks.facts import ActorState
from meshrt.memory.operations import LeftOut, MeasureVariables
from meshrt.memory.rows import rows

MIB = 1 << 20


class Owner:
    def __init__(self) -> None:
        self.small = lambda: 0
        held = bytearray(MIB)
        self.large = lambda: held
        self.number = 5


def told(**asked: Any) -> tuple[dict[str, bool], LeftOut]:
    """Return which attributes have a row, whether these are exact, and what has none."""
    actor = ActorState("owner", None, None, None, instance=Owner())
    found, _ = rows([actor], MeasureVariables(**{"most": 10, **asked}))
    of_owner = {row.where: row.sizes[0].exact for row in found.rows if row.kind == "attribute"}
    return of_owner, found.left_out


def test_a_small_function_has_no_row_and_one_that_holds_something_has() -> None:
    assert told() == ({"self.large": True, "self.number": True}, LeftOut(0, 0, True))
    assert told(most=1)[1].count > 0


def test_a_function_that_was_not_counted_to_its_end_is_among_those_without_a_row() -> None:
    shown, left_out = told(objects=0)
    assert "self.large" not in shown and left_out.count >= 2 and left_out.bytes < MIB and not left_out.exact
