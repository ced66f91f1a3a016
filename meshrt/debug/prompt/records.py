"""Terminal side: the records of ``--json``: one JSON object on one line for each command, as docs/json.md says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshrt.show.records import Schema

__all__ = ["SCHEMA", "error_record", "notice_record"]

SCHEMA = Schema("meshrt debug", 2)


def error_record(line: str, text: str, kind: str) -> Mapping[str, Any]:
    """Return the record of a line that failed; ``text`` is the message, ``kind`` the name of the error's class."""
    words = line.split(maxsplit=1)
    return {"command": words[0] if words else "", "line": line, "ok": False, "error": {"type": kind, "message": text}}


def notice_record(text: str) -> Mapping[str, Any]:
    """Return the record of a notice: an event that no command has caused."""
    return {"event": "notice", "text": text}
