"""Messages of the Debug Adapter Protocol as bytes.

Written for the tests alone: what an adapter writes with its own framing, it can read with it, too.
"""

from __future__ import annotations

import json
from typing import IO

from meshrt.hooks.facts import Body

__all__ = ["Violation", "framed", "read_message"]


class Violation(Exception):
    """The adapter sent what the protocol does not allow."""


def framed(message: Body) -> bytes:
    """Return the message with its header."""
    content = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(content), content)


def read_message(stream: IO[bytes]) -> Body | None:
    """Return the next message, or None at the end. Raises `Violation`."""
    length: int | None = None
    while (line := stream.readline()) != b"\r\n":
        if not line and length is None:
            return None
        name, colon, value = line.partition(b": ")
        if not (colon and line.endswith(b"\r\n")):
            raise Violation(f"expected a header field 'Name: value' that ends with CR LF, got {line!r}")
        if name == b"Content-Length":
            length = int(value) if value.strip().isdigit() else None
    if length is None:
        raise Violation("expected a header with a Content-Length")
    content = stream.read(length)
    if len(content) < length:
        raise Violation(f"the connection ended after {len(content)} of {length} bytes of a message")
    try:
        message = json.loads(content)
    except ValueError as error:
        raise Violation(f"expected JSON, got {content[:200]!r}: {error}") from error
    if not isinstance(message, dict):
        raise Violation(f"expected a JSON object, got {content[:200]!r}")
    return message
