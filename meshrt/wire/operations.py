"""What ranks ask of the root and report to it, and what the root asks of ranks, for the runtime itself.

The operations and reports of plug-ins are in `operations.py` of each. A mesh is named by its id, a rank by its base
rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

import msgspec

from meshrt.errors import RemoteException
from meshrt.hooks.clock import HostClock
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Nothing, Operation, Report
from meshrt.wire.addresses import HostAddress, Port
from meshrt.wire.control import Address

__all__ = [
    "ActorBegun",
    "ActorEnded",
    "ActorSpawned",
    "AllowRestarts",
    "Born",
    "Cut",
    "CutOff",
    "DimensionsNamed",
    "Ended",
    "FilePart",
    "FindSingleton",
    "Held",
    "Hold",
    "Initialized",
    "LogLevels",
    "Logged",
    "RelayTo",
    "Relayed",
    "Restarted",
    "SpawnMesh",
    "Spawned",
    "StopMesh",
    "Stopped",
    "Told",
    "Unhandled",
    "Watch",
    "WhenBorn",
    "WhenInitialized",
    "WhenRestarted",
]

# ---- a rank asks the root


class Ended(Data, frozen=True):
    """How a rank has ended."""

    fate: Fate


class Watch(Operation[Ended], frozen=True, tag="mesh.watch"):
    """Is answered when a rank has ended."""

    mesh: str
    rank: int


class Born(Data, frozen=True):
    """A rank listens there, or has ended; None: nothing is known of it."""

    host: HostAddress | None = None


class WhenBorn(Operation[Born], frozen=True, tag="mesh.born"):
    """Is answered when a rank listens, or has ended."""

    mesh: str
    rank: int


class Restarted(Data, frozen=True):
    """A rank was started again, for the ``incarnation``-th time (0: it is not, the mesh has ended).

    ``fate``: how the process before has ended.
    """

    incarnation: int
    fate: Fate


class WhenRestarted(Operation[Restarted], frozen=True, tag="mesh.restarted"):
    """Is answered when a rank was started again and is to have the actor."""

    mesh: str
    rank: int
    actor: str


class Relayed(Data, frozen=True):
    """A way to a rank: what to ask for (``name``) at a port of the root."""

    port: Port
    name: str


class RelayTo(Operation[Relayed], frozen=True, tag="mesh.relay"):
    """The host of a rank cannot be reached from here: why. Is answered at once."""

    mesh: str
    rank: int
    why: str


class Spawned(Data, frozen=True):
    """A mesh whose ranks are being started."""

    mesh: str
    name: str
    hosts: Sequence[HostAddress]


class SpawnMesh(Operation[Spawned], frozen=True, tag="mesh.spawn"):
    """A mesh is to be started (`meshrt.mesh.spec.MeshSpec`); it belongs to ``actor`` of this rank ("": to none).

    ``sizes`` are labels and sizes, ``rank_env`` is what only some ranks have, by rank. ``on_mesh``, ``on_ranks``: it is
    to be on the hosts of these ranks; "": the root decides. ``own_devices``: each rank sees a device of its own.
    ``logs``: what is shown of their output; "": as of the program.
    """

    actor: str
    mesh_name: str
    sizes: Sequence[tuple[str, int]]
    env: Mapping[str, str]
    rank_env: Sequence[tuple[int, Mapping[str, str]]]
    preload: Sequence[str]
    on_mesh: str = ""
    on_ranks: Sequence[int] = ()
    own_devices: bool = False
    logs: str = ""


class FindSingleton(Operation[Spawned], frozen=True, tag="mesh.singleton"):
    """The process of the singleton ``actor``; ``create``: it is started if there is none."""

    actor: str
    create: bool


class Initialized(Data, frozen=True):
    """All ranks of a mesh run; or ``why`` not."""

    why: str


class WhenInitialized(Operation[Initialized], frozen=True, tag="mesh.initialized"):
    """Is answered when all ranks of a mesh run, or one could not be started."""

    mesh: str


class StopMesh(Operation[Nothing], frozen=True, tag="mesh.stop"):
    """A mesh is to end within ``grace`` seconds; it is answered when it has. ``why``: the error that is the reason."""

    mesh: str
    grace: float
    why: str


class EndMade(Operation[Nothing], frozen=True, tag="mesh.end-made"):
    """An actor of this rank was stopped: what it has made is to end, and is answered when it has, or after a while."""

    actor: str
    why: str


# ---- a rank reports


class Told(Report, frozen=True, tag="mesh.told"):
    """Code was given an error: a process has ended, or (``failure``, its number) an ``__init__`` has raised."""

    mesh: str
    rank: int
    pid: int
    failure: str = ""


class AllowRestarts(Report, frozen=True, tag="mesh.restarts"):
    """These ranks may be started again ``count`` times, as far as an actor is concerned."""

    mesh: str
    ranks: Sequence[int]
    actor: str
    count: int


class ActorSpawned(Report, frozen=True, tag="mesh.actor"):
    """An actor is about to be built on a view of a mesh (`Shape.to_wire`).

    ``spawner``: the actor of this rank that spawns it ("": no actor runs); None: it has no owner.
    """

    mesh: str
    actor: str
    view: Sequence[object]
    spawner: str | None = None


class DimensionsNamed(Report, frozen=True, tag="mesh.dimensions"):
    """The script that runs on the rank's mesh has named its dimensions: label and size of each."""

    sizes: Sequence[tuple[str, int]]


