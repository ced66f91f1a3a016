"""Which ranks are asked to stop for a ``breakpoint(all=True)``, when, and when no more."""

from __future__ import annotations

from meshrt.debug.broker.all_ranks import LONGEST_TICKS, QUIET_SECONDS
from meshrt.selection import Shape
from tests.support.untyped import Group
from tests.unit.debug.root_fakes import FakeRoot

#: Longer than the moment in which other ranks may come to the same breakpoint.
LATER = 3 * QUIET_SECONDS


def asked(root: FakeRoot, operation: str = "debug.interrupt") -> list[list[int]]:
    """The ranks of all questions of this name."""
    return [targets["m1"] for targets, question, _ in root.gathers.values() if question.name() == operation]


def test_the_others_are_asked_once_no_more_come() -> None:
    root = FakeRoot()
    for rank in (0, 3, 5):
        root.event("stop_others", rank)
        root.stop(rank)
        root.advance(QUIET_SECONDS * 0.9)
        assert asked(root) == []
    root.advance(LATER)
    assert asked(root) == [[1, 2, 4, 6, 7]]
    # One that comes there by itself now asks nothing that was not asked.
    root.event("stop_others", 4)
    root.stop(4)
    root.advance(LATER)
    assert asked(root) == [[1, 2, 4, 6, 7]]


def test_ranks_that_come_all_the_time_do_not_delay_it_for_ever() -> None:
    root = FakeRoot()
    for _ in range(4 * LONGEST_TICKS):
        root.event("stop_others", 0)
        root.advance(QUIET_SECONDS / 2)
    assert asked(root)[0] == [1, 2, 3, 4, 5, 6, 7]


def test_ranks_that_are_stopped_or_have_ended_are_not_asked() -> None:
    root = FakeRoot()
    root.stop(1, 2, 3)
    root.event("resumed", 2, how="continue")
    root.event("resumed", 3, how="step")
    root.kill(4, "was killed by SIGKILL")
    root.event("stop_others", 0)
    root.stop(0)
    root.advance(LATER)
    assert asked(root) == [[2, 3, 5, 6, 7]]


def test_only_ranks_that_were_spawned_together() -> None:
    shape = Shape.from_extent({"gpus": 4})
    root = FakeRoot(
        ("m1", "", {"gpus": 4}, {"debugee": shape.select("gpus", slice(0, 2))}), ("m2", "", {"gpus": 4}, ())
    )
    root.event("stop_others", 0)
    root.stop(0)
    root.advance(LATER)
    assert asked(root) == [[1]]


def test_one_that_joins_while_the_others_are_stopped_is_asked() -> None:
    shape = Shape.from_extent({"gpus": 4})
    root = FakeRoot(("m1", "", {"gpus": 4}, {"debugee": shape}))
    root.ended = {("m1", rank): "has not joined" for rank in (2, 3)}
    root.event("stop_others", 0)
    root.stop(0)
    root.advance(LATER)
    root.stop(1, reason="interrupt")
    root.ended = {("m1", 3): "has not joined"}
    for begun in root.actor_begun:
        begun("m1", 2, "debugee")
    root.advance(LATER)
    assert asked(root) == [[1], [2]]


def test_one_that_was_asked_before_it_had_joined_is_asked_again() -> None:
    root = FakeRoot(("m1", "", {"gpus": 2}, {"debugee": Shape.from_extent({"gpus": 2})}))
    root.event("stop_others", 0)
    root.stop(0)
    root.advance(LATER)
    for begun in root.actor_begun:
        begun("m1", 1, "debugee")
    root.advance(LATER)
    assert asked(root) == [[1], [1]]


