"""What the store of a host fetches from those of other machines: once for all of its processes.

An import: ``asked -> coming -> here -> gone``, or ``asked|coming -> failed``. Who asks for a segment that is asked for
or coming waits for the same bytes; once it is here it is a segment of this store like any other, in a file of its own
that nobody writes to any more, and when the last local holder lets go, so does this host at the owner's store.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshrt.errors import MeshError, ProtocolError, StoreFull
from meshrt.store.arena import file_chunk, memory_chunk
from meshrt.store.hostlinks import HostLink, HostLinks
from meshrt.store.lease import Loan
from meshrt.store.mapping import open_for_reading
from meshrt.store.registry import Registry, Segment
from meshrt.wire.handshake import Identity

__all__ = ["Imports"]

_MIB = 1 << 20


@dataclass(eq=False)
class _Import:
    loan: Loan
    #: ``answer(message)`` of those who wait, and the pids that hold it then.
    waiting: list[tuple[Callable[[dict[str, Any]], object], Sequence[int]]]
    descriptor: int
    #: Bytes of memory that were granted for it: none for what goes to a file.
    granted: int
    #: What it is asked for by.
    number: int = 0
    received: int = 0
    #: What the owner's store says of it.
    facts: dict[str, Any] = field(default_factory=dict)


class Imports:
    """One thread: that of the agent's selector.

    Args:
        links: Where the other stores are reached.
        run_directory: Where goes what there is no memory for: its sender cannot send it another way any more.
        own: Who this host is.
        registry: Where imported segments are held.
        arrived: ``arrived(chunk, descriptor, size, segment, granted)`` makes what has come a chunk of this store, which
            says `dropped` of it when nobody holds it any more.
        room: Returns how many bytes the host has left.
    """

    def __init__(
        self,
        links: HostLinks,
        run_directory: str,
        own: Identity,
        registry: Registry,
        arrived: Callable[[int, int, int, int, int], None],
        room: Callable[[], int],
    ) -> None:
        self._links = links
        self._run_directory = run_directory
        self._own = own
        self._registry = registry
        self._arrived = arrived
        self._room = room
        self._by_segment: dict[int, _Import] = {}
        #: Of what is here: the machine that it has come from, and the pid of the agent there.
        self._origins: dict[int, tuple[int, int]] = {}
        #: Bytes that have come so far, and how many segments.
        self.bytes = 0
        self.count = 0

    def begin(self, loan: Loan, answer: Callable[[dict[str, Any]], object], pids: Sequence[int]) -> None:
        """Processes are to hold a segment.

        ``answer({"loan", "taken"})`` says, now or later, where it is here, and that they hold it, once more each.

        Raises:
            StoreFull: There is no room for it, nor for a file.
            MeshError, OSError: Its host is lost; there is no descriptor.
        """
        here = self._registry.segment(loan.segment)
        if here is not None:  # fetched before, or come back to where it was made
            self._registry.give(here.id, pids)
            found = Loan(self._own.machine, self._own.agent_pid, here.chunk, here.id, here.start, here.size)
            answer({"loan": found, "taken": here.id})
            return
        coming = self._by_segment.get(loan.segment)
        if coming is None:
            coming = self._ask(loan)
        coming.waiting.append((answer, pids))

    def _ask(self, loan: Loan) -> _Import:
        try:
            link = self._links.to(loan.machine, loan.agent_pid)
        except MeshError as error:
            raise MeshError(f"the host that has it {error}") from None
        descriptor, granted = self._room_for(loan)
        made = self._by_segment[loan.segment] = _Import(loan, [], descriptor, granted)
        made.number = link.ask(
            "pull", lambda message: self._take(link, made, message), segment=loan.segment, size=loan.size
        )
        return made

    def _room_for(self, loan: Loan) -> tuple[int, int]:
        """Return where it is to be written, and how much memory was granted for it."""
        name = f"meshrt:{loan.segment:x}"
        try:
            self._registry.grant_import(loan.size, self._room())
        except StoreFull as full:
            try:
                return file_chunk(self._run_directory)(name, loan.size), 0
            except OSError as error:
                raise full from error
        try:
            return memory_chunk(name, loan.size), loan.size
        except OSError:
            self._registry.imported -= loan.size
            raise

    def tick(self) -> None:
        """Tell those who wait that somebody is at it."""
        for coming in tuple(self._by_segment.values()):
            for answer, _ in coming.waiting:
                answer({"t": "wait"})

    def dropped(self, segment: int, granted: int) -> None:
        """Nobody of this host holds an imported segment any more."""
        self._registry.imported -= granted
        origin = self._origins.pop(segment, None)
        link = None if origin is None else self._links.find(*origin)
        if link is not None:
            link.tell("let_go", segments=[segment])

    # -- what comes

    def _take(self, link: HostLink, coming: _Import, message: dict[str, Any]) -> None:
        if message["t"] == "lost":
            self._fail(coming, f"the host that has it {message['why']}")
        elif message["t"] == "no":
            self._fail(coming, message["why"])
            link.forget(coming.number)
        elif message["t"] == "ok":
            coming.facts = message
        elif message["t"] == "piece":
            self._write(link, coming, message["data"])
        else:
            raise ProtocolError(f"{message['t']!r} from a store")

    def _write(self, link: HostLink, coming: _Import, data: bytes) -> None:
        if not coming.facts or not data or coming.received + len(data) > coming.loan.size:
            raise ProtocolError(f"{len(data)} bytes at {coming.received} of {coming.loan.size}")
        try:
            # Takes the memory as it goes, a piece at a time.
            written = os.pwrite(coming.descriptor, data, coming.received)
        except OSError as error:
            self._give_up(link, coming, f"there is no room for it on this host: {error.strerror}")
            return
        if written != len(data):
            raise ProtocolError(f"{written} of {len(data)} bytes were written")
        coming.received += written
        self.bytes += written
        if coming.received == coming.loan.size:
            self._arrive(link, coming)

    def _arrive(self, link: HostLink, coming: _Import) -> None:
        loan, facts = coming.loan, coming.facts
        chunk = secrets.randbits(62)
        try:
            reading = open_for_reading(coming.descriptor)
        except OSError as error:
            self._give_up(link, coming, f"this host has no file descriptor left: {error.strerror}")
            return
        link.forget(coming.number)
        del self._by_segment[loan.segment]
        os.close(coming.descriptor)
        here = Loan(self._own.machine, self._own.agent_pid, chunk, loan.segment, 0, loan.size)
        self._origins[loan.segment] = loan.machine, loan.agent_pid
        self.count += 1
        self._arrived(chunk, reading, loan.size, loan.segment, coming.granted)
        disk = not coming.granted
        segment = Segment(loan.segment, here.agent_pid, chunk, 0, loan.size, facts["kind"], facts["site"], disk=disk)
        self._registry.lend(segment, [pid for _, pids in coming.waiting for pid in pids])
        for answer, _ in coming.waiting:
            answer({"loan": here, "taken": loan.segment})

    def _give_up(self, link: HostLink, coming: _Import, why: str) -> None:
        link.forget(coming.number)
        link.tell("let_go", segments=[coming.loan.segment])
        self._fail(coming, why)

    def _fail(self, coming: _Import, why: str) -> None:
        """``why``: what those who wait are told."""
        del self._by_segment[coming.loan.segment]
        os.close(coming.descriptor)
        self._registry.imported -= coming.granted
        if coming.received:
            why += f" ({coming.received / _MIB:.1f} of {coming.loan.size / _MIB:.1f} MiB had come)"
        for answer, _ in coming.waiting:
            answer({"t": "no", "why": why})
