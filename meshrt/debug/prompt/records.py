"""Terminal side: what a program reads (``--json``): one object in one line for each command, as docs/json.md says."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import IO, Any

from meshrt.inspect.commands import write_out

__all__ = ["Recorder", "error_record"]

VERSION = 1


def error_record(line: str, text: str, kind: str) -> Mapping[str, Any]:
    """Return the record of a line that could not be obeyed."""
    words = line.split(maxsplit=1)
    return {"command": words[0] if words else "", "line": line, "ok": False, "error": {"type": kind, "message": text}}


class Recorder:
    """Writes records to a stream."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Write one record and flush it. Any thread."""
        # NaN and infinity are no JSON; they are the very values that a person looks for, so they go as text.
        text = json.dumps({"version": VERSION, **_plain(record)}, allow_nan=False)
        with self._lock:
            write_out(self._stream, text + "\n")

    def notice(self, text: str) -> None:
        """Write a record of something that happened by itself. Any thread."""
        self({"event": "notice", "text": text})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value
