"""Files that ranks of other machines leave for the user: their content comes in parts, and is written here.

A rank may only write files of its own: their names contain its mesh and its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from meshrt.errors import ProtocolError
from meshrt.transport.writing import write_atomic
from meshrt.wire.control import Address
from meshrt.wire.operations import FilePart

__all__ = ["ReceivedFiles"]

#: Bytes of one file, and of all that are incomplete.
_FILE_MAX = 64 << 20
_PENDING_MAX = 256 << 20
#: Files of one rank.
_MOST = 100
_NAME = re.compile(r"(?:post-mortem/)?[^/\0.][^/\0]{0,240}\.json")


class ReceivedFiles:
    """On the root's loop.

    Args:
        directory: The run directory.
        announce: Prints a line.
    """

    def __init__(self, directory: Path, announce: Callable[[str], None]) -> None:
        self._directory = directory
        self._announce = announce
        #: Parts of files that are incomplete, and their bytes.
        self._parts: dict[tuple[str, int, str], list[bytes]] = {}
        self._pending = 0
        self._names: dict[Address, set[str]] = {}
        self._told = False

    def take(self, mesh_id: str, rank: int, part: FilePart) -> None:
        """A rank sends a part of a file. Raises ProtocolError: it may not write that file."""
        name = part.file
        if not _NAME.fullmatch(name) or re.search(rf"-{re.escape(mesh_id)}\.{rank}[.-]", name) is None:
            raise ProtocolError(f"a file of the name {name[:100]!r}; expected a file of rank {rank} of {mesh_id}")
        names = self._names.setdefault((mesh_id, rank), set())
        names.add(name)
        key = (mesh_id, rank, name)
        parts = self._parts.setdefault(key, [])
        if len(names) > _MOST or sum(map(len, parts)) > _FILE_MAX or self._pending > _PENDING_MAX:
            self._say(f"{name} of rank {rank} is not saved: it is too large, or there are too many files")
            self._forget(key)
            return
        parts.append(part.data)
        self._pending += len(part.data)
        if not part.more:
            data = b"".join(parts)
            self._forget(key)
            self._write(self._directory / name, data)

    def _forget(self, key: tuple[str, int, str]) -> None:
        self._pending -= sum(map(len, self._parts.pop(key, ())))

    def _write(self, path: Path, data: bytes) -> None:
        try:
            if path.is_file() and path.read_bytes() == data:
                return  # its time says when something new was written
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomic(path, data.decode(errors="replace"))
        except OSError as error:
            self._say(f"a file of a rank cannot be written: {path}: {error.strerror}")

    def _say(self, text: str) -> None:
        if not self._told:
            self._told = True
            self._announce(text)
