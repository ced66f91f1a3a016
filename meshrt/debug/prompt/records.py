"""Terminal side: the records of ``--json``: one JSON object on one line for each command, as docs/json.md says."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from meshrt.commandline.line import head
from meshrt.inspect.programs import NoProgram
from meshrt.show.records import Recorder, Schema

__all__ = ["SCHEMA", "error_record", "notice_record", "write_error"]

SCHEMA = Schema("meshrt debug", 2)


def error_record(line: str, text: str, kind: str) -> Mapping[str, object]:
    """Return the record of a line that failed; ``text`` is the message, ``kind`` the name of the error's class."""
    return {"command": head(line)[0], "line": line, "ok": False, "error": {"type": kind, "message": text}}


def notice_record(text: str) -> Mapping[str, object]:
    """Return the record of a notice: an event that no command has caused."""
    return {"event": "notice", "text": text}


def write_error(error: Exception, line: str = "") -> None:
    """Write the record of an error to standard output; of one before any command could run, without a ``line``."""
    no_program = isinstance(error, NoProgram)
    record = error_record(line, str(error), "UsageError" if no_program else type(error).__name__)
    if isinstance(error, NoProgram):
        choices = [
            {"pid": each.pid, "run_id": each.run_id, "argv": each.argv, "cwd": each.cwd, "started": each.started}
            for each in error.choices
        ]
        record = {**record, "programs": choices}
    Recorder(sys.stdout, SCHEMA)(record)
