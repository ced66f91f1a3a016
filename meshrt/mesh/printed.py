"""What ranks print on other machines than the script's: shown, and written to the files that local ranks have, too.

A thread of its own writes: a disk that is slow must not stop the root. What it has written, it confirms to the agent,
which sends no more before that (`meshrt.host.sending`). The limits are those of the files of a local agent.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from meshrt.host.logspace import LogSpace
from meshrt.host.output import RankLog, unmarked
from meshrt.mesh.agent_reports import AgentReports
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.registry import Registry
from meshrt.selection import counted
from meshrt.transport.directories import log_path
from meshrt.wire.tree import Kept, Output, Printed

__all__ = ["PrintedElsewhere"]

#: Seconds that the end of the program waits for a slow disk.
_PATIENCE = 10.0


class _Part(NamedTuple):
    """What is to be written. ``path``: None: nothing, the agent has ended."""

    agent: AgentLink
    path: Path | None
    data: bytes
    cost: int
    done: bool


class PrintedElsewhere:
    """The output of all other machines. On the root's loop, unless said otherwise.

    Args:
        directory: Of the files.
        limit: Bytes of all files of an agent.
        registry, reports: Those of the root.
        announce: Prints a line. Any thread.
    """

    def __init__(
        self, directory: Path, limit: int, registry: Registry, reports: AgentReports, announce: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._limit = limit
        self._registry = registry
        self._reports = reports
        self._announce = announce
        self._parts: queue.SimpleQueue[_Part | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        #: Of the thread: the files of each agent, and what they may take together.
        self._logs: dict[AgentLink, dict[Path, RankLog]] = {}
        self._spaces: dict[AgentLink, LogSpace] = {}

    def printed(self, agent: AgentLink, printed: Printed) -> None:
        """A rank has printed lines."""
        record = self._registry.meshes.get(printed.mesh)
        if record is None:
            agent.send(Kept(printed.cost))
            return
        pieces = printed.data.split(b"\n")[:-1]
        lines = unmarked(pieces)
        data = lines.data
        if printed.left_out:
            where = f"{record.name} {record.place(printed.rank)}"
            why = f"dropped: the output was faster than the connection to {agent.host}"
            left_out = f"{counted(printed.left_out, 'line')} of output"
            self._announce(f"{left_out} of {where} {why}")
            data = f"meshrt: {left_out} {why}\n".encode() + data
        if lines.texts:
            self._reports.output(Output(printed.mesh, printed.rank, printed.err, lines.shown), lines.texts)
        path = log_path(self._directory, record.name, printed.mesh, printed.rank)
        self._add(_Part(agent, path, data, printed.cost, printed.done))

    def gone(self, agent: AgentLink) -> None:
        """An agent has ended: its files are closed."""
        if self._thread is not None:
            self._add(_Part(agent, None, b"", 0, True))

    def _add(self, part: _Part) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="meshrt-printed", daemon=True)
            self._thread.start()
        self._parts.put(part)

    def end(self) -> None:
        """Write what is left, and end the thread. After the loop."""
        if self._thread is not None:
            self._parts.put(None)
            self._thread.join(_PATIENCE)

    # -- the thread

    def _run(self) -> None:
        while True:
            parts = [self._parts.get()]
            while not self._parts.empty():
                parts.append(self._parts.get())
            costs: dict[AgentLink, int] = {}
            for part in parts:
                if part is None:
                    for agent in tuple(self._logs):
                        self._close(agent)
                    return
                self._write(part)
                costs[part.agent] = costs.get(part.agent, 0) + part.cost
            for agent, cost in costs.items():
                if cost:
                    agent.send(Kept(cost))

    def _write(self, part: _Part) -> None:
        if part.path is None:
            self._close(part.agent)
            return
        logs = self._logs.setdefault(part.agent, {})
        log = logs.get(part.path)
        if log is None:
            if not part.data:
                return
            space = self._spaces.setdefault(part.agent, LogSpace(self._limit, self._announce))
            log = logs[part.path] = RankLog(part.path, self._announce, space)
        log.write(part.data)
        if part.done:
            log.close()
            del logs[part.path]

    def _close(self, agent: AgentLink) -> None:
        for log in self._logs.pop(agent, {}).values():
            log.close()
