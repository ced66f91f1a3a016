"""Evaluations that are interrupted: those that are meant, in code of the user's; and nothing is left behind."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable

import pytest

from meshrt.debug.dap.engine.evaluations import Evaluations
from tests.support.programs import run_python
from tests.support.waiting import wait_until

WAIT = 10.0


def spin(turns: Iterable[int]) -> None:
    """What a person has typed."""
    for _ in turns:
        pass


def test_those_that_are_meant() -> None:
    made = Evaluations()
    earlier, later = made.post(), made.post()
    ends = threading.Event()
    outcomes: dict[int, bool] = {}

    def work(number: int) -> None:
        # An endless iterator, or one that ends with the test.
        endless: Iterable[int] = itertools.count() if number == earlier else iter(ends.is_set, True)
        outcomes[number] = made.run(number, lambda: spin(endless))

    threads = {number: threading.Thread(target=work, args=(number,)) for number in (earlier, later)}
    for thread in threads.values():
        thread.start()
    try:
        wait_until(lambda: len(made.interrupt(0)) == 0 and len(made._at_work) == 2, WAIT)
        wait_until(lambda: not made.interrupt(earlier), WAIT, "the end of the earlier one")
        threads[earlier].join(WAIT)
        assert outcomes == {earlier: False} and threads[later].is_alive()
    finally:
        ends.set()
    threads[later].join(WAIT)
    assert outcomes == {earlier: False, later: True}


def test_what_is_not_meant_is_not_touched() -> None:
    made = Evaluations()
    made.break_here(None)  # nobody is at work here

    def interrupt_myself() -> None:
        raise KeyboardInterrupt  # the user's own

    with pytest.raises(KeyboardInterrupt):
        made.run(made.post(), interrupt_myself)
    with pytest.raises(ZeroDivisionError):
        made.run(made.post(), lambda: spin([1 // 0]))
    assert made._at_work == {} and made.run(made.post(), lambda: None)


def test_a_thread_is_reported_for_as_long_as_it_evaluates() -> None:
    """Its own time-outs are not suspended then."""
    made, told = Evaluations(), list[bool]()
    made.typed = told.append

    def evaluate() -> None:
        made.run(made.post(), lambda: None)
        assert False not in told, "the outer one goes on"

    assert made.run(made.post(), evaluate)
    assert told[0] and told[-1] is False and told.count(False) == 1


TAKEN_BACK = """
import sys
from meshrt.debug.rank.suspended import take_back

def called():
    return 5

def trace(frame, event, arg):
    return trace

take_back()
sys.settrace(trace)
assert called() == 5
"""


def test_what_is_taken_back_leaves_the_interpreter_as_it_was() -> None:
    done = run_python("-c", TAKEN_BACK)
    assert (done.returncode, done.stderr) == (0, "")
