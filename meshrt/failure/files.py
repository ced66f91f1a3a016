"""The file about an incident: ``failure-<n>.json`` in the run directory, the latest ones only.

One JSON document: ``{"schema", "version", "verdict": {"roots", "ambiguous", "certainty"}, "report", **incident}``, with
the incident as in `meshrt.failure.incident.Incident`, without default values. The file is replaced in one step: a
reader sees the whole file or the one before, even if the program is killed meanwhile. Files of version 1, which have
``"format"`` in place of ``"schema"``, are still read.
"""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

from meshrt.errors import MeshError
from meshrt.failure.incident import Incident
from meshrt.failure.report import render
from meshrt.show.records import Schema, text_with_list
from meshrt.transport.writing import write_atomic

__all__ = ["files_of", "path_of", "read", "write"]

_NOT_OURS = "is not a failure file of meshrt (meshrt debug --open opens post-mortem files)"
SCHEMA = Schema("meshrt failure", 2)
#: Files of one program that are kept.
KEPT = 10
_LARGEST = 256 << 20
#: Ranks in a file of version 1.
_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
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
    facts = {"verdict": judged, "report": render(incident, verdict), **incident.outline()}
    path = path_of(run_directory, incident.number)
    records = (record.to_plain() for record in incident.records)
    write_atomic(path, text_with_list(SCHEMA.document(facts), "records", records))
    for old in files_of(run_directory)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def read(path: Path) -> Incident:
    """Read a file back.

    Raises:
        MeshError: It cannot be read, is cut off, is not a failure file, or has a format of a later meshrt.
    """
    document = _document(path)
    if SCHEMA.is_of(document):
        version = document.get("version")
        if version != SCHEMA.version:
            raise MeshError(
                f"{path} is a failure file of format version {version!r}; this meshrt reads versions 1 and "
                f"{SCHEMA.version}: open it with the version that wrote it"
            )
    elif isinstance(document, dict) and document.get("format") == SCHEMA.name:
        document = _of_version_1(document)
    else:
        raise MeshError(f"{path} {_NOT_OURS}")
    return Incident.from_plain(document)


def _of_version_1(part: object) -> object:
    """Return a document of version 1, or a part of one, in the form of version 2: ranks were texts (``"0-3,5"``)."""
    if isinstance(part, list):
        return [_of_version_1(item) for item in part]
    if not isinstance(part, dict):
        return part
    lifted = {key: _of_version_1(value) for key, value in part.items()}
    if isinstance(part.get("ranks"), str):
        spans = [(int(span[1]), int(span[2] or span[1])) for span in _SPAN.finditer(part["ranks"])]
        lifted["ranks"] = [rank for first, last in spans for rank in range(first, last + 1)]
    return lifted


def _document(path: Path) -> object:
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
            raise MeshError(f"{path} {_NOT_OURS}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not text"
        raise MeshError(f"{path} cannot be read: {reason}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        cut_off = text[:1] in ("", "{", "[")
        raise MeshError(f"{path} {f'is cut off or damaged: {error}' if cut_off else _NOT_OURS}") from None
