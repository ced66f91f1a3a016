"""A program at a terminal on a host of a fixed name, and its screen as a picture has it."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager
from typing import Any

from rich.style import Style
from rich.text import Text

from tests.pictures.drawing import Screen
from tests.support.emulator import Emulator, emulated
from tests.support.programs import ROOT

__all__ = ["HERE", "WIDTH", "screen_of", "terminal", "why_not"]

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


def terminal(*arguments: str, lines: int = 40) -> AbstractContextManager[Emulator]:
    """Return a context in which ``python *arguments`` runs at a terminal on node1."""
    return emulated(_at_node1(sys.executable, *arguments), columns=WIDTH, lines=lines)


def screen_of(me: Emulator) -> Screen:
    """Return what is on a screen, without the empty lines at its end."""
    lines = [_line(me, row) for row in range(me.screen.lines)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    return lines


def _line(me: Emulator, row: int) -> Text:
    letters = [me.screen.buffer[row][column] for column in range(me.screen.columns)]
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
