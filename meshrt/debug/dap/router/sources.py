"""Sources of one session of an IDE that the IDE cannot open as files: they have a number, and the program their text.

* Code that is in no file: of a class that was typed at a prompt, in a notebook, or at ``python -c``. An engine knows
  it by a number, and would show it taken apart from its byte code.
* Files that are on the machine of the program alone, which is looked at through ``--via``. They are given a number
  here, which engines are never told: they know such a file by its path.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from meshrt.debug.dap.operations import Source
from meshrt.debug.dap.router.program import ProgramLink
from meshrt.debug.dap.wire import Fields
from meshrt.errors import MeshError, UsageError

__all__ = ["Sources"]

#: The first number that is given here. Engines, and sessions in which ranks are threads, count from 1.
_FIRST = 1 << 30


class Sources:
    """On the router's loop.

    Args:
        local_roots: Directories of the IDE to which its configuration maps others: paths there are left as they are.
    """

    def __init__(self, program: ProgramLink, local_roots: Sequence[str] = ()) -> None:
        self._program = program
        self._roots = tuple(os.path.join(root, "") for root in local_roots if root)
        self._paths: dict[int, str] = {}
        #: The numbers that were given here, by path.
        self._given: dict[str, int] = {}

    def note(self, shown: Sequence[Fields] | None) -> None:
        """Take the stack frames or breakpoints that an IDE is shown: they say which number is which file.

        A file that is here loses its number, and the IDE opens it: the rank has no file, as it is on another machine.
        """
        for each in shown or ():
            source = each.get("source") or {}
            number = int(source.get("sourceReference") or 0)
            path = str(source.get("path") or source.get("name") or "")
            is_path = os.path.isabs(path)
            if number and is_path and os.path.isfile(path):
                source["sourceReference"] = 0
            elif number:
                self._paths[number] = path
            elif is_path and self._is_only_there(path):
                source["sourceReference"] = self._number(path)

    def _is_only_there(self, path: str) -> bool:
        return self._program.is_elsewhere and not path.startswith(self._roots) and not os.path.isfile(path)

    def _number(self, path: str) -> int:
        number = self._given.setdefault(path, _FIRST + len(self._given))
        self._paths[number] = path
        return number

    def for_engine(self, arguments: Fields) -> Fields:
        """Return the arguments of a request without a number that was given here, or in a session before this one."""
        source = arguments.get("source")
        if not isinstance(source, dict):
            return arguments
        number = source.get("sourceReference")
        if not isinstance(number, int) or number < _FIRST:
            return arguments
        return {**arguments, "source": {key: each for key, each in source.items() if key != "sourceReference"}}

    async def text(self, number: int) -> str | None:
        """Return the text of a source; None: the program does not have it, and the engine may.

        Raises:
            UsageError: Nobody but the rank has it, and its engine does not know the number.
        """
        path = self._paths.get(number)
        text = None
        if path:
            try:
                text = (await self._program.ask(Source(path))).text
            except (MeshError, ConnectionError):
                text = None  # what the engine has is shown
        if text is None and number >= _FIRST:
            raise UsageError(f"{path or 'this source'} is neither on this machine nor on the machine of the script")
        return text
