"""Failures of a program, as its failure file has them, in the form that the post-mortem prompt shows."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from meshrt.debug.dumpfile import Dump, DumpedError, DumpedFrame, LinkedError
from meshrt.errors import MeshError
from meshrt.failure import files
from meshrt.failure.incident import Incident
from meshrt.failure.record import ExceptionFacts, FailureRecord, Frame
from meshrt.failure.report import render, render_record
from meshrt.inspect.masking import without_tokens

__all__ = ["Failed", "failed", "is_failure_file"]

#: Lines around one whose function is not found.
_AROUND = 10
#: Most failures, the root causes among them.
_MOST = 64


class Failed:
    """The failures of one file.

    Attributes:
        dumps: The root causes first; at least one.
        report: The report of the failure.
    """

    def __init__(self, incident: Incident) -> None:
        verdict = incident.verdict()
        others = [record for record in verdict.records if record not in verdict.roots]
        records = [*verdict.roots, *others][:_MOST]
        self.dumps = [_dump(record, render_record(record, incident, verdict)) for record in records]
        self.report = render(incident, verdict)


def is_failure_file(path: Path | str) -> bool:
    """Whether a file says that it is one of failures; False if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return f'"{files.SCHEMA.name}"' in file.read(200)
    except OSError:
        return False


def failed(path: Path | str) -> Failed:
    """Return what is in a failure file.

    Raises:
        MeshError: It cannot be read, or has no failures.
    """
    incident = files.read(Path(path))
    found = Failed(incident)
    if not found.dumps:
        raise MeshError(f"{path} has no failures")
    return found


def _dump(record: FailureRecord, text: str) -> Dump:
    error = record.exception
    what = "" if record.endpoint and error is not None else f"{record.what or record.actor or record.mesh} has failed"
    return Dump(
        actor=record.actor or record.mesh,
        rank=record.rank,
        host=record.host,
        pid=record.pid,
        time=record.time,
        endpoint=record.endpoint,
        exception=_error(record, text),
        frames=[] if error is None else [_frame(frame) for frame in error.frames],
        mesh=record.mesh,
        mesh_id=record.mesh_id,
        coords=record.coordinates,
        thread=record.thread,
        what=what,
    )


def _error(record: FailureRecord, text: str) -> DumpedError:
    error = record.exception
    if error is None:
        return DumpedError("", record.headline, text)
    chain = [LinkedError(each.type, each.message, _relation(each)) for each in list(error.all())[1:]]
    return DumpedError(error.type, error.message, text, chain)


def _relation(error: ExceptionFacts) -> Literal["cause", "context"]:
    return "cause" if error.relation == "cause" else "context"


def _frame(frame: Frame) -> DumpedFrame:
    first, source = _source(frame)
    return DumpedFrame(frame.file, frame.line, frame.function, first, source, frame.locals)


def _source(frame: Frame) -> tuple[int, Sequence[str]]:
    """Return the function of a frame and its first line, if its file is here and has not changed; or its line alone."""
    lines = linecache.getlines(frame.file)
    if not 0 < frame.line <= len(lines) or lines[frame.line - 1].strip() != frame.source.strip():
        return frame.line, [frame.source] if frame.source else []
    first, block = _function(lines, frame)
    return first, without_tokens("".join(block)).split("\n")[: len(block)]


def _function(lines: Sequence[str], frame: Frame) -> tuple[int, Sequence[str]]:
    begins = re.compile(rf"\s*(async\s+)?def\s+{re.escape(frame.function)}\b")
    for first in range(frame.line, 0, -1):
        if begins.match(lines[first - 1]):
            block = inspect.getblock(lines[first - 1 :])
            if first + len(block) > frame.line:
                return first, block
    first = max(1, frame.line - _AROUND)
    return first, lines[first - 1 : frame.line + _AROUND]
