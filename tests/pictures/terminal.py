"""A program at a terminal of its own, and what is on its screen."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pexpect
import pyte
from rich.style import Style
from rich.text import Text

from tests.pictures.drawing import Screen
from tests.support.programs import ROOT, environment

__all__ = ["HERE", "SECONDS", "WIDTH", "Terminal", "terminal", "why_not"]

SECONDS = 40
#: Columns.
WIDTH = 100
#: Where the programs are started, a view of examples/ that has the same name on every machine.
HERE = "/mnt"
_WRAPPER = f'hostname node1; mount --bind "$0" {HERE}; cd {HERE}; exec "$@"'


def _at_node1(*command: str) -> list[str]:
    """Return a command that runs another one in `HERE`, on a host with the name node1."""
    return ["unshare", "--mount", "--uts", "sh", "-c", _WRAPPER, str(ROOT / "examples"), *command]


def why_not() -> str:
    """Return why nothing can be run here; "": it can."""
    if shutil.which("unshare") is None:
        return "there is no unshare"
    tried = subprocess.run(_at_node1("true"), capture_output=True, text=True, check=False)
    return f"no namespaces can be made: {tried.stderr.strip()}" if tried.returncode else ""


class Terminal:
    """What a person sees, and where they type."""

    def __init__(self, child: Any, columns: int, lines: int) -> None:
        self._child = child
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def shown(self) -> str:
        """The text on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def sees(self, text: str, prompt: str = "") -> None:
        """Wait until a text is on the screen, and a prompt in its last line."""
        end = time.monotonic() + SECONDS
        while text not in self.shown or (prompt and self.shown.rstrip().rpartition("\n")[2] != prompt):
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

    def screen(self) -> Screen:
        """Return what is on the screen, without the empty lines at its end."""
        lines = [self._line(row) for row in range(self._screen.lines)]
        while lines and not lines[-1].plain.strip():
            lines.pop()
        return lines

    def _line(self, row: int) -> Text:
        letters = [self._screen.buffer[row][column] for column in range(self._screen.columns)]
        line = Text()
        for style, alike in itertools.groupby(letters, _style):
            line.append("".join(letter.data for letter in alike), style)
        line.rstrip()
        return line


def _style(letter: Any) -> Style:
    return Style(
        color=_colour(letter.fg),
        bgcolor=_colour(letter.bg),
        bold=letter.bold,
        italic=letter.italics,
        underline=letter.underscore,
        reverse=letter.reverse,
    )


def _colour(name: str) -> str | None:
    """Return a colour of pyte's as rich names it."""
    if name == "default":
        return None
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name):
        return f"#{name}"
    plain = name.removeprefix("bright").replace("brown", "yellow")
    return f"bright_{plain}" if name.startswith("bright") else plain


@contextlib.contextmanager
def terminal(*arguments: str, lines: int = 40) -> Iterator[Terminal]:
    """Run ``python *arguments`` at a terminal on node1."""
    command, *words = _at_node1(sys.executable, *arguments)
    child = pexpect.spawn(
        command,
        words,
        env=environment(TERM="xterm-256color", PROMPT_TOOLKIT_NO_CPR="1", COLORTERM="truecolor"),
        dimensions=(lines, WIDTH),
        timeout=SECONDS,
    )
    child.delaybeforesend = None
    try:
        yield Terminal(child, WIDTH, lines)
    finally:
        child.close(force=True)
