"""What a process writes into the store: its arenas, and where in them its segments are.

One lock guards the arenas and the table of segments: it is held while memory is asked for, and while a slice of it is
given back, never while bytes are copied. A thread that must not wait tries it, and retries later if it is taken.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence

from meshrt.errors import MeshError, StoreFull
from meshrt.store.arena import Arena, Block, Chunk, file_chunk, memory_chunk
from meshrt.store.exclusive import Exclusive
from meshrt.store.lease import Loan
from meshrt.store.mapping import open_for_reading
from meshrt.store.messages import GiveBack, Grant, Granted, Publish, Published, Share, Withdraw
from meshrt.store.registrar import Registrar
from meshrt.store.registrars import Registrars
from meshrt.transport.interrupts import installed
from meshrt.transport.paths import closed_after

__all__ = ["Arenas"]

#: Views begin where processors and arrays like it.
_ALIGN = 64
#: Bytes that are given back at a time: some milliseconds for the thread that does it, and for those that need the lock.
_SLICE = 8 << 20


class Arenas:
    """Any thread.

    Args:
        registrars: Reach the stores that register what is written.
        run_directory: The directory of objects that spill.
        watch: Called when something was written: `tend` is to be called before long.
    """

    def __init__(self, registrars: Registrars, run_directory: str, watch: Callable[[], None]) -> None:
        self.run_directory = run_directory
        self._registrars = registrars
        self._watch = watch
        self._lock = Exclusive()
        #: By the pid of the agent that registers them: in memory, and on disk.
        self._arenas: dict[tuple[int, bool], Arena] = {}
        self._blocks: dict[int, tuple[Arena, Block]] = {}

    def write(
        self, pieces: Sequence[memoryview], kind: str, site: str, holders: list[int], *, disk: bool = False
    ) -> tuple[Loan, list[int]]:
        """Write a segment, which ``holders`` hold then. Returns where it is, and where in it each piece starts.

        Args:
            pieces: What it consists of.
            kind, site: See `meshrt.store.registry.Segment`.
            holders: Pids.
            disk: Write it to a file.
        Raises:
            StoreFull: There is no room.
            MeshError, OSError: There is no store, no descriptor, no disk.
        """
        starts, size = [], 0
        for piece in pieces:
            starts.append(size)
            size += piece.nbytes + -piece.nbytes % _ALIGN
        home = self._registrars.home(0.0)
        registrar = self._registrars.of(home)
        registrar.connect()
        segment = secrets.randbits(62)
        try:
            with self._lock:
                self._reclaim()
                registrar = self._registrars.of(home)  # not that of before, if it was lost
                arena = self._arena(registrar, disk)
                try:
                    block = arena.allocate(size)
                except StoreFull as error:  # it has asked for the missing memory
                    raise StoreFull(size, error.limit, error.used, error.what) from None
                self._blocks[segment] = (arena, block)
            shield = installed()
            for start, piece in zip(starts, pieces, strict=True):
                shield.check()  # copying may take a while; the block is free if that raises
                block.write(start, piece)
            registrar.tell(Share(segment, block.chunk.id, block.start, block.size, kind, site, disk, holders))
        except BaseException:
            registrar.tell_later(Withdraw([segment]))
            with self._lock:
                self._release(segment)
            raise
        self._watch()
        return Loan(registrar.machine, registrar.agent_pid, block.chunk.id, segment, block.start, size), starts

    def chunk(self, number: int) -> Chunk | None:
        """Return a chunk of this process; None: it belongs to another one."""
        for arena in tuple(self._arenas.values()):
            found = arena.chunks.get(number)
            if found is not None:
                return found
        return None

    def statistics(self) -> dict[str, int]:
        """Return ``{"taken", "committed"}``, bytes, after receiving what was released."""
        with self._lock:
            self._reclaim()
            arenas = tuple(self._arenas.values())
        return {"taken": sum(arena.taken for arena in arenas), "committed": sum(arena.committed for arena in arenas)}

    def tend(self) -> tuple[bool, bool]:
        """Reuse what was released, and give back a slice of what was not needed since the last time.

        Never waits. Returns whether there is more to give back, and whether further calls are needed.
        """
        if not self._lock.acquire(blocking=False):
            return False, True
        try:
            self._reclaim()
            given = any(arena.trim(_SLICE) for arena in self._arenas.values())  # of one of them
            return given, any(arena.taken or arena.committed for arena in self._arenas.values())
        except (OSError, MeshError):
            return False, True  # the store that registers it has ended, which the next check finds
        finally:
            self._lock.release()

    def close(self) -> None:
        """Release the chunks; a chunk with views stays mapped until the last view has ended."""
        for arena in self._arenas.values():
            arena.close()

    # -- inside; the lock is held

    def _arena(self, registrar: Registrar, disk: bool) -> Arena:
        key = registrar.agent_pid, disk
        if key not in self._arenas:

            def publish(chunk: Chunk) -> None:
                with closed_after(open_for_reading(chunk.descriptor)) as descriptor:
                    registrar.ask(
                        lambda number: Publish(number, chunk.id, chunk.mapping.size), Published, send=[descriptor]
                    )

            def grant(size: int) -> None:
                if size > 0:
                    registrar.ask(lambda number: Grant(number, size), Granted)
                else:
                    registrar.tell_later(GiveBack(-size))

            if disk:
                self._arenas[key] = Arena(
                    functools.partial(file_chunk, self.run_directory), publish, lambda _size: None
                )
            else:
                self._arenas[key] = Arena(memory_chunk, publish, grant)
        return self._arenas[key]

    def _reclaim(self) -> None:
        """Reuse what no process holds any more."""
        for registrar in self._registrars:
            registrar.settle()
            while registrar.freed:
                self._release(registrar.freed.popleft())
            if registrar.lost:
                self._forget(registrar)

    def _release(self, segment: int) -> None:
        arena, block = self._blocks.pop(segment, (None, None))
        if arena is not None and block is not None:
            arena.release(block)

    def _forget(self, registrar: Registrar) -> None:
        """A store has ended: the readers of its segments are not known any more, so those are never written again."""
        self._registrars.forget(registrar)
        for disk in (False, True):
            arena = self._arenas.pop((registrar.agent_pid, disk), None)
            if arena is not None:
                self._blocks = {segment: entry for segment, entry in self._blocks.items() if entry[0] is not arena}
                arena.close()
