"""What the store of a host fetches from those of other machines: once for all of its processes.

The owner's store is asked, and names another host that has the bytes or fetches them (`meshrt.store.chain`), or sends
them itself. Bytes that are here are sent on while the others come.

========  ============================================  ==========================================================
state     what happens                                  next
========  ============================================  ==========================================================
asked     the owner names a host                        coming, from that one
asked     the owner sends                               coming, from the owner
asked     the owner refuses, or is lost                 failed
coming    bytes come                                    coming; here, with the last of them
coming    the other host refuses, is lost, or says      asked: without that host, and from the first byte on that is
          nothing for `_PATIENCE`                       missing
coming    the owner is lost, while another host sends   coming
coming    there is no room                              failed
here      the last process lets go                      gone: this host lets go at the owner
========  ============================================  ==========================================================

Later requests for a segment that is asked for or coming wait for the same bytes. Once it is here it is a normal segment
of this store, in a file of its own that is not written any more.
"""

from __future__ import annotations

import functools
import os
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from meshrt.errors import MeshError, ProtocolError, StoreFull
from meshrt.store.arena import file_chunk, memory_chunk
from meshrt.store.chain import StoreName
from meshrt.store.exports import Source
from meshrt.store.hostlink import HostLink, Lost
from meshrt.store.hostlinks import HostLinks
from meshrt.store.lease import Loan
from meshrt.store.mapping import Mapping, open_for_reading
from meshrt.store.messages import Found, Full, Imported, LetGo, Piece, Pull, Relay, Skip, ToStore
from meshrt.store.registry import Chunk, Registry, Segment
from meshrt.wire.errors import why_of
from meshrt.wire.handshake import Identity
from meshrt.wire.tree import Later, Refusal

__all__ = ["Imports"]

_MIB = 1 << 20
#: Seconds that another host than the owner may say nothing. To go on without it costs no more than its bytes.
_PATIENCE = 3.0
_PAGE = os.sysconf("SC_PAGESIZE")

Answer = Callable[[Imported | Later | Refusal], object]
"""Answers the peer that has asked."""


class _Waiting(msgspec.Struct, frozen=True):
    """A peer that has asked for a segment that is not here yet."""

    number: int
    answer: Answer
    #: They hold it then.
    pids: Sequence[int]


class _Import(msgspec.Struct, eq=False):
    loan: Loan
    waiting: list[_Waiting]
    #: For writing; and where the next hosts are sent it from.
    descriptor: int
    source: Source
    #: The memory of it; None: its bytes are written to the file.
    mapping: Mapping | None
    #: Bytes of memory that were granted for it: none for what goes to a file.
    granted: int
    #: The host that was asked last, and the number of that question.
    link: HostLink | None = None
    number: int = 0
    #: When something was heard of that (monotonic).
    heard: float = 0.0
    #: Where the next piece is received.
    target: memoryview | None = None
    #: The owner's description of it, once it has come.
    found: Found | None = None

    @property
    def received(self) -> int:
        """How many bytes are here."""
        return self.source.size

    @property
    def owner(self) -> StoreName:
        """The store that it belongs to."""
        return StoreName(self.loan.machine, self.loan.agent_pid)


