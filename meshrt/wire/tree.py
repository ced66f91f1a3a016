"""The messages of the control tree (root, host agent, rank) and of terminals.

A frame from the root to a rank, and from a rank to the root, has the rank's address; the agent passes it on. Requests
are numbered by the process that asks. A request with the number 0 gets no answer. The root asks a rank with positive
numbers and its agent with negative ones, so that the sign tells whose answer it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshrt.hooks.facts import Body
from meshrt.hooks.fate import Fate
from meshrt.hooks.measured import AgentFacts, ProcessFacts, ReferenceRow
from meshrt.wire.addresses import HostAddress, Port, Way
from meshrt.wire.code import AskCode, Code
from meshrt.wire.control import Catalogue, Message

__all__ = [
    "FROM_AGENT",
    "FROM_RANK",
    "FROM_ROOT",
    "FROM_TERMINAL",
    "INVITED",
    "TO_RANK",
    "TO_TERMINAL",
    "Answer",
    "AskWay",
    "Bye",
    "Certified",
    "Dial",
    "DroppedEvents",
    "DroppedOfRanks",
    "End",
    "Event",
    "FromAgent",
    "FromRank",
    "FromRoot",
    "Gather",
    "Gathered",
    "Gone",
    "Hello",
    "Hint",
    "Invited",
    "Joined",
    "Kept",
    "Later",
    "LeaveGather",
    "Leaving",
    "Locate",
    "Located",
    "Measure",
    "Measured",
    "MeshStopped",
    "Output",
    "Ping",
    "Pong",
    "Printed",
    "Pulse",
    "Refusal",
    "Request",
    "Serves",
    "Spawn",
    "Started",
    "Stop",
    "StoreWay",
    "ToRank",
    "ToTerminal",
    "Warn",
]

# ---- requests and events, between any two


class Request(Message, frozen=True, tag="op"):
    """A named operation is to be served; ``id`` is in its answer. None is a body without keys."""

    any_depth = True

    id: int
    op: str
    body: Body | None = None

    @property
    def arguments(self) -> Body:
        """What the operation is given."""
        return self.body or {}


class Answer(Message, frozen=True, tag="ok"):
    """The result of a request."""

    any_depth = True

    id: int
    body: Body | None = None


class Refusal(Message, frozen=True, tag="no"):
    """A request failed: why, and the name of the error's class."""

    id: int
    why: str
    error: str = "MeshError"


class Later(Message, frozen=True, tag="later"):
    """The answer takes its time, and nothing is wrong."""

    id: int


class Event(Message, frozen=True, tag="ev"):
    """Something has happened."""

    any_depth = True

    ev: str
    body: Body


# ---- agent to rank


class Ping(Message, frozen=True, tag="ping"):
    """Is answered with a `Pong` of the same number and time; ``at``: when it is sent, monotonic ns of the root."""

    number: int = 0
    at: int = 0


class Leaving(Message, frozen=True, tag="leaving"):
    """The script of a rank that has joined has ended, and its interpreter ends, which closes what its peers see.

    Attributes:
        at: When; monotonic ns.
        reported: By an exception, which was reported: the exit follows from it.
    """

    at: int
    reported: bool


class End(Message, frozen=True, tag="end"):
    """A rank is to end: after what was sent before (``drain``), or at once. ``why``: the error that is the reason."""

    drain: bool
    why: str


# ---- root to agent, agent to rank


class Certified(Message, frozen=True, tag="certified"):
    """The program has several machines from now on: its certificate, and the key, for connections to the others."""

    certificate: tuple[bytes, bytes]

    def __repr__(self) -> str:
        return "Certified()"  # without the key


# ---- rank to agent


class Pong(Message, frozen=True, tag="pong"):
    """The answer to a `Ping`. ``clock``, ``wall``: the time on the clocks of an agent: monotonic ns, epoch seconds."""

    number: int = 0
    at: int = 0
    clock: int = 0
    wall: float = 0.0


class Hint(Message, frozen=True, tag="hint"):
    """Why this rank is about to end, for the processes that are told of its end."""

    text: str


class DroppedEvents(Message, frozen=True, tag="dropped"):
    """How many events of each name were left out, as the agent did not read (`meshrt.transport.dropping`)."""

    events: dict[str, int]


# ---- root to agent


