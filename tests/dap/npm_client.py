"""Microsoft's client for testing adapters, which comes from npm: a whole session as one process."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from meshrt.hooks.facts import Body
from tests.dap.talking import Talking

__all__ = ["NpmClient", "why_not"]

HERE = Path(__file__).resolve().parent / "npm"


def why_not() -> str:
    """Why the client cannot be run here; empty if it can."""
    if shutil.which("node") is None:
        return "not installed: node"
    if not (HERE / "node_modules").is_dir():
        return "not installed: @vscode/debugadapter-testsupport (npm ci --prefix tests/dap/npm)"
    return ""


class NpmClient(Talking):
    """Plays ``npm/course.js``, whose head says what the course is.

    Args:
        port: Where the adapter listens, on the loopback interface.
        configuration: As in ``launch.json``.
        path: A file, whose ``line`` gets a breakpoint in each session.
        expression: What is evaluated where a session stops.
        children: How many further sessions are announced.
        root_stops: Whether the session of the configuration itself stops, too.
        start_debugging: Whether the client knows the request `startDebugging`; otherwise it knows `debugpyAttach`.
    """

    def __init__(
        self,
        port: int,
        configuration: Body,
        *,
        path: str,
        line: int,
        expression: str,
        children: int,
        root_stops: bool = False,
        start_debugging: bool = True,
    ) -> None:
        wanted = {
            "port": port,
            "configuration": {"name": "mesh", "type": "debugpy", "request": "attach", **configuration},
            "path": path,
            "line": line,
            "expression": expression,
            "children": children,
            "rootStops": root_stops,
            "startDebugging": start_debugging,
        }
        super().__init__(["node", str(HERE / "course.js"), json.dumps(wanted)], dict(os.environ))

    def wait_attached(self) -> None:
        """Wait until all sessions are attached: now the debuggee may run into the breakpoints."""
        assert self.said() == ["attached"]

    def wait_looked(self) -> None:
        """Wait until all sessions have stopped, and go on again."""
        assert self.said() == ["looked"]

    def leave(self) -> Body:
        """Say goodbye in all sessions; returns what was seen: ``announced`` and ``sessions``."""
        self.tell("leave")
        (line,) = self.said()
        found: Body = json.loads(line)
        return found
