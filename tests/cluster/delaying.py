"""A cable that is slow: ``python delaying.py FIRST SECOND SECONDS`` makes two interfaces, and passes frames on, later.

As the kernel's own means (netem) is not everywhere. What comes in at one goes out at the other after so many seconds,
in its order, without loss. Ends with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x1002
_FRAME_MAX = 1 << 16


def interface(name: str) -> int:
    """Make an interface; returns the descriptor at which its frames are read and written."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH", name.encode(), _TAP_WITHOUT_HEADER))
    return file


def main() -> None:
    first, second = interface(sys.argv[1]), interface(sys.argv[2])
    seconds = float(sys.argv[3])
    other = {first: second, second: first}
    waiting: deque[tuple[float, int, bytes]] = deque()
    print("up", flush=True)
    while True:
        left = waiting[0][0] - time.monotonic() if waiting else 3600.0
        for file in select.select([first, second], [], [], max(0.0, left))[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    waiting.append((time.monotonic() + seconds, other[file], os.read(file, _FRAME_MAX)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, file, frame = waiting.popleft()
            with contextlib.suppress(OSError):  # the interface is down, or its queue is full: as on any network
                os.write(file, frame)


if __name__ == "__main__":
    main()
