"""What two processes of different machines must have in common: Python's minor version, meshrt, its messages.

An agent says it in its first message (`meshrt.wire.handshake`), as text that any version of meshrt reads: parts without
spaces, to which later versions may add others.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["Versions", "difference", "own_versions"]

#: Characters of the name of a host that are said.
_HOST = 40


class Versions(NamedTuple):
    """Of one process.

    Attributes:
        python: ``3.11.7``
        meshrt: ``0.1.0``
        messages: A digest of the sources that say how messages look; "": there are none.
        host: Where it runs.
    """

    python: str
    meshrt: str
    messages: str
    host: str

    @property
    def text(self) -> str:
        """What an agent says."""
        return " ".join(part.replace(" ", "_") for part in self)

    @classmethod
    def of(cls, text: str) -> Versions:
        """Inverse of `text`; what it does not say is empty."""
        return cls(*[*text.split(" "), "", "", "", ""][:4])


@functools.cache
def own_versions() -> Versions:
    """Return those of this process."""
    # Not imported: the facade names modules of all floors.
    version = str(sys.modules["meshrt"].__version__)
    return Versions(platform.python_version(), version, _digest(), socket.gethostname()[:_HOST])


def _digest() -> str:
    package = Path(__file__).resolve().parents[1]
    # In another one, a message of the other side may be invalid, or mean something else.
    files: Iterable[Path] = [package / "errors.py", *(package / "wire").glob("*.py"), *(package / "hooks").glob("*.py")]
    digest = hashlib.sha256()
    try:
        for file in sorted(files):
            digest.update(file.read_bytes())
    except OSError:  # installed without sources
        return ""
    return digest.hexdigest()[:12]


def difference(agent: Versions, root: Versions, who: str = "") -> str:
    """Return why an agent, or another process, cannot work for a program; "" if it can. ``who``: what it is called."""
    who = who or f"host {agent.host}"
    if _minor(agent.python) != _minor(root.python):
        return f"{who} runs Python {agent.python}, the script Python {root.python}; expected the same minor version"
    if agent.meshrt != root.meshrt:
        return f"{who} has meshrt {agent.meshrt}, the script meshrt {root.meshrt}; expected the same version"
    if agent.messages and root.messages and agent.messages != root.messages:
        return (
            f"{who} has another meshrt {agent.meshrt} than the script: its messages are "
            f"{agent.messages}, those of the script {root.messages}; expected the same sources"
        )
    return ""


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
