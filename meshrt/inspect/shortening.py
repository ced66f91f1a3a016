"""Text shortened to a screen: its beginning, and a line that says how much more there is."""

from __future__ import annotations

import os

from meshrt.selection import counted

__all__ = ["LINES", "lines_of", "short_path", "shortened"]

#: Lines of a value that are shown by default.
LINES = 40
#: Approximate columns of a terminal: a longer line fills several lines.
_COLUMNS = 120


def short_path(file: str) -> str:
    """Return the last two parts of a path: the last part alone may be a package's ``__init__.py``."""
    parts = file.split(os.sep)
    return os.sep.join(parts[-2:]) if len(parts) > 2 else file


def lines_of(text: str) -> int:
    """Return how many lines of a terminal ``text`` fills, at least 1."""
    return sum(map(_filled, text.split("\n")))


def shortened(text: str, most: int | None, whole: str = "-v shows all") -> str:
    """Return ``text``; if it fills more than ``most`` lines, their beginning and how much more there is.

    Args:
        most: Lines of a terminal; None: no limit.
        whole: How the user can see all of it.
    """
    if most is None or lines_of(text) <= most + 1:  # the note takes a line itself
        return text
    lines = text.split("\n")
    shown: list[str] = []
    room = most
    while room >= _filled(lines[len(shown)]):
        room -= _filled(lines[len(shown)])
        shown.append(lines[len(shown)])
    beyond = lines[len(shown) :]
    more = counted(len(beyond), "more line")
    if room and len(beyond[0]) > _COLUMNS:
        shown.append(beyond[0][: room * _COLUMNS] + " ...")
        more = f"{sum(map(len, beyond)) + len(beyond) - 1 - room * _COLUMNS} more characters"
    return "\n".join([*shown, f"... {more} ({whole})"])


def _filled(line: str) -> int:
    return max(1, -(-len(line) // _COLUMNS))
