"""``meshrt.connect``: the actors of another program that runs, for a notebook, a monitor, or a rank of this program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from meshrt.actor.actor import Actor
from meshrt.actor.described import class_of
from meshrt.actor.endpoint import endpoints_of
from meshrt.errors import Disconnected, MeshError, UsageError
from meshrt.hooks.operations import Data, Operation
from meshrt.mesh.actor_mesh import ActorMesh
from meshrt.mesh.foreign import Connection, ForeignProgram
from meshrt.mesh.target import Target
from meshrt.selection import Shape
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.transport.tools import Program, programs
from meshrt.wire.addresses import MeshAddress
from meshrt.wire.clients import ActorFacts, ActorsOf, DescribeActor

if TYPE_CHECKING:
    from meshrt.mesh.handle import ActorMesh as Handle

__all__ = ["RunningProgram", "connect"]

A = TypeVar("A", bound=Actor)
D = TypeVar("D", bound=Data)


def connect(program: int | str | None = None) -> RunningProgram:
    """Connect to a running program of this user on this machine, to call its actors. From any process.

    Args:
        program: Its pid, its id, the beginning of that, or its run directory, as `meshrt ps` shows them; None: the only
            one that runs, beside that of this process.
    Raises:
        UsageError: There is no such program, or there are several; it has another version of meshrt or of Python, or
            ``MESHRT_DEBUG=0``.
        Disconnected: It has ended, or does not answer.
    """
    found = _chosen(program)
    try:
        return RunningProgram(Connection(found))
    except (ConnectionError, TimeoutError) as error:
        raise Disconnected(str(error), "meshrt.connect()") from error


def _chosen(wanted: int | str | None) -> Program:
    from meshrt.inspect.programs import NoProgram, choose  # start-up: psutil

    own = current_runtime().program_id if has_runtime() else ""
    others = [each for each in programs() if each.run_id != own]
    if wanted is None and len(others) == 1:
        return others[0]
    if wanted is None and others:
        raise UsageError(_several(others))
    try:
        chosen = choose("" if wanted is None else str(wanted), how="meshrt.connect(PID)", asks=False)
    except NoProgram as error:
        raise UsageError(str(error)) from None
    if chosen.run_id != own:
        return chosen
    if wanted is None:
        raise UsageError("no other meshrt program of this user is running on this machine")
    raise UsageError(f"program {wanted} is the program of this process: use its own handles, or get_or_spawn()")


def _several(found: Sequence[Program]) -> str:
    from meshrt.inspect.programs import describe  # start-up: psutil

    listed = "".join(f"\n  {describe(each)}" for each in found)
    return f"{len(found)} programs are running; choose one with meshrt.connect(PID):{listed}"


class RunningProgram:
    """A connection to another program, made by `connect`. Any thread. A context manager: its end closes it.

    The program sees a caller: its ends, failures and exit status are its own.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        program = connection.program
        self._foreign = ForeignProgram(program.run_id, str(program.directory), connection)
        #: The pid of its script, and its id.
        self.pid: int = program.pid
        self.run_id: str = program.run_id

    @property
    def actors(self) -> list[Handle[Any]]:
        """The actors that run there now, singletons among them, each on the ranks where it was spawned.

        Raises:
            Disconnected: The program has ended, or this connection was closed.
            MeshError: A rank does not say which endpoints its actor has.
        """
        return [self._mesh(facts) for facts in self._facts()]

    @overload
    def actor(self, name: str) -> Handle[Any]: ...

    @overload
    def actor(self, name: str, cls: type[A]) -> Handle[A]: ...

    def actor(self, name: str, cls: type[Actor] | None = None) -> Any:
        """Return an actor that runs there.

        Args:
            name: Its name; ``NAME@MESH`` where several meshes have one of this name.
            cls: Its class, for type checkers and its own signatures; by default the ranks are asked for its endpoints,
                and the class need not exist here.
        Raises:
            UsageError: There is no such actor, or several; ``cls`` has endpoints that it does not have.
            Disconnected, MeshError: As `actors`.
        """
        actor, _, mesh = name.partition("@")
        known = self._facts()
        found = [each for each in known if each.name == actor and mesh in ("", each.mesh_name, each.mesh)]
        if not found:
            names = ", ".join(dict.fromkeys(each.name for each in known)) or "none yet"
            raise UsageError(f"{self._connection.name} has no actor {name!r}; it has {names}")
        if len(found) > 1:
            labels = " or ".join(dict.fromkeys(f"{each.name}@{each.mesh}" for each in found))
            raise UsageError(f"{self._connection.name} has {len(found)} actors {name!r}; name one: {labels}")
        return self._mesh(found[0], cls)

    def close(self) -> None:
        """Close the connection: calls that are under way fail here, later ones are refused. The program continues."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RunningProgram {self._connection.why_ended or self._connection.name}>"

    def _facts(self) -> Sequence[ActorFacts]:
        return self._ask(ActorsOf()).actors

    def _mesh(self, facts: ActorFacts, cls: type[Actor] | None = None) -> Any:
        view, whole = Shape.from_wire(facts.view), Shape.from_wire(facts.whole)
        there = class_of(self._ask(DescribeActor(facts.mesh, view.ndslice[0], facts.name)))
        missing = sorted(endpoints_of(cls).keys() - endpoints_of(there).keys()) if cls is not None else ()
        if cls is not None and missing:
            raise UsageError(f"{facts.name} is a {there.__qualname__} there, and lacks the endpoint {missing[0]!r}")
        address = MeshAddress(tuple(facts.hosts), len(whole))
        target = Target(facts.mesh, facts.name, address, view, whole, _unknown, self._foreign)
        return ActorMesh(cls or there, target, None)

    def _ask(self, operation: Operation[D]) -> D:
        connection = self._connection
        try:
            if connection.why_ended:
                raise ConnectionError(connection.why_ended)
            return connection.tools.ask(operation)
        except ConnectionError as error:
            raise Disconnected(connection.why_ended or str(error), "a request to the program") from None
        except TimeoutError as error:
            raise MeshError(f"{connection.name}: {error}") from None


def _unknown(_mesh_id: str, _rank: int) -> tuple[str, int]:
    return "", 0
