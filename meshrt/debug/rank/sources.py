"""Rank side: the source of code that exists only in the program.

A class that was typed, piped, or shipped by value from the script has a file name that does not exist on this rank. Its
text is fetched from the root once per session and put into `linecache`, where pdb, `inspect` and tracebacks read it.
"""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

from meshrt.debug.rank_operations import ReadSource
from meshrt.errors import MeshError
from meshrt.hooks.services import RankServices
from meshrt.program.places import names_file

__all__ = ["SourceFetcher"]

#: Seconds to wait for the root; if it is slower, the stop is shown without source.
_TIMEOUT = 5.0


class SourceFetcher:
    """Fetches source texts from the root. On the stopped thread."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._asked: set[str] = set()
        self._fetched: set[str] = set()

    def new_session(self) -> None:
        """Fetch again what was fetched: code typed at a prompt can change under the same name."""
        self._asked.clear()

    def ensure_stack(self, stack: Iterable[tuple[FrameType, int]]) -> None:
        """Make the source of every stack frame available."""
        for filename in {frame.f_code.co_filename: None for frame, _ in stack}:
            self.ensure(filename)

    def ensure(self, filename: str) -> bool:
        """Make the source of ``filename`` available. Return whether there is one."""
        if filename in self._asked or filename.startswith("<frozen "):
            return bool(linecache.getlines(filename))
        self._asked.add(filename)
        if os.path.exists(filename):
            return True
        if filename not in self._fetched and linecache.getlines(filename):
            return True  # the runtime, or a loader, has put it there
        text = self._request(filename)
        if text is None:
            return bool(linecache.getlines(filename))
        lines = text.splitlines(keepends=True)
        linecache.cache[filename] = (len(text), None, lines, filename)
        self._fetched.add(filename)
        return True

    def _request(self, filename: str) -> str | None:
        try:
            return self._services.ask(ReadSource(filename), _TIMEOUT).text
        except (MeshError, TimeoutError, OSError):
            return None

    def source_of(self, value: Any) -> str:
        """Return the source of a function, class or module. Raises what `inspect.getsource` does."""
        code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
        if isinstance(code, CodeType):
            self.ensure(code.co_filename)
        return inspect.getsource(value)

    def find(self, name: str, stack: Iterable[tuple[FrameType, int]]) -> str | None:
        """Return the full file name that a user means by ``name`` (``"train.py"``, ``"pkg.train"``), or None."""
        wanted = name if name.endswith(".py") else name.replace(".", "/") + ".py"
        candidates = [frame.f_code.co_filename for frame, _ in stack]
        candidates += list(linecache.cache)
        candidates += [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
        for filename in candidates:
            if filename == name or names_file(wanted, filename):
                return filename
        if os.path.isabs(wanted) and self.ensure(wanted):
            return wanted
        return None
