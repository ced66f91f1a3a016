"""Where an error comes from, as plain data: the place of a rank, and the exception that was raised there."""

from __future__ import annotations

import msgspec

__all__ = ["RankPlace", "RemoteException"]


class RankPlace(msgspec.Struct, frozen=True):
    """Where an error happened: the identity of one rank, in readable form.

    ``rank`` is the base rank; ``coordinates`` are those of the view through which the call came.
    """

    mesh_id: str
    actor: str
    rank: int
    coordinates: tuple[tuple[str, int], ...] = ()
    host: str = ""
    pid: int = 0

    @property
    def where(self) -> str:
        """The place without the actor: ``"rank 13 (hosts=3, gpus=1) on node7, pid 4711"``."""
        coords = ", ".join(f"{label}={index}" for label, index in self.coordinates)
        text = f"rank {self.rank}" + (f" ({coords})" if coords else "")
        details = [part for part in (self.host, f"pid {self.pid}" if self.pid else "") if part]
        return text + (f" on {', '.join(details)}" if details else "")

    def __str__(self) -> str:
        return f"{self.actor} {self.where}" if self.actor else self.where


class RemoteException(msgspec.Struct, frozen=True):
    """An exception as plain data: it can be sent even if the object itself cannot be pickled."""

    type: str
    message: str
    traceback: str
    notes: tuple[str, ...] = ()
    cause: RemoteException | None = None
    #: The number of the failure in its program; "" where it has none.
    failure: str = ""
