"""The record of one failure, as data that can be written to a file and read back.

Reading is tolerant: a file may be cut off, or of another version. A missing value gets its default, and a value of the
wrong type is ignored. So a broken record is shown as far as it can be read, and never breaks the reporter.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Self

import msgspec

from meshrt.collectives.facts import WorldFacts
from meshrt.conversion import convert
from meshrt.errors import RankPlace
from meshrt.hooks.clock import HostClock
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Report
from meshrt.selection import counted

__all__ = [
    "SCRIPT",
    "Document",
    "ExceptionFacts",
    "FailureRecord",
    "Frame",
    "LeftBehind",
    "Plain",
    "Recorded",
    "Reference",
    "tolerant",
]


#: In place of a mesh, for a failure of the script itself.
SCRIPT = "the script"


#: A document for programs (docs/json.md), or a part of one: stacks of many ranks, for instance. Of any JSON.
Document = dict[str, Any]


class Plain(msgspec.Struct, frozen=True, omit_defaults=True):
    """Data that are written to a file as a map."""

    def to_plain(self) -> Document:
        """Return plain data; fields with their default are left out."""
        plain: Document = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_plain(cls, plain: object) -> Self:
        """Inverse of `to_plain`; never raises."""
        return tolerant(cls, plain)


T = typing.TypeVar("T")
#: Stands for a value of the wrong type.
_WRONG = object()
_hints: dict[type, dict[str, object]] = {}


def tolerant(cls: type[T], plain: object) -> T:
    """Return an instance of a class with fields that all have defaults; what is of the wrong type is ignored."""
    if cls not in _hints:
        _hints[cls] = typing.get_type_hints(cls)
    given = plain if isinstance(plain, dict) else {}
    found = {name: _value(kind, given[name]) for name, kind in _hints[cls].items() if name in given}
    return cls(**{name: value for name, value in found.items() if value is not _WRONG})


def _value(kind: object, value: object) -> object:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _value(arguments[0], value)
    if origin in (tuple, collections.abc.Sequence):
        if not isinstance(value, list | tuple):
            return _WRONG
        return tuple(item for item in (_value(arguments[0], item) for item in value) if item is not _WRONG)
    if origin is dict:
        if not isinstance(value, dict):
            return _WRONG
        items = {str(key): _value(arguments[1], item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item is not _WRONG}
    if isinstance(kind, type) and issubclass(kind, Plain):
        return kind.from_plain(value) if isinstance(value, dict) else _WRONG
    if isinstance(kind, type) and issubclass(kind, Data):
        try:
            return convert(value, kind)
        except (msgspec.ValidationError, RecursionError):
            return _WRONG
    if kind is Any:
        return value
    if kind is float and type(value) is int:
        return float(value)
    return value if type(value) is kind else _WRONG


class Frame(Plain, frozen=True):
    """One stack frame of user code, or of a library that it called."""

    file: str = ""
    line: int = 0
    function: str = ""
    #: Text of the line.
    source: str = ""
    #: Local variables as text, by name; only of frames of user code.
    locals: dict[str, str] = {}


class Reference(Plain, frozen=True):
    """The subject of an exception of meshrt in a chain: a failure (``failure``), or else a rank."""

    failure: str = ""
    mesh_id: str = ""
    #: Base rank; -1 if it is about no single rank.
    rank: int = -1


class ExceptionFacts(Plain, frozen=True):
    """An exception, with its causes and contexts.

    Attributes:
        type: As a traceback names it.
        bases: Names of its built-in base classes, the nearest first: an ``except`` with one of them would catch it.
        frames: Outermost first; without frames of the runtime.
        left_out: How many frames are missing in the middle of ``frames``.
        relation: To the exception that contains it: ``"cause"``, ``"context"`` or ``"member"`` (of a group).
        linked: The cause or context, and the members of a group.
        about: The subject of an exception of meshrt.
    """

    type: str = ""
    message: str = ""
    bases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    left_out: int = 0
    relation: str = ""
    linked: tuple[ExceptionFacts, ...] = ()
    about: Reference | None = None

    def all(self) -> Iterator[ExceptionFacts]:
        """Yield this exception and all that it came from, the nearest first."""
        yield self
        for other in self.linked:
            yield from other.all()

    @property
    def headline(self) -> str:
        """The last line of a traceback: type and message."""
        return f"{self.type}: {self.message}" if self.message else self.type


class LeftBehind(Plain, frozen=True):
    """The content of an error file. ``problem``: why it is empty or incomplete."""

    message: str = ""
    traceback: str = ""
    #: Seconds since the epoch, by the writer's clock.
    timestamp: float = 0.0
    problem: str = ""


class FailureRecord(Plain, frozen=True):
    """One failure.

    Attributes:
        id: ``"<pid, hexadecimal>.<n>"``: its number on this rank; "" for a failure without an exception.
        kind: ``"exception"``, ``"exit"``, ``"signal"``, ``"unborn"`` (it could not be started), ``"host"`` (its host
            agent ended) or ``"silent"`` (it did not answer in time). A rank that meshrt stops has not failed.
        blame: The probable origin: ``"user"`` (the program's code), ``"worker"`` (its process), ``"platform"``
            (memory, signals of other processes), ``"infra"`` (a host).
        what: What raised, if it was no endpoint: ``"a thread"``, ``"a task"``; or "".
        waited_for: Whether a caller waits for the call, and gets its error.
        doing: Of a process that has ended: the oldest call of the script to each of its actors that was not answered.
        fate: How the process ended.
        hint: Of a silent one: what was not answered, and how long, in words.
        ranks: Ranks of this mesh that ended with a host, or did not answer.
        low, high: When it happened, on the root's monotonic clock, ns: not before ``low`` and not after ``high``. Both
            are equal, except for the end of a process, which is noticed a little later.
        clock: The machine whose clock they were read on: "" is that of the root.
        clock_error: Both may be wrong by so much, ns, and by the same.
        time: Seconds since the epoch, for people.
        left: What a child of it, or torch's own ``@record``, has written about an error.
        incarnation: How often the rank had been started again before this.
        told: When a caller (of an exception: in the script) first got its error; monotonic ns, 0: not yet.
        copies: Number of earlier failures of this rank that were counted without a record.
        because: The failure that ``__supervise__`` was asked about when this was raised.
        world: The process groups of the rank, if torch raised it: how far it had come in the collectives of each.
    """

    id: str = ""
    kind: str = "exception"
    blame: str = "user"
    mesh_id: str = ""
    mesh: str = ""
    actor: str = ""
    rank: int = -1
    coordinates: dict[str, int] = {}
    host: str = ""
    pid: int = 0
    endpoint: str = ""
    what: str = ""
    waited_for: bool = False
    doing: tuple[str, ...] = ()
    thread: str = ""
    exception: ExceptionFacts | None = None
    fate: Fate | None = None
    hint: str = ""
    ranks: tuple[int, ...] = ()
    low: int = 0
    high: int = 0
    clock: str = ""
    clock_error: int = 0
    time: float = 0.0
    incarnation: int = 0
    told: int = 0
    copies: int = 0
    left: LeftBehind | None = None
    because: Reference | None = None
    world: WorldFacts | None = None

    def on_root_clock(self, clock: HostClock) -> Self:
        """Return the same with the times on the root's clock."""
        return msgspec.structs.replace(
            self,
            low=clock.time(self.low),
            high=clock.time(self.high),
            clock=clock.host,
            clock_error=clock.error,
            time=clock.date(self.time),
        )

    def may_precede(self, other: FailureRecord) -> bool:
        """Whether it may have happened before ``other`` did."""
        return self.low <= other.high + self.slack(other)

    def slack(self, other: FailureRecord) -> int:
        """Return by how much their times may be wrong against each other, ns; 0 for those of one clock."""
        return 0 if self.clock == other.clock else self.clock_error + other.clock_error

    @property
    def address(self) -> tuple[str, int]:
        """The rank that failed."""
        return self.mesh_id, self.rank

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks of its mesh that failed: several with a host, or if they did not answer."""
        return self.ranks or (self.rank,)

    def exceptions(self) -> Iterator[ExceptionFacts]:
        """Yield its exception and all that this came from, the nearest first; nothing if it is no exception."""
        return self.exception.all() if self.exception is not None else iter(())

    @property
    def of_script(self) -> bool:
        """Whether code of the script has failed, outside of any actor."""
        return not self.mesh_id and self.mesh == SCRIPT

    @property
    def place(self) -> RankPlace:
        """The rank that failed, for people."""
        coordinates = tuple(self.coordinates.items())
        return RankPlace(self.mesh_id, self.actor, self.rank, coordinates, self.host, self.pid)

    @property
    def headline(self) -> str:
        """What happened, in one line."""
        match self.kind:
            case "exception":
                return self.exception.headline if self.exception is not None else "raised an unknown error"
            case "host":
                return f"host {self.host or '?'} was lost with its {counted(len(self.ranks))}"
            case "silent":
                return self.hint
        return self.kind if self.fate is None else str(self.fate)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, if it has ended with one."""
        return None if self.fate is None else self.fate.exit_code

    @property
    def signal(self) -> int | None:
        """The signal that has ended the process, if one has."""
        return None if self.fate is None else self.fate.signal

    @property
    def restarted(self) -> bool:
        """Whether the rank was started again after this."""
        return self.fate is not None and self.fate.restarts

    def to_plain(self) -> Document:
        """Return plain data; the fate is not a map of its own there."""
        plain = super().to_plain()
        plain.pop("fate", None)
        if self.fate is not None:
            for name, theirs in _OF_FATE.items():
                value = getattr(self.fate, name)
                if value != getattr(_NO_FATE, name):
                    plain[theirs] = value
        return plain

    @classmethod
    def from_plain(cls, plain: object) -> Self:
        """Inverse of `to_plain`; never raises."""
        record = super().from_plain(plain)
        if record.kind not in _FATES or not isinstance(plain, dict):
            return record
        facts = {name: plain[theirs] for name, theirs in _OF_FATE.items() if theirs in plain}
        place = {name: getattr(record, name) for name in ("host", "pid", "low", "high", "clock", "clock_error")}
        fate = tolerant(Fate, {**facts, **place, "kind": _FATES[record.kind]})
        return msgspec.structs.replace(record, fate=fate, hint="")


_NO_FATE = Fate("")
#: The kind of a fate, by the kind of its record; and its fields in a record that is plain data.
_FATES = {"exit": "died", "signal": "died", "unborn": "unborn", "host": "host"}
_OF_FATE: Mapping[str, str] = {
    "exit_code": "exit_code", "signal": "signal", "hint": "hint", "stack": "stack", "log_tail": "log_tail",
    "restarts": "restarted",
}  # fmt: skip


class Recorded(Report, frozen=True, tag="failure.record"):
    """A rank reports an exception."""

    record: FailureRecord

    def on_root_clock(self, clock: HostClock) -> Self:
        """See `meshrt.hooks.operations.Data`."""
        return type(self)(self.record.on_root_clock(clock))
