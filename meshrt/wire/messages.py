"""The messages: kinds of frames and the layout of their headers.

Data links (caller to actor, one link per pair; both directions in the order sent)::

    CALL    [call id, endpoint, view, lengths, flags]     payload: pickled (args, kwargs)
    INIT    [call id, class label, view, lengths]         payload: pickled (class, args, kwargs, set-up)
    STOP    [call id]                                     end the actor after what was sent before
    RESULT  [call id, lengths or nil]                     payload: pickled value; nil stands for None
    ERROR   [call id, error, lengths, kind]               payload: the pickled exception, may be missing
    STATE   [0, stopped]                                  to every caller: the actor was stopped, or begins anew

``view`` is msgpack of ``[labels, offset, sizes, strides]``: one encoding serves all ranks, each finds its own point.
``lengths`` are those of the pickle and of its out-of-band buffers, see `meshrt.wire.codec`.

With the flag `STORED` in its kind, the header of CALL, INIT or RESULT has one more element at its end: for each store
that has them ``[loans, pids or nil]``, which says where the segments are that stand for some of the lengths, and whom
they were lent to (`meshrt.store`).

Control links (root, agent, rank; and terminals to the root)::

    CONTROL [mesh id, rank] or nil                        payload: msgpack map, never a pickle

The address says whom a message is for (root to rank) or from (rank to root); nil is the peer itself. The maps have a
key ``"t"``: ``op`` (request: id, op, body), ``ok`` / ``no`` (its answer), ``ev`` (event: ev, body), and those between
root and agent that `meshrt.host` documents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgpack

from meshrt import errors
from meshrt.errors import MeshError, ProtocolError, RemoteException
from meshrt.wire.frames import CONTROL_MAX, pack_header

__all__ = [
    "CALL",
    "CONTROL",
    "ERROR",
    "FROM_AGENT",
    "FROM_RANK",
    "FROM_TERMINAL",
    "INIT",
    "NO_ERROR",
    "NO_REPLY",
    "RESULT",
    "STATE",
    "STOP",
    "STORED",
    "Address",
    "check_control",
    "control_frame",
    "error_from_wire",
    "error_to_wire",
    "refusal",
    "refused",
    "unpack_control",
    "why_of",
]

CALL = 1
INIT = 2
STOP = 3
RESULT = 4
ERROR = 5
STATE = 6
CONTROL = 16

#: Flag in the kind of a CALL, an INIT or a RESULT: parts of its payload are in shared memory.
STORED = 0x40

#: The error of an ERROR whose kind says it all.
NO_ERROR: list[Any] = [["", "", "", [], ""]]

#: Flag of a CALL whose answer nobody wants (`broadcast`).
NO_REPLY = 1

#: Characters of a message: in an error that crosses a control link, and in one that crosses a data link.
_BRIEF = 32 << 10
_LONG = 1 << 18

Address = tuple[str, int]
"""A rank on the control tree: (mesh id, base rank)."""


#: What is nested as deep as msgpack reads could not be passed on in an envelope of somebody else's. So a message is
#: encoded inside so many lists, of one byte each, and sent without them.
_ENVELOPES = 32
#: Bytes of a message that cannot be nested too deep, whatever it holds: msgpack reads 1024 levels, and each takes one.
_SHALLOW = 400
#: Elements of one list or map; a list may have an element for each rank of a mesh.
_LENGTH_MAX = 65536
_BODY = (dict, type(None))

Layout = Mapping[str, Mapping[str, tuple[type, ...]]]
"""For each type of a control message the keys that it must have, and the types of their values."""

#: What a rank may send to its agent.
FROM_RANK: Layout = {
    "op": {"id": (int,), "op": (str,), "body": (dict,)},
    "ok": {"id": (int,), "body": _BODY},
    "no": {"id": (int,), "why": (str,)},
    "later": {"id": (int,)},
    "ev": {"ev": (str,), "body": (dict,)},
    "pong": {},
    "why": {"text": (str,)},
    "dropped": {"events": (dict,)},
}

#: What an agent may send to the root, of its own.
FROM_AGENT: Layout = {
    "started": {"mesh": (str,), "rank": (int,), "pid": (int,)},
    "gone": {"mesh": (str,), "rank": (int,), "fate": (dict,)},
    "stopped": {"mesh": (str,)},
    "output": {"mesh": (str,), "rank": (int,), "err": (bool,), "lines": (list,)},
    "pulse": {"mesh": (str,), "rank": (int,), "state": (str,), "stack": (str,)},
    "gathered": {"id": (int,), "groups": (list,)},
    "serves": {},
    "measured": {"id": (int,), "rows": (list,), "agent": _BODY, "done": (bool,)},
    "pong": {},
    "warning": {"text": (str,)},
    "dropped": {"ranks": (list,)},
}

#: What a terminal may send to the root.
FROM_TERMINAL: Layout = {"op": {"id": (int,), "op": (str,), "body": _BODY}}


def control_frame(message: dict[str, Any], address: Address | None = None) -> bytes:
    """Encode a control message. Raises ProtocolError if it is longer, or nested deeper, than a control link takes."""
    try:
        # Text of user code may hold what UTF-8 does not know (lone surrogates of odd file names).
        payload: bytes = msgpack.packb(message, unicode_errors="backslashreplace")
        if len(payload) > _SHALLOW:
            wrapped: Any = message
            for _ in range(_ENVELOPES):
                wrapped = [wrapped]
            payload = msgpack.packb(wrapped, unicode_errors="backslashreplace")[_ENVELOPES:]
    except ValueError as error:
        raise ProtocolError(f"a control message ({message.get('t')}) that cannot be encoded: {error}") from None
    if len(payload) > CONTROL_MAX:
        raise ProtocolError(f"a control message of {len(payload)} bytes ({message.get('t')}) is too long")
    return pack_header(CONTROL, address, len(payload)) + payload


def unpack_control(payload: memoryview | bytes) -> dict[str, Any]:
    """Decode the payload of a CONTROL frame. Raises ProtocolError."""
    try:
        message = msgpack.unpackb(payload, max_array_len=_LENGTH_MAX, max_map_len=_LENGTH_MAX, max_ext_len=0)
    except Exception as error:  # msgpack has no common root for "these are not my bytes"
        raise ProtocolError(f"a control message that is no msgpack: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("t"), str):
        raise ProtocolError("a control message without a type")
    return message


def check_control(message: Mapping[str, Any], layout: Layout) -> None:
    """Raise ProtocolError, which names what was expected, unless ``layout`` has the message."""
    kind = message["t"]
    fields = layout.get(kind)
    if fields is None:
        raise ProtocolError(f"a control message of type {kind[:40]!r}; expected one of {', '.join(sorted(layout))}")
    for name, types in fields.items():
        value = message.get(name)
        if not isinstance(value, types):
            expected = " or ".join("nil" if each is type(None) else each.__name__ for each in types)
            got = f"has a {type(value).__name__}" if name in message else "has nothing"
            raise ProtocolError(f"a control message of type {kind!r} that {got} as {name!r}; expected {expected}")


def refusal(number: int, error: Exception) -> dict[str, Any]:
    """Return the answer ``no`` to a request: the text of ``error``, and its class if it is one of meshrt."""
    name = type(error).__name__ if isinstance(error, MeshError) else "MeshError"
    return {"t": "no", "id": number, "why": why_of(error), "error": name}


def why_of(error: Exception) -> str:
    """Return the text of a refusal: that of ``error``, behind its class if this is none of meshrt's."""
    name = type(error).__name__
    return (str(error) or name) if isinstance(error, MeshError) else f"{name}: {error}"


