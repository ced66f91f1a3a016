"""Connecting to a peer that is known by several addresses: the first one that proves to be the peer is taken.

An address may lead nowhere (an interface that others cannot reach), or to another machine that has the same private
address. So the next one is tried after a short while, and what counts is the proof of the peer, not the connection.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from meshrt.errors import ProtocolError
from meshrt.wire.addresses import Port

__all__ = ["NEXT_SECONDS", "Attempt", "begin_to_connect", "described", "race", "reason_of"]

#: Seconds until the next address is tried, too.
NEXT_SECONDS = 0.25


class Attempt(Protocol):
    """A connection that is being made."""

    def fileno(self) -> int:
        """The descriptor of its socket."""

    @property
    def events(self) -> int:
        """What is waited for, as of `select.poll`."""

    def go_on(self) -> bool:
        """Go on as far as possible, as the events have come; returns whether the peer has proved itself.

        Raises OSError, ProtocolError: It will not.
        """

    def close(self) -> None:
        """Close it."""


A = TypeVar("A", bound=Attempt)


def race(addresses: Sequence[Port], begin: Callable[[Port], A], seconds: float) -> tuple[A | None, dict[Port, str]]:
    """Return the attempt whose peer has proved itself first; None: no peer has. All others are closed.

    Blocks, for ``seconds`` and `NEXT_SECONDS` for each address at most.

    Args:
        addresses: In the order in which they are tried.
        begin: Begins to connect to an address. May raise OSError.
        seconds: Time for each of them.
    Returns:
        The attempt, and why each address was given up.
    """
    running: dict[int, tuple[Port, A, float]] = {}
    problems: dict[Port, str] = {}
    left = list(dict.fromkeys(addresses))
    poll = select.poll()
    winner: A | None = None
    next_at = 0.0

    def give_up(descriptor: int, why: str) -> None:
        address, attempt, _ = running.pop(descriptor)
        problems[address] = why
        poll.unregister(descriptor)
        attempt.close()

    while winner is None and (left or running):
        now = time.monotonic()
        if left and (now >= next_at or not running):
            address = left.pop(0)
            next_at = now + NEXT_SECONDS
            try:
                attempt = begin(address)
            except OSError as error:
                problems[address] = reason_of(error)
                continue
            running[attempt.fileno()] = (address, attempt, now + seconds)
            poll.register(attempt.fileno(), attempt.events)
        due = [deadline for _, _, deadline in running.values()] + ([next_at] if left else [])
        for descriptor, _ in poll.poll(max(0.0, min(due) - now) * 1000 + 1):
            attempt = running[descriptor][1]
            try:
                if attempt.go_on():
                    winner = attempt
                    break
                poll.modify(descriptor, attempt.events)
            except (OSError, ProtocolError) as error:
                give_up(descriptor, reason_of(error))
        now = time.monotonic()
        for descriptor in [number for number, (_, each, end) in running.items() if end <= now and each is not winner]:
            give_up(descriptor, "no answer in time")
    for _, attempt, _ in running.values():
        if attempt is not winner:
            attempt.close()
    return winner, problems


def begin_to_connect(address: Port) -> socket.socket:
    """Return a TCP socket that does not block, and is connecting. Raises OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        problem = sock.connect_ex(address)
        if problem not in (0, errno.EINPROGRESS):
            raise OSError(problem, os.strerror(problem))
    except BaseException:
        sock.close()
        raise
    return sock


def described(problems: Mapping[Port, str]) -> str:
    """Return what each address has answered, in words."""
    return "; ".join(f"{host} port {port}: {why}" for (host, port), why in problems.items())


def reason_of(error: Exception) -> str:
    """Return why an address was given up, in words."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
