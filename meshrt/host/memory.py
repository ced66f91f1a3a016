"""How much memory the processes of this host have: read from ``/proc`` by their agent, without the ranks' help.

The root sends one ``memory``; this side answers with ``measured`` messages: at once the cheap values of every rank
(0.05 ms each), and then, some ranks at a time so that it goes on serving, those that the kernel adds up (1 to 5 ms).
A repeated display asks for the ranks' work: all of that is cheap, and nothing is added up.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from meshrt.conversion import convert
from meshrt.hooks.measured import AgentFacts, Fetched, ProcessFacts, StoreFacts
from meshrt.host.child import Child
from meshrt.host.osutil import children_of, outgoing_address
from meshrt.store.server import StoreServer
from meshrt.store.table import held_by, in_files, segment_rows
from meshrt.transport.kernel import stat_fields
from meshrt.transport.reserve import reserve
from meshrt.wire.control import Address
from meshrt.wire.tree import Measure, Measured

__all__ = ["Measures", "family", "machine", "private", "resident", "shares", "work"]

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

#: So many children of a rank are told.
_CHILDREN = 64
#: What /proc/PID/stat counts processor time in: so many a second.
_TICKS = os.sysconf("SC_CLK_TCK")

_Row = tuple[str, int, ProcessFacts]


def resident(pid: int) -> ProcessFacts:
    """Return ``rss``, ``peak``, ``anonymous``, ``file``, ``shmem`` and ``swap`` of a process; none if it is gone."""
    return _facts_of(_read(f"/proc/{pid}/status", _RESIDENT))


def shares(pid: int) -> ProcessFacts:
    """Return ``pss``, ``shared`` and ``private`` of a process; none if it is gone."""
    return _facts_of(_read(f"/proc/{pid}/smaps_rollup", _SHARES))


def family(pid: int) -> ProcessFacts:
    """Return the ``children`` of a process, `_CHILDREN` at most; none if it is gone, or has started no process."""
    found, left = list[int](), [pid]
    with contextlib.suppress(OSError):  # they cannot be looked up
        while left and len(found) < _CHILDREN:
            of_one = children_of(left.pop(0))
            found += of_one
            left += of_one
    return ProcessFacts(children=found[:_CHILDREN] or None)


def machine() -> tuple[str, str]:
    """Return the name of this machine, and its IP address."""
    return socket.gethostname(), outgoing_address()


def private(pid: int) -> int:
    """Return the private memory of a process that can be written to, as RLIMIT_DATA counts it; bytes, 0 if gone."""
    return _read(f"/proc/{pid}/status", {"VmData": "data"}).get("data", 0)


def work(pid: int) -> ProcessFacts:
    """Return ``cpu``, ``at``, ``kernel`` and ``threads`` of a process; none if it is gone, or cannot be looked up."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return ProcessFacts()
    if len(fields) < 18:
        return ProcessFacts()
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    return ProcessFacts(cpu=cpu, at=time.monotonic(), kernel=fields[0], threads=int(fields[17]))


def _facts_of(found: Mapping[str, int]) -> ProcessFacts:
    return convert(found, ProcessFacts)


def _read(path: str, names: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
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
        store = self._store()
        agent = _agent(store)
        if store is not None and question.references is not None:
            found = segment_rows(store.registry.segments(), time.monotonic_ns(), question.references or None)
            for start in range(0, len(found), _BATCH):
                self._tell(Measured(question.id, [], None, found[start : start + _BATCH]))
        if question.work:
            self._send(question.id, [], done=False, agent=agent)
            own = family if question.children else lambda _pid: ProcessFacts()
            self._go_on(question.id, iter(asked), lambda pid: resident(pid).joined(work(pid)).joined(own(pid)))
        else:
            rows: list[_Row] = [(*address, resident(pid)) for address, pid in asked]
            self._send(question.id, rows, done=False, agent=agent)
            self._go_on(question.id, iter(asked), lambda pid: shares(pid).joined(family(pid)))

    def _go_on(self, number: int, left: Iterator[tuple[Address, int]], read: Callable[[int], ProcessFacts]) -> None:
        end = time.monotonic() + _SLICE
        rows: list[_Row] = []
        for address, pid in left:
            rows.append((*address, read(pid)))
            if time.monotonic() >= end:
                self._send(number, rows, done=False)
                self._later(0.0, lambda: self._go_on(number, left, read))
                return
        self._send(number, rows, done=True)

    def _send(self, number: int, rows: list[_Row], *, done: bool, agent: AgentFacts | None = None) -> None:
        for start in range(0, max(1, len(rows)), _BATCH):
            last = start + _BATCH >= len(rows)
            part = rows[start : start + _BATCH]
            self._tell(Measured(number, part, agent if start == 0 else None, (), done and last))


def _agent(store: StoreServer | None) -> AgentFacts:
    """Return what this process has, and the shared memory of its host."""
    pid = os.getpid()
    node, address = machine()
    facts = resident(pid).joined(shares(pid))
    return AgentFacts(
        pid=pid, node=node, address=address, store=None if store is None else _facts(store), **facts.known()
    )


def _facts(store: StoreServer) -> StoreFacts:
    segments, registry, imports = store.registry.segments(), store.registry, store.imports
    return StoreFacts(
        committed=registry.committed,
        limit=registry.limit,
        files=in_files(segments),
        fetched=Fetched(imports.bytes, imports.count),
        sent=store.sent,
        held=[(pid, *sums) for pid, sums in held_by(segments).items()],
    )
