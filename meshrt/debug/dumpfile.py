"""Post-mortem files, which ranks write about endpoints that failed: written atomically, checked when read.

One JSON document per failure, ``post-mortem/<mesh>-<id>.<rank>-<actor>-<n>.json`` in the run directory::

    {"schema", "version", "mesh", "mesh_id", "actor", "rank", "coords": {dim: index}, "host", "pid", "thread",
     "time": epoch seconds, "endpoint",
     "exception": {"type", "message", "traceback": text, "chain": [{"type", "message", "relation": "cause"|"context"}]},
     "frames": [{"file", "line", "function", "first_line", "source": [lines], "locals": {name: text}}]}

Frames are outermost first; ``source`` is the whole function, from line ``first_line`` on.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.show.records import Schema
from meshrt.transport.writing import write_atomic

__all__ = ["SCHEMA", "read_dump", "write_dump"]

#: Bytes of a file that is read; files that ranks write are far smaller.
_LARGEST = 64 << 20
#: Times of a file, in seconds since the epoch, are below this: they can be shown as a date.
_LATEST = 1e11

SCHEMA = Schema("meshrt post-mortem", 1)
_NOT_OURS = "is no post-mortem file of meshrt (meshrt postmortem shows reports of failures)"

_Kinds = Mapping[str, type | tuple[type, ...]]

_DOCUMENT: _Kinds = {
    "actor": str,
    "rank": int,
    "host": str,
    "pid": int,
    "time": (int, float),
    "endpoint": str,
    "exception": dict,
    "frames": list,
}
_EXCEPTION: _Kinds = {"type": str, "message": str, "traceback": str}
_FRAME: _Kinds = {"file": str, "line": int, "function": str, "first_line": int, "source": list, "locals": dict}


def write_dump(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees all of it or nothing. Mode 0600.

    Raises:
        OSError: It cannot be written; no file is left then.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_atomic(path, text)


def read_dump(path: Path | str) -> Body:
    """Return the document in a post-mortem file.

    Raises:
        UsageError: It cannot be read, is cut off or damaged, or is not a post-mortem file of this version.
    """
    try:
        facts = Path(path).stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
            raise UsageError(f"{path} {_NOT_OURS}")
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{path} cannot be read: {reason}") from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        ours = f'"schema": "{SCHEMA.name}"' in text[:200]
        what = f"is cut off or damaged: {error}" if ours else f"{_NOT_OURS}: it is no JSON"
        raise UsageError(f"{path} {what}") from None
    if not SCHEMA.is_of(document):
        raise UsageError(f"{path} {_NOT_OURS}")
    if document.get("version") != SCHEMA.version:
        raise UsageError(f"{path} has version {document.get('version')!r}; this meshrt reads version {SCHEMA.version}")
    _check(path, "it", document, _DOCUMENT)
    _check(path, "its exception", document["exception"], _EXCEPTION)
    for number, frame in enumerate(document["frames"]):
        _check(path, f"stack frame {number}", frame, _FRAME)
        if not all(isinstance(text, str) for text in (*frame["source"], *frame["locals"].values())):
            raise UsageError(f"{path} is damaged: stack frame {number} has values that are no text")
    coords = document.get("coords", {})
    whole = [document["rank"], *(coords.values() if isinstance(coords, dict) else [None])]
    if not all(type(number) is int for number in whole) or not 0 <= document["time"] < _LATEST:
        raise UsageError(f"{path} is damaged: its rank, coords or time are none")
    return document


def _check(path: Path | str, what: str, found: Any, expected: _Kinds) -> None:
    missing = [
        name for name, kind in expected.items() if not isinstance(found, dict) or not isinstance(found.get(name), kind)
    ]
    if missing:
        raise UsageError(f"{path} is damaged: {what} has no valid {', '.join(missing)}")
