"""Texts that only the program has: a class that was typed at a prompt, in a notebook, or at ``python -c``.

An engine knows such code as a source with a number, and would show it taken apart from its byte code.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshrt.debug.dap.operations import Source
from meshrt.debug.dap.router.program import ProgramLink
from meshrt.debug.dap.wire import Fields
from meshrt.errors import MeshError

__all__ = ["Sources"]


class Sources:
    """Sources with a number, of one session of an IDE. On the router's loop."""

    def __init__(self, program: ProgramLink) -> None:
        self._program = program
        self._paths: dict[int, str] = {}

    def note(self, frames: Sequence[Fields] | None) -> None:
        """Take the stack frames that an IDE is shown: they say which number is which file."""
        for frame in frames or ():
            source = frame.get("source") or {}
            number = int(source.get("sourceReference") or 0)
            if number:
                self._paths[number] = str(source.get("path") or source.get("name") or "")

    async def text(self, number: int) -> str | None:
        """Return the text of a source; None: the program does not have it either."""
        path = self._paths.get(number)
        if not path:
            return None
        try:
            return (await self._program.ask(Source(path))).text
        except (MeshError, ConnectionError):
            return None  # what the engine has is shown
