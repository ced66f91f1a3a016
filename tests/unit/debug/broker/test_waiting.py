"""What terminals are told when sessions change, and the end of a wait."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.errors import MeshError
from tests.unit.debug.root_fakes import FakeRoot


@pytest.fixture
def root() -> FakeRoot:
    return FakeRoot()


def test_wait(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0, 1)
    wanted: dict[str, Any] = {"actor": "debugee", "ranks": "ranks(0:2)", "seconds": 0}
    assert root.ask(me, "debug.wait", **wanted) == {"stopped": [0, 1], "missing": []}
    assert root.ask(me, "debug.wait", **{**wanted, "ranks": ""}) == {"stopped": [0, 1], "missing": [2, 3, 4, 5, 6, 7]}
    with pytest.raises(MeshError, match="no actor"):
        root.ask(me, "debug.wait", actor="nobody", ranks="", seconds=0)
    root.kill(5, "exited with code 3")
    with pytest.raises(MeshError, match="rank 5 of debugee will not stop: it exited with code 3"):
        root.ask(me, "debug.wait", actor="debugee", ranks="", seconds=60)
    assert root.ask(me, "debug.wait", actor="debugee", ranks="ranks(!dead & 0:2)", seconds=0)["missing"] == []


def test_terminals_are_told_how_many_ranks_are_stopped(root: FakeRoot) -> None:
    me = root.terminal()
    root.advance(1)
    root.stop(0, 1, 2)
    root.advance(1)
    root.event("resumed", 2, how="continue")
    root.advance(1)
    root.event("output", 0, text="changes no count")
    root.advance(1)
    counts = [(body["stopped"], body["resumed"]) for body in me.of("debug.count")]
    assert counts == [(0, 0), (3, 0), (2, 1)]
    root.client_gone[0](me)
    root.event("ended", 0)
    root.advance(1)
    assert len(me.of("debug.count")) == 3
