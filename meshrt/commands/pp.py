"""``pp``: as ``p``."""

from __future__ import annotations

from meshrt.commands.p import printer

__all__ = ["COMMAND"]

COMMAND = printer("pp", "the same as p, pretty-printed")
