"""An event loop that does nothing by itself."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["ManualLoop"]


class ManualLoop:
    """As much of a loop as a link needs: what is to be called when something can be read is called by the test."""

    def __init__(self) -> None:
        self.readable: Callable[[], None] = lambda: None

    def add_reader(self, _descriptor: int, function: Callable[[], None]) -> None:
        """Keep the function."""
        self.readable = function

    def remove_reader(self, _descriptor: int) -> None:
        """Forget it."""
        self.readable = lambda: None

    def remove_writer(self, _descriptor: int) -> None:
        """Nothing is written."""
