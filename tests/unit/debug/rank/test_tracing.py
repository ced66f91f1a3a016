"""How a thread is followed with ``sys.settrace``."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any, cast

import pytest

from meshrt.debug.rank.breakpoints import BreakTable
from meshrt.debug.rank.tracing import Tracer


class Late:
    """A table that is empty, until somebody has looked at it so often."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.files: dict[str, bool] = {}

    @property
    def active(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def lines_in(self, code: CodeType) -> Any:
        return {1}


@pytest.mark.parametrize(("way", "looks"), [("_look", 1), ("_let_go", 1), ("_let_go", 2)])
def test_a_table_that_comes_while_a_thread_is_let_go_is_not_lost(way: str, looks: int) -> None:
    frame: FrameType = sys._getframe()
    tracer = Tracer(cast(BreakTable, Late(looks)), lambda _frame: None, lambda _frame: None, breaks=True)
    let_go, outer = getattr(tracer, way), sys.gettrace()
    frame.f_trace = tracer._on_line
    sys.settrace(None)
    try:
        let_go(frame)
        followed, local = sys.gettrace(), frame.f_trace
    finally:
        sys.settrace(outer)
        above: FrameType | None = frame
        while above is not None:
            above.f_trace = None
            above = above.f_back
    assert (followed, local) == (tracer._on_call, tracer._on_line)