def test_one_that_has_not_answered_is_asked_again_and_told_of_once() -> None:
    root = FakeRoot(("m1", "", {"gpus": 2}, {"debugee": Shape.from_extent({"gpus": 2})}))
    me = root.terminal()
    root.event("stop_others", 0)
    root.stop(0)
    root.advance(LATER)
    for _ in range(2):
        root.answer("debug.interrupt", Group("m1", (1,), "silent", {"state": "", "stack": ""}, {}))
        root.advance(3)
        assert asked(root) == [[1]]  # again: the one that was answered is over
    assert sum("rank 1 of debugee is not stopped" in body["text"] for body in me.of("debug.notice")) == 1
    root.stop(1, reason="interrupt")
    root.advance(9)
    assert asked(root) == [[1]]


def test_what_does_not_stop_is_said() -> None:
    root = FakeRoot()
    me = root.terminal()
    root.event("stop_others", 0)
    root.stop(0)
    root.advance(LATER)
    state = {"state": "asked", "text": ""}
    root.answer(
        "debug.interrupt",
        Group("m1", (1, 2, 3), "answered", state, {}),
        Group("m1", (4,), "answered", {"state": "idle", "text": ""}, {}),
        Group("m1", (5, 6), "refused", "the IDE of process 7 has this rank", {}),
        Group("m1", (7,), "gone", "was killed by SIGKILL", {}),
    )
    root.event("missed", 4)
    root.stop(1, 2, reason="interrupt")
    root.advance(0.6)
    dump = 'Thread 0x1 (most recent call first):\n  File "/x/tok.py", line 9 in encode\n'
    root.answer("inspect.stacks", Group("m1", (3,), "silent", {"state": "busy", "stack": dump}, {}))
    root.advance(1)
    assert [body["text"] for body in me.of("debug.notice")] == [
        "rank 0 of debugee stopped at actors.py:16 (work)",
        "2 ranks of debugee (5-6) are not stopped: the IDE of process 7 has this rank",
        "2 ranks of debugee (1-2) stopped at actors.py:16 (work)",
        "rank 3 of debugee is not stopped yet: in C code: encode x/tok.py:9; C code holds its GIL",
    ]
    root.stop(3, reason="interrupt")  # at last
    root.advance(1)
    assert me.of("debug.notice")[-1]["text"] == "rank 3 of debugee stopped at actors.py:16 (work)"


def test_the_last_one_goes_on_when_what_was_not_carried_out_is_withdrawn() -> None:
    root = FakeRoot()
    me = root.terminal()
    for rank in (0, 1):
        root.event("stop_others", rank)
        root.stop(rank)
    root.advance(LATER)
    root.stop(4, reason="interrupt")
    root.ask(me, "debug.interrupt", actor="debugee", ranks="ranks(5)")
    root.ask(me, "debug.cast", actor="debugee", ranks="ranks(0)", line="c")
    assert asked(root, "debug.withdraw") == []
    root.event("resumed", 0, how="continue")
    root.ask(me, "debug.cast", actor="debugee", ranks="ranks(1)", line="n")
    root.event("resumed", 1, how="step")
    root.stop(1, reason="step")
    assert asked(root, "debug.withdraw") == []
    sent = len(root.sent)
    root.ask(me, "debug.continue")
    assert asked(root, "debug.withdraw") == [[2, 3, 6, 7]]
    assert len(root.sent) == sent, "what C code waits for would come before they know it"
    root.answer(
        "debug.withdraw",
        Group("m1", (2, 3, 6), "answered", {}, {}),
        Group("m1", (7,), "silent", {"state": "busy", "stack": ""}, {}),
    )
    assert len(root.sent) == sent + 2
    root.event("resumed", 1, 4, how="continue")
    assert asked(root, "debug.withdraw") == []


def test_who_goes_on_at_once_has_nobody_stopped() -> None:
    root = FakeRoot()
    for end in ("resumed", "ended", "dead"):
        root.event("stop_others", 0)
        root.stop(0)
        if end == "resumed":
            root.event("resumed", 0, how="continue")
        elif end == "ended":
            root.event("ended", 0)
        else:
            root.kill(0, "was killed by SIGKILL")
        root.advance(LATER)
        assert asked(root) == []
