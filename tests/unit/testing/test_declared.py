"""Faults as a test declares them."""

from __future__ import annotations

import pytest

from meshrt.errors import SelectionError, UsageError
from meshrt.selection import Extent, Shape
from meshrt.testing.declared import call, cut, kill, stop

SHAPE = Shape.from_extent(Extent(("hosts", "gpus"), (2, 3)))


def test_ranks_are_numbers_or_a_selection() -> None:
    at = call("step")
    assert kill(4, at=at).of(SHAPE) == (4,)
    assert kill([5, 1, 5], at=at).of(SHAPE) == (1, 5)
    assert kill("hosts=1, gpus=1:", at=at).of(SHAPE) == (4, 5)
    assert cut(0, at=at).of(SHAPE.select("hosts", slice(1, 2))) == (3,), "numbers are those of the view"


def test_ranks_that_are_not_there() -> None:
    with pytest.raises(UsageError, match=r"kill: the mesh has no rank 6: .* has 6"):
        kill(6, at=call("step")).of(SHAPE)
    with pytest.raises(SelectionError):
        kill("racks=1", at=call("step")).of(SHAPE)
    with pytest.raises(UsageError, match="stop: no ranks are given"):
        stop("", at=call("step"))
    with pytest.raises(UsageError, match="cut: no ranks are given"):
        cut([], at=call("step"))


def test_what_is_no_moment() -> None:
    with pytest.raises(UsageError, match="'a b' is not the name of an endpoint"):
        call("a b")
    with pytest.raises(UsageError, match=r"step\(\) has no call 0; expected a number, 1 or more"):
        call("step", 0)
    with pytest.raises(UsageError, match=r"kill: at='step' is not a call"):
        kill(1, at="step")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"stop: invalid seconds=0"):
        stop(1, at=call("step"), seconds=0)


def test_texts() -> None:
    assert kill(1, at=call("step", 5)).text([1]) == "kill of rank 1 at call 5 of step()"
    assert cut(1, at=call("step", actor="a", after=True)).text([0, 1]) == "cut of ranks 0-1 after call 1 of a.step()"
