"""Actors that hold memory. Ranks import this module, so it imports no test tools."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from meshrt import Actor, current_rank, endpoint

__all__ = ["MIB", "Hoarder", "Holder"]

MIB = 1 << 20

#: A cache that nobody empties.
CACHE: dict[int, bytearray] = {}


class Holder(Actor):
    """Rank 1 holds more than the others."""

    history: ClassVar[list[bytes]] = [bytes(MIB)]

    def __init__(self) -> None:
        self.weights = np.ones(4 * MIB, dtype=np.uint8)
        self.view = self.weights[:10]
        self.batches = [b"x" * MIB for _ in range(2 + 8 * (current_rank().rank == 1))]
        self.handle: Any = self.pid

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def keep(self, value: Any) -> None:
        self.kept = value

    @endpoint
    def ones(self, count: int) -> np.ndarray[Any, Any]:
        return np.ones(count, dtype=np.uint8)

    @endpoint
    def grow(self, count: int) -> None:
        kept = CACHE[len(CACHE)] = bytearray(count)
        # Written to while it is kept: whoever looks when there is much of it finds it there.
        for start in range(0, count, mmap.PAGESIZE):
            kept[start] = 1

    @endpoint
    def hold_gil(self, inside: str) -> None:
        Path(inside).touch()
        sum(repeat(0, 10**11))

    @endpoint
    def use_device(self, kept: int) -> None:
        """Stand in for torch on a device that no other rank sees."""
        cuda = ModuleType("torch.cuda")
        told = {
            "is_initialized": lambda: True, "device_count": lambda: 2, "memory_allocated": lambda _index: kept // 2,
            "memory_reserved": lambda index: kept if index == 0 else 0,
        }  # fmt: skip
        vars(cuda).update(told)
        os.environ["CUDA_VISIBLE_DEVICES"] = str(4 + current_rank().rank)
        sys.modules["torch.cuda"] = cuda

    @endpoint
    def fill(self) -> None:
        mine: list[bytes] = []
        while True:
            mine.append(b"x" * MIB)

    @endpoint
    def halt(self) -> None:
        local = bytearray(3 * MIB)
        breakpoint()
        del local

    @endpoint
    def many(self, count: int) -> None:
        self.numbers = [[float(n)] for n in range(count)]


class Hoarder(Actor):
    """Takes more and more memory, up to half a gigabyte, and begins anew."""

    def __init__(self) -> None:
        self.hoard: list[bytes] = []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        never = threading.Event()
        while not never.wait(0.01):
            self.hoard = [*self.hoard, b"x" * MIB] if len(self.hoard) < 500 else []
