"""The output for programs: JSON documents that name their kind and version in ``schema`` and ``version``.

The text is JSON as in RFC 8259: NaN and infinity, which JSON does not have, are null. It is ASCII. Lone surrogates,
which no encoding accepts, become the text of their escapes. Ranks are lists of numbers.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeGuard

from meshrt.errors import UsageError
from meshrt.show.streams import write_out

__all__ = [
    "DEBUG",
    "LOGS",
    "MEMORY",
    "POSTMORTEM",
    "PS",
    "TOP",
    "Recorder",
    "Schema",
    "error_facts",
    "refuse_to_overwrite",
    "text_with_list",
    "to_text",
]


@dataclass(frozen=True, slots=True)
class Schema:
    """The kind of a document.

    Attributes:
        name: ``"meshrt memory"``.
        version: Within a version keys may be added, and no key changes its meaning.
    """

    name: str
    version: int

    def document(self, facts: Mapping[str, object]) -> dict[str, object]:
        """Return a document of this schema; ``schema`` and ``version`` are its first keys."""
        return {"schema": self.name, "version": self.version, **facts}

    def is_of(self, document: object) -> TypeGuard[dict[str, object]]:
        """Whether an object that was read is a document of this schema, of any version."""
        return isinstance(document, dict) and document.get("schema") == self.name


#: What commands write with ``--json``, their errors included. Those of the prompt write `DEBUG`.
DEBUG = Schema("meshrt debug", 3)
LOGS = Schema("meshrt logs", 2)
MEMORY = Schema("meshrt memory", 1)
POSTMORTEM = Schema("meshrt postmortem", 2)
PS = Schema("meshrt ps", 2)
TOP = Schema("meshrt top", 1)


class Recorder:
    """Writes documents of one schema to a stream, one per line. Any thread."""

    def __init__(self, stream: IO[str], schema: Schema) -> None:
        self._stream = stream
        self._schema = schema
        self._lock = threading.Lock()

    def __call__(self, facts: Mapping[str, object]) -> None:
        """Write one document and flush it. Raises OutputError, BrokenPipeError."""
        text = to_text(self._schema.document(facts))
        with self._lock:
            write_out(self._stream, text + "\n")


def error_facts(command: str, line: str, kind: str, text: str) -> dict[str, object]:
    """Return the keys of the record of a line that failed: the same for every command.

    Args:
        kind: Name of the error's class.
        text: Its message.
    """
    return {"command": command, "line": line, "ok": False, "error": {"type": kind, "message": text}}


def refuse_to_overwrite(path: Path, schema: Schema) -> None:
    """Raise UsageError if a file has something in it that is not a document of ``schema``: it may be the user's."""
    if path.is_symlink() and path.lstat().st_uid != os.geteuid():
        return  # a link that is not followed: what writes the file refuses it
    if not path.is_file():
        return
    with path.open("rb") as file:
        begin = file.read(4096)
    if begin and f'"schema": "{schema.name}"'.encode() not in begin:
        raise UsageError(f"{path} was not written by {schema.name}; --force overwrites it")


def to_text(value: object, default: Callable[[object], str] | None = None) -> str:
    """Return JSON in one line.

    Args:
        default: Returns a text for an object that JSON has no form for.
    Raises:
        TypeError: JSON has no form for an object, and there is no ``default``.
    """
    return json.dumps(_plain(value), allow_nan=False, default=default)


def text_with_list(document: Mapping[str, object], key: str, items: Iterable[object]) -> str:
    """Return the JSON of a document that has a long list as well, in one line.

    One item is converted at a time: all of them as plain data take ten times the memory of the text.

    Args:
        document: It has one key, or more.
        key: That of the list.
    Raises:
        TypeError: As `to_text`.
    """
    return f"{to_text(document)[:-1]}, {to_text(key)}: [{', '.join(map(to_text, items))}]}}"


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value if str.isascii(value) else str.encode(value, "utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    # Asked last of what is no dict: there are many numbers, and it takes several times as long.
    if isinstance(value, dict) or (not isinstance(value, int) and isinstance(value, Mapping)):
        return {_plain(key) if isinstance(key, str) else str(key): _plain(item) for key, item in value.items()}
    return value
