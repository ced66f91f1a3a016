"""What programs read: JSON documents, each of which says in ``schema`` and ``version`` what it is.

The text is JSON as RFC 8259 has it: NaN and infinity, which are none, are null. It is ASCII, and lone surrogates, which
no encoding takes, are the text of their escapes. Ranks are lists of numbers.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, TypeGuard

from meshrt.show.streams import write_out

__all__ = ["Recorder", "Schema", "to_text"]


@dataclass(frozen=True, slots=True)
class Schema:
    """What a document is.

    Attributes:
        name: ``"meshrt memory"``.
        version: Keys may be added within a version; none changes its meaning.
    """

    name: str
    version: int

    def document(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document of this schema, which says so at its beginning."""
        return {"schema": self.name, "version": self.version, **facts}

    def is_of(self, document: object) -> TypeGuard[dict[str, Any]]:
        """Whether something that was read is a document of this schema, of whatever version."""
        return isinstance(document, dict) and document.get("schema") == self.name


class Recorder:
    """Writes documents of one schema to a stream, one in a line. Any thread."""

    def __init__(self, stream: IO[str], schema: Schema) -> None:
        self._stream = stream
        self._schema = schema
        self._lock = threading.Lock()

    def __call__(self, facts: Mapping[str, Any]) -> None:
        """Write one document and flush it. Raises OutputError, BrokenPipeError."""
        text = to_text(self._schema.document(facts))
        with self._lock:
            write_out(self._stream, text + "\n")


def to_text(value: object, default: Callable[[Any], str] | None = None) -> str:
    """Return JSON in one line.

    Args:
        default: Makes a text of what JSON has no form for.
    Raises:
        TypeError: JSON has none, and there is no ``default``.
    """
    return json.dumps(_plain(value), allow_nan=False, default=default)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {_plain(key) if isinstance(key, str) else str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not str.isascii(value):
        return str.encode(value, "utf-8", "backslashreplace").decode("utf-8")
    return value
