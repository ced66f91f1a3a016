"""What a process holds ends with the last view of it, and what a message has brought with whoever reads it."""

from __future__ import annotations

import os
import signal
import weakref

import pytest

from meshrt.errors import ReferenceLost
from meshrt.store.arena import memory_chunk
from meshrt.store.lease import Lease, Loan, Reading, Received, of_this_message, writable
from meshrt.store.mapping import Mapping
from meshrt.transport.interrupts import Shield, installed
from tests.support.waiting import wait_until

LOAN = Loan(0, 1, 2, 3, 0, 16)


class FakeLender:
    """A chunk of one page, and who has said what of it."""

    def __init__(self) -> None:
        self._descriptor = memory_chunk("test", 4096)
        weakref.finalize(self, os.close, self._descriptor)
        self._mapping = Mapping(self._descriptor, 4096, writable=True)
        self._mapping.write(0, b"0123456789abcdef")
        self.ended = False
        self.let: list[int] = []
        self.there = True
        self.taken = 0

    def mapping(self, _loan: Loan) -> Mapping:
        return self._mapping

    def private(self, _loan: Loan) -> Mapping:
        if self.ended:
            raise ReferenceLost("its store has ended")
        return Mapping(self._descriptor, 4096, private=True)

    def let_go(self, loan: Loan) -> None:
        self.let.append(loan.segment)

    def take(self, loan: Loan) -> Loan:
        if not self.there:
            raise ReferenceLost("it is gone")
        self.taken += 1
        return loan


def test_a_view_keeps_the_lease_and_the_last_one_lets_go() -> None:
    lender = FakeLender()
    view = Reading(Lease(lender, LOAN)).window(4, 4)
    part = view[1:3]
    del view
    assert bytes(part) == b"56" and part.readonly and not lender.let
    del part
    assert lender.let == [3]


def test_ctrl_c_while_it_is_let_go_comes_behind_that() -> None:
    class Pressed(FakeLender):
        def let_go(self, loan: Loan) -> None:
            installed().close()
            signal.raise_signal(signal.SIGINT)
            super().let_go(loan)
            installed().open()

    shield = Shield()
    shield.install()
    lender = Pressed()
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # at which instruction it comes nobody knows
            Lease(lender, LOAN)
            assert lender.let == [3]
            wait_until(lambda: False, 20, "an interrupt")
    finally:
        shield.uninstall()


def test_bytes_outside_of_a_chunk_are_refused() -> None:
    with pytest.raises(ValueError, match="8000 bytes at 0 are not inside a chunk of 4096"):
        Reading(Lease(FakeLender(), LOAN)).window(0, 8000)


def test_what_was_given_is_let_go_when_nobody_reads_the_message() -> None:
    lender = FakeLender()
    received = Received(lender, b"", [LOAN], given=True)
    assert not lender.let
    del received
    assert lender.let == [3] and not lender.taken


def test_an_interrupted_reader_may_read_again() -> None:
    lender = FakeLender()
    received = Received(lender, b"", [LOAN], given=False)
    with pytest.raises(KeyboardInterrupt), received:
        raise KeyboardInterrupt
    assert lender.taken == 1 and not lender.let
    with received:
        view = received.bytes_at([0, 10, 6])
        assert of_this_message(3).loan == LOAN
        with pytest.raises(ReferenceLost):
            of_this_message(4)
    assert lender.taken == 1, "it was held since"
    assert bytes(view) == b"abcdef" and not lender.let
    del view
    assert lender.let == [3]
    with pytest.raises(ReferenceLost, match="between processes of one program"):
        of_this_message(3)


def test_what_is_gone_cannot_be_taken() -> None:
    lender = FakeLender()
    lender.there = False
    with pytest.raises(ReferenceLost, match="is gone"), Received(lender, b"", [LOAN], given=False):
        pass
    assert not lender.let


def test_a_child_that_was_forked_holds_for_ever() -> None:
    lender = FakeLender()
    lease = Lease(lender, LOAN)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    del lease
    assert not lender.let


def test_what_is_written_is_seen_by_this_reading_alone() -> None:
    lender = FakeLender()
    lease = Lease(lender, LOAN)
    reading, other = Reading(lease), Reading(lease)
    shared, own, same, apart = (
        reading.window(4, 4),
        *(writable(each.window(4, 4)) for each in (reading, reading, other)),
    )
    own[:2] = b"--"
    assert [bytes(view) for view in (shared, own, same, apart)] == [b"4567", b"--67", b"--67", b"4567"]
    del lease, reading, other, shared, same, apart
    assert bytes(own) == b"--67" and not lender.let
    del own
    assert lender.let == [3]


def test_what_cannot_be_mapped_any_more_is_copied() -> None:
    lender = FakeLender()
    view = Reading(Lease(lender, LOAN)).window(4, 4)
    lender.ended = True
    copy = writable(view)
    copy[:2] = b"--"
    assert bytes(view) == b"4567" and bytes(copy) == b"--67"
    assert writable(copy) is copy and bytes(writable(memoryview(b"x"))) == b"x"
