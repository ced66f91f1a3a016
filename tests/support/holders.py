"""Actors that hold memory. Ranks import this module, so it imports no test tools."""

from __future__ import annotations

import os
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from meshrt import Actor, current_rank, endpoint

__all__ = ["MIB", "Holder"]

MIB = 1 << 20

#: A cache that nobody empties.
CACHE: dict[int, bytes] = {}


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
    def grow(self, count: int) -> None:
        CACHE[len(CACHE)] = b"x" * count  # written to: it is in memory

    @endpoint
    def hold_gil(self, inside: str) -> None:
        Path(inside).touch()
        sum(repeat(0, 10**11))

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