class Invited(Message, frozen=True, tag="invited"):
    """What an agent on another machine reads before it dials the root; the engine brings it there.

    ``name``: what it asks for at one of ``ports``; ``certificate``: that of the program, and its key.
    """

    name: str
    ports: Sequence[Port]
    secret: bytes
    certificate: tuple[bytes, bytes]

    def __repr__(self) -> str:
        return f"Invited(name={self.name!r})"  # without the secrets


class Hello(Message, frozen=True, tag="hello"):
    """The first message: what the agent has to know of the program.

    Paths are bytes, as the kernel knows them. In ``sys_path``, an empty one stands for the libraries of that machine.
    ``families``: what the numbers begin with that the agent gives to its ranks; ``store_limit`` and ``logs_limit`` are
    bytes.
    """

    secret: bytes
    run_id: str
    directory: bytes
    run_directory: bytes
    sys_path: Sequence[bytes]
    argv: Sequence[str]
    host: str
    root_pid: int
    store_limit: int
    families: int
    logs_limit: int
    #: Not 0: the agent is on another machine, with this number. It makes directories of its own.
    machine: int = 0
    #: Certificate and key of the program (PEM), if it has several machines.
    certificate: tuple[bytes, bytes] | None = None

    def __repr__(self) -> str:
        return f"Hello(run_id={self.run_id!r})"  # without the secret


class Bye(Message, frozen=True, tag="bye"):
    """The program ends, and cleans up by itself."""


class Spawn(Message, frozen=True, tag="spawn"):
    """Ranks are to be started; ``more``: further messages of this mesh follow, to be served together with this one.

    ``operations`` are served by each rank before anything else; ``env`` is what only some ranks have, by rank.
    ``meeting``: something else starts their processes, which join at the socket of this name; "": the agent does.
    """

    any_depth = True

    mesh: str
    name: str
    labels: Sequence[str]
    sizes: Sequence[int]
    common_env: Mapping[str, str]
    preload: Sequence[str]
    operations: Sequence[tuple[str, Body]]
    ranks: Sequence[int] = ()
    env: Mapping[str, Mapping[str, str]] = {}
    more: bool = False
    meeting: str = ""


class Stop(Message, frozen=True, tag="stop"):
    """The ranks of a mesh are to end; ``grace`` in seconds."""

    mesh: str
    grace: float
    drain: bool
    why: str


class Gather(Message, frozen=True, tag="gather"):
    """An operation for many ranks (`meshrt.host.gather`); ``targets``: base ranks by mesh."""

    any_depth = True

    id: int
    op: str
    body: Body
    seconds: float
    stack_suffices: bool
    targets: Mapping[str, Sequence[int]]


class LeaveGather(Message, frozen=True, tag="ungather"):
    """No more answers to a `Gather` are wanted."""

    id: int


class Measure(Message, frozen=True, tag="memory"):
    """How much memory ranks have (`meshrt.host.memory`).

    ``references``: None, or which ones of the store are wanted, by the beginning of their names ("": all); ``work``:
    the use of processors is wanted, and what the kernel would have to add up is not; ``children``: so are the pids of
    what they have started, which takes a file for each of their threads.
    """

    id: int
    targets: Mapping[str, Sequence[int]]
    references: str | None
    work: bool
    children: bool = False


class Dial(Message, frozen=True, tag="dial"):
    """A process of the host is to be connected with one that does not reach it.

    By ``port`` of the root, asking for ``name``. ``target``: what is asked for at the port of the host, where that is
    reached: a rank, the store.
    """

    target: str
    port: Port
    name: str


class Kept(Message, frozen=True, tag="kept"):
    """Output of ranks was written: the sum of `Printed.cost`."""

    cost: int


class Located(Message, frozen=True, tag="located"):
    """The answer to `Locate`; None: the program has no such host, or has lost it."""

    machine: int
    agent_pid: int
    address: HostAddress | None


class StoreWay(Message, frozen=True, tag="store way"):
    """The answer to `AskWay`; None: as in `Located`."""

    machine: int
    agent_pid: int
    way: Way | None


# ---- agent to root


class AskWay(Message, frozen=True, tag="ask way"):
    """The store of a host is not reached where it listens: ``why``. The names are those of `Locate`.

    Answer: `StoreWay`.
    """

    machine: int
    agent_pid: int
    why: str


