"""What is noted for a store goes out together, and what a late answer gives is given back."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from meshrt.store.lease import Loan
from meshrt.store.messages import (
    FROM_PROCESS,
    Delivered,
    Fetched,
    FromProcess,
    GiveBack,
    Granted,
    Host,
    Imported,
    LetGo,
    Published,
    Recall,
    TakeBack,
    Taken,
    ToProcess,
    Withdraw,
)
from meshrt.store.outbox import Outbox
from meshrt.store.protocol import DescriptorStream, Incoming
from meshrt.wire.tree import Refusal

LOAN = Loan(1, 2, 3, 9, 0, 100)
HOST = Host(1, 61, [71])


class Scene:
    """An outbox, and both ends of a connection."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.outbox = Outbox()
        self._ours, self._theirs = DescriptorStream(ours), DescriptorStream(theirs)

    def told(self) -> list[FromProcess]:
        """What goes out now."""
        self.outbox.move_to(self._ours)
        assert self._ours.flush() and not self.outbox
        return [message for message, _ in self._theirs.read(FROM_PROCESS) or []]

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_what_is_alike_goes_in_one_message(scene: Scene) -> None:
    outbox = scene.outbox
    assert not outbox and scene.told() == []
    for number in (1, 2):
        outbox.let_go(number)
        outbox.withdraw(10 + number)
        outbox.give_back(100 * number)
        outbox.take_back([number], [7])
    outbox.recall([3], [HOST])
    assert outbox
    assert scene.told() == [
        GiveBack(300),
        LetGo([1, 2]),
        Withdraw([11, 12]),
        TakeBack([1], [7]),
        TakeBack([2], [7]),
        Recall([3], [HOST]),
    ]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Granted(1, 4096), [GiveBack(4096)]),
        (Taken(1, 9), [LetGo([9])]),
        (Imported(1, LOAN), [LetGo([9])]),
        (Delivered(1, [HOST, HOST], [[LOAN], [LOAN]]), [Recall([9], [HOST, HOST])]),
        (Delivered(1, [], []), []),
        (Published(1), []),
        (Refusal(1, "no"), []),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_an_answer_gives_is_given_back(scene: Scene, answer: ToProcess, told: list[FromProcess]) -> None:
    scene.outbox.undo(Incoming(answer, []))
    assert scene.told() == told


def test_a_file_that_comes_too_late_is_closed(scene: Scene) -> None:
    descriptor = os.memfd_create("late")
    descriptors = [descriptor]
    scene.outbox.undo(Incoming(Fetched(1, 4096, fds=1), descriptors))
    assert descriptors == [] and scene.told() == []
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
