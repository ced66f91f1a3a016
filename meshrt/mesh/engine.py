"""What an engine is: it places one host agent per host. Everything else is the same code for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Protocol

from meshrt.transport.link import Link
from meshrt.wire.addresses import HostAddress

__all__ = ["Engine", "Invitation", "Placed", "Program"]


class Placed(Protocol):
    """A host agent that an engine has started."""

    @property
    def host(self) -> str:
        """Its name, as users see it."""

    @property
    def mark(self) -> str:
        """Marks every process of this agent, see `meshrt.host.osutil.RUN_VARIABLE`."""

    @property
    def link(self) -> Link:
        """The link to the agent."""

    @property
    def machine(self) -> int:
        """0: the agent runs on the machine of the script. Otherwise the number of its own."""

    @property
    def address(self) -> HostAddress | None:
        """Where its processes will listen; None: it says so later."""

    @property
    def stderr(self) -> IO[bytes] | None:
        """What the agent writes there, as far as it comes to this machine."""

    def kill(self) -> None:
        """End the agent."""

    def wait(self, timeout: float) -> bool:
        """Wait for its end, so many seconds; returns whether it has ended."""

    def resume(self) -> bool:
        """Resume it if a signal has stopped it; returns whether one had."""

    def kill_ranks(self, pids: list[int]) -> None:
        """Kill ranks of it without its help, if that can be done from here."""

    def kill_left(self, families: int) -> None:
        """Kill what it has left behind, if that can be done from here. Raises OSError: it cannot be looked up."""


class Invitation(Protocol):
    """What one agent on another machine needs to join the program."""

    @property
    def machine(self) -> int:
        """The number of its machine."""

    def text(self) -> bytes:
        """Return it for the agent to read. A secret: never in arguments, nor in an environment."""

    def accept(self, seconds: float) -> Link | None:
        """Wait for the agent; returns its link, None: it has not come."""

    def withdraw(self) -> None:
        """The agent is not to join any more."""


class Program(Protocol):
    """The program, as an engine sees it."""

    run_id: str
    directory: bytes

    def new_mark(self) -> str:
        """Return the mark of a new agent."""

    def invite(self) -> Invitation:
        """Return what an agent on another machine joins with. Raises OSError: no port can be opened."""


class Engine(Protocol):
    """Places one host agent per host."""

    def place(self, program: Program) -> Sequence[Placed]:
        """Start the agents and return them.

        Raises:
            SpawnError: One could not be started, or has not joined in time.
        """
