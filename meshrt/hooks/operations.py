"""Operations and reports, with types: what one process asks another one, what that answers, and what it reports.

An operation is a class. Its tag is its name, its fields are the arguments, and its base names the class of the answer::

    class Printed(Data, frozen=True):
        lines: Sequence[str]

    class Lines(Operation[Printed], frozen=True, tag="logs.lines"):
        rank: int

    services.serve(Lines, lambda asked: Printed(lines_of(asked.rank)))      # the side that serves it
    printed = connection.ask(Lines(3))                                      # the side that asks

On the wire the fields are a msgpack map. Both sides check what comes in (`Operation.read`, `Operation.read_answer`), so
that no later code reads a dict by string.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, get_args

import msgspec

from meshrt.conversion import convert
from meshrt.errors import ProtocolError
from meshrt.hooks.clock import HostClock
from meshrt.hooks.facts import Answered, Body, Unanswered

__all__ = [
    "Answers",
    "Connection",
    "Data",
    "Grouped",
    "GroupedOperation",
    "Nothing",
    "Operation",
    "Report",
    "Served",
    "Taken",
    "answers_of",
    "body_of",
    "read",
    "server",
    "slow_server",
]

T = TypeVar("T")
#: The class of a tagged body, of an answer; what is equal for ranks, and what differs.
D = TypeVar("D", bound="_Tagged")
D_co = TypeVar("D_co", covariant=True)
A_co = TypeVar("A_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)
A = TypeVar("A", bound="Data")
Q = TypeVar("Q")
S = TypeVar("S")
P = TypeVar("P")

#: Any class of answers.
A_any = TypeVar("A_any")

#: Are bytes on the wire, too: a text in their place is not taken for base64.
_BYTES = (bytes, bytearray, memoryview)


class Data(msgspec.Struct, frozen=True):
    """Plain data in the body of an operation or a report: fields of plain types, of `Data`, and of containers of them.

    Keys of maps are texts, as msgpack takes no others.
    """

    def on_root_clock(self, clock: HostClock) -> Self:
        """Return the same with the times on the root's clock; what has times of a rank defines it.

        Called where it comes in at the root, for what comes from another machine (`RootServices.on_report`, gathers).
        """
        return self


class Nothing(Data, frozen=True):
    """The answer of an operation that has none."""


class _Tagged(Data, frozen=True, tag_field="operation"):
    """A body that has a name."""

    @classmethod
    def name(cls) -> str:
        """Return the name: ``"<plug-in>.<what>"``; what is not loaded yet is loaded by it."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def read(cls: type[D], body: Body) -> D:
        """Check what has come. Raises ProtocolError, which names the field and what was expected."""
        return read(cls, body, cls.name())


class Operation(_Tagged, Generic[A_co], frozen=True):
    """The arguments of an operation, which is answered with an `A_co`: a `Data`, or what msgpack carries."""

    @classmethod
    def read_answer(cls, body: Body) -> A_co:
        """Check an answer that has come. Raises ProtocolError."""
        (answer,) = _arguments(cls)
        found: A_co = read(answer, body, f"the answer to {cls.name()}")
        return found


class Grouped(Data, Generic[S, P], frozen=True):
    """A rank's answer to a question that is put to many.

    Attributes:
        same: Ranks with equal ``same`` are shown as one group.
        per: What differs from rank to rank.
    """

    same: S
    per: P | None = None


class GroupedOperation(Operation[Grouped[S, P]], Generic[S, P], frozen=True):
    """An operation for `meshrt.hooks.services.RootServices.gather`."""

    @classmethod
    def read_answer(cls, body: Body) -> Grouped[S, P]:
        """Check an answer that has come. Raises ProtocolError."""
        per = body.get("per")
        return Grouped(cls.read_same(body.get("same")), None if per is None else cls.read_per(per))

    @classmethod
    def read_same(cls, same: object) -> S:
        """Check the first part of an answer. Raises ProtocolError."""
        found: S = read(_arguments(cls)[0], same, f"the answer to {cls.name()}")
        return found

    @classmethod
    def read_per(cls, per: object) -> P:
        """Check the second part of an answer. Raises ProtocolError."""
        found: P = read(_arguments(cls)[1], per, f"the answer to {cls.name()}")
        return found

    @classmethod
    def read_group(
        cls, mesh_id: str, ranks: tuple[int, ...], kind: str, same: Any, per: Mapping[int, object]
    ) -> Answered[S, P] | Unanswered:
        """Check what a host agent says about ranks; an answer that is not valid counts as a refusal.

        Args:
            kind: As in `Unanswered`, or ``"answered"``.
            same: The answer; a text that says why there is none; or ``"state"`` and ``"stack"`` of silent ranks.
            per: What differs, by rank.
        """
        match kind:
            case "answered":
                try:
                    found = read(_each(cls), per, f"the answer to {cls.name()}")
                    return Answered(mesh_id, ranks, cls.read_same(same), found)
                except ProtocolError as error:
                    return Unanswered(mesh_id, ranks, "refused", str(error))
            case "silent":
                return Unanswered(mesh_id, ranks, "silent", "", same["state"], same["stack"])
            case _:
                return Unanswered(mesh_id, ranks, "gone" if kind == "gone" else "refused", same)


