"""Breakpoints in loops of one line, which run already: such a line begins once and never anew."""

from __future__ import annotations

import pytest

from meshrt import Actor, endpoint, proc_mesh
from tests.debug.harness import person
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

WAIT = 20


class Looping(Actor):
    def __init__(self) -> None:
        self.rounds = 0
        self.going = True

    def turn(self) -> bool:
        self.rounds += 1
        return self.going

    @endpoint
    def one_line(self) -> int:
        while self.turn(): pass  # fmt: skip # noqa: E701 # @one_line
        return 1

    @endpoint
    def two_lines(self) -> int:
        while self.turn():
            self.rounds += 1  # @two_lines
        return 2


def line_of(name: str) -> int:
    return marked_line(__file__, name)


@pytest.mark.parametrize("name", ["one_line", "two_lines"])
def test_a_loop_that_runs_is_reached_again_and_again(name: str) -> None:
    looping = proc_mesh(gpus=2).spawn("looping", Looping).get(WAIT)
    result = getattr(looping, name).call()
    with person() as me:
        wait_until(lambda: name in me("where looping"), WAIT)
        me(f"break test_loops.py:{line_of(name)}, self.rounds > 5")
        me.wait("looping")
        assert f"({line_of(name)}){name}()" in me("cast looping ranks(:) bt")
        before = me("cast looping ranks(0) p self.rounds")
        me("continue")
        me.wait("looping")
        assert me("cast looping ranks(0) p self.rounds") != before
        assert "hit [0-1] 2 times" in me("breaks")
        me("clear all")
        me("cast looping ranks(:) !self.going = False")
        me("continue")
    assert set(result.get(WAIT).values()) == {1 if name == "one_line" else 2}
