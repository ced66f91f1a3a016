"""``source``: as ``p``."""

from __future__ import annotations

from meshrt.commands.p import printer

__all__ = ["COMMAND"]

COMMAND = printer("source", "show the source of an object on ranks")