def refused(message: Mapping[str, Any]) -> MeshError:
    """Return what a ``no`` stands for: of the class that it names if a text is all that this one takes."""
    why, name = str(message["why"]), message.get("error")
    if name in errors.__all__:
        # Those that want facts, which have not come along, say something else than the text, or cannot be made at all.
        with contextlib.suppress(TypeError, AttributeError):
            error = getattr(errors, name)(why)
            if isinstance(error, MeshError) and str(error) == why:
                return error
    return MeshError(why)


def error_to_wire(remote: RemoteException, *, brief: bool = False) -> list[Any]:
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
    wire = []
    for item in chain:
        noted = [_cut(note, message // 16) for note in item.notes[:notes]]
        texts = [_cut(item.type, 1000), _cut(item.message, message), _cut(item.traceback, traceback)]
        wire.append([*texts, noted, item.failure])
        # The causes stand in the traceback of the first one as well.
        message, traceback, notes = (_BRIEF // 16, 0, 0) if brief else (message, traceback, notes)
    return wire


def _cut(text: str, limit: int) -> str:
    """Return what UTF-8 can carry of ``text``, at most about ``limit`` characters."""
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:] if half else ''}"


def failure_of(chain: list[Any]) -> str:
    """Return the number of the failure that an error on the wire stands for. Raises ProtocolError for foreign data."""
    try:
        return str(chain[0][4])
    except (TypeError, LookupError):
        raise ProtocolError("an error message that cannot be read") from None


def error_from_wire(chain: list[Any]) -> RemoteException:
    """Inverse of `error_to_wire`. Raises ProtocolError for foreign data."""
    remote: RemoteException | None = None
    try:
        for type_name, message, traceback, notes, failure in reversed(chain):
            texts = (str(type_name), str(message), str(traceback), tuple(map(str, notes)))
            remote = RemoteException(*texts, remote, str(failure))
    except (TypeError, ValueError):
        remote = None
    if remote is None:
        raise ProtocolError("an error message that cannot be read")
    return remote
