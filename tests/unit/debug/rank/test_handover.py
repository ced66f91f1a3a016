"""Who has the threads of a rank: prompts, or a taker that waits for them."""

from __future__ import annotations

import sys
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from meshrt.debug.rank.handover import Handover
from meshrt.errors import MeshError


class Sessions:
    """Of which one stands at a place, or none."""

    def __init__(self) -> None:
        self.place = ""
        self.left: Any = None

    def busy(self) -> Any:
        return SimpleNamespace(place=lambda: self.place) if self.place else None


class Taker:
    def __init__(self) -> None:
        self.done: list[str] = []

    def take(self) -> None:
        self.done.append("take")

    def breakpoint(self, frame: FrameType) -> bool:
        self.done.append("breakpoint")
        return True

    def forked(self) -> None:
        self.done.append("forked")


class Rank:
    def __init__(self) -> None:
        self.rests: list[tuple[bool, list[str]]] = []
        self.sessions = cast(Any, Sessions())
        self.taker = Taker()
        self.handover = Handover(self.sessions, lambda resting, of: self.rests.append((resting, list(of))))


def test_from_prompts_to_a_taker_and_back() -> None:
    rank = Rank()
    handover = rank.handover
    assert not handover.breakpoint(sys._getframe())
    handover.check()
    assert handover.give("the IDE of process 1", rank.taker, "1/1") == ""
    assert rank.rests == [(True, ["1/1"])] and rank.taker.done == ["take"]
    with pytest.raises(MeshError, match="the rank is attached to the IDE of process 1; stop and resume the rank there"):
        handover.check()
    assert handover.breakpoint(sys._getframe())
    rank.sessions.left()  # of no concern: it has them
    assert rank.taker.done == ["take", "breakpoint"]
    # It is gone, and another one comes, or none.
    handover.orphan()
    with pytest.raises(
        MeshError, match="the rank is stopped in an IDE that has disconnected; continue resumes the rank"
    ):
        handover.check()
    assert (
        "are suspended on ranks of an IDE that has disconnected, until continue resumes the ranks" in handover.resting()
    )
    handover.pass_on("the IDE of process 2", "2/1")
    with pytest.raises(MeshError, match="the rank is attached to the IDE of process 2"):
        handover.check()
    assert "suspended on ranks of the IDE of process 2, until the IDE detaches" in handover.resting()
    handover.orphan()
    handover.take_back()
    handover.check()
    assert handover.resting() == ""
    assert not handover.breakpoint(sys._getframe()) and rank.rests[1:] == [
        (True, ["1/1", "2/1"]),
        (False, ["1/1", "2/1"]),
    ]


def test_a_prompt_that_stands_is_waited_for() -> None:
    rank = Rank()
    rank.sessions.place = "train.py:7"
    assert rank.handover.give("an IDE", rank.taker) == "train.py:7"
    assert not rank.taker.done and not rank.handover.breakpoint(sys._getframe())
    rank.sessions.left()  # one of two
    assert not rank.taker.done
    rank.sessions.place = ""
    rank.sessions.left()
    assert rank.taker.done == ["take"]


def test_a_thread_that_is_about_to_stand_is_nobody_elses() -> None:
    rank = Rank()
    with rank.handover.entering():
        with rank.handover.entering():  # of another thread
            rank.handover.give("an IDE", rank.taker)
        assert not rank.taker.done
    assert rank.taker.done == ["take"]


def test_one_that_leaves_before_its_turn_is_given_nothing() -> None:
    rank = Rank()
    rank.sessions.place = "train.py:7"
    rank.handover.give("an IDE", rank.taker)
    rank.handover.take_back()
    rank.sessions.place = ""
    rank.sessions.left()
    assert not rank.taker.done


def test_in_a_forked_child_nobody_has_the_threads() -> None:
    rank = Rank()
    entering = rank.handover.entering()
    entering.__enter__()  # by a thread that the child does not have
    rank.handover.give("an IDE", rank.taker)
    rank.handover.forked()
    assert rank.taker.done == ["forked"] and rank.handover.holder == ""
    assert not rank.handover.breakpoint(sys._getframe())
    rank.handover.give("an IDE of the child", rank.taker)
    assert rank.taker.done == ["forked", "take"]
