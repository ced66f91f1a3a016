"""Where secrets of a program could be seen on machines: arguments and environments of processes, and files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from meshrt.wire.tree import Invited
from tests.cluster.machines import Machine

__all__ = ["forms", "forms_of", "places"]


def forms(secret: bytes, key: bytes) -> list[bytes]:
    """Return what nobody may see: a secret in two forms, and a line of the key of a certificate."""
    return [secret, secret.hex().encode(), key.splitlines()[1]]


def forms_of(invited: Invited) -> list[bytes]:
    """Return `forms` of what an invitation has."""
    return forms(invited.secret, invited.certificate[1])


def places(machines: Sequence[Machine], pids: Sequence[int] = ()) -> dict[str, bytes]:
    """Return what is to be seen on machines, and of further processes: contents by the name of the place."""
    every = [*pids, *(pid for machine in machines for pid in machine.processes())]
    found = {}
    for path in (Path(f"/proc/{pid}/{name}") for pid in every for name in ("cmdline", "environ")):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            found[str(path)] = path.read_bytes()
    found |= {str(path): path.read_bytes() for machine in machines for path in _files(machine)}
    return found


def _files(machine: Machine) -> Iterator[Path]:
    """Yield the files that a machine has for itself."""
    for place in ("tmp", "run", "dev/shm"):
        for path in Path(f"/proc/{machine.pid}/root/{place}").rglob("*"):
            if path.is_file() and not path.is_symlink() and not {"shared", "ssh"} & {*path.parts}:
                yield path
