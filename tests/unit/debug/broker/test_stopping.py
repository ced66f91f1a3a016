"""What a terminal is told of ranks that it has asked to stop."""

from __future__ import annotations

import time
from typing import Any

import pytest

from meshrt.hooks.facts import Body
from meshrt.hooks.snapshot import Silent
from meshrt.selection import fold_ranks
from tests.support.untyped import Group
from tests.unit.debug.root_fakes import FakeRoot


@pytest.fixture
def root() -> FakeRoot:
    return FakeRoot()


def kinds(body: Body) -> dict[str, str]:
    return {answer["kind"]: fold_ranks(answer["ranks"]) for answer in body["answers"]}


def answered(*ranks: int, **same: Any) -> Group:
    return Group("m1", ranks, "answered", same, {})


def test_c_code_that_holds_the_gil_is_named_with_place_and_time(root: FakeRoot) -> None:
    me = root.terminal()
    root.unanswering[2] = Silent("busy", time.time_ns() / 1e9 - 12)
    root.ask(me, "debug.interrupt", actor="debugee", ranks="ranks(2)")
    dump = 'Thread 0x1 (most recent call first):\n  File "/x/tok.py", line 9 in encode\n'
    root.answer("debug.interrupt", Group("m1", (2,), "silent", {"state": "busy", "stack": dump}, {}))
    root.advance(0.1)
    ((answer,),) = [body["answers"] for body in me.of("debug.report")]
    assert answer["kind"] == "blocked"
    assert answer["text"] == "in C code: encode x/tok.py:9, for 12 s; C code holds its GIL"


def test_an_interrupt_that_comes_to_nothing(root: FakeRoot) -> None:
    me = root.terminal()
    root.ask(me, "debug.interrupt", actor="debugee", ranks="ranks(0:3)")
    root.answer("debug.interrupt", answered(0, 1, 2, state="asked", text=""))
    root.event("missed", 0)
    root.event("missed", 1, why="the signal is taken")
    root.advance(0.6)
    root.answer("inspect.stacks", Group("m1", (2,), "silent", {"state": "busy", "stack": ""}, {}))
    root.advance(0.1)
    found = {answer["kind"]: answer["ranks"] for body in me.of("debug.report") for answer in body["answers"]}
    assert found == {"idle": [0], "refused": [1], "silent": [2]}
    root.event("missed", 2)  # what was to be stopped later has ended
    root.event("missed", 7)  # nobody knows of it
    root.advance(1)
    assert [body["text"] for body in me.of("debug.notice")] == [
        "rank 2 of debugee did not stop: the endpoint or thread has ended"
    ]


def test_interrupts(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0)
    first = root.ask(me, "debug.interrupt", actor="debugee", ranks="ranks(0:5)")
    assert kinds(first) == {"stopped": "0"}
    assert first["waiting"] == {"debugee": [1, 2, 3, 4]}
    root.answer("debug.interrupt", answered(1, 2, 3, state="asked", text=""), answered(4, state="idle", text=""))
    root.stop(1, reason="interrupt")
    root.stop(2)  # it came to a breakpoint of its own
    root.advance(0.6)
    stacks = {
        "threads": [
            {
                "name": "MainThread",
                "kind": "actor",
                "actor": "debugee",
                "endpoint": "work",
                "holder": "mutex.lock",
                "state": "blocked",
                "frames": [["/x/y.py", 7, "f", False]],
            }
        ]
    }
    root.answer("inspect.stacks", Group("m1", (3,), "answered", stacks, {3: {"since": [12.0], "cpu": [0.0]}}))
    root.advance(0.1)
    found = {answer["kind"]: answer for body in me.of("debug.report") for answer in body["answers"]}
    assert found["idle"]["ranks"] == [4]
    assert found["answered"]["ranks"] == [1, 2]
    assert (found["blocked"]["ranks"], found["blocked"]["text"]) == (
        [3],
        "in C code: mutex.lock at f x/y.py:7, for 12 s",
    )
    assert me.of("debug.report")[-1]["done"]
    root.stop(3, reason="interrupt")  # at last
    root.advance(1)
    assert me.of("debug.notice")[-1]["text"] == "rank 3 of debugee stopped at actors.py:16 (work)"


def test_an_interrupt_that_was_left_is_announced(root: FakeRoot) -> None:
    me = root.terminal()
    job = root.ask(me, "debug.interrupt", actor="debugee", ranks="ranks(1)")["job"]
    root.answer("debug.interrupt", answered(1, state="asked", text=""))
    root.ask(me, "debug.leave", job=job)
    root.stop(1, reason="interrupt")
    root.advance(1)
    assert me.of("debug.notice")[-1]["text"] == "rank 1 of debugee stopped at actors.py:16 (work)"
