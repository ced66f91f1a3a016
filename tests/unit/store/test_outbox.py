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
        ours.setblocking(False)
        theirs.setblocking(False)
        self.outbox = Outbox()
        self._ours, self._theirs = DescriptorStream(ours), DescriptorStream(theirs)

    def told(self) -> list[FromProcess]:
        """What goes out now."""
        self.outbox.move_to(self._ours)
        assert not self.outbox
        told: list[FromProcess] = []
        done = False
        while not done:
            done = self._ours.flush()
            while more := self._theirs.read(FROM_PROCESS):
                told += [message for message, _ in more]
        return told

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_what_ends_together_goes_in_one_message(scene: Scene) -> None:
    outbox = scene.outbox
    assert not outbox and scene.told() == []
    for number in (1, 2):
        outbox.let_go(number)
        outbox.add(TakeBack([number], [7]))
    outbox.add(Recall([3], [HOST]))
    assert outbox
    assert scene.told() == [LetGo([1, 2]), TakeBack([1], [7]), TakeBack([2], [7]), Recall([3], [HOST])]


def test_a_store_takes_each_message_whatever_ends_at_once(scene: Scene) -> None:
    for number in range(70_000):
        scene.outbox.let_go(number)
    told = scene.told()
    assert [number for message in told if isinstance(message, LetGo) for number in message.segments] == [*range(70_000)]


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
