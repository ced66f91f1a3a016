"""What routers, the root and ranks ask of each other, and report, for an IDE.

A channel connects an IDE to one rank. The router and the root number channels separately: the root replaces the number
in what it passes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshrt.hooks.operations import Data, Nothing, Operation, Report

__all__ = [
    "OF_CHANNELS",
    "OF_ROUTERS",
    "ActorBegun",
    "Attach",
    "Born",
    "Close",
    "Closed",
    "FromEngine",
    "Holds",
    "Join",
    "Leaving",
    "OfChannel",
    "Open",
    "Opened",
    "Port",
    "Ports",
    "PortsFound",
    "Raised",
    "Raising",
    "Rank",
    "RanksFound",
    "Release",
    "Said",
    "Source",
    "SourceText",
    "Taken",
    "ToEngine",
    "Waiting",
    "Which",
]

# -- what routers ask of the root


class Join(Operation[Nothing], frozen=True, tag="dap.join"):
    """Subscribe to `Born` and `ActorBegun`. IDEs connect to this router at ``port``, with ``token``; 0: at no port."""

    port: int = 0
    token: str = ""


class Port(Data, frozen=True):
    """The port of a router that runs, and the token that it demands. They are stored here and in launch.json only."""

    port: int
    token: str


class PortsFound(Data, frozen=True):
    """The ports of all routers of the program."""

    ports: Sequence[Port]


class Ports(Operation[PortsFound], frozen=True, tag="dap.ports"):
    """Where the program can be attached to."""


class Rank(Data, frozen=True):
    """A rank that an IDE may attach to.

    Attributes:
        mesh: Mesh id.
        rank: Base rank.
        name: For the user: ``hosts=0,gpus=3 (rank 3)``.
        ide: The IDE that has it already, in words; "" for none.
        life: How often it was started again.
    """

    mesh: str
    rank: int
    name: str
    ide: str = ""
    life: int = 0
    mesh_name: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """Mesh id and base rank."""
        return self.mesh, self.rank


class RanksFound(Data, frozen=True):
    """Living ranks."""

    ranks: Sequence[Rank]


class Which(Operation[RanksFound], frozen=True, tag="dap.which"):
    """The living ranks that the name of a mesh or an actor (``mesh``; "": all) and a selection (``ranks``) denote."""

    mesh: str = ""
    ranks: str = ""


class Open(Operation[Nothing], frozen=True, tag="dap.open"):
    """Attach to a rank. Refused if another IDE has it; one that has said goodbye (`Leaving`) no longer has it.

    Attributes:
        mesh, rank: Mesh id and base rank.
        channel: The router's number of the channel.
        stay: Stopped threads stay stopped if the router is lost.
        session: The number of the session in whose console breakpoints may have been set; 0: none.
    """

    mesh: str
    rank: int
    channel: int
    stay: bool = False
    session: int = 0


class Release(Operation[Nothing], frozen=True, tag="dap.release"):
    """Resume the threads that are stopped for the IDEs of this router, or for an IDE that is gone."""


class SourceText(Data, frozen=True):
    """The text of a file; None: it is not known."""

    text: str | None


class Source(Operation[SourceText], frozen=True, tag="dap.source"):
    """The text of a file that only the program has."""

    filename: str


# -- what the root passes on to a rank


class ToEngine(Operation[Nothing], frozen=True, tag="dap.data"):
    """Bytes of the IDE, for the engine of the rank."""

    channel: int
    data: bytes


class Taken(Operation[Nothing], frozen=True, tag="dap.ack"):
    """The router has taken ``count`` bytes of the engine."""

    channel: int
    count: int


class Close(Operation[Nothing], frozen=True, tag="dap.close"):
    """The IDE is lost. ``stay``: stopped threads stay stopped. If no thread is stopped, the rank is free."""

    channel: int
    stay: bool = False


# -- what the root asks of a rank


class Attach(Operation[Nothing], frozen=True, tag="dap.open"):
    """An IDE attaches; reports tell the result.

    Attributes:
        ide: The IDE, in words.
        session: The name of its session (`meshrt.debug.protocol.session_of_ide`); "": none.
    """

    channel: int
    ide: str
    session: str


# -- what a rank reports; the root passes it on to the router


class OfChannel(Report, frozen=True):
    """A report of a channel."""

    channel: int


class Waiting(OfChannel, frozen=True, tag="dap.waiting"):
    """The IDE has to wait for the rank, and why."""

    text: str


class Opened(OfChannel, frozen=True, tag="dap.opened"):
    """The engine serves the IDE. ``price``: what it costs the program, in words, or ""."""

    price: str = ""


class FromEngine(OfChannel, frozen=True, tag="dap.data"):
    """Bytes of the engine, for the IDE."""

    data: bytes


class Holds(OfChannel, frozen=True, tag="dap.holds"):
    """Whether threads are stopped; where, as file, line and function by actor ("": a thread of none)."""

    held: bool
    places: Mapping[str, tuple[str, int, str]] = {}


class Said(OfChannel, frozen=True, tag="dap.said"):
    """A text for the user."""

    text: str


class Raising(Data, frozen=True):
    """An expression of a breakpoint that has raised.

    Attributes:
        what: ``condition``, ``hits`` or ``log``.
        expression: As the user wrote it; "" for a log point.
        error: The type of the error; ``text``: its text.
        times: How often, since it was reported last.
    """

    what: str
    file: str
    line: int
    expression: str
    error: str
    text: str
    times: int = 1

    @property
    def kind(self) -> tuple[str, str, int, str, str]:
        """What errors of the same expression and type have in common."""
        return self.what, self.file, self.line, self.expression, self.error


class Raised(OfChannel, frozen=True, tag="dap.raised"):
    """Expressions of breakpoints that have raised."""

    rows: Sequence[Raising]


class Leaving(OfChannel, frozen=True, tag="dap.leaving"):
    """The IDE has said goodbye, and the engine is about to answer it. The root does not pass it on."""


class Closed(OfChannel, frozen=True, tag="dap.closed"):
    """The channel has ended; ``why``: "" after a goodbye."""

    why: str = ""


# -- what the root reports to routers


class Born(Report, frozen=True, tag="dap.born"):
    """A rank serves, for the first time or again."""


class ActorBegun(Report, frozen=True, tag="dap.actor"):
    """An actor has begun on a rank: its name may denote ranks, which get the actor only after their birth."""


#: What routers ask of the root.
OF_ROUTERS: tuple[type[Operation[Data]], ...] = (Join, Ports, Which, Open, ToEngine, Taken, Close, Release, Source)
#: What the root passes on to the router of a channel.
OF_CHANNELS: tuple[type[OfChannel], ...] = (Waiting, Opened, FromEngine, Holds, Said, Raised, Closed)