class Locate(Message, frozen=True, tag="locate"):
    """Where does the store of a host listen for others? ``agent_pid`` 0: that of the script. Answer: `Located`."""

    machine: int
    agent_pid: int


class Started(Message, frozen=True, tag="started"):
    """A rank has a process."""

    mesh: str
    rank: int
    pid: int


class Gone(Message, frozen=True, tag="gone"):
    """A rank has ended, or could not be started."""

    mesh: str
    rank: int
    fate: Fate


class MeshStopped(Message, frozen=True, tag="stopped"):
    """Nothing of a mesh that was stopped is left on this host."""

    mesh: str


class Output(Message, frozen=True, tag="output"):
    """Lines that a rank has printed: each with the actor that printed it ("": not known)."""

    mesh: str
    rank: int
    err: bool
    lines: Sequence[tuple[str, str]]


class Printed(Message, frozen=True, tag="printed"):
    """Lines that a rank on another machine than the root's has printed, with the marks of their actors.

    The root writes them to the file, and confirms that (`Kept`). ``left_out``: how many lines are missing before them;
    ``done``: the rank has ended.
    """

    mesh: str
    rank: int
    err: bool
    data: bytes
    left_out: int = 0
    done: bool = False

    @property
    def cost(self) -> int:
        """What is confirmed: its bytes, and those of the message."""
        return len(self.data) + 256


class Pulse(Message, frozen=True, tag="pulse"):
    """A rank ceases to answer (``stopped`` by a signal, ``busy`` in C code; its stack), or answers again."""

    mesh: str
    rank: int
    state: str
    stack: str


class Gathered(Message, frozen=True, tag="gathered"):
    """Answers to a `Gather`: mesh, kind, base ranks, what they have in common, what differs by rank (None: nothing)."""

    any_depth = True

    id: int
    groups: Sequence[tuple[str, str, Sequence[int], Any, Sequence[Any] | None]]


class Joined(Message, frozen=True, tag="joined"):
    """Where the processes of an agent listen, now that its port is open: it is ready to start ranks.

    Attributes:
        clock, wall: As in `Pong`.
        root: Where it reaches the root; None: it is on the same machine.
    """

    address: HostAddress
    clock: int
    wall: float
    root: Port | None = None


class Serves(Message, frozen=True, tag="serves"):
    """The store of this host listens."""


class Measured(Message, frozen=True, tag="measured"):
    """A part of the answer to a `Measure`; ``done``: the last one."""

    id: int
    rows: Sequence[tuple[str, int, ProcessFacts]]
    agent: AgentFacts | None = None
    references: Sequence[ReferenceRow] = ()
    done: bool = False


class Warn(Message, frozen=True, tag="warning"):
    """A line for the user of the program."""

    text: str


class DroppedOfRanks(Message, frozen=True, tag="dropped"):
    """How many events of each name were left out: mesh, base rank, counts."""

    ranks: Sequence[tuple[str, int, dict[str, int]]]


FromRank = Request | Answer | Refusal | Later | Event | Pong | Hint | Leaving | DroppedEvents
ToRank = Request | Answer | Refusal | Ping | End | Certified
_OfRoot = Hello | Certified | Bye | Spawn | Stop | Ping | Gather | LeaveGather | Measure
FromRoot = _OfRoot | Dial | Code | Kept | Located | StoreWay
_OfAgent = Joined | Serves | MeshStopped | Gathered | Measured | Pong | Warn | AskCode | Locate | AskWay
FromAgent = _OfAgent | Started | Gone | Output | Printed | Pulse | DroppedOfRanks
ToTerminal = Answer | Refusal | Event

INVITED: Catalogue[Invited] = Catalogue(Invited)
#: What a rank may send: to its agent, or through it to the root.
FROM_RANK: Catalogue[FromRank] = Catalogue(FromRank)
TO_RANK: Catalogue[ToRank] = Catalogue(ToRank)
#: What the root may send to an agent, and an agent to the root, of their own.
FROM_ROOT: Catalogue[FromRoot] = Catalogue(FromRoot)
FROM_AGENT: Catalogue[FromAgent] = Catalogue(FromAgent)
#: What a terminal may send to the root, and the root to a terminal.
FROM_TERMINAL: Catalogue[Request] = Catalogue(Request)
TO_TERMINAL: Catalogue[ToTerminal] = Catalogue(ToTerminal)
