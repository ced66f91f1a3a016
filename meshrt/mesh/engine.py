"""What an engine is: it places one host agent per host. Everything else is the same code for all of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple, Protocol

import msgspec

from meshrt.errors import UsageError
from meshrt.transport.link import Link
from meshrt.wire.addresses import HostAddress

__all__ = [
    "Arrival",
    "DefaultEngine",
    "Engine",
    "Invitation",
    "OpenInvitation",
    "OpenProgram",
    "Placed",
    "Program",
    "Refusal",
    "Request",
    "engine_of",
]


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

    def said_of_end(self) -> str:
        """Return what the engine says of its end; "": nothing, or nothing yet. Not a verdict. It may wait a moment."""

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
        """Wait for the agent; returns its link, None: it has not come. Raises SpawnError: it has another version."""

    def withdraw(self) -> None:
        """The agent is not to join any more."""


class Arrival(NamedTuple):
    """An agent that has joined by an open invitation.

    Attributes:
        who: What it says of itself, in words that the engine has given it.
        machine: The number of its machine.
    """

    who: str
    machine: int
    link: Link


class Refusal(NamedTuple):
    """An agent that has proved the secret of an open invitation, and has not joined.

    Attributes:
        who: As in `Arrival`.
        why: It has another version: names its host, and both versions.
    """

    who: str
    why: str


class OpenInvitation(Protocol):
    """What any number of agents join with, whose machines are not known before."""

    def text(self) -> bytes:
        """Return it for the agents to read. A secret, as that of an `Invitation`."""

    def accept(self, seconds: float) -> Arrival | Refusal | None:
        """Wait for the next agent; None: none has come. One that no mesh uses ends with the program."""


class Program(Protocol):
    """The program, as an engine sees it."""

    run_id: str
    directory: bytes

    def new_mark(self) -> str:
        """Return the mark of a new agent."""

    def announce(self, text: str) -> None:
        """Write a line on the program's terminal: for example what is waited for."""

    def invite(self) -> Invitation:
        """Return what an agent on another machine joins with. Raises OSError: no port can be opened."""


class OpenProgram(Program, Protocol):
    """The program, as an engine sees it whose agents are started by something else."""

    def invite_all(self, secret: bytes = b"", port: int = 0) -> OpenInvitation:
        """Return what any number of agents join with. Once for a program, and before any other invitation.

        Args:
            secret: What the agents have already; b"": the invitation has a secret of its own.
            port: Of the root; 0: as the environment says.
        Raises:
            OSError: The port cannot be opened.
        """


class Request(msgspec.Struct, frozen=True):
    """What a mesh asks of an engine.

    Attributes:
        hosts: How many hosts it has; None: it does not say, and takes all that the engine has.
        ranks: How many ranks it has, which are divided evenly among the agents.
        gpus: The size of its dimension of this name: on each host, where it says how many hosts it has.
        lost: Names of hosts that were lost: others are better, if there are any.
    """

    hosts: int | None
    ranks: int
    gpus: int | None = None
    lost: Sequence[str] = ()


class Engine(Protocol):
    """Places one host agent per host."""

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> Sequence[Placed]:
        """Return the agents for a mesh, in the order of its ranks: some of the living ones, and new ones.

        Called for each mesh. An engine that starts some agents and not others ends the former before it raises.

        Args:
            living: Those that were returned for earlier meshes and have not ended. Those left out are kept.
        Raises:
            SpawnError: One could not be started, or has not joined in time.
        """


class DefaultEngine(Engine, Protocol):
    """Places the meshes of which the script does not say how."""

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return the dimensions of a mesh, given those that the script says. Raises SpawnError: hosts are missing."""


#: Module and class of each engine that has a name; made without arguments. Loaded by name: they are above this floor.
_ENGINES = {"local": ("meshrt.engine.local", "LocalEngine"), "ray": ("meshrt.engine.ray_engine", "RayEngine")}


def engine_of(engine: Engine | str) -> Engine:
    """Return an engine, which may be given by its name.

    Raises:
        UsageError: There is none of this name.
    """
    if not isinstance(engine, str):
        return engine
    if engine not in _ENGINES:
        names = ", ".join(map(repr, _ENGINES))
        raise UsageError(f"there is no engine {engine!r}: expected one of {names}, or an engine")
    module, name = _ENGINES[engine]
    made: Engine = getattr(importlib.import_module(module), name)()
    return made
