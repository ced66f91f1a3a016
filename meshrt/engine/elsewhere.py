"""What is the same of all agents on other machines, whatever has started them."""

from __future__ import annotations

__all__ = ["Elsewhere"]


class Elsewhere:
    """An agent on another machine: pids of it mean other processes here, so nothing is signalled by them."""

    address = None

    def resume(self) -> bool:
        """Nothing of another machine can be resumed from here."""
        return False

    def kill_ranks(self, pids: list[int]) -> None:
        """Their agent does that, which sees the end of its link."""

    def kill_left(self, families: int) -> None:
        """Nothing of another machine can be looked up from here."""
