"""A chunk of shared memory as one process maps it.

A chunk is a memfd, or a file that has no name any more. Its owner maps it once, for writing; other processes get a
descriptor that was opened for reading, from which the kernel makes no writable mapping.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref

from meshrt.transport.interrupts import called_by_python
from meshrt.wire.codec import flat

__all__ = ["Copies", "Mapping", "open_for_reading"]

#: madvise(2): take the memory now and fail, instead of with SIGBUS when it is written. Since Linux 5.14.
_MADV_POPULATE_WRITE = 23

#: mmap(2), which Python's module names since 3.13.
_MAP_NORESERVE = 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value


def open_for_reading(descriptor: int) -> int:
    """Return a descriptor of the same file that cannot be written to."""
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)


class Mapping:
    """A file in the memory of this process, for as long as something refers to it. Keeps no descriptor.

    Args:
        descriptor: Of the file; it may be closed afterwards.
        size: Bytes of it.
        writable: Writes are visible to other processes.
        private: Writes stay in pages of this process. The descriptor need not allow writing.
        offset: Start in the file; a multiple of the page size.
    Attributes:
        address: Start in the address space.
        size: Bytes.
    Raises:
        OSError: It cannot be mapped: the descriptor does not allow it, or no addresses are left.
    """

    __slots__ = ("__weakref__", "_private", "address", "size")

    def __init__(
        self, descriptor: int, size: int, *, writable: bool = False, private: bool = False, offset: int = 0
    ) -> None:
        # Not `mmap.mmap`: it keeps a descriptor, and does not tell the address of what can only be read.
        protection = mmap.PROT_READ | mmap.PROT_WRITE if writable or private else mmap.PROT_READ
        # Nothing is set aside for private pages: few of them are ever written.
        flags = mmap.MAP_PRIVATE | _MAP_NORESERVE if private else mmap.MAP_SHARED
        address = _libc.mmap(None, size, protection, flags, descriptor, offset)
        if address == _FAILED:
            raise _error(f"{size} bytes of shared memory cannot be mapped")
        self.address: int = address
        self._private = private
        self.size: int = size
        weakref.finalize(self, _libc.munmap, address, size).atexit = False

    def window(self, start: int, size: int, keep: object) -> memoryview:
        """Return bytes of it, which keep ``keep`` (and this mapping) for as long as a view of them exists.

        To read, unless it is private.
        """
        view = memoryview(self._block(start, size, keep))
        return flat(view if self._private else view.toreadonly())

    def target(self, start: int, size: int) -> memoryview:
        """Return bytes of it, to write; they keep this mapping."""
        return flat(memoryview(self._block(start, size, None)))

    def has(self, address: int) -> bool:
        """Whether an address is inside of it."""
        return bool(self.address <= address < self.address + self.size)

    def write(self, start: int, data: memoryview | bytes) -> None:
        """Copy ``data`` into it."""
        self.target(start, len(data))[:] = data

    def populate(self, descriptor: int, start: int, end: int) -> None:
        """Have the kernel give memory (or place on the disk) for a range. Raises OSError if there is none."""
        # The file first: when a disk is full, a fault finds that out too late.
        os.posix_fallocate(descriptor, start, end - start)
        if (
            _libc.madvise(self.address + start, end - start, _MADV_POPULATE_WRITE)
            and ctypes.get_errno() != errno.EINVAL
        ):
            raise _error(f"no memory for {end - start} bytes")

    def keep_from_children(self) -> None:
        """Processes that are forked from now on do not have it: they would keep its memory for as long as they live."""
        _libc.madvise(self.address, self.size, mmap.MADV_DONTFORK)

    def give_back(self, start: int, end: int) -> None:
        """Give the memory of a range back to the kernel. A file system without holes keeps it until the file goes."""
        _libc.madvise(self.address + start, end - start, mmap.MADV_REMOVE)

    def _block(self, start: int, size: int, keep: object) -> ctypes.Array[ctypes.c_char]:
        if not 0 <= start <= start + size <= self.size:
            raise ValueError(f"{size} bytes at {start} are not inside a chunk of {self.size}")
        block = (ctypes.c_char * size).from_address(self.address + start)
        weakref.finalize(block, _let_go, self, keep).atexit = False
        return block


class Copies:
    """A file that cannot be mapped: its bytes are read. Keeps the descriptor, which it is given."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor).atexit = False

    def window(self, start: int, size: int, _keep: object) -> memoryview:
        """Return a copy of bytes of it. Raises OSError."""
        block = bytearray(size)
        view = memoryview(block)
        while view:
            count = os.preadv(self._descriptor, [view], start + size - len(view))
            if not count:
                raise OSError(errno.EIO, "shared memory is shorter than the data written to it")
            view = view[count:]
        return memoryview(block).toreadonly()


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


@called_by_python
def _let_go(*_kept: object) -> None:
    """Nothing is to be done: what was kept is dropped with the arguments."""