class ActorBegun(Report, frozen=True, tag="actor"):
    """An actor has begun."""

    actor: str


class ActorEnded(Report, frozen=True, tag="actor-ended"):
    """An actor was stopped."""

    actor: str


class Held(Report, frozen=True, tag="held"):
    """The debugger has stopped a thread, or has resumed one."""

    held: bool


class Unhandled(Report, frozen=True, tag="unhandled"):
    """An error that no caller waits for.

    Attributes:
        actor, endpoint: Where it was raised: an endpoint, or what else it was (``"thread 'loader'"``).
        when: Monotonic ns.
        said: Python has printed it.
        at: The rank that it is about, if that is another one.
    """

    actor: str
    endpoint: str
    error: RemoteException
    when: int
    said: bool = False
    at: Address | None = None

    def on_root_clock(self, clock: HostClock) -> Self:
        """See `Data`."""
        return msgspec.structs.replace(self, when=clock.time(self.when))


class FilePart(Report, frozen=True, tag="file.part"):
    """A part of a file that a rank of another machine leaves for the user: the root writes it, after the last part.

    Attributes:
        file: In the run directory: a name, or ``post-mortem/`` and a name.
        more: Further parts follow.
    """

    SIZE: ClassVar[int] = 256 << 10

    file: str
    data: bytes
    more: bool = False

    @classmethod
    def parts(cls, file: str, data: bytes) -> Iterator[FilePart]:
        """Yield the parts of a file."""
        for start in range(0, max(1, len(data)), cls.SIZE):
            end = start + cls.SIZE
            yield cls(file, data[start:end], end < len(data))


class Logged(Report, frozen=True, tag="log"):
    """A record of Python's `logging`: its attributes, with the texts that they make.

    Attributes:
        actor: Where it was logged; "": no actor runs there.
        error, stack: Traceback of its exception, and its stack, or "".
        extra: What the caller has added, as far as it is plain.
    """

    actor: str
    logger: str
    level: int
    level_name: str
    message: str
    created: float
    path: str
    line: int
    function: str
    pid: int
    thread: int
    thread_name: str
    task: str = ""
    error: str = ""
    stack: str = ""
    extra: Mapping[str, str | int | float | bool | None] = {}

    def on_root_clock(self, clock: HostClock) -> Self:
        """See `Data`."""
        return msgspec.structs.replace(self, created=clock.date(self.created))


class CutOff(Report, frozen=True, tag="cut"):
    """What a rank still does at the end of the grace.

    Attributes:
        calls: Actor and endpoint of the calls that run: the first ones; "" and a step of the exit of the interpreter.
        waiting: How many have not begun, and whether there may be more.
    """

    calls: Sequence[tuple[str, str]]
    waiting: int
    more: bool


# ---- a rank is asked


class Hold(Operation[Nothing], frozen=True, tag="hold"):
    """Deadlines are suspended, or resumed."""

    held: bool


class LogLevels(Operation[Nothing], frozen=True, tag="log-levels"):
    """The levels of the loggers of the script, from now on: those that have one, by name ("": the root logger).

    A rank that is told them sends log records (`Logged`). ``disabled``: nothing of this level or a lower one is wanted.
    """

    levels: Mapping[str, int]
    disabled: int = 0


class Cut(Operation[Nothing], frozen=True, tag="cut"):
    """The grace is over: calls are reported (`CutOff`) and interrupted."""


class EndActor(Operation[Nothing], frozen=True, tag="end-actor"):
    """The owner of an actor has ended, and the actor ends with it. ``why``: the owner has failed."""

    actor: str
    why: str


class Stopped(Operation[Nothing], frozen=True, tag="stopped"):
    """These actors were on the rank before it was started again, and are not again."""

    actors: Sequence[str]
