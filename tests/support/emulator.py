"""A program at a terminal of its own, and what is on its screen in the end: text may be erased or written over."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pexpect
import pyte

from tests.support.programs import environment

__all__ = ["SECONDS", "Emulator", "emulated"]

SECONDS = 40


class Emulator:
    """What a person sees, and where they type. ``screen``: pyte's."""

    def __init__(self, child: Any, columns: int, lines: int) -> None:
        self._child = child
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)

    @property
    def shown(self) -> str:
        """The text on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n")

    def sees(self, text: str, prompt: str = "") -> None:
        """Wait until a text is on the screen, and a prompt in its last line."""
        end = time.monotonic() + SECONDS
        while text not in self.shown or (prompt and self.shown.rpartition("\n")[2] != prompt):
            if time.monotonic() > end or self._reads():
                raise AssertionError(f"{text!r} is not on the screen:\n{self.shown}")

    def settles(self) -> None:
        """Wait until nothing has come for a moment: the screen is whole."""
        while not self._reads(0.2):
            pass

    def _reads(self, seconds: float = SECONDS) -> int:
        """Show what comes next. Returns whether nothing comes any more."""
        ended: int = self._child.expect([rb"(?s).+", pexpect.TIMEOUT, pexpect.EOF], timeout=seconds)
        if not ended:
            self._stream.feed(self._child.after)
        return ended

    def types(self, text: str) -> None:
        """Type a text; Enter is ``\\r``."""
        self._child.send(text)

    def ends(self) -> str:
        """Wait until the program has ended. Returns the text on the screen."""
        end = time.monotonic() + SECONDS
        while not self._reads():
            if time.monotonic() > end:
                raise AssertionError(f"it has not ended:\n{self.shown}")
        return self.shown

    @property
    def code(self) -> int | None:
        """The exit code."""
        self._child.close()
        return self._child.exitstatus  # type: ignore[no-any-return]


@contextlib.contextmanager
def emulated(command: Sequence[str], *, columns: int = 100, lines: int = 40, **more: str) -> Iterator[Emulator]:
    """Run a command at such a terminal, which has colours. ``more``: variables of its environment."""
    child = pexpect.spawn(
        command[0],
        list(command[1:]),
        env=environment(TERM="xterm-256color", PROMPT_TOOLKIT_NO_CPR="1", COLORTERM="truecolor", **more),
        dimensions=(lines, columns),
        timeout=SECONDS,
    )
    child.delaybeforesend = None
    try:
        yield Emulator(child, columns, lines)
    finally:
        child.close(force=True)
