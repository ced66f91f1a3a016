"""What the store of a host fetches from those of other machines: once for all of its processes.

An import: ``asked -> coming -> here -> gone``, or ``asked|coming -> failed``. Later requests for a segment that is
asked for or coming wait for the same bytes. Once it is here it is a normal segment of this store, in a file of its own
that is not written any more. When its last local holder releases it, this host releases it at the owner's store.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence

import msgspec

from meshrt.errors import MeshError, ProtocolError, StoreFull
from meshrt.store.arena import file_chunk, memory_chunk
from meshrt.store.hostlinks import HostLink, HostLinks, Lost
from meshrt.store.lease import Loan
from meshrt.store.mapping import open_for_reading
from meshrt.store.messages import Found, Full, Imported, LetGo, Piece, Pull, ToStore
from meshrt.store.registry import Chunk, Registry, Segment
from meshrt.wire.handshake import Identity
from meshrt.wire.tree import Later, Refusal

__all__ = ["Imports"]

_MIB = 1 << 20

Answer = Callable[[Imported | Later | Refusal], object]
"""Answers the peer that has asked."""


class _Waiting(msgspec.Struct, frozen=True):
    """A peer that has asked for a segment that is not here yet."""

    number: int
    answer: Answer
    #: They hold it then.
    pids: Sequence[int]


class _Import(msgspec.Struct, eq=False):
    link: HostLink
    loan: Loan
    waiting: list[_Waiting]
    descriptor: int
    #: Bytes of memory that were granted for it: none for what goes to a file.
    granted: int
    #: The name by which it is requested.
    number: int = 0
    received: int = 0
    #: The owner's description of it, once it has come.
    found: Found | None = None


class Imports:
    """One thread: that of the agent's selector.

    Args:
        links: Connections to the other stores.
        run_directory: For segments without memory here: their sender has no other way to send them any more.
        own: The identity of this host.
        registry: Gets a chunk for each segment that has come. `dropped` is to be called when no process holds it.
        room: Returns how many bytes the host has left.
    """

    def __init__(
        self,
        links: HostLinks,
        run_directory: str,
        own: Identity,
        registry: Registry,
        room: Callable[[], int],
    ) -> None:
        self._links = links
        self._run_directory = run_directory
        self._own = own
        self._registry = registry
        self._room = room
        self._by_segment: dict[int, _Import] = {}
        #: By the chunk that it is in: a segment that is here, where it comes from, and what memory was granted for it.
        self._here: dict[int, tuple[Loan, int]] = {}
        #: Bytes that have come so far, and how many segments.
        self.bytes = 0
        self.count = 0

    def begin(self, number: int, loan: Loan, answer: Answer, pids: Sequence[int]) -> None:
        """Processes are to hold a segment, once more each.

        Args:
            number: That of the question, used in the answer.
            answer: Called, now or later, when it is here and they hold it, or with a refusal.
        Raises:
            StoreFull: There is no room for it, nor for a file.
            MeshError, OSError: Its host is lost; there is no descriptor.
        """
        here = self._registry.segment(loan.segment)
        if here is not None:  # fetched before, or come back to where it was made
            self._registry.give(here.id, pids)
            found = Loan(self._own.machine, self._own.agent_pid, here.chunk, here.id, here.start, here.size)
            answer(Imported(number, found))
            return
        coming = self._by_segment.get(loan.segment)
        if coming is None:
            coming = self._ask(loan)
        coming.waiting.append(_Waiting(number, answer, pids))

    def _ask(self, loan: Loan) -> _Import:
        try:
            link = self._links.to(loan.machine, loan.agent_pid)
        except MeshError as error:
            raise MeshError(f"the host that has it {error}") from None
        descriptor, granted = self._room_for(loan)
        made = self._by_segment[loan.segment] = _Import(link, loan, [], descriptor, granted)
        made.number = link.ask(
            lambda number: Pull(number, loan.segment, loan.size), lambda message: self._take(made, message)
        )
        return made

    def _room_for(self, loan: Loan) -> tuple[int, int]:
        """Return where it is to be written, and how much memory was granted for it."""
        name = f"meshrt:{loan.segment:x}"
        try:
            self._registry.grant_import(loan.size, self._room())
        except StoreFull as full:
            try:
                return file_chunk(self._run_directory, name, loan.size), 0
            except OSError as error:
                raise full from error
        try:
            return memory_chunk(name, loan.size), loan.size
        except OSError:
            self._registry.imported -= loan.size
            raise

    def tick(self) -> None:
        """Tell the waiting peers that it takes longer."""
        for coming in tuple(self._by_segment.values()):
            for each in coming.waiting:
                each.answer(Later(each.number))

    def dropped(self, chunk: int) -> None:
        """No process of this host holds anything of a chunk any more."""
        loan, granted = self._here.pop(chunk, (None, 0))
        self._registry.imported -= granted
        link = None if loan is None else self._links.find(loan.machine, loan.agent_pid)
        if loan is not None and link is not None:
            link.tell(LetGo([loan.segment]))

    # -- what comes

    def _take(self, coming: _Import, message: ToStore | Lost) -> None:
        match message:
            case Lost(why=why):
                self._fail(coming, f"the host that has it {why}")
            case Refusal(why=why):
                self._fail(coming, why)
            case Full():
                self._fail(coming, str(message.error()))
            case Found():
                coming.found = message
            case Piece(data=data):
                self._write(coming, data)
            case _:
                raise ProtocolError(f"{type(message).__name__} is no answer to what was asked for")

    def _write(self, coming: _Import, data: bytes) -> None:
        found = coming.found
        if found is None or not data or coming.received + len(data) > coming.loan.size:
            raise ProtocolError(f"{len(data)} bytes at {coming.received} of {coming.loan.size}")
        try:
            # Takes the memory as it goes, a piece at a time.
            written = os.pwrite(coming.descriptor, data, coming.received)
        except OSError as error:
            self._give_up(coming, f"there is no room for it on this host: {error.strerror}")
            return
        if written != len(data):
            raise ProtocolError(f"{written} of {len(data)} bytes were written")
        coming.received += written
        self.bytes += written
        if coming.received == coming.loan.size:
            self._arrive(coming, found)

    def _arrive(self, coming: _Import, found: Found) -> None:
        loan, own = coming.loan, self._own
        chunk = secrets.randbits(62)
        try:
            reading = open_for_reading(coming.descriptor)
        except OSError as error:
            self._give_up(coming, f"this host has no file descriptor left: {error.strerror}")
            return
        self._end(coming)
        self._here[chunk] = loan, coming.granted
        self.count += 1
        self._registry.add_chunk(Chunk(chunk, own.pid, loan.size, reading, orphan=True))
        disk = not coming.granted
        segment = Segment(loan.segment, own.agent_pid, chunk, 0, loan.size, found.kind, found.site, disk=disk)
        self._registry.share(segment, [pid for each in coming.waiting for pid in each.pids])
        here = Loan(own.machine, own.agent_pid, chunk, loan.segment, 0, loan.size)
        for each in coming.waiting:
            each.answer(Imported(each.number, here))

    def _give_up(self, coming: _Import, why: str) -> None:
        coming.link.tell(LetGo([coming.loan.segment]))
        self._fail(coming, why)

    def _end(self, coming: _Import) -> None:
        coming.link.forget(coming.number)
        del self._by_segment[coming.loan.segment]
        os.close(coming.descriptor)

    def _fail(self, coming: _Import, why: str) -> None:
        """``why``: the reason for the waiting peers."""
        self._end(coming)
        self._registry.imported -= coming.granted
        if coming.received:
            why += f" ({coming.received / _MIB:.1f} of {coming.loan.size / _MIB:.1f} MiB had come)"
        for each in coming.waiting:
            each.answer(Refusal(each.number, why))
