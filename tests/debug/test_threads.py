"""Threads beside an actor's own, and several actors of one rank: interrupted by name, each with its own stack."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from meshrt import Actor, ActorError, endpoint, proc_mesh
from tests.debug.harness import person
from tests.support import gil
from tests.support.gil import hold_gil
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

WAIT = 20
HELD = marked_line(gil.__file__, "hold")


class Busy(Actor):
    """Has a thread of its own, which counts, and endpoints that hold things up."""

    def __init__(self) -> None:
        self.over = threading.Event()

    @endpoint
    def begin(self) -> None:
        threading.Thread(target=self.counting, name="Counter", daemon=True).start()

    def counting(self) -> None:
        count = 0
        while not self.over.is_set():
            count += 1  # @counting
            time.sleep(0.001)

    @endpoint
    def finish(self) -> None:
        self.over.set()

    @endpoint
    def hold(self, fifo: str) -> bool:
        """Hold the GIL until somebody writes into ``fifo``."""
        hold_gil(fifo)
        return True

    @endpoint
    def wait(self) -> bool:
        return self.over.wait(WAIT)  # @wait

    @endpoint
    def fail(self) -> None:
        raise ValueError("of this actor")  # @fail


def line_of(name: str) -> int:
    return marked_line(__file__, name)


def test_a_thread_is_interrupted_by_its_name() -> None:
    busy = proc_mesh(gpus=2).spawn("busy", Busy).get(WAIT)
    busy.begin.call().get(WAIT)
    with person() as me:
        assert "thread Counter" in me.until("where busy/Counter", "2/2  all  counting")
        assert "no thread 'Nobody' on this rank; it has" in me("interrupt busy/Nobody ranks(0)")
        shown = me("interrupt busy/Counter ranks(1)")
        if sys.version_info < (3, 12):
            why = "Python 3.11 interrupts the first actor of a rank only; to stop it: breakpoint() in its code"
            assert why in shown
        if sys.version_info >= (3, 12):
            me.wait("busy/Counter", "ranks(1)")
            assert me("cast busy/Counter ranks(1) p count > 0") == "[1] True\n"
            assert "stopped in the debugger" in me("where busy/Counter")
            me("continue")
            me.until("where busy/Counter", "2/2  all  counting")
    busy.finish.call().get(WAIT)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_an_interrupt_that_comes_to_nothing_is_told(fifo: Path) -> None:
    busy = proc_mesh(gpus=1).spawn("busy", Busy).get(WAIT)
    result = busy.hold.call_one(str(fifo))
    with person() as me:
        me.until("where", f"gil.py:{HELD}")
        shown = me("interrupt busy ranks(0)")
        assert f"in C code: hold_gil support/gil.py:{HELD}; C code holds its GIL" in shown
        fifo.write_bytes(b"x")
        assert result.get(WAIT) is True
        me.heard("rank 0 of busy did not stop")


def test_c_code_of_a_second_actor_is_shown_under_its_name(fifo: Path) -> None:
    mesh = proc_mesh(gpus=1)
    mesh.spawn("first", Busy).get(WAIT)
    second = mesh.spawn("second", Busy).get(WAIT)

    def named() -> bool:
        """Which thread is its own is known from the rank's first pulse on."""
        result = second.hold.call_one(str(fifo))
        shown = me.until("where", f"gil.py:{HELD}")
        fifo.write_bytes(b"x")
        assert result.get(WAIT) is True
        return "\nsecond\n" in shown

    with person() as me:
        wait_until(named, WAIT)


def test_where_keeps_the_other_actors_of_a_rank_that_stands_after_an_exception() -> None:
    mesh = proc_mesh(gpus=1)
    names = ("one", "two", "three")
    one, two, three = (mesh.spawn(name, Busy).get(WAIT) for name in names)
    with person() as me:
        me("postmortem on")
        failing = [one.fail.call_one(), two.fail.call_one()]
        three.wait.broadcast()
        for name in names[:2]:
            me.wait(name)
        shown = me.until("where", f"test_threads.py:{line_of('wait')}")
        assert shown.count("post-mortem: ValueError: of this actor") == 2
        for name in names:
            assert f"\n{name}\n" in shown
        me("continue")
    for future in failing:
        with pytest.raises(ActorError, match="of this actor"):
            future.get(WAIT)
