"""Post-mortem files, which ranks write about endpoints that failed: written atomically, checked when read.

One JSON document per failure, ``post-mortem/<mesh>-<id>.<rank>-<actor>-<n>.json`` in the run directory: a `Dump`, with
the schema and its version.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from meshrt.conversion import convert
from meshrt.errors import UsageError
from meshrt.hooks.operations import Data
from meshrt.show.records import Schema

__all__ = ["SCHEMA", "Dump", "DumpedError", "DumpedFrame", "LinkedError", "read_dump"]

#: Bytes of a file that is read; files that ranks write are far smaller.
_LARGEST = 64 << 20
#: Times of a file, in seconds since the epoch, are below this: they can be shown as a date.
_LATEST = 1e11

SCHEMA = Schema("meshrt post-mortem", 1)
_NOT_OURS = "is not a post-mortem file of meshrt (meshrt postmortem shows reports of failures)"


class LinkedError(Data, frozen=True):
    """An exception that has led to another one."""

    type: str
    message: str
    relation: Literal["cause", "context"]


class DumpedError(Data, frozen=True):
    """The exception; ``traceback``: as Python shows it."""

    type: str
    message: str
    traceback: str
    chain: Sequence[LinkedError] = ()


class DumpedFrame(Data, frozen=True):
    """A stack frame; ``source``: the lines of the whole function, from line ``first_line`` on."""

    file: str
    line: int
    function: str
    first_line: int
    source: Sequence[str]
    locals: Mapping[str, str]


class Dump(Data, frozen=True):
    """A failure of an endpoint.

    Attributes:
        coords: Coordinates of the rank in the view through which the call came.
        time: Epoch seconds.
        frames: Outermost first.
        what: What has failed, in words, if it was no endpoint that has raised.
    """

    actor: str
    rank: int
    host: str
    pid: int
    time: Annotated[float, msgspec.Meta(ge=0, lt=_LATEST)]
    endpoint: str
    exception: DumpedError
    frames: Sequence[DumpedFrame]
    mesh: str = ""
    mesh_id: str = ""
    coords: Mapping[str, int] = {}
    thread: str = ""
    what: str = ""


def read_dump(path: Path | str) -> Dump:
    """Return what is in a post-mortem file.

    Raises:
        UsageError: It cannot be read, is cut off or damaged, or is not a post-mortem file of this version.
    """
    try:
        facts = Path(path).stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
            raise UsageError(f"{path} {_NOT_OURS}")
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{path} cannot be read: {reason}") from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        ours = f'"schema": "{SCHEMA.name}"' in text[:200]
        what = f"is cut off or damaged: {error}" if ours else f"{_NOT_OURS}: it is not valid JSON"
        raise UsageError(f"{path} {what}") from None
    if not SCHEMA.is_of(document):
        raise UsageError(f"{path} {_NOT_OURS}")
    if document.get("version") != SCHEMA.version:
        raise UsageError(f"{path} has version {document.get('version')!r}; this meshrt reads version {SCHEMA.version}")
    try:
        return convert(document, Dump)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is damaged: {error}") from None
