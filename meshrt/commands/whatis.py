"""``whatis``: as ``p``."""

from __future__ import annotations

from meshrt.commands.p import printer

__all__ = ["COMMAND"]

COMMAND = printer("whatis", "print the type of an expression on ranks")
