"""How much memory the processes of this host have: read from ``/proc`` by their agent, so no rank has to say a word.

The root sends one ``memory``; this side answers with ``measured`` messages: at once what is cheap of every rank
(0.05 ms each), and then, some ranks at a time so that it goes on serving, what the kernel has to add up (1 to 5 ms).
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from meshrt.host.child import Child
from meshrt.store.server import StoreServer
from meshrt.store.table import held_by, segment_rows
from meshrt.wire.messages import Address

__all__ = ["Measures", "private", "resident", "shares"]

#: Seconds for which ranks are read in one go.
_SLICE = 0.02
#: Ranks in one message.
_BATCH = 500

#: Lines of /proc/PID/status, and what they are called here.
_RESIDENT = {
    "VmRSS": "rss",
    "VmHWM": "peak",
    "RssAnon": "anonymous",
    "RssFile": "file",
    "RssShmem": "shmem",
    "VmSwap": "swap",
}
_SHARES = {
    "Pss": "pss",
    "Shared_Clean": "shared",
    "Shared_Dirty": "shared",
    "Private_Clean": "private",
    "Private_Dirty": "private",
}
_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)

Bytes = dict[str, int]


def resident(pid: int) -> Bytes:
    """Return what a process has in memory: ``{"rss", "peak", "anonymous", "file", "shmem", "swap"}``, bytes.

    Empty if it is gone.
    """
    return _read(f"/proc/{pid}/status", _RESIDENT)


def shares(pid: int) -> Bytes:
    """Return what of that it has alone: ``{"pss", "shared", "private"}``, bytes; empty if it is gone.

    ``pss`` counts a page that n processes have as 1/n, so those of all processes add up.
    """
    return _read(f"/proc/{pid}/smaps_rollup", _SHARES)


def private(pid: int) -> int:
    """Return the private memory of a process that can be written to, as RLIMIT_DATA counts it; bytes, 0 if gone."""
    return _read(f"/proc/{pid}/status", {"VmData": "data"}).get("data", 0)


def _read(path: str, names: Mapping[str, str]) -> Bytes:
    found: Bytes = {}
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return found  # its process has ended, or is about to
    for line, kilobytes in _LINE.findall(text):
        if line in names:
            found[names[line]] = found.get(names[line], 0) + (int(kilobytes) << 10)
    return found


class Measures:
    """Answers the root's questions.

    Args:
        children: The ranks of this host.
        tell: Sends a message to the root.
        later: Runs a function after so many seconds.
        store: Returns the shared memory of this host, once it has any.
    """

    def __init__(
        self,
        children: Mapping[Address, Child],
        tell: Callable[[dict[str, Any]], None],
        later: Callable[[float, Callable[[], None]], None],
        store: Callable[[], StoreServer | None],
    ) -> None:
        self._children = children
        self._tell = tell
        self._later = later
        self._store = store

    def begin(self, message: dict[str, Any]) -> None:
        """Measure ranks: ``{"id", "targets": {mesh: ranks}, "references"}``.

        The last one: null, or which references of the store are wanted, by the beginning of their names ("": all).
        """
        asked = [
            (address, child.pid)
            for mesh, ranks in message["targets"].items()
            for rank in ranks
            for address in [(mesh, rank)]
            for child in [self._children.get(address)]
            if child is not None and child.pid
        ]
        own = os.getpid()
        agent = {"pid": own, "node": socket.gethostname(), **resident(own), **shares(own)}
        store = self._store()
        if store is not None:
            registry = store.registry
            held = [[pid, *sizes] for pid, sizes in held_by(registry.segments()).items()]
            agent["store"] = {"committed": registry.committed, "limit": registry.limit, "held": held}
            if message["references"] is not None:
                found = segment_rows(registry.segments(), time.monotonic_ns(), message["references"] or None)
                for start in range(0, len(found), _BATCH):
                    part = found[start : start + _BATCH]
                    self._tell(
                        {
                            "t": "measured",
                            "id": message["id"],
                            "rows": [],
                            "agent": None,
                            "done": False,
                            "references": part,
                        }
                    )
        rows = [[*address, resident(pid)] for address, pid in asked]
        self._send(message["id"], rows, done=False, agent=agent)
        self._go_on(message["id"], iter(asked))

    def _go_on(self, number: int, left: Iterator[tuple[Address, int]]) -> None:
        end = time.monotonic() + _SLICE
        rows: list[list[Any]] = []
        for address, pid in left:
            rows.append([*address, shares(pid)])
            if time.monotonic() >= end:
                self._send(number, rows, done=False)
                self._later(0.0, lambda: self._go_on(number, left))
                return
        self._send(number, rows, done=True)

    def _send(self, number: int, rows: list[list[Any]], *, done: bool, agent: dict[str, Any] | None = None) -> None:
        for start in range(0, max(1, len(rows)), _BATCH):
            last = start + _BATCH >= len(rows)
            self._tell(
                {
                    "t": "measured",
                    "id": number,
                    "rows": rows[start : start + _BATCH],
                    "agent": agent if start == 0 else None,
                    "done": done and last,
                }
            )
