"""The callers of an actor, at the other ends of socketpairs."""

from __future__ import annotations

import socket

from meshrt.actor.callers import Callers
from meshrt.transport.link import Link
from meshrt.wire.frames import split_frames
from meshrt.wire.messages import STOP
from tests.support.descriptors import next_is


def test_one_that_is_dropped_twice_leaves_alone_who_has_its_descriptor() -> None:
    callers = Callers()
    theirs, ours = socket.socketpair()
    first = Link(ours)
    callers.add([first], [])
    assert callers.collect(0)
    theirs.close()
    callers.collect(0)
    assert first.closed
    with next_is(first.fileno()):
        ours, theirs = socket.socketpair()
    second = Link(ours)
    assert second.fileno() == first.fileno()
    callers.add([second], [])
    callers.collect(0)
    callers.drop(first)
    theirs.sendall(b"".join(split_frames(STOP, [1], [])))
    assert callers.collect(0) and [message[0] for message in callers.queue] == [second]
    theirs.close()
    callers.close()
