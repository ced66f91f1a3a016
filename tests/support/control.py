"""Control messages as plain data, for peers that say what they like, and for tests that read what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from meshrt.wire.control import Address, Message, control_frame
from meshrt.wire.frames import control_decoder, pack_header
from meshrt.wire.messages import CONTROL

__all__ = ["fields_of", "plain", "raw_frame"]


def raw_frame(fields: Mapping[str, Any], address: Address | None = None) -> bytes:
    """Return a CONTROL frame with any fields, which need not be those of a message."""
    payload: bytes = msgpack.packb(fields, unicode_errors="backslashreplace")
    return pack_header(CONTROL, address, len(payload)) + payload


def fields_of(payload: bytes | memoryview) -> Any:
    """Return what is in the payload of a CONTROL frame: a dict, if it is a message."""
    return msgpack.unpackb(payload)


def plain(message: Message) -> dict[str, Any]:
    """Return the fields of a message, as its receiver reads them."""
    (frame,) = control_decoder().receive_data(control_frame(message))
    fields: dict[str, Any] = fields_of(frame.payload)
    return fields
