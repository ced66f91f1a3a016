"""The facts that the allocators of this process report, and nothing else.

Python's own allocator does not report bytes; it counts blocks. The C library reports the bytes in use, and the bytes
that are free and kept: memory that the process does not give back.
"""

from __future__ import annotations

import os
import sys

from meshrt.memory.operations import Device, Heap

__all__ = ["devices", "heap"]


def heap(counted: float | None = None) -> Heap:
    """Return the facts; ``counted``: processor seconds that a count of variables took."""
    used, free = _malloc()
    blocks = sys.getallocatedblocks()
    return Heap(blocks=blocks, malloc_used=used, malloc_free=free, devices=devices(), counted=counted)


def _malloc() -> tuple[int | None, int | None]:
    """Return the bytes that are in use, and those that are free and kept; None: the C library does not tell."""
    import ctypes  # start-up: most ranks get no request

    class Info(ctypes.Structure):
        _fields_ = [
            (name, ctypes.c_size_t)
            for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                         "keepcost")
        ]  # fmt: skip

    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # another C library, or glibc before 2.33
        return None, None
    mallinfo.restype = Info
    info = mallinfo()
    return int(info.uordblks + info.hblkhd), int(info.fordblks)


def devices() -> dict[str, Device]:
    """Return the bytes of torch on CUDA devices, as its allocator counts them: this does not wait for a device."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return {}
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return {
        f"cuda:{index}": Device(
            int(cuda.memory_reserved(index)),
            int(cuda.memory_allocated(index)),
            visible[index] if index < len(visible) else None,
        )
        for index in range(cuda.device_count())
        if cuda.memory_reserved(index)
    }
