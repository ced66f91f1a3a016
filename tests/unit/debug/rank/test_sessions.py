"""The variables of stopped stack frames: read while they stand, and nothing is written back."""

from __future__ import annotations

import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from meshrt.debug.rank.sessions import variables_of
from meshrt.hooks.facts import EndpointCall


@pytest.mark.parametrize("current", [True, False], ids=["the person's frame", "another one"])
def test_what_changes_after_the_look_stays_changed(current: bool) -> None:
    """Before Python 3.13, what was read from a frame is written back to it when its trace function returns."""
    told: list[tuple[str, Any]] = []

    def look(frame: FrameType, change: Any) -> None:
        pdb = SimpleNamespace(
            frames=[(frame, 7), (sys._getframe(), 1)] if current else [(sys._getframe(), 1), (frame, 7)],
            frame=frame if current else sys._getframe(),
            names={"shared": 1} if current else {},
        )
        call = EndpointCall("m", "worker", 0, "step", [])
        session: Any = SimpleNamespace(stopped=True, prompt=SimpleNamespace(pdb=pdb), call=call)
        idle: Any = SimpleNamespace(stopped=False, prompt=SimpleNamespace(pdb=None), call=call)
        told.extend((each.where, each.value) for each in variables_of([idle, session]) if each.kind == "local")
        change()

    def endpoint() -> int:
        shared = 1

        def change() -> None:
            nonlocal shared
            shared = 2

        def trace(frame: FrameType, event: str, _: object) -> Any:
            frame.f_trace = None
            look(frame, change)

        sys._getframe().f_trace = trace
        sys.settrace(lambda *_: None)
        result = 0
        sys.settrace(None)
        return shared + result

    before = sys.gettrace()
    try:
        assert endpoint() == 2
    finally:
        sys.settrace(before)
    assert ("test_sessions.py:7 endpoint() shared", 1) in told
