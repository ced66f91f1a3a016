"""A terminal that tests read while other threads write to it (pytest's own capturing loses text then)."""

from __future__ import annotations

import io
import sys

import pytest

from tests.support.waiting import wait_until

__all__ = ["Screen"]


class Screen(io.TextIOBase):
    """Stands in the place of ``sys.stdout`` or ``sys.stderr``, see `instead_of`."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    @classmethod
    def instead_of(cls, name: str, monkeypatch: pytest.MonkeyPatch) -> Screen:
        """Replace ``sys.stdout`` or ``sys.stderr``. In the test itself: pytest sets its own after the fixtures."""
        screen = cls()
        monkeypatch.setattr(sys, name, screen)
        return screen

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._pieces.append(text)
        return len(text)

    @property
    def text(self) -> str:
        """All that was written."""
        return "".join(self._pieces)

    def wait_for(self, part: str, seconds: float = 20) -> str:
        """Return everything as soon as ``part`` is among it."""
        wait_until(lambda: part in self.text, seconds, f"{part!r} on the terminal")
        return self.text

    def wait_for_lines(self, count: int, seconds: float = 20) -> list[str]:
        """Return the lines as soon as there are ``count`` of them."""
        wait_until(lambda: self.text.count("\n") >= count, seconds, f"{count} lines on the terminal")
        return self.text.split("\n")[:-1]
