"""Ranks that stop together; ``# @name`` marks a line. Ranks import this module, so it imports no test tools."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

import meshrt
from meshrt import Actor, current_rank, endpoint
from tests.support.markers import marked_line

__all__ = ["Together", "line_of"]


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


class Together(Actor):
    """Its ranks run the same code, or not."""

    @endpoint
    def same(self, steps: int) -> int:
        done = 0
        for _ in range(steps):
            meshrt.breakpoint(all=True)  # @same
            done += 1
        return done

    @endpoint
    def one(self, ranks: str, gate: str) -> int:
        turns = 0
        while not Path(gate).exists():
            meshrt.breakpoint(all=True, ranks=ranks, when=turns < 3)  # @one
            turns += 1
            time.sleep(0.01)  # @turn
        return min(turns, 3)

    @endpoint
    def bad(self) -> None:
        meshrt.breakpoint(all=True, ranks="pp=0")

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def differ(self, gate: str) -> int:
        """Rank 0 stops while rank 1 waits in C for what rank 0 does next, as in a collective; rank 2 ends."""
        rank = current_rank().rank
        if rank == 0:
            while not Path(f"{gate}-in-c").exists():
                time.sleep(0.01)
            meshrt.breakpoint(all=True)  # @first
            Path(gate).touch()
        elif rank == 1:
            mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
            libc.pthread_mutex_lock(mutex)
            threading.Thread(target=_unlock, args=(libc, mutex, gate), daemon=True).start()
            Path(f"{gate}-in-c").touch()
            libc.pthread_mutex_lock(mutex)  # @in_c
        return rank  # @back


def _unlock(libc: ctypes.CDLL, mutex: object, gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.005)
    libc.pthread_mutex_unlock(mutex)