class Imports:
    """One thread: that of the agent's selector.

    Args:
        links: Connections to the other stores.
        run_directory: For segments without memory here: their sender has no other way to send them any more.
        own: The identity of this host.
        registry: Gets a chunk for each segment that has come. `dropped` is to be called when no process holds it.
        room: Returns how many bytes the host has left.
        grown: Called when more bytes of a segment are here, with its number.
        failed: Called when no more bytes of a segment come, with its number and the reason.
    """

    def __init__(
        self,
        links: HostLinks,
        run_directory: str,
        own: Identity,
        registry: Registry,
        room: Callable[[], int],
        grown: Callable[[int], None] = lambda _segment: None,
        failed: Callable[[int, str], None] = lambda _segment, _why: None,
    ) -> None:
        self._grown = grown
        self._failed = failed
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

    def coming(self, segment: int) -> tuple[Found, Source, int] | None:
        """Return a segment that comes, where its bytes are received, and its size; None: nothing is known of it yet."""
        found = self._by_segment.get(segment)
        return None if found is None or found.found is None else (found.found, found.source, found.loan.size)

    def _ask(self, loan: Loan) -> _Import:
        try:
            link = self._links.to(loan.machine, loan.agent_pid)
        except MeshError as error:
            raise MeshError(f"the host that holds the data {error}") from None
        descriptor, granted = self._room_for(loan)
        mapping = None
        if granted:
            try:
                mapping = Mapping(descriptor, loan.size, writable=True)
                mapping.keep_from_children()  # ranks
            except OSError:
                pass  # no addresses are left: it is written
        made = _Import(loan, [], descriptor, Source(descriptor, 0, 0), mapping, granted)
        self._by_segment[loan.segment] = made
        self._ask_host(made, link, lambda number: Pull(number, loan.segment, loan.size))
        return made

    def _ask_host(self, coming: _Import, link: HostLink, question: Callable[[int], Pull | Skip | Relay]) -> None:
        coming.link, coming.heard, coming.target = link, time.monotonic(), None

        def ask(number: int) -> Pull | Skip | Relay:
            coming.number = number
            link.places[number] = functools.partial(self._place, coming)
            return question(number)

        link.ask(ask, functools.partial(self._take, coming, link))

    def _relay(self, coming: _Import, source: StoreName) -> None:
        """Fetch it from another host than the owner."""
        if source == (self._own.machine, self._own.agent_pid):
            raise ProtocolError("this host itself is named as the host that holds the data")
        self._forget(coming)
        try:
            link = self._links.to(*source)
        except (MeshError, OSError):
            self._skip(coming, source)
            return
        loan = coming.loan
        self._ask_host(coming, link, lambda number: Relay(number, loan.segment, loan.size, coming.received))

    def _skip(self, coming: _Import, without: StoreName) -> None:
        """A host that was named does not deliver."""
        self._forget(coming)
        loan = coming.loan
        try:
            link = self._links.to(*coming.owner)
        except MeshError as error:
            self._fail(coming, f"the host that holds the data {error}")
        except OSError as error:
            self._fail(coming, f"the host that holds the data cannot be reached: {why_of(error)}")
        else:
            start = coming.received
            self._ask_host(coming, link, lambda number: Skip(number, loan.segment, loan.size, start, without))

    def _forget(self, coming: _Import) -> None:
        """The host that was asked last is not listened to any more, as far as this segment is concerned."""
        if coming.link is not None:
            coming.link.forget(coming.number)
            coming.link = None

    def _room_for(self, loan: Loan) -> tuple[int, int]:
        """Return where it is to be written, and how much memory was granted for it."""
        name = f"meshrt:{loan.segment:x}"
        try:
            self._registry.grant_import(loan.size, self._room())
        except StoreFull as full:
            try:
                return file_chunk(self._run_directory, name, loan.size), 0
            except OSError as error:
                what = f"{full.what}, where no file can be created either ({error.strerror}),"
                raise StoreFull(full.size, full.limit, full.used, what) from error
        try:
            return memory_chunk(name, loan.size), loan.size
        except OSError:
            self._registry.imported -= loan.size
            raise

    def tick(self) -> None:
        """Tell the waiting peers that it takes longer; do without hosts that say nothing."""
        silent = time.monotonic() - _PATIENCE
        for coming in tuple(self._by_segment.values()):
            for each in coming.waiting:
                each.answer(Later(each.number))
            link = coming.link
            if link is not None and link.name != coming.owner and coming.heard < silent:
                link.tell(LetGo([coming.loan.segment]))
                self._skip(coming, link.name)

    def dropped(self, chunk: int) -> None:
        """No process of this host holds anything of a chunk any more."""
        loan, granted = self._here.pop(chunk, (None, 0))
        self._registry.imported -= granted
        link = None if loan is None else self._links.find(loan.machine, loan.agent_pid)
        if loan is not None and link is not None:
            link.tell(LetGo([loan.segment]))

    # -- what comes

    def _take(self, coming: _Import, link: HostLink, message: ToStore | Piece | Lost) -> None:
        coming.heard = time.monotonic()
        from_owner = link.name == coming.owner
        match message:
            case Later():
                pass
            case Lost(why=why) if from_owner:
                self._fail(coming, f"the host that holds the data {why}")
            case Refusal(why=why) if from_owner:
                self._fail(coming, why)
            case Full() if from_owner:
                self._fail(coming, str(message.error()))
            case Lost() | Refusal() | Full():
                self._skip(coming, link.name)
            case Found(source=source):
                coming.found = coming.found or message
                if source is not None:
                    self._relay(coming, source)
            case Piece(data=data):
                self._write(coming, data)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not an answer to what was asked for")

    def _place(self, coming: _Import, size: int) -> memoryview | None:
        """Return where the next piece belongs in the memory that others map; None: it is received elsewhere."""
        start, end = coming.received, coming.received + size
        if coming.mapping is None or coming.found is None or end > coming.loan.size:
            return None
        try:
            # Before it is written: missing memory is an error here, and would end this process there.
            coming.mapping.populate(coming.descriptor, start - start % _PAGE, end)
        except OSError:
            return None
        coming.target = coming.mapping.target(start, size)
        return coming.target

    def _write(self, coming: _Import, data: memoryview | bytes) -> None:
        found = coming.found
        if found is None or not data or coming.received + len(data) > coming.loan.size:
            raise ProtocolError(f"{len(data)} bytes at {coming.received} of {coming.loan.size}")
        placed, coming.target = data is coming.target, None
        try:
            # Takes the memory as it goes, a piece at a time.
            written = len(data) if placed else os.pwrite(coming.descriptor, data, coming.received)
        except OSError as error:
            self._give_up(coming, f"this host has no space for the data: {error.strerror}")
            return
        if written != len(data):
            raise ProtocolError(f"{written} of {len(data)} bytes were written")
        coming.source.size += written
        self.bytes += written
        if coming.received == coming.loan.size:
            self._arrive(coming, found)
        self._grown(coming.loan.segment)

    def _arrive(self, coming: _Import, found: Found) -> None:
        loan, own = coming.loan, self._own
        chunk = secrets.randbits(62)
        try:
            reading = open_for_reading(coming.descriptor)
        except OSError as error:
            self._give_up(coming, f"this host has no file descriptor left: {error.strerror}")
            return
        if coming.link is not None and coming.link.name != coming.owner:
            coming.link.tell(LetGo([loan.segment]))  # the owner counts this host until it is let go here
        self._end(coming)
        coming.source.descriptor = reading
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
        names = {coming.owner} if coming.link is None else {coming.owner, coming.link.name}
        for link in [self._links.find(*name) for name in names]:
            if link is not None:
                link.tell(LetGo([coming.loan.segment]))
        self._fail(coming, why)

    def _end(self, coming: _Import) -> None:
        self._forget(coming)
        coming.mapping = coming.target = None
        del self._by_segment[coming.loan.segment]
        os.close(coming.descriptor)

    def _fail(self, coming: _Import, why: str) -> None:
        """``why``: the reason for the waiting peers."""
        self._end(coming)
        self._registry.imported -= coming.granted
        if coming.received:
            why += f" ({coming.received / _MIB:.1f} of {coming.loan.size / _MIB:.1f} MiB were received)"
        for each in coming.waiting:
            each.answer(Refusal(each.number, why))
        self._failed(coming.loan.segment, why)
