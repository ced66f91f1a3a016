"""How the processes of a launcher find the script: what host 0 writes for the others, and where they read it.

In this order, which all of them follow by themselves, as they have the same variables:

1. ``MESHRT_ROOT`` and a secret file: nothing is written, everyone knows where host 0 listens, and what is to be proved;
2. the store of torch, where its address is known and torch can be imported (`torch_store`);
3. a file in a directory that all hosts share, the home by default (`shared_file`).

With a secret file, what is written has the addresses only. A process that reads what an earlier job has left finds that
nothing answers there, or somebody else, and reads again.
"""

from __future__ import annotations

import importlib.util
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from meshrt.engine.joining import check, invited_by
from meshrt.engine.launch.launchers import JOB, Launched
from meshrt.errors import UsageError
from meshrt.mesh.invitations import known_invitation
from meshrt.transport.paths import is_trusted
from meshrt.wire.addresses import Port
from meshrt.wire.handshake import Secret

__all__ = ["ROOT", "SECRET_FILE", "Rendezvous", "Way", "choose", "read_secret"]

#: Environment: where host 0 listens, ``host:port``, and a file with a secret that all hosts have.
ROOT, SECRET_FILE = "MESHRT_ROOT", "MESHRT_SECRET_FILE"
#: Bytes of a secret, at least; bytes that are read of one.
_SECRET_MIN, _SECRET_MAX = 16, 1 << 16
#: The invitation has it.
_NO_SECRET = Secret()
#: Seconds between two looks.
_AGAIN = 0.2


class Way(Protocol):
    """Where the invitation is written and read."""

    def publish(self, text: bytes) -> None:
        """Write it, on host 0. Raises OSError, UsageError."""

    def fetch(self) -> bytes | None:
        """Read it, on another host; None: it is not there yet. Raises OSError, UsageError."""

    def leave(self) -> None:
        """Close what this process has opened, on another host."""

    def close(self) -> None:
        """Remove it, on host 0: no host needs it any more."""

    def __str__(self) -> str:
        """Where it is, for messages."""


@dataclass(frozen=True)
class KnownRoot:
    """All hosts know where host 0 listens, and a secret."""

    root: Port
    secret: Secret

    def publish(self, text: bytes) -> None:
        """Nothing is to be written."""

    def fetch(self) -> bytes | None:
        """Return what the others can say themselves."""
        return known_invitation([self.root], self.secret)

    def leave(self) -> None:
        """Nothing was opened."""

    def close(self) -> None:
        """Nothing was written."""

    def __str__(self) -> str:
        return f"{ROOT}={self.root[0]}:{self.root[1]}"


@dataclass(frozen=True)
class Rendezvous:
    """One rendezvous of all hosts.

    Attributes:
        way: Where the invitation is.
        secret: What all hosts have, from the secret file; b"": the invitation has it.
        port: Where host 0 has to listen; 0: anywhere.
    """

    way: Way
    secret: Secret = _NO_SECRET
    port: int = 0

    def publish(self, text: bytes) -> None:
        """Let the other hosts have the invitation. Raises OSError, UsageError."""
        self.way.publish(_without_secrets(text) if self.secret else text)

    def wait(self, seconds: float, tell: Callable[[str], None]) -> bytes:
        """Wait until host 0 answers; returns the invitation.

        Args:
            tell: Is given a line now and then.
        Raises:
            TimeoutError: It has not answered in time; the text says what was tried.
            UsageError: Another user may have written it.
        """
        begun = time.monotonic()
        said = 5.0
        while True:
            problem = f"no invitation yet: {self.way}"
            try:
                text = self.way.fetch()
                if text is not None:
                    text = known_invitation(invited_by(text).ports, self.secret) if self.secret else text
                    check(text)
                    return text
            except OSError as error:
                problem = f"{error} ({self.way})"
            waited = time.monotonic() - begun
            if waited >= seconds:
                raise TimeoutError(f"host 0 was not found for {waited:.0f} s: {problem}")
            if waited >= said:
                tell(f"waiting for host 0 for {waited:.0f} s: {problem}")
                said = waited * 2
            time.sleep(_AGAIN)


def choose(
    found: Launched,
    variables: Mapping[str, str],
    has_torch: Callable[[], bool] = lambda: importlib.util.find_spec("torch") is not None,
) -> Rendezvous:
    """Return how the hosts of a job find each other.

    Args:
        found: This process.
        variables: The environment.
        has_torch: Whether torch can be imported.
    Raises:
        UsageError: There is no way, or a variable is invalid.
    """
    secret = read_secret(Path(variables[SECRET_FILE])) if variables.get(SECRET_FILE) else Secret()
    if variables.get(ROOT):
        root = _root_of(variables[ROOT])
        if secret:
            return Rendezvous(KnownRoot(root, secret), secret, root[1])
        raise UsageError(
            f"{ROOT} is set without a secret: set {SECRET_FILE} (--secret-file) to a file that all hosts have"
        )
    has_store = "MASTER_ADDR" in variables and variables.get("MASTER_PORT", "").isdigit()
    if has_store and has_torch():
        from meshrt.engine.launch.torch_store import TorchStore  # optional: torch

        return Rendezvous(TorchStore.of(found, variables), secret)
    if found.job:
        from meshrt.engine.launch.shared_file import SharedFile, directory_of  # start-up: this way only

        return Rendezvous(SharedFile(directory_of(variables) / found.job), secret)
    raise UsageError(
        f"the hosts cannot find each other, as {found.launcher} gives the job no name; expected one of: "
        f"{ROOT}=HOST:PORT and {SECRET_FILE}=FILE (--root, --secret-file); MASTER_ADDR and MASTER_PORT, where torch "
        f"can be imported; {JOB}=NAME (--job), the same on all "
        "hosts and in no other job, and a directory that all hosts share"
    )


def read_secret(path: Path) -> Secret:
    """Return the secret of a file. Raises UsageError: others can read it, or it is too short."""
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            secret = file.read(_SECRET_MAX).strip()
    except OSError as error:
        raise UsageError(f"the secret file {path} cannot be read: {error.strerror}") from None
    if not is_trusted(facts.st_uid):
        raise UsageError(f"the secret file {path} belongs to uid {facts.st_uid}, not to you")
    if facts.st_mode & stat.S_IRWXO:
        raise UsageError(
            f"all users can read the secret file {path} (mode {stat.S_IMODE(facts.st_mode):o}): chmod o= {path}; "
            "in Kubernetes, defaultMode: 0440 at the secret's volume"
        )
    if len(secret) < _SECRET_MIN:
        raise UsageError(f"the secret file {path} has {len(secret)} bytes; expected {_SECRET_MIN} or more random bytes")
    return Secret(secret)


def _root_of(text: str) -> Port:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) <= 65535:
        raise UsageError(f"{ROOT}={text!r} is not a valid address; expected for example train-0.train:40000")
    return host.strip("[]"), int(port)


def _without_secrets(text: bytes) -> bytes:
    from msgspec.structs import replace  # start-up: where a secret file is used

    from meshrt.wire.control import control_frame  # start-up: as above

    return control_frame(replace(invited_by(text), secret=b"", certificate=(b"", b"")))
