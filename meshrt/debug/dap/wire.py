"""Frames of the Debug Adapter Protocol, without I/O: ``Content-Length: N``, an empty line, N bytes of JSON.

Source: https://microsoft.github.io/debug-adapter-protocol/overview (base protocol).
"""

from __future__ import annotations

import json
from typing import Any

from meshrt.errors import ProtocolError

__all__ = [
    "MESSAGE_MAX",
    "RESUMING",
    "Fields",
    "Message",
    "MessageDecoder",
    "arguments_of",
    "encode",
    "event",
    "failure",
    "response",
]

#: Bytes of one message: values that an IDE asks for may be long, what an unproved client sends is not (`limit`).
MESSAGE_MAX = 64 << 20
_HEADER_MAX = 4096
#: Of the length; Python reads no number of any length.
_DIGITS = 18
_LENGTH = b"content-length"
#: Header fields of the protocol. A web page can have a browser send messages to a port of this machine, but never
#: without fields of HTTP.
_FIELDS = (_LENGTH, b"content-type")
#: Requests that resume threads when they succeed.
RESUMING = ("continue", "next", "stepIn", "stepOut", "goto")

#: What an IDE asks for by itself, or shows the answer of in its own place: it may come when ranks have gone on.
_UNASKED = (
    "completions", "evaluate", "exceptionInfo", "gotoTargets", "modules", "scopes", "source", "stackTrace",
    "stepInTargets", "threads", "variables",
)  # fmt: skip

#: A JSON object of the protocol that is mostly passed on: arguments of a request, body of an answer or of an event.
#: Requests that the router itself reads have types (`meshrt.debug.dap.router.requests`).
Fields = dict[str, Any]
#: A request, an answer or an event: it has the fields that identify it, and its arguments or its body are `Fields`.
Message = dict[str, Any]


class MessageDecoder:
    """Cuts a stream into messages.

    Attributes:
        limit: The longest message that is taken, in bytes.
    """

    def __init__(self, limit: int = MESSAGE_MAX) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._length = -1

    def receive_data(self, data: bytes) -> list[Message]:
        """Take bytes and return the complete messages. Raises ProtocolError for invalid DAP."""
        self._buffer += data
        messages: list[Message] = []
        while True:
            if self._length < 0 and not self._take_header():
                return messages
            if len(self._buffer) < self._length:
                return messages
            body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
            self._length = -1
            messages.append(_parsed(body))

    def receive_eof(self) -> None:
        """Note the end of the stream. Raises ProtocolError: it is in the middle of a message."""
        if self._length >= 0:
            raise ProtocolError(f"the input ends after {len(self._buffer)} of the {self._length} bytes of a message")
        if self._buffer:
            begun = bytes(self._buffer[:60])
            raise ProtocolError(f"the input ends in a header: {begun!r}; expected Content-Length: N, an empty line")

    def _take_header(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end > _HEADER_MAX or (end < 0 and len(self._buffer) > _HEADER_MAX):
            raise ProtocolError(f"no end of a header within {_HEADER_MAX} bytes; expected Content-Length: N")
        if end < 0:
            return False
        length = _length_of(bytes(self._buffer[:end]))
        if length > self.limit:
            raise ProtocolError(f"a message of {length} bytes; the limit is {self.limit} bytes")
        del self._buffer[: end + 4]
        self._length = length
        return True


def _length_of(header: bytes) -> int:
    """Return the value of Content-Length. Raises ProtocolError for an invalid header."""
    fields: dict[bytes, bytes] = {}
    for line in header.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        key = name.strip().lower()
        if not colon or key not in _FIELDS or key in fields:
            raise ProtocolError(f"expected Content-Length: N, got {line[:60]!r}")
        fields[key] = value.strip()
    number = fields.get(_LENGTH, b"")
    if not number.isdigit() or len(number) > _DIGITS:
        raise ProtocolError(f"expected Content-Length: N, got {header[:60]!r}")
    return int(number)


def _parsed(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a message that is not JSON: {error}") from None
    if not isinstance(message, dict) or not _well_formed(message):
        raise ProtocolError("a message that is not a request, response or event")
    for part in ("arguments", "body"):
        if not isinstance(message.get(part) or {}, dict):
            name = message.get("command") or message.get("event")
            raise ProtocolError(f"{part} of {name!r} that is not an object")
    checked: Message = message
    return checked


def _well_formed(message: Message) -> bool:
    """Return whether a message has the fields that identify it, with the types of the protocol."""
    match message:
        case {"type": "request", "command": str(), "seq": int()}:
            return True
        case {"type": "response", "command": str(), "request_seq": int(), "success": bool()}:
            return True
        case {"type": "event", "event": str()}:
            return True
    return False


def encode(message: Message) -> bytes:
    """Return the frame of a message."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def arguments_of(request: Message) -> Fields:
    """Return the arguments of a request; they may be missing, or null."""
    arguments: Fields = request.get("arguments") or {}
    return arguments


def event(name: str, **body: object) -> Message:
    """Return an event without a number; the sender adds that."""
    return {"type": "event", "event": name, "body": body}


def response(request: Message, body: Fields | None = None) -> Message:
    """Return the answer to a request."""
    message: Message = {
        "type": "response",
        "request_seq": request["seq"],
        "command": request["command"],
        "success": True,
    }
    return message if body is None else {**message, "body": body}


def failure(request: Message, why: str) -> Message:
    """Return the refusal of a request. An IDE shows it to the user if the user has made the request."""
    # Ids that are not 0 tell clients that the text is for the user; braces would be taken for variables.
    text = why.replace("{", "(").replace("}", ")")
    shown = {"id": 1, "format": text, "showUser": request["command"] not in _UNASKED}
    return {**response(request, {"error": shown}), "success": False, "message": why}
