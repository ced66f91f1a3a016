"""The invitation in a file that all hosts see: in a directory of this user alone, with the name of the job."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.transport.paths import closed_after, open_parent
from meshrt.transport.writing import write_atomic

__all__ = ["DIRECTORY", "SharedFile", "directory_of"]

#: Environment: a directory that all hosts share, in place of the home.
DIRECTORY = "MESHRT_RENDEZVOUS"
#: Bytes of an invitation, at most.
_MOST = 1 << 20


def directory_of(variables: Mapping[str, str]) -> Path:
    """Return where the files are. Raises UsageError: there is no home."""
    if variables.get(DIRECTORY):
        return Path(os.path.abspath(variables[DIRECTORY]))
    try:
        return Path.home() / ".meshrt" / "launch"
    except RuntimeError:
        raise UsageError(f"there is no home directory: set {DIRECTORY} to one that all hosts share") from None


@dataclass(frozen=True)
class SharedFile:
    """One file. It has mode 0600, in a directory with mode 0700 whose names no other user can change."""

    path: Path

    def publish(self, text: bytes) -> None:
        """Write it: all of it or nothing is seen."""
        os.close(self._directory(make=True))
        write_atomic(self.path, text.hex(), private=True)

    def fetch(self) -> bytes | None:
        """Read it; None: it is not there. Raises UsageError: another user may have written it."""
        try:
            parent = self._directory(make=False)
        except FileNotFoundError:
            return None
        try:
            os.listdir(f"/proc/self/fd/{parent}")  # has a network file system look again
            file = os.open(self.path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        except FileNotFoundError:
            return None
        finally:
            os.close(parent)
        with closed_after(file):
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
                raise UsageError(f"{self.path} is not a file of this user alone (mode {stat.S_IMODE(facts.st_mode):o})")
            data = os.read(file, _MOST)
        try:
            return bytes.fromhex(data.decode("ascii"))
        except ValueError:
            raise UsageError(f"{self.path} has no invitation") from None

    def leave(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Remove it."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _directory(self, *, make: bool) -> int:
        """Return a descriptor of the directory. Raises OSError, UsageError: it is not this user's alone."""
        parent, _ = open_parent(self.path, guarded=True, make=make)
        facts = os.fstat(parent)
        if facts.st_uid == os.geteuid() and not facts.st_mode & 0o077:
            return parent
        os.close(parent)
        raise UsageError(
            f"{self.path.parent} belongs to uid {facts.st_uid} and has mode {stat.S_IMODE(facts.st_mode):o}; expected "
            "a directory of this user with mode 700"
        )

    def __str__(self) -> str:
        return f"the file {self.path}, which all hosts have to share"
