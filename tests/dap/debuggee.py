"""A program under plain debugpy, with an adapter of its own: what a client is tried on before it meets a mesh."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meshrt.hooks.facts import Body
from tests.dap import doubling
from tests.dap.talking import Talking
from tests.support.programs import environment

__all__ = ["SOURCE", "Debuggee", "debuggee"]

SOURCE = doubling.__file__


class Debuggee(Talking):
    """A running `doubling`, and its children, which say what they say at the same place."""

    def __init__(self, endpoints: Path, children: int) -> None:
        self._endpoints = endpoints
        super().__init__(
            [sys.executable, "-m", "debugpy", "--listen", "127.0.0.1:0", SOURCE, "root", str(children)],
            environment(DEBUGPY_ADAPTER_ENDPOINTS=str(endpoints), PYDEVD_DISABLE_FILE_VALIDATION="1"),
        )

    @property
    def connect(self) -> Body:
        """Where the adapter listens, as in a launch configuration."""
        # Complete before the program's first line: debugpy itself has read it by then.
        found: Body = json.loads(self._endpoints.read_text())["client"]
        return found

    @property
    def address(self) -> tuple[str, int]:
        """Where the adapter listens."""
        return str(self.connect["host"]), int(self.connect["port"])


@contextmanager
def debuggee(directory: Path, children: int = 0) -> Iterator[Debuggee]:
    """A `doubling` that a client can attach to. When it is left its children end with their input, and the adapter."""
    with Debuggee(directory / "endpoints.json", children) as program:
        assert program.said() == ["root up"]
        yield program
