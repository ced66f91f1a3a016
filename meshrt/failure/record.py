"""The record of one failure, as data that can be written to a file and read back.

Reading is tolerant: a file may be cut off, or of another version. A missing value gets its default, and a value of the
wrong type is ignored. So a broken record is shown as far as it can be read, and never breaks the reporter.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from meshrt.errors import RankPlace, describe_exit

__all__ = ["SCRIPT", "ExceptionFacts", "FailureRecord", "Frame", "LeftBehind", "Plain", "Reference"]


#: In place of a mesh, for a failure of the script itself.
SCRIPT = "the script"


class Plain:
    """A dataclass that is written as a map of plain data."""

    def to_plain(self) -> dict[str, Any]:
        """Return plain data; fields with their default are left out."""
        plain = {}
        for each in dataclasses.fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, each.name)
            default = {} if each.default is dataclasses.MISSING else each.default
            if value != default:
                plain[each.name] = _to_plain(value)
        return plain

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Inverse of `to_plain`; never raises."""
        kinds = _kinds(cls)
        given = plain if isinstance(plain, dict) else {}
        found = {name: _from_plain(kinds[name], value) for name, value in given.items() if name in kinds}
        return cls(**{name: value for name, value in found.items() if value is not _WRONG})


_WRONG: Any = object()


_hints: dict[type, dict[str, Any]] = {}


def _kinds(cls: type) -> dict[str, Any]:
    if cls not in _hints:
        _hints[cls] = typing.get_type_hints(cls)
    return _hints[cls]


def _to_plain(value: Any) -> Any:
    if isinstance(value, Plain):
        return value.to_plain()
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return value


def _from_plain(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _from_plain(arguments[0], value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return _WRONG
        items = [_from_plain(arguments[0], item) for item in value]
        return tuple(item for item in items if item is not _WRONG)
    if origin is dict:
        if not isinstance(value, dict):
            return _WRONG
        items = [(str(key), _from_plain(arguments[1], item)) for key, item in value.items()]
        return {key: item for key, item in items if item is not _WRONG}
    if isinstance(kind, type) and issubclass(kind, Plain):
        return kind.from_plain(value) if isinstance(value, dict) else _WRONG
    if kind is Any:
        return value
    if kind is float and type(value) is int:
        return float(value)
    return value if type(value) is kind else _WRONG


@dataclass(frozen=True, slots=True)
class Frame(Plain):
    """One stack frame of user code, or of a library that it called."""

    file: str = ""
    line: int = 0
    function: str = ""
    #: Text of the line.
    source: str = ""
    #: Local variables as text, by name; only of frames of user code.
    locals: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reference(Plain):
    """The subject of an exception of meshrt in a chain: a failure (``failure``), or else a rank."""

    failure: str = ""
    mesh_id: str = ""
    #: Base rank; -1 if it is about no single rank.
    rank: int = -1


@dataclass(frozen=True, slots=True)
class ExceptionFacts(Plain):
    """An exception, with its causes and contexts.

    Attributes:
        type: As a traceback names it.
        bases: Names of its built-in base classes, the nearest first: an ``except`` with one of them would catch it.
        frames: Outermost first; without frames of the runtime.
        relation: To the exception that contains it: ``"cause"``, ``"context"`` or ``"member"`` (of a group).
        linked: The cause or context, and the members of a group.
        about: The subject of an exception of meshrt.
    """

    type: str = ""
    message: str = ""
    bases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
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


@dataclass(frozen=True, slots=True)
class LeftBehind(Plain):
    """The content of an error file. ``problem``: why it is empty or incomplete."""

    message: str = ""
    traceback: str = ""
    #: Seconds since the epoch, by the writer's clock.
    timestamp: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FailureRecord(Plain):
    """One failure.

    Attributes:
        id: ``"<pid, hexadecimal>.<n>"``: its number on this rank; "" for a failure without an exception.
        kind: ``"exception"``, ``"exit"``, ``"signal"``, ``"unborn"`` (it could not be started), ``"host"`` (its host
            agent ended) or ``"silent"`` (it did not answer in time). A rank that meshrt stops has not failed.
        blame: The probable origin: ``"user"`` (the program's code), ``"worker"`` (its process), ``"platform"``
            (memory, signals of other processes), ``"infra"`` (a host).
        what: What raised, if it was no endpoint: ``"a thread"``, ``"a task"``; or "".
        waited_for: Whether a caller waits for the call, and gets its error.
        exit_code, signal: How the process ended.
        hint: Further evidence, such as that of the kernel's out-of-memory killer.
        stack: Output of faulthandler.
        log_tail: The last lines that the rank printed.
        ranks: Ranks of this mesh that ended with a host, or did not answer.
        low, high: When it happened, on the root's monotonic clock, ns: not before ``low`` and not after ``high``. On
            one host both are equal, except for the end of a process, which is noticed a little later.
        time: Seconds since the epoch, for people.
        left: What a child of it, or torch's own ``@record``, has written about an error.
        incarnation: How often the rank had been started again before this.
        restarted: It was started again after this.
        told: When a caller first got an error about it, for a process that has ended; monotonic ns, 0: not yet.
        copies: Number of earlier failures of this rank that were counted without a record.
        because: The failure that ``__supervise__`` was asked about when this was raised.
    """

    id: str = ""
    kind: str = "exception"
    blame: str = "user"
    mesh_id: str = ""
    mesh: str = ""
    actor: str = ""
    rank: int = -1
    coordinates: dict[str, int] = field(default_factory=dict)
    host: str = ""
    pid: int = 0
    endpoint: str = ""
    what: str = ""
    waited_for: bool = False
    thread: str = ""
    exception: ExceptionFacts | None = None
    exit_code: int | None = None
    signal: int | None = None
    hint: str = ""
    stack: str = ""
    log_tail: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    low: int = 0
    high: int = 0
    time: float = 0.0
    incarnation: int = 0
    restarted: bool = False
    told: int = 0
    copies: int = 0
    left: LeftBehind | None = None
    because: Reference | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The rank that failed."""
        return self.mesh_id, self.rank

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
                return self.exception.headline if self.exception is not None else "raised what is not known"
            case "exit" | "signal":
                return describe_exit(self.exit_code, self.signal) + (f" ({self.hint})" if self.hint else "")
            case "unborn":
                return f"could not be started: {self.hint}"
            case "host":
                return f"host {self.host or '?'} was lost, and its {len(self.ranks)} ranks"
            case "silent":
                return f"did not answer {self.hint}"
        return self.kind
