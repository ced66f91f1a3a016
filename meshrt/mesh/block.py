"""The block of a mesh, ``with`` or ``async with``: what the mesh has is ended when the block ends."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self

from meshrt.actor.errors import why_ended
from meshrt.errors import UsageError
from meshrt.mesh.future import Future

__all__ = ["Block", "check_grace"]


class Block(ABC):
    """Base of meshes of actors, processes and hosts."""

    @abstractmethod
    def _begin_end(self, grace: float, why: str) -> Iterable[Future[None]]:
        """Begin to end it; returns what is done when it has ended.

        Args:
            grace: Seconds for what is under way.
            why: The error that the block ends with; "": none.
        """

    def _leave(self, error: BaseException | None) -> None:  # noqa: B027  (few have something to do)
        """The block ends; what it has still exists."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _rest: object) -> None:
        try:
            self._leave(error)
        finally:
            for future in self._begin_end(_grace(error), why_ended(error)):
                future.get()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _rest: object) -> None:
        try:
            self._leave(error)
        finally:
            for future in self._begin_end(_grace(error), why_ended(error)):
                await future


def check_grace(grace: float) -> None:
    """Raises UsageError if it is no time that an end could wait."""
    if not 0 <= grace < math.inf:
        raise UsageError(f"grace={grace!r}: expected a finite number of seconds, 0 or more")


def _grace(error: BaseException | None) -> float:
    """A block that ends with an exception does not wait for what is still under way."""
    return 5.0 if error is None else 0.0
