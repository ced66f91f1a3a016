"""The segments that receivers hold before a message is sent, and their return if it never is."""

from __future__ import annotations

from collections.abc import Callable

from meshrt.transport.interrupts import called_by_python

__all__ = ["Unsent"]


class Unsent:
    """Encloses the packing and the sending of a message: what it has shared is taken back if it was not `sent`.

    Ctrl-C may be raised between any two steps of that, and an error in any of them. One thread.
    """

    __slots__ = ("_take_back",)

    def __init__(self) -> None:
        self._take_back: list[Callable[[], None]] = []

    def note(self, take_back: Callable[[], None]) -> None:
        """Something was given, or is about to be: called in the same shielded section, or before that.

        Args:
            take_back: Takes it back; never waits, and never raises.
        """
        self._take_back.append(take_back)

    def sent(self) -> None:
        """From here on it is the receivers' own."""
        self._take_back.clear()

    def __enter__(self) -> Unsent:
        return self

    @called_by_python  # an interrupt ends neither this nor the error that leads here, and comes a little later
    def __exit__(self, *_error: object) -> None:
        while self._take_back:
            self._take_back.pop()()
