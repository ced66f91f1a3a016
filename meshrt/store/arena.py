"""The memory that one process has given to the store: chunks, and which of their bytes are in use.

Pages are used again: the first write to a page costs ten times a later one, in the owner and in every reader. So what
is freed stays committed, and `trim` gives it back when no memory was asked for in a while.

A range of a chunk: ``free -> taken -> free``; and, apart from that, ``bare -> committed -> bare``.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
from collections.abc import Callable, Iterator

import msgspec

from meshrt.errors import MeshError
from meshrt.store.mapping import Mapping
from meshrt.store.ranges import Ranges

__all__ = ["CHUNK", "Arena", "Block", "Chunk", "file_chunk", "memory_chunk"]

#: Addresses of a chunk, bytes, unless one object needs more. They cost nothing before they are written.
CHUNK = 256 << 20
_PAGE = mmap.PAGESIZE
#: Memory is asked for in multiples of so many bytes, if there is enough.
_STEP = 2 << 20


def memory_chunk(name: str, size: int) -> int:
    """Return the descriptor of a chunk in memory, of this size for ever. It ends with the last process that has it."""
    descriptor = _sized(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), size)
    # A process that has it mapped would be ended by SIGBUS if it shrank. Sealed against writing, it could not give
    # memory back.
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def file_chunk(folder: str, _name: str, size: int) -> int:
    """Return the descriptor of a chunk in ``folder``, in a file without a name."""
    return _sized(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), size)


def _sized(descriptor: int, size: int) -> int:
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class Chunk(msgspec.Struct, eq=False):
    """One file that is mapped for writing here, and for reading elsewhere."""

    id: int
    descriptor: int
    mapping: Mapping
    free: Ranges
    committed: Ranges = msgspec.field(default_factory=Ranges)


class Block(msgspec.Struct, frozen=True, eq=False):
    """Bytes that were allocated."""

    chunk: Chunk
    start: int
    size: int

    def write(self, start: int, data: memoryview | bytes) -> None:
        """Copy ``data`` to ``start``, counted from the beginning of the block."""
        self.chunk.mapping.write(self.start + start, data)


class Arena:
    """Not safe for threads: its owner has a lock.

    Args:
        make: ``make(name, size)`` opens the file of a chunk.
        publish: Called with every new chunk before it is used. May raise OSError.
        grant: ``grant(bytes)`` asks for more memory, or gives some back (negative). Raises the error of a refusal.
    """

    def __init__(
        self, make: Callable[[str, int], int], publish: Callable[[Chunk], None], grant: Callable[[int], None]
    ) -> None:
        self._make = make
        self._publish = publish
        self._grant = grant
        self.chunks: dict[int, Chunk] = {}
        #: Bytes in use.
        self.taken = 0
        self._busy = False

    def allocate(self, size: int) -> Block:
        """Return ``size`` bytes that may be written without a fault.

        Raises:
            OSError: There is no memory, no descriptor, no disk.
        """
        whole = -(-max(size, 1) // _PAGE) * _PAGE
        chunk, start = self._find(whole)
        self._commit(chunk, start, start + whole)
        chunk.free.remove(start, start + whole)
        self.taken += whole
        self._busy = True
        return Block(chunk, start, whole)

    def _find(self, size: int) -> tuple[Chunk, int]:
        for chunk in self.chunks.values():
            start = chunk.free.first(size)
            if start is not None:
                return chunk, start
        chunk = self._open(max(CHUNK, size))
        return chunk, 0

    def _open(self, size: int) -> Chunk:
        number = secrets.randbits(62)
        descriptor = self._make(f"meshrt:{number:x}", size)
        try:
            chunk = Chunk(number, descriptor, Mapping(descriptor, size, writable=True), Ranges((0, size)))
            self._publish(chunk)
        except BaseException:
            os.close(descriptor)
            raise
        self.chunks[number] = chunk
        return chunk

    def _commit(self, chunk: Chunk, start: int, end: int) -> None:
        if not chunk.committed.missing(start, end):
            return
        # Ahead of what is needed: asking for every page by itself would take longer than writing it.
        with contextlib.suppress(MeshError, OSError):
            self._populate(chunk, start, min(chunk.mapping.size, -(-end // _STEP) * _STEP))
            return
        self._populate(chunk, start, end)

    def _populate(self, chunk: Chunk, start: int, end: int) -> None:
        gaps = chunk.committed.missing(start, end)
        need = sum(right - left for left, right in gaps)
        self._grant(need)
        try:
            for left, right in gaps:
                chunk.mapping.populate(chunk.descriptor, left, right)
        except BaseException:
            for left, right in gaps:
                chunk.mapping.give_back(left, right)
            self._grant(-need)
            raise
        chunk.committed.add(start, end)

    def release(self, block: Block) -> None:
        """Take back ranges that no process sees any more."""
        block.chunk.free.add(block.start, block.start + block.size)
        self.taken -= block.size

    @property
    def committed(self) -> int:
        """Return how many bytes of memory the kernel has given."""
        return sum(chunk.committed.total for chunk in self.chunks.values())

    def trim(self, most: int) -> int:
        """Give free memory back, unless some was asked for since the last time. Returns how many bytes.

        Args:
            most: The largest number to give back: the kernel takes time for each byte.
        """
        busy, self._busy = self._busy, False
        if busy:
            return 0
        given = 0
        for chunk, left, right in self._idle():
            end = min(right, left + most - given)
            chunk.mapping.give_back(left, end)
            chunk.committed.remove(left, end)
            given += end - left
            if given >= most:
                break
        if given:
            self._grant(-given)
        return given

    def _idle(self) -> Iterator[tuple[Chunk, int, int]]:
        for chunk in self.chunks.values():
            for free in chunk.free:
                for left, right in chunk.committed.within(*free):
                    yield chunk, left, right

    def close(self) -> None:
        """Release the chunks; a chunk with views stays mapped until the last view has ended."""
        for chunk in self.chunks.values():
            os.close(chunk.descriptor)
        self.chunks.clear()
