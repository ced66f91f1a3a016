"""The files that ranks write about endpoints that failed: made in one piece, read with clear errors.

One JSON document per failure, ``post-mortem/<mesh>-<id>.<rank>-<actor>-<n>.json`` in the run directory::

    {"format", "version", "mesh", "mesh_id", "actor", "rank", "coords": {dim: index}, "host", "pid", "thread",
     "time": epoch seconds, "endpoint",
     "exception": {"type", "message", "traceback": text, "chain": [{"type", "message", "relation": "cause"|"context"}]},
     "frames": [{"file", "line", "function", "first_line", "source": [lines], "locals": {name: text}}]}

Frames stand outermost first; ``source`` is the whole function, from line ``first_line`` on.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.hooks import Body

__all__ = ["FORMAT", "VERSION", "read_dump", "write_dump"]

FORMAT = "meshrt post-mortem"
VERSION = 1


def write_dump(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or nothing; mode 0600. Raises OSError, and leaves nothing then."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_dump(path: Path | str) -> Body:
    """Return the document in a post-mortem file.

    Raises:
        UsageError: It cannot be read, is cut off, or is no such file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{path} cannot be read: {reason}") from None
    try:
        document = json.loads(text)
    except ValueError as error:
        ours = f'"format": "{FORMAT}"' in text[:200]
        what = f"is cut off or damaged: {error}" if ours else "is no post-mortem file of meshrt: it is no JSON"
        raise UsageError(f"{path} {what}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UsageError(f"{path} is no post-mortem file of meshrt")
    if document.get("version") != VERSION:
        raise UsageError(f"{path} has version {document.get('version')!r}; this meshrt reads version {VERSION}")
    missing = [name for name in ("actor", "rank", "exception", "frames") if name not in document]
    if missing:
        raise UsageError(f"{path} is damaged: it has no {', '.join(missing)}")
    return document
