"""The code objects that an engine watches by ``sys.monitoring`` (Python 3.12 and newer), so that it can release them.

A tool that is given back leaves its events set in them. A function with a breakpoint, or one that was stepped through,
would still report each of its lines, although no tool listens, and its calls would take a sixth longer for good. The
next tool of that number would get all these events.
"""

from __future__ import annotations

from types import CodeType, SimpleNamespace
from typing import cast

from meshrt.debug.dap.engine.pydevd_types import SysMonitoring

__all__ = ["WatchedCode"]


class WatchedCode:
    """The code objects of one tool.

    Args:
        monitoring: ``sys.monitoring``.
        tool: The number of the tool.
    """

    def __init__(self, monitoring: SysMonitoring, tool: int) -> None:
        self._monitoring = monitoring
        self._tool = tool
        #: By id, as equal ones may be of different functions: of a cell of a notebook that was run twice, say.
        self._codes: dict[int, CodeType] = {}
        self._wanted = False
        names = {name: getattr(monitoring, name) for name in dir(monitoring) if not name.startswith("_")}
        #: What the engine is given as ``sys.monitoring``.
        self.monitoring = cast(
            SysMonitoring,
            SimpleNamespace(
                **{
                    **names,
                    "use_tool_id": self._use_tool_id,
                    "get_local_events": self._get_local_events,
                    "set_local_events": self._set_local_events,
                }
            ),
        )

    def begin(self) -> None:
        """Allow the tool to watch code from here on."""
        self._wanted = True

    def let_go(self) -> None:
        """Stop watching all code, and ignore later requests of threads to watch. The tool still has its number."""
        self._wanted = False
        # What the engine itself forgets to take back.
        self._monitoring.register_callback(self._tool, self._monitoring.events.PY_UNWIND, None)
        while self._codes:
            _, code = self._codes.popitem()
            self._monitoring.set_local_events(self._tool, code, 0)

    # -- on the threads of the engine, and on those that it looks at

    def _use_tool_id(self, tool: int, name: str) -> None:
        if self._wanted:
            self._monitoring.use_tool_id(tool, name)

    def _get_local_events(self, tool: int, code: CodeType) -> int:
        return self._monitoring.get_local_events(tool, code) if self._wanted else 0

    def _set_local_events(self, tool: int, code: CodeType, events: int) -> None:
        if self._wanted:
            self._codes[id(code)] = code
            self._monitoring.set_local_events(tool, code, events)
