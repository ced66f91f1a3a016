"""Which thread reads: time-outs and holds, the lead, the background, and what runs in a wait of the main thread."""

from __future__ import annotations

import threading
from typing import Any

from meshrt.transport.driver import Driver
from meshrt.transport.pending import Pending
from tests.support.waiting import wait_until
from tests.unit.transport.fake_rank import (
    Answers,
    FakeTree,
    Listen,
    call,
    open_link,
)


def test_a_time_out_and_a_hold(driver: Driver) -> None:
    receiver = Answers()
    assert not driver.wait(receiver, 0)
    assert not driver.wait(receiver, 0.01)
    driver.clock.hold(True)
    waiting = threading.Thread(target=driver.wait, args=(receiver, 0.01))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()  # the clock of time-outs is suspended
    driver.clock.hold(False)
    driver.wake()
    waiting.join(10)
    assert not waiting.is_alive()


def test_one_thread_leads_and_the_others_follow(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    pendings = [Pending(driver) for _ in range(4)]

    class Finisher(Answers):
        def __init__(self, pending: Pending) -> None:
            super().__init__()
            self.pending = pending

        def deliver(self, position: int, frame: Any) -> None:
            self.pending.finish()

    for call_id, pending in enumerate(pendings):
        driver.send(out, call(call_id), call_id, Finisher(pending), 0)
    threads = [threading.Thread(target=driver.wait, args=(pending, 20)) for pending in pendings]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(driver.followers) == 3, 10, "three follow")
    for call_id in (2, 0, 3, 1):  # the thread that leads completes the calls of the others
        rank.answer(call_id)
        wait_until(lambda: pendings[call_id].finished)  # noqa: B023 - used at once
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_a_callback_asks_for_the_background_until_it_has_run(driver: Driver, tree: FakeTree) -> None:
    pending = Pending(driver)
    called: list[int] = []
    pending.when_done(lambda: called.append(1), background=True)
    seen = [(list(called), tree.background)]
    for _ in range(2):
        pending.finish()
        seen.append((list(called), tree.background))
    pending.when_done(lambda: called.append(2), background=True)
    seen.append((list(called), tree.background))
    assert seen == [([], True), ([1], False), ([1], False), ([1, 2], False)]


def test_an_interjection_runs_on_the_main_thread_while_it_waits(driver: Driver) -> None:
    assert not driver.interject(lambda _: None)
    pending = Pending(driver)
    ran: list[object] = []

    def interjected(waited: object) -> None:
        ran.append((waited is pending, threading.current_thread() is threading.main_thread()))
        pending.finish()

    def ask() -> None:
        wait_until(lambda: driver.interject(interjected))

    asking = threading.Thread(target=ask)
    asking.start()
    assert driver.wait(pending, 10)
    asking.join(10)
    assert ran == [(True, True)] and not driver.interject(lambda _: None)
