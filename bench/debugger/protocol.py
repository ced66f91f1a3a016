"""What both sides of a run have to be able to do: the program whose ranks stop, and the person at the debugger."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from bench.peers.protocol import run_blocking

__all__ = ["ACTOR", "Desk", "Peer", "Program"]

ACTOR = "walker"
"""The name of the actor that stops."""


class Program(Protocol):
    """``N`` running actors. An act is what they do while a person looks on."""

    address: str
    """Where the person finds the program: a process id, a port."""

    async def ping(self) -> int:
        """Call an empty method of all actors, wait for all, and return how many answered."""

    async def play(self, act: str, folder: str) -> None:
        """Call the method of an act on all actors and wait for its end, which the person brings about.

        Args:
            folder: Where the actors of the act "blocked" have their sockets; it is empty.
        """

    async def stop(self) -> None:
        """End all actors and every process that was started for them."""


class Peer(NamedTuple):
    """A contestant that has a debugger: how to start ``N`` actors, and the acts that it can be measured in.

    ``alone``: what the person measures without these actors.
    """

    name: str
    start: Callable[[int], Awaitable[Program]]
    acts: tuple[str, ...]
    alone: tuple[str, ...] = ()
    run: Callable[[Coroutine[Any, Any, Any]], Any] = run_blocking


class Desk(Protocol):
    """A person's connection to the debugger. Every method returns when what it asked for has been done."""

    def wait(self, count: int) -> None:
        """Wait until so many ranks stand at their breakpoint."""

    def show(self) -> None:
        """Show where all stopped ranks are."""

    def attach(self, rank: int) -> None:
        """Work with one rank; returns at its first prompt."""

    def detach(self) -> None:
        """Leave that rank as it is."""

    def command(self, line: str) -> None:
        """Have the attached rank's pdb run a line; returns at its next prompt."""

    def cast(self, line: str, count: int) -> None:
        """Have the pdb of all ``count`` ranks run a line that moves them; returns when all have moved."""

    def go_on(self) -> None:
        """Let all ranks run on."""

    def close(self) -> None:
        """Leave."""
