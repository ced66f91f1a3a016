"""Lines of a test's own sources by name: ``# @name`` at the end of a line marks it."""

from __future__ import annotations

__all__ = ["marked_line"]


def marked_line(file: str, name: str) -> int:
    """Return the number of the line of ``file`` that is marked ``# @name``. Raises LookupError."""
    with open(file, encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            if line.rstrip().endswith(f"# @{name}"):
                return number
    raise LookupError(name)
