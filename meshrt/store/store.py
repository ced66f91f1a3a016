"""The store as one process uses it: what it writes, what it has been lent.

Large buffers of a message go into shared memory instead of the socket, once for all receivers:

1. The sender allocates a block of its own arena, copies the buffers there, and **lends** the segment to the receivers'
   pids, before it sends the message. From then on the receivers hold it, not the sender.
2. The header of the message names the segment; the bytes stay where they are. A receiver maps the sender's chunk when
   it sees it for the first time, and never again.
3. When the last view of it is gone in a receiver, that one lets go; when all have, the owner hears that it may write
   there again.

A sender that cannot say who the receivers are (ranks that are not born yet) **keeps** the segment until it is answered,
and the receivers **take** it when they read. Where the store has no room, or is gone, the bytes travel through the
socket as they do otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from meshrt.errors import MeshError, ReferenceLost, StoreFull
from meshrt.store.arena import Arena, Block, Chunk, file_chunk, memory_chunk
from meshrt.store.exclusive import Exclusive
from meshrt.store.lease import Lease, Loan, Received
from meshrt.store.limits import spills
from meshrt.store.mapping import Copies, Mapping, open_for_reading
from meshrt.store.refs import ObjectRef, mentions, references_exist
from meshrt.store.registrar import Registrar
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.wire import codec
from meshrt.wire.codec import Part
from meshrt.wire.frames import Frame
from meshrt.wire.messages import STORED

__all__ = ["LARGE", "Parcel", "Store", "encode_result"]

#: Buffers from this size on, bytes, go into shared memory.
LARGE = 256 << 10
#: Views begin where processors and arrays like it.
_ALIGN = 64
#: Seconds between two looks at what has been let go.
_TICK = 1.0
#: Seconds that the first host agent may take to start, for a `put` right behind `proc_mesh`.
_START = 30.0
#: References in one message to a store.
_MOST = 10_000


class Parcel(NamedTuple):
    """A pickled value, ready to be sent."""

    parts: list[Part]
    #: For each of its buffers a length, or its place in a segment (`Received.bytes_at`).
    lengths: list[Any]
    #: ``[loans, pids of their holders or nil]`` for the end of the header, if some of it is in the store.
    loans: list[Any] | None = None
    #: What the sender has to hold until it is answered.
    kept: Sequence[Lease] = ()


def encode_result(value: Any, holders: Callable[[], list[int] | None]) -> Parcel:
    """Pickle the result of an endpoint, with the store of this process if it belongs to a program."""
    store: Store | None = current_runtime().store if has_runtime() else None
    if store is None:
        return Parcel(*codec.encode(value))
    try:
        return store.encode(value, "result", holders)
    except (MeshError, OSError) as error:  # of a reference in it, whose store cannot be reached
        raise codec.EncodeError(f"{codec.describe(value)} cannot be sent: {codec.text_of(error)}") from error


class Store:
    """Any thread.

    Args:
        directory: The runtime directory of the program.
        run_directory: Where objects go that spill.
        secret: What processes prove to each other.
        home: ``home(seconds)`` returns the pid of the host agent whose store knows what this process writes; 0 if there
            is none within so many seconds.
        call_later: Calls a function after some seconds, on a thread that must not be blocked.
    """

    def __init__(
        self,
        directory: str,
        run_directory: str,
        secret: bytes,
        home: Callable[[float], int],
        call_later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._directory = directory
        self._run_directory = run_directory
        self._secret = secret
        self._home = home
        self._call_later = call_later
        self._lock = Exclusive()
        self._registrars: dict[int, Registrar] = {}
        #: Of the registrar that is told of them: in memory, and on disk.
        self._arenas: dict[tuple[int, bool], Arena] = {}
        self._blocks: dict[int, tuple[Arena, Block]] = {}
        self._ticking = False
        self._closed = False
        self._refusals = 0
        self._why_refused = ""

    # -- sending

    def encode(self, value: Any, kind: str, holders: Callable[[], list[int] | None]) -> Parcel:
        """Pickle ``value`` for some receivers.

        Args:
            kind: "argument" or "result".
            holders: The pids of all receivers (none of them: nothing is shared); None: not known, but they will answer.
        Raises:
            EncodeError: It cannot be pickled.
        """
        if not references_exist():
            try:
                return self._pack(*codec.pickled(value), {}, kind, holders)
            except codec.EncodeError:
                if not references_exist():  # or else its own __reduce__ has put something
                    raise
        with mentions() as mentioned:
            data, buffers = codec.pickled(value)
        return self._pack(data, buffers, mentioned, kind, holders)

    def _pack(
        self,
        data: bytes,
        buffers: list[memoryview],
        mentioned: dict[int, Lease],
        kind: str,
        holders: Callable[[], list[int] | None],
    ) -> Parcel:
        large = [index for index, buffer in enumerate(buffers) if buffer.nbytes >= LARGE]
        if not large and not mentioned:
            return Parcel(*codec.lay_out(data, buffers))
        pids = holders()
        if pids is not None and not pids:
            large = []  # nobody reads it, or nobody that could be named
        kept = list(mentioned.values())
        loans = [lease.loan for lease in kept]
        if pids:
            self._give(loans, pids)
        places: dict[int, list[int]] = {}
        if large:
            try:
                own = [os.getpid()]
                loan, starts = self._write([buffers[index] for index in large], kind, "", own if pids is None else pids)
            except (OSError, MeshError) as error:
                self._refused(error)
            else:
                places = {
                    index: [len(loans), start, buffers[index].nbytes]
                    for index, start in zip(large, starts, strict=True)
                }
                loans.append(loan)
                if pids is None:
                    kept.append(Lease(self, loan))
        if not loans:
            return Parcel(*codec.lay_out(data, buffers))
        parts, inline = codec.lay_out(data, [buffer for index, buffer in enumerate(buffers) if index not in places])
        rest = iter(inline[1:])
        lengths = [inline[0], *(places[index] if index in places else next(rest) for index in range(len(buffers)))]
        return Parcel(parts, lengths, [loans, pids], () if pids is not None else kept)

    def _give(self, loans: Sequence[Loan], pids: list[int]) -> None:
        by_agent: dict[int, list[int]] = {}
        for loan in loans:
            by_agent.setdefault(loan.agent_pid, []).append(loan.segment)
        for agent_pid, segments in by_agent.items():
            for start in range(0, len(segments), _MOST):
                part = segments[start : start + _MOST]
                self._registrar(agent_pid).tell({"t": "give", "segments": part, "to": pids})

    def _refused(self, error: Exception) -> None:
        if not self._refusals:
            logging.getLogger("meshrt").warning("large arrays go through sockets, which takes longer: %s", error)
        self._refusals += 1
        self._why_refused = str(error)

    def statistics(self) -> dict[str, Any]:
        """Return how it stands, after hearing what was let go: ``taken`` and ``committed`` bytes of what this process
        has written, and how many messages went through sockets because there was no room: ``refusals``, ``why``."""
        with self._lock:
            self._reclaim()
            arenas = tuple(self._arenas.values())
        return {
            "taken": sum(arena.taken for arena in arenas),
            "committed": sum(arena.committed for arena in arenas),
            "refusals": self._refusals,
            "why": self._why_refused,
        }

    def put(self, value: Any, *, lazy: bool, spill: bool | None, site: str) -> ObjectRef[Any]:
        """Write an object once, and return a reference to it.

        Raises:
            EncodeError: It cannot be pickled.
            StoreFull: There is no room for it.
            ReferenceLost, OSError: There is no store, no descriptor, no place on the disk.
        """
        data, buffers = codec.pickled(value)
        pieces = [memoryview(data), *buffers]
        try:
            loan, starts = self._write(pieces, "put", site, [os.getpid()], patience=_START)
        except (StoreFull, OSError):
            if not (spills() if spill is None else spill):
                raise
            try:
                loan, starts = self._write(pieces, "put", site, [os.getpid()], disk=True)
            except OSError as error:
                where = f"put() cannot write to a file in {self._run_directory} either: {error.strerror}"
                raise OSError(error.errno, where) from error
        sizes = [piece.nbytes for piece in pieces]
        return ObjectRef(Lease(self, loan, self.mapping(loan)), list(zip(starts, sizes, strict=True)), lazy, site)

    def _write(
        self,
        pieces: Sequence[memoryview],
        kind: str,
        site: str,
        holders: list[int],
        *,
        patience: float = 0.0,
        disk: bool = False,
    ) -> tuple[Loan, list[int]]:
        """Write a segment, which ``holders`` hold then. Returns where it is, and where in it each piece starts."""
        starts, size = [], 0
        for piece in pieces:
            starts.append(size)
            size += piece.nbytes + -piece.nbytes % _ALIGN
        home = self._home(patience)
        self._registrar(home).connect()
        with self._lock:
            self._reclaim()
            registrar = self._registrar(home)  # not that of before, if it was lost
            arena = self._arena(registrar, disk)
            block = arena.allocate(size)
            segment = secrets.randbits(62)
            self._blocks[segment] = (arena, block)
        try:
            for start, piece in zip(starts, pieces, strict=True):
                block.write(start, piece)
            body = {"segment": segment, "chunk": block.chunk.id, "size": block.size, "kind": kind, "site": site}
            body["disk"] = disk
            registrar.tell({"t": "lend", **body, "to": holders})
        except BaseException:
            registrar.withdraw(segment)
            with self._lock:
                self._release(segment)
            raise
        self._watch()
        return Loan(registrar.agent_pid, block.chunk.id, segment, block.start, size), starts

    # -- receiving

    def claim(self, frame: Frame) -> Frame:
        """Take what came with a frame of a kind with the flag ``STORED``; dropping the result lets go of it."""
        *header, (loans, holders) = frame.header
        # Not among them: it was sent to the process of which this one has taken the place.
        given = holders is not None and os.getpid() in holders
        received = Received(self, frame.payload, [Loan(*loan) for loan in loans], given)
        return Frame(frame.kind & ~STORED, header, received)

    def mapping(self, loan: Loan) -> Mapping | Copies:
        """Return the chunk of a segment as it is mapped here. Raises ReferenceLost, OSError."""
        for arena in tuple(self._arenas.values()):
            chunk = arena.chunks.get(loan.chunk)
            if chunk is not None:
                return chunk.mapping
        mapping = self._registrar(loan.agent_pid).mapping(loan.chunk)
        self._watch()
        return mapping

    def take(self, loan: Loan) -> bool:
        """Hold a segment once more."""
        try:
            self._registrar(loan.agent_pid).ask("take", segment=loan.segment)
        except (MeshError, OSError):
            return False
        return True

    def let_go(self, loan: Loan) -> None:
        """This process holds a segment once less. A finalizer may call it."""
        if self._closed:
            return
        registrar = self._registrars.get(loan.agent_pid)
        if registrar is None:  # what came was dropped unread
            registrar = self._registrars.setdefault(loan.agent_pid, self._new_registrar(loan.agent_pid))
        registrar.let_go(loan.segment)
        if registrar.has_work:
            self._watch()

    # -- inside

    def _new_registrar(self, agent_pid: int) -> Registrar:
        return Registrar(self._directory, self._secret, agent_pid)

    def _registrar(self, agent_pid: int) -> Registrar:
        if self._closed:
            raise ReferenceLost(
                "the program has ended here, or this is a forked child of it: shared memory is its parent's"
            )
        if not agent_pid:
            raise ReferenceLost("no host agent runs: make a mesh with proc_mesh() first")
        found = self._registrars.get(agent_pid)
        return found or self._registrars.setdefault(agent_pid, self._new_registrar(agent_pid))

    def _arena(self, registrar: Registrar, disk: bool) -> Arena:
        key = registrar.agent_pid, disk
        if key not in self._arenas:

            def publish(chunk: Chunk) -> None:
                descriptor = open_for_reading(chunk.descriptor)
                try:
                    registrar.ask("chunk", [descriptor], id=chunk.id, size=chunk.mapping.size)
                finally:
                    os.close(descriptor)

            def grant(size: int) -> None:
                if size > 0:
                    registrar.ask("grant", size=size)
                else:
                    registrar.tell({"t": "grant", "n": 0, "size": size})

            if disk:
                self._arenas[key] = Arena(file_chunk(self._run_directory), publish, lambda _size: None)
            else:
                self._arenas[key] = Arena(memory_chunk, publish, grant)
        return self._arenas[key]

    def _reclaim(self) -> None:
        """Use again what nobody holds any more. The lock is held."""
        for agent_pid, registrar in tuple(self._registrars.items()):
            registrar.settle()
            while registrar.freed:
                self._release(registrar.freed.popleft())
            if registrar.lost:
                self._forget(agent_pid)

    def _release(self, segment: int) -> None:
        arena, block = self._blocks.pop(segment, (None, None))
        if arena is not None and block is not None:
            arena.release(block)

    def _forget(self, agent_pid: int) -> None:
        """A store has ended: nobody can say any more who sees what it knew of, so nothing of that is written again."""
        self._registrars.pop(agent_pid, None)
        for disk in (False, True):
            arena = self._arenas.pop((agent_pid, disk), None)
            if arena is not None:
                self._blocks = {segment: entry for segment, entry in self._blocks.items() if entry[0] is not arena}
                arena.close()

    def _watch(self) -> None:
        if not self._ticking and not self._closed:
            self._ticking = True
            self._call_later(_TICK, self._tick)

    def _tick(self) -> None:
        """Hear what was let go, and give memory back that has not been needed for a while."""
        self._ticking = False
        for registrar in tuple(self._registrars.values()):
            with contextlib.suppress(MeshError):  # it has ended: what it knew has ended with it
                registrar.tend()
        if self._lock.acquire(blocking=False):
            try:
                self._reclaim()
                for arena in self._arenas.values():
                    arena.trim()
                in_use = any(arena.taken or arena.committed for arena in self._arenas.values())
            except (OSError, MeshError):
                in_use = True  # as above; the next look finds out
            finally:
                self._lock.release()
        else:
            in_use = True
        if in_use or any(registrar.has_work for registrar in self._registrars.values()):
            self._watch()

    # -- the end

    def close(self) -> None:
        """The end of this process's part in the program. Views stay valid."""
        self._closed = True
        for registrar in self._registrars.values():
            registrar.close()
        for arena in self._arenas.values():
            arena.close()

    def abandon(self) -> None:
        """Close the descriptors in a forked child, which holds nothing; what it has inherited stays mapped."""
        self.close()
