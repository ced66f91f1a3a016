"""What a contestant has to have for these rows: a program, and what has to run on the machines before it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from bench.peers.protocol import run_blocking
from bench.scenarios import Settings
from tests.cluster.machines import Machine

__all__ = ["Peer", "ignore"]


def ignore(made: list[Machine], ranks: int) -> None:
    """Nothing has to run before."""


class Peer(NamedTuple):
    """A contestant.

    Args:
        command: The command of a program that measures ``calls`` and ``arrays``, for the first of the machines.
        prepare: Starts, on machines, what the program needs to start so many ranks on all but the first. It ends with
            the machines.
    """

    command: Callable[[list[Machine], str, Settings], Sequence[str]]
    prepare: Callable[[list[Machine], int], None] = ignore
    run: Callable[[Coroutine[Any, Any, Any]], Any] = run_blocking