class Answers(Protocol[A_contra]):
    """Takes the answer to an operation, ``answer(data, "")``, or a refusal, ``answer(None, why)``, once."""

    def __call__(self, answer: A_contra | None, why: str, /) -> None: ...


class Connection(Protocol):
    """A connection to a process that serves operations. Any thread."""

    #: Of the process at the other end.
    pid: int

    def ask(self, operation: Operation[A], timeout: float = 10.0) -> A:
        """Ask and wait.

        Raises:
            MeshError: The other side refuses; the text says why.
            ConnectionError: The connection is closed.
            TimeoutError: No answer within ``timeout`` seconds.
        """
        ...

    def close(self) -> None:
        """Close the connection."""


class Report(_Tagged, frozen=True):
    """What a rank reports to the root, or the root to a terminal; it gets no answer."""


class Served(Protocol[D_co, A_co]):
    """A class of operations, for the side that serves it."""

    def name(self) -> str: ...

    def read(self, body: Body, /) -> D_co: ...

    def read_answer(self, body: Body, /) -> A_co: ...


class Taken(Protocol[D_co]):
    """A class of reports, for the side that takes it."""

    def name(self) -> str: ...

    def read(self, body: Body, /) -> D_co: ...


def body_of(data: Data) -> Body:
    """Return the fields, as `meshrt.wire` encodes them; data within stay what they are."""
    return msgspec.structs.asdict(data)


def server(operation: Served[Q, A], handler: Callable[[Q], A]) -> Callable[[Body], Body]:
    """Return a function that serves an operation, from body to body. It raises ProtocolError for an invalid one."""
    return lambda body: body_of(handler(operation.read(body)))


def slow_server(
    operation: Served[Q, A], handler: Callable[[Q, Answers[A]], None]
) -> Callable[[Body, Answers[Body]], None]:
    """As `server`, for a handler that answers later."""

    def serve(body: Body, answer: Answers[Body]) -> None:
        handler(operation.read(body), lambda data, why: answer(None if data is None else body_of(data), why))

    return serve


def answers_of(
    operation: Operation[A_any], answered: Callable[[A_any | None, Exception | None], object]
) -> Callable[[Body | None, Exception | None], object]:
    """Return a function that passes on what has come, with its type: the answer, or an error. An invalid one is one."""

    def take(body: Body | None, error: Exception | None) -> None:
        if body is None:
            answered(None, error)
            return
        try:
            answer = operation.read_answer(body)
        except ProtocolError as invalid:
            answered(None, invalid)
        else:
            answered(answer, None)

    return take


def read(kind: type[T], plain: object, what: str) -> T:
    """Return plain data as a ``kind``.

    Args:
        what: What it is, for the error.
    Raises:
        ProtocolError: It is not valid; the text names the field and what was expected.
    """
    try:
        return convert(plain, kind, _BYTES)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{what} is not valid: {error} (is the other side of another version?)") from None


@functools.cache
def _each(cls: type[GroupedOperation[S, P]]) -> type[dict[int, P]]:
    """Return the type of what differs, by rank: it is checked for all ranks in one call."""
    each: type[P] = _arguments(cls)[1]
    return dict[int, each]  # type: ignore[valid-type]  # a type that is made at run time


@functools.cache
def _arguments(cls: type) -> Sequence[type]:
    """Return the types in brackets behind the base of a class of operations."""
    for base in cls.__mro__:
        for generic in base.__dict__.get("__orig_bases__", ()):
            found = get_args(generic)
            if found and not any(isinstance(each, TypeVar) for each in found):
                return found
    raise TypeError(f"{cls.__name__} does not say what answers it: Operation[...]")
