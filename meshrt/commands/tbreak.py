"""``tbreak``: as ``break``, once on each rank."""

from __future__ import annotations

from meshrt.commands.break_ import setter

__all__ = ["COMMAND"]

COMMAND = setter("tbreak", "set a breakpoint that stops each rank once", once=True)
