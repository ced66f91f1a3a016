"""Terminal side: what a program reads (``--json``): one object in one line for each command, as docs/json.md says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshrt.show.records import Schema

__all__ = ["SCHEMA", "error_record", "notice_record"]

SCHEMA = Schema("meshrt debug", 2)


def error_record(line: str, text: str, kind: str) -> Mapping[str, Any]:
    """Return the record of a line that could not be obeyed."""
    words = line.split(maxsplit=1)
    return {"command": words[0] if words else "", "line": line, "ok": False, "error": {"type": kind, "message": text}}


def notice_record(text: str) -> Mapping[str, Any]:
    """Return the record of something that happened by itself."""
    return {"event": "notice", "text": text}
