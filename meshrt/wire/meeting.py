"""What a process that something else has started says to the host agent of which it becomes a rank, and its answers.

::

    process -- AskToJoin, its descriptors --> agent
    agent   -- Welcome, its descriptors --> process       or Refused: the connection ends
    process -- Ready --> agent                            from now on it is a rank
"""

from __future__ import annotations

from collections.abc import Sequence

from meshrt.hooks.facts import Body
from meshrt.wire.addresses import HostAddress
from meshrt.wire.control import Catalogue, Message

__all__ = ["FROM_MEETING", "TO_MEETING", "AskToJoin", "FromMeeting", "Ready", "Refused", "ToMeeting", "Welcome"]


class AskToJoin(Message, frozen=True, tag="join"):
    """It wants to be this rank; -1: the first one that is free.

    With it comes a descriptor of the file that faulthandler writes to, and, where a parent waits for the process, of a
    socket that is to stay open until its end was noticed.
    """

    rank: int


class Welcome(Message, frozen=True, tag="welcome"):
    """What the process has to know; see `meshrt.host.child.Birth`. With it come the descriptors of its `Plumbing`."""

    any_depth = True

    mesh: str
    rank: int
    name: str
    labels: Sequence[str]
    sizes: Sequence[int]
    run_id: str
    address: HostAddress
    secret: bytes
    host: str
    run_directory: str
    kept_at: str
    operations: Sequence[tuple[str, Body]]
    certificate: tuple[bytes, bytes] | None = None

    def __repr__(self) -> str:
        return f"Welcome(mesh={self.mesh!r})"  # without the secrets


class Refused(Message, frozen=True, tag="refused"):
    """It cannot be this rank."""

    why: str


class Ready(Message, frozen=True, tag="ready"):
    """It serves."""


ToMeeting = AskToJoin | Ready
FromMeeting = Welcome | Refused
TO_MEETING: Catalogue[ToMeeting] = Catalogue(ToMeeting)
FROM_MEETING: Catalogue[FromMeeting] = Catalogue(FromMeeting)
