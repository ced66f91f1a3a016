"""What the allocators of this process tell of themselves, and no more than that.

Python's own has no interface that tells bytes; it counts blocks. The C library tells what it has given out, and what
it keeps though nobody uses it: memory that the process does not give back.
"""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["devices", "heap"]


def heap() -> dict[str, Any]:
    """Return ``{"blocks", "malloc": {"used", "free"}, "devices": {device: {"used", "kept"}}}``; bytes.

    ``malloc`` is {} where the C library does not tell, ``devices`` where torch has put nothing on one. ``"visible"``
    of a device: what ``CUDA_VISIBLE_DEVICES`` calls it, where that is set.
    """
    return {"blocks": sys.getallocatedblocks(), "malloc": _malloc(), "devices": devices()}


def _malloc() -> dict[str, int]:
    import ctypes  # start-up: most ranks are never asked

    class Info(ctypes.Structure):
        _fields_ = [
            (name, ctypes.c_size_t)
            for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                         "keepcost")
        ]  # fmt: skip

    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # another C library, or glibc before 2.33
        return {}
    mallinfo.restype = Info
    info = mallinfo()
    return {"used": int(info.uordblks + info.hblkhd), "free": int(info.fordblks)}


def devices() -> dict[str, dict[str, Any]]:
    """Return what torch has on CUDA devices, as its allocator counts it: no device is waited for."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return {}
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return {
        f"cuda:{index}": {
            "used": int(cuda.memory_allocated(index)),
            "kept": int(cuda.memory_reserved(index)),
            **({"visible": visible[index]} if index < len(visible) else {}),
        }
        for index in range(cuda.device_count())
        if cuda.memory_reserved(index)
    }
