"""The facts that the allocators of this process report, and nothing else.

Python's own allocator does not report bytes; it counts blocks. The C library reports the bytes in use, and the bytes
that are free and kept: memory that the process does not give back.
"""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["devices", "heap"]


def heap() -> dict[str, Any]:
    """Return ``{"blocks", "malloc": {"used", "free"}, "devices": {device: {"used", "kept"}}}``; bytes.

    ``malloc`` is {} if the C library does not report, ``devices`` if torch has no memory on a device. ``"visible"`` of
    a device: its entry in ``CUDA_VISIBLE_DEVICES``, if that is set.
    """
    return {"blocks": sys.getallocatedblocks(), "malloc": _malloc(), "devices": devices()}


def _malloc() -> dict[str, int]:
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
        return {}
    mallinfo.restype = Info
    info = mallinfo()
    return {"used": int(info.uordblks + info.hblkhd), "free": int(info.fordblks)}


def devices() -> dict[str, dict[str, Any]]:
    """Return the bytes of torch on CUDA devices, as its allocator counts them: this does not wait for a device."""
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
