"""Control messages: msgpack maps on the wire, typed objects on both sides of it. Sans-IO.

A message is a `Message`: the key ``"t"`` names its class, the other keys are its fields. A `Catalogue` is what one side
may send; its `decode` checks every field, so that handlers can trust their types. Keys that a class does not have are
ignored: another version may send more.

Nothing here is ever a pickle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import UnionType
from typing import ClassVar, Generic, TypeVar, cast, get_args

import msgpack
import msgspec

from meshrt.conversion import convert
from meshrt.errors import ProtocolError
from meshrt.wire.frames import CONTROL_MAX, pack_header
from meshrt.wire.messages import CONTROL

__all__ = ["LENGTH_MAX", "Address", "Catalogue", "Message", "control_frame", "passed_frame", "relayed_frame"]

Address = tuple[str, int]
"""A rank on the control tree: (mesh id, base rank)."""

#: Bytes of most messages: what `msgpack.packb` allocates at once is much for a process that is near a limit.
_BUFFER = 512
#: What is nested as deep as msgpack reads could not be passed on inside another message. So a message that may hold
#: anything is encoded inside so many lists, of one byte each, and sent without them.
_ENVELOPES = 32
#: Bytes of a message that cannot be nested too deep, whatever it holds: msgpack reads 1024 levels, and each takes one.
#: (Packing the lists takes 1.5 us: as long as a message of so many bytes.)
_SHALLOW = 400
#: Elements of one list or map; a list may have an element for each rank of a mesh.
LENGTH_MAX = 65536
#: Are bytes on the wire, too: a text in their place is not taken for base64.
_BYTES = (bytes, bytearray, memoryview)


class Message(msgspec.Struct, frozen=True, tag_field="t"):
    """A control message. Each class says its ``tag``, and whether its fields may hold data of any depth."""

    any_depth: ClassVar[bool] = False


M = TypeVar("M", covariant=True)


class Catalogue(Generic[M]):
    """The messages that one side may send.

    Args:
        messages: A `Message`, or the union of several.
    """

    def __init__(self, messages: type[M] | UnionType) -> None:
        types: tuple[type[Message], ...] = get_args(messages) or (messages,)
        self._types: dict[str, type[M]] = {}
        for message in types:
            tag = str(message.__struct_config__.tag)
            if tag in self._types:
                raise ValueError(f"two messages are called {tag!r}")
            self._types[tag] = cast("type[M]", message)

    def decode(self, payload: memoryview | bytes) -> M:
        """Return the message in the payload of a CONTROL frame. Raises ProtocolError, which names what was expected."""
        return self.convert(_unpacked(payload))

    def convert(self, fields: object) -> M:
        """As `decode`, of what msgpack has unpacked."""
        kind = fields.get("t") if isinstance(fields, dict) else None
        if not isinstance(kind, str):
            raise ProtocolError("a control message without a type")
        message = self._types.get(kind)
        if message is None:
            expected = ", ".join(sorted(self._types))
            raise ProtocolError(f"a control message of type {kind[:40]!r}; expected one of {expected}")
        try:
            return convert(fields, message, _BYTES)
        except msgspec.ValidationError as error:
            raise ProtocolError(f"an invalid control message of type {kind!r}: {error}") from None


def _unpacked(payload: memoryview | bytes) -> object:
    try:
        return msgpack.unpackb(payload, max_array_len=LENGTH_MAX, max_map_len=LENGTH_MAX, max_ext_len=0)
    except Exception as error:  # msgpack has no common root for "these are not my bytes"
        raise ProtocolError(f"a control message that is not msgpack: {error}") from None


def control_frame(message: Message, address: Address | None = None) -> bytes:
    """Encode a message. Raises ProtocolError if it is longer, or nested deeper, than a control link takes.

    Args:
        address: The rank that the message is for (root to rank) or from (rank to root); None: it is the peer's own.
    """
    #: A part and what it is as plain data, by identity: a long message is encoded twice, but converted once.
    parts: dict[int, tuple[object, object]] = {}

    def plain(part: object) -> object:
        known = parts.get(id(part))
        if known is None:
            known = parts[id(part)] = part, _plain(part)
        return known[1]

    try:
        fields = {"t": _tag(message), **msgspec.structs.asdict(message)}
        payload = _packed(fields, plain)
        if message.any_depth and len(payload) > _SHALLOW:
            wrapped: object = fields
            for _ in range(_ENVELOPES):
                wrapped = [wrapped]
            payload = _packed(wrapped, plain)[_ENVELOPES:]
    except (ValueError, OverflowError) as error:
        raise ProtocolError(f"a control message ({_tag(message)}) that cannot be encoded: {error}") from None
    if len(payload) > CONTROL_MAX:
        raise ProtocolError(f"a control message of {len(payload)} bytes ({_tag(message)}) is too long")
    return relayed_frame(payload, address)


def relayed_frame(payload: bytes | bytearray | memoryview, address: Address | None = None) -> bytes:
    """Return the CONTROL frame of a message that another process has encoded: it is passed on as it is."""
    return b"".join((pack_header(CONTROL, address, len(payload)), payload))


def passed_frame(message: Message, payload: memoryview | bytes, address: Address) -> bytes:
    """Return the CONTROL frame that passes on a message which has come. Raises ProtocolError as `control_frame`.

    A short one goes on as it came: it cannot be nested too deep, and who reads it decodes the same bytes.

    Args:
        payload: What ``message`` was decoded from.
        address: The rank that it came from.
    """
    return relayed_frame(payload, address) if len(payload) <= _SHALLOW else control_frame(message, address)


def _packed(value: object, plain: Callable[[object], object]) -> bytes:
    # Text of user code may hold what UTF-8 does not know (lone surrogates of odd file names).
    packed: bytes = msgpack.Packer(default=plain, unicode_errors="backslashreplace", buf_size=_BUFFER).pack(value)
    return packed


def _plain(value: object) -> dict[str, object] | tuple[object, ...]:
    """Return a part of a message as msgpack takes it. Raises TypeError for what cannot be one."""
    if isinstance(value, msgspec.Struct):  # `meshrt.hooks.operations.Data`
        plain: dict[str, object] | tuple[object, ...] = msgspec.to_builtins(value, builtin_types=_BYTES)
        return plain
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, int):
        raise OverflowError("a number that takes more than 64 bits")
    raise TypeError(f"a {type(value).__name__} in a control message")


def _tag(message: Message) -> str:
    return str(message.__struct_config__.tag)
