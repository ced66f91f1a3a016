"""The file about an incident: ``failure-<n>.json`` in the run directory, the latest ones only.

One JSON document: ``{"schema", "version", "verdict": {"roots", "ambiguous", "certainty"}, "report", **incident}``, with
the incident as in `meshrt.failure.incident.Incident`, without default values. The file is replaced in one step: a
reader sees the whole file or the one before, even if the program is killed meanwhile.
"""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

from meshrt.errors import MeshError
from meshrt.failure.incident import Incident
from meshrt.failure.report import render
from meshrt.show.records import Schema, to_text
from meshrt.transport.writing import write_atomic

__all__ = ["files_of", "path_of", "read", "write"]

_NOT_OURS = "is not a failure file of meshrt (meshrt debug --open opens post-mortem files)"
SCHEMA = Schema("meshrt failure", 2)
#: Files of one program that are kept.
KEPT = 10
_LARGEST = 256 << 20
_NAME = re.compile(r"failure-(\d{1,9})\.json")


def path_of(run_directory: Path, number: int) -> Path:
    """Return the file of an incident."""
    return run_directory / f"failure-{number}.json"


def files_of(run_directory: Path) -> list[Path]:
    """Return the files of a run, the oldest first; [] if there is no such directory."""
    try:
        found = [(int(match[1]), path) for path in run_directory.iterdir() if (match := _NAME.fullmatch(path.name))]
    except OSError:
        return []
    return [path for _, path in sorted(found)]


def write(run_directory: Path, incident: Incident) -> Path:
    """Write the file of an incident, and remove the oldest ones. Raises OSError."""
    verdict = incident.verdict()
    judged = {
        "roots": [[root.mesh_id, root.rank, root.id] for root in verdict.roots],
        "ambiguous": verdict.ambiguous,
        "certainty": verdict.certainty,
    }
    facts = {"verdict": judged, "report": render(incident, verdict), **incident.to_plain()}
    path = path_of(run_directory, incident.number)
    write_atomic(path, to_text(SCHEMA.document(facts)))
    for old in files_of(run_directory)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def read(path: Path) -> Incident:
    """Read a file back. Raises MeshError: it cannot be read, is cut off, or is not a failure file."""
    document = _document(path)
    if not SCHEMA.is_of(document):
        raise MeshError(f"{path} {_NOT_OURS}")
    if document.get("version") != SCHEMA.version:
        raise MeshError(f"{path} has version {document.get('version')!r}; this meshrt reads version {SCHEMA.version}")
    return Incident.from_plain(document)


def _document(path: Path) -> Any:
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
            raise MeshError(f"{path} {_NOT_OURS}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise MeshError(f"{path} cannot be read: {reason}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        cut_off = text[:1] in ("", "{", "[")
        raise MeshError(f"{path} {f'is cut off or damaged: {error}' if cut_off else _NOT_OURS}") from None
