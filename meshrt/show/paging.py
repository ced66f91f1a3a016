"""A command's text at a terminal: with its colours, and by the user's pager if it does not fit."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from typing import IO

from meshrt.show.colours import painted_for
from meshrt.show.streams import is_terminal, write_out

__all__ = ["PAGER", "write_paged"]

#: Environment variable: the pager of meshrt alone; "" or ``cat``: none.
PAGER = "MESHRT_PAGER"
#: What ``less`` is told unless the user tells it otherwise: no pager for one screen, colours, and the text stays there.
_LESS = "FRX"


def write_paged(stream: IO[str], text: str, *, colours: bool = True) -> None:
    """Write whole lines, through a pager if ``stream`` is a terminal with fewer. Returns when that has ended.

    On the main thread.

    Args:
        colours: The text may have colours; not if it is that of a program.
    Raises:
        OutputError, BrokenPipeError: As `write_out`.
    """
    command = _pager() if is_terminal(stream) and _rows(text) >= shutil.get_terminal_size().lines else []
    shown = painted_for(stream, text) if colours else text
    if not command or not _is_shown(command, shown if _passes_colours(command) else text):
        write_out(stream, shown)


def _passes_colours(command: list[str]) -> bool:
    """Whether a pager is known to pass colours on: others show their escapes."""
    return os.path.basename(command[0]) == "less" and "R" in os.environ.get("LESS", _LESS)


def _is_shown(command: list[str], text: str) -> bool:
    """Whether a pager has shown the text: there is such a program, and it has not failed."""
    environment = {"LESS": _LESS, **os.environ}
    try:
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, encoding="utf-8", errors="replace")
    except OSError:
        return False
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is a key of the pager
    try:
        pager.communicate(text)
    finally:
        signal.signal(signal.SIGINT, before)
    return pager.returncode == 0


def _rows(text: str) -> int:
    width = max(1, shutil.get_terminal_size().columns)
    return sum(1 + (len(line) - 1) // width if line else 1 for line in text.splitlines())


def _pager() -> list[str]:
    """Return the command of the pager and its arguments; empty: none."""
    able = os.environ.get("TERM", "dumb") != "dumb"  # ``less`` asks for a key first on others
    try:
        command = shlex.split(os.environ.get(PAGER, os.environ.get("PAGER", "less" if able else "")))
    except ValueError:  # a quote that is not closed
        return []
    return [] if command == ["cat"] else command
