"""Errors on the wire: plain data for a `RemoteException`, and the refusal of a request."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from meshrt import errors
from meshrt.errors import MeshError, ProtocolError, RemoteException
from meshrt.wire.source import with_lines
from meshrt.wire.tree import Refusal

__all__ = [
    "ErrorChain",
    "cut",
    "error_from_wire",
    "error_to_wire",
    "failure_of",
    "in_brief",
    "refusal",
    "refused",
    "why_of",
]

ErrorChain = Sequence[tuple[str, str, str, Sequence[str], str]]
"""An error and its causes: type, message, traceback, notes, number of the failure."""

#: Characters of a message: in an error that crosses a control link, and in one that crosses a data link.
_BRIEF = 32 << 10
_LONG = 1 << 18


def refusal(number: int, error: Exception) -> Refusal:
    """Return the answer to a request that failed: the text of ``error``, and its class if it is one of meshrt."""
    name = type(error).__name__ if isinstance(error, MeshError) else "MeshError"
    return Refusal(number, why_of(error), name)


def why_of(error: Exception) -> str:
    """Return the text of a refusal: that of ``error``, behind its class if this is not one of meshrt's."""
    name = type(error).__name__
    return (str(error) or name) if isinstance(error, MeshError) else f"{name}: {error}"


def refused(refusal: Refusal) -> MeshError:
    """Return the error of a refusal: of the class that it names, if that class takes a text alone."""
    why, name = refusal.why, refusal.error
    if name in errors.__all__:
        # Those that want facts, which have not come along, say something else than the text, or cannot be made at all.
        with contextlib.suppress(TypeError, AttributeError):
            error = getattr(errors, name)(why)
            if isinstance(error, MeshError) and str(error) == why:
                return error
    return MeshError(why)


def error_to_wire(remote: RemoteException, *, brief: bool = False) -> ErrorChain:
    """Return plain data for a `RemoteException`, with its causes (at most 20).

    Args:
        brief: Cut it so that it fits into a control message, together with others.
    """
    chain: list[RemoteException] = []
    link: RemoteException | None = remote
    while link is not None and len(chain) < 20:
        chain.append(link)
        link = link.cause
    message, traceback, notes = (_BRIEF, 2 * _BRIEF, 16) if brief else (_LONG, _LONG, 1000)
    wire: list[tuple[str, str, str, Sequence[str], str]] = []
    for item in chain:
        noted = [cut(note, message // 16) for note in item.notes[:notes]]
        texts = (cut(item.type, 1000), cut(item.message, message), cut(item.traceback, traceback))
        wire.append((*texts, noted, item.failure))
        # The traceback of the first one contains the causes as well.
        message, traceback, notes = (_BRIEF // 16, 0, 0) if brief else (message, traceback, notes)
    return wire


def cut(text: str, limit: int) -> str:
    """Return what UTF-8 can carry of ``text``, at most about ``limit`` characters."""
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:] if half else ''}"


def in_brief(remote: RemoteException) -> RemoteException:
    """Return the error as it fits into a control message, together with others."""
    return error_from_wire(error_to_wire(remote, brief=True))


def failure_of(chain: ErrorChain) -> str:
    """Return the number of the failure that an error on the wire stands for. Raises ProtocolError for foreign data."""
    try:
        return str(chain[0][4])
    except (TypeError, LookupError):
        raise ProtocolError("an error message that cannot be read") from None


def headline_of(chain: ErrorChain) -> str:
    """Return type and message of the error. Raises ProtocolError as `failure_of`.

    Of an error of meshrt, the first line says what happened: the traceback of the error that it is about follows.
    """
    try:
        kind, message = str(chain[0][0]), str(chain[0][1])
        message = message.partition("\n")[0] if kind.startswith("meshrt.") else message
        return f"{kind}: {message}" if message else kind
    except (TypeError, LookupError):
        raise ProtocolError("an error message that cannot be read") from None


def error_from_wire(chain: ErrorChain) -> RemoteException:
    """Inverse of `error_to_wire`. Raises ProtocolError for foreign data."""
    remote: RemoteException | None = None
    try:
        for type_name, message, traceback, notes, failure in reversed(chain):
            texts = (str(type_name), str(message), with_lines(str(traceback)), tuple(map(str, notes)))
            remote = RemoteException(*texts, remote, str(failure))
    except (TypeError, ValueError):
        remote = None
    if remote is None:
        raise ProtocolError("an error message that cannot be read")
    return remote
