"""What a call raises when user code on a rank has raised: an `ActorError` that is of that exception's type as well.

So ``except ValueError`` around a call catches the ``ValueError`` of a rank, and ``except ActorError`` catches it too,
with the rank and the remote traceback. The attributes of the remote object are copied; its constructor and other code
of its class are not run. Where its class is not known here, or refuses, the error is an `ActorError` alone.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
from collections.abc import Iterable, Mapping
from types import GetSetDescriptorType, MemberDescriptorType

from meshrt.errors import ActorError, MeshError, RankPlace, RemoteException, one_line
from meshrt.selection import counted, fold_ranks
from meshrt.wire.codec import own_attribute
from meshrt.wire.errors import error_from_wire
from meshrt.wire.frames import Frame
from meshrt.wire.refused import built_in

__all__ = ["actor_error", "add_others"]

#: Names that come from `ActorError` and from Python, even if the user's class defines them ...
_PLAIN = (
    *("__repr__", "__getattribute__", "__setattr__", "__eq__", "__hash__"),
    *("__cause__", "__context__", "__suppress_context__", "__traceback__"),
    *("args", "with_traceback", "add_note", "rank"),
)
#: ... and those that are attributes of the error itself.
_OWN = ("place", "endpoint", "remote", "exception", "others", "others_text", "sent", "__notes__")
#: How many kinds of further errors are shown, and how many characters of each message.
_KINDS = 5
_MESSAGE = 200
#: Types with a meaning where they are raised: the end of an iteration, or a rank of the call itself.
_NEVER = (MeshError, StopIteration, StopAsyncIteration)


def actor_error(
    place: RankPlace, endpoint: str, remote: RemoteException, exception: BaseException | None = None
) -> ActorError:
    """Return the error for an exception of a rank.

    Args:
        exception: The exception itself, where it could be sent.
    """
    kind = _kind_of(remote, exception)
    cls = ActorError if kind is None else _class_for(kind)  # type: ignore[arg-type]  # mypy: a class is not hashable
    original = exception if type(exception) is kind else None
    try:
        error: ActorError = built_in(cls).__new__(
            cls, *(own_attribute(original, "args") if original is not None else ())
        )
    except Exception:  # such as that of a group without its exceptions
        original = None
        error = ActorError.__new__(ActorError)
    facts = _facts(error, original) if original is not None and type(error) is not ActorError else {}
    error.args = (str(place), endpoint, remote.type, remote.message)
    own_attribute(error, "__dict__").update(facts, place=place, endpoint=endpoint, remote=remote, exception=exception)
    return error


def add_others(error: ActorError, others: Iterable[tuple[RankPlace, Frame]]) -> None:
    """Note in ``error`` the errors that further ranks have answered with."""
    found = []
    for place, frame in others:
        _, chain, _, kind = frame.header
        if kind in ("", "init"):
            found.append(ActorError(place, error.endpoint, error_from_wire(chain)))
    groups: dict[str, list[ActorError]] = {}
    for other in found:
        groups.setdefault(other.remote.type, []).append(other)
    lines = []
    for name, members in list(groups.items())[:_KINDS]:
        ranks = fold_ranks(member.rank for member in members)
        word = "rank" if len(members) == 1 else "ranks"
        message = one_line(members[0].remote.message, _MESSAGE)
        more = ": " + message + (", ..." if len(members) > 1 else "") if message else ""
        lines.append(f"{word} {ranks} also raised {name}{more}")
    if len(groups) > _KINDS:
        lines.append(f"and {counted(sum(map(len, list(groups.values())[_KINDS:])))} raised other exceptions")
    error.others, error.others_text = tuple(found), "\n".join(lines)


def _kind_of(remote: RemoteException, exception: BaseException | None) -> type[Exception] | None:
    kind: object = type(exception) if exception is not None else _named(remote.type)
    while isinstance(kind, type) and issubclass(kind, ActorError):
        kind = vars(kind).get("kind")  # a rank that another rank has called raised it: take the type raised there
    if not isinstance(kind, type) or not issubclass(kind, Exception) or issubclass(kind, _NEVER) or kind is Exception:
        return None
    return kind


def _named(name: str) -> object:
    """Return the object of that name, if it is loaded. Imports nothing and calls no module's ``__getattr__``."""
    module, _, path = "builtins", "", name
    if "." in name:
        parts = name.split(".")
        prefixes = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
        module = next((prefix for prefix in prefixes if prefix in sys.modules), "__main__")
        path = name.removeprefix(f"{module}.")
    elif not hasattr(builtins, name):
        module = "__main__"
    found: object = sys.modules.get(module)
    for part in path.split("."):
        members: Mapping[str, object] = getattr(found, "__dict__", {})
        found = members.get(part)
    return found


@functools.lru_cache(maxsize=256)
def _class_for(kind: type[Exception]) -> type[ActorError]:
    # Attributes that Python and meshrt read of every error are not read from the user's class.
    facts = {
        **{name: getattr(ActorError, name) for name in _PLAIN},
        **{name: _Own(name) for name in _OWN},
        "record": ActorError.record,
        "__bool__": lambda _error: True,
        "__module__": ActorError.__module__,
        "__doc__": ActorError.__doc__,
        "__reduce__": _reduce,
        "kind": kind,
    }
    try:
        return type(ActorError.__name__, (ActorError, kind), facts)
    except Exception:  # another memory layout, an error of its metaclass, subclasses not allowed ...
        return ActorError


class _Own:
    """An attribute in the error's dictionary, although a class has another one of that name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, error: ActorError | None, _cls: type | None = None) -> object:
        if error is None:
            return self
        try:
            return own_attribute(error, "__dict__")[self._name]
        except KeyError:
            defaults: Mapping[str, object] = vars(ActorError)
            if self._name in ("others", "others_text", "sent"):
                return defaults.get(self._name, 0)
            raise AttributeError(self._name) from None

    def __set__(self, error: ActorError, value: object) -> None:
        own_attribute(error, "__dict__")[self._name] = value


def _facts(error: ActorError, exception: BaseException) -> dict[str, object]:
    """Return the attributes of the remote exception; sets those that are not in a dictionary."""
    for base in type(exception).__mro__:
        if base.__module__ != "builtins" or base in (Exception, BaseException, object):
            continue
        for name, member in vars(base).items():
            if isinstance(member, MemberDescriptorType | GetSetDescriptorType) and not name.startswith("__"):
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(error, name, member.__get__(exception))
    # Notes are part of the data, which has them already.
    return {name: value for name, value in own_attribute(exception, "__dict__").items() if name != "__notes__"}


def _reduce(error: ActorError) -> tuple[object, ...]:
    # Attributes of the user may be any object; the data can always be sent, and the type is sent by its name.
    notes = tuple(getattr(error, "__notes__", ()))
    others = {"others": error.others, "others_text": error.others_text}
    return _rebuilt, (error.place, error.endpoint, error.remote, notes, others)


def _rebuilt(
    place: RankPlace, endpoint: str, remote: RemoteException, notes: tuple[str, ...], others: dict[str, object]
) -> ActorError:
    error = actor_error(place, endpoint, remote)
    own_attribute(error, "__dict__").update(others)
    for note in notes:
        error.add_note(note)
    return error
