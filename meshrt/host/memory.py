"""How much memory the processes of this host have: read from ``/proc`` by their agent, without the ranks' help.

The root sends one ``memory``; this side answers with ``measured`` messages: at once the cheap values of every rank
(0.05 ms each), and then, some ranks at a time so that it goes on serving, those that the kernel adds up (1 to 5 ms).
A repeated display asks for the ranks' work: all of that is cheap, and nothing is added up.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshrt.host.child import Child
from meshrt.host.osutil import outgoing_address
from meshrt.store.server import StoreServer
from meshrt.store.table import held_by, in_files, segment_rows
from meshrt.transport.kernel import stat_fields
from meshrt.transport.reserve import reserve
from meshrt.wire.control import Address
from meshrt.wire.tree import Measure, Measured

__all__ = ["Measures", "machine", "private", "resident", "shares", "work"]

#: Seconds for which ranks are read at a time.
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

#: What /proc/PID/stat counts processor time in: so many a second.
_TICKS = os.sysconf("SC_CLK_TCK")

Bytes = dict[str, int]
Facts = dict[str, Any]
_Row = tuple[str, int, Facts]


def resident(pid: int) -> Bytes:
    """Return the memory of a process: ``{"rss", "peak", "anonymous", "file", "shmem", "swap"}``, bytes.

    Empty if it is gone.
    """
    return _read(f"/proc/{pid}/status", _RESIDENT)


def shares(pid: int) -> Bytes:
    """Return its shared and private parts: ``{"pss", "shared", "private"}``, bytes; empty if it is gone.

    ``pss`` counts a page that n processes have as 1/n, so those of all processes add up.
    """
    return _read(f"/proc/{pid}/smaps_rollup", _SHARES)


def machine() -> dict[str, str]:
    """Return the identity of this machine: ``{"node": its name, "address"}``."""
    return {"node": socket.gethostname(), "address": outgoing_address()}


def private(pid: int) -> int:
    """Return the private memory of a process that can be written to, as RLIMIT_DATA counts it; bytes, 0 if gone."""
    return _read(f"/proc/{pid}/status", {"VmData": "data"}).get("data", 0)


def work(pid: int) -> dict[str, Any]:
    """Return what a process does; empty if it is gone, or cannot be looked up.

    Returns:
        ``cpu``: processor time of all its threads so far, seconds, in steps of a clock tick; ``at``: when that was,
        monotonic seconds; ``kernel``: the letter of its state ("R", "S", "D", "T", ...); ``threads``: how many.
    """
    try:
        fields = stat_fields(pid)
    except OSError:
        return {}
    if len(fields) < 18:
        return {}
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    return {"cpu": cpu, "at": time.monotonic(), "kernel": fields[0], "threads": int(fields[17])}


def _read(path: str, names: Mapping[str, str]) -> Bytes:
    found: Bytes = {}
    try:
        text = reserve.run(Path(path).read_text, encoding="utf-8", errors="replace")
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
        tell: Callable[[Measured], None],
        later: Callable[[float, Callable[[], None]], None],
        store: Callable[[], StoreServer | None],
    ) -> None:
        self._children = children
        self._tell = tell
        self._later = later
        self._store = store

    def begin(self, question: Measure) -> None:
        """Measure ranks."""
        asked = [
            (address, child.pid)
            for mesh, ranks in question.targets.items()
            for rank in ranks
            for address in [(mesh, rank)]
            for child in [self._children.get(address)]
            if child is not None and child.pid
        ]
        own = os.getpid()
        agent = {"pid": own, **machine(), **resident(own), **shares(own)}
        store = self._store()
        if store is not None:
            registry = store.registry
            held = [[pid, *sizes] for pid, sizes in held_by(registry.segments()).items()]
            imports = store.imports
            agent["store"] = {
                "committed": registry.committed,
                "limit": registry.limit,
                "files": in_files(registry.segments()),
                "fetched": {"bytes": imports.bytes, "count": imports.count},
                "sent": store.sent,
                "held": held,
            }
            if question.references is not None:
                found = segment_rows(registry.segments(), time.monotonic_ns(), question.references or None)
                for start in range(0, len(found), _BATCH):
                    self._measured(question.id, [], references=found[start : start + _BATCH])
        if question.work:
            self._send(question.id, [], done=False, agent=agent)
            self._go_on(question.id, iter(asked), lambda pid: {**resident(pid), **work(pid)})
        else:
            rows: list[_Row] = [(*address, resident(pid)) for address, pid in asked]
            self._send(question.id, rows, done=False, agent=agent)
            self._go_on(question.id, iter(asked), shares)

    def _go_on(self, number: int, left: Iterator[tuple[Address, int]], read: Callable[[int], Facts]) -> None:
        end = time.monotonic() + _SLICE
        rows: list[_Row] = []
        for address, pid in left:
            rows.append((*address, read(pid)))
            if time.monotonic() >= end:
                self._send(number, rows, done=False)
                self._later(0.0, lambda: self._go_on(number, left, read))
                return
        self._send(number, rows, done=True)

    def _send(self, number: int, rows: list[_Row], *, done: bool, agent: dict[str, Any] | None = None) -> None:
        for start in range(0, max(1, len(rows)), _BATCH):
            last = start + _BATCH >= len(rows)
            part = rows[start : start + _BATCH]
            self._measured(number, part, agent=agent if start == 0 else None, done=done and last)

    def _measured(
        self,
        number: int,
        rows: list[_Row],
        *,
        agent: dict[str, Any] | None = None,
        references: Sequence[dict[str, Any]] = (),
        done: bool = False,
    ) -> None:
        self._tell(Measured(number, rows, agent, references, done))
