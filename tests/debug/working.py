"""Actors that work, hang and fail without a ``breakpoint()``; ``# @name`` marks a line. Ranks import this module."""

from __future__ import annotations

import queue
import socket
import threading
from typing import Any

from meshrt import Actor, current_rank, endpoint
from tests.support.markers import marked_line

__all__ = ["Worker", "line_of"]

SCALE = 100  # what an expression on a running rank finds in this module


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


class Worker(Actor):
    """Works until a person, by an expression or at a prompt, resumes it."""

    def __init__(self) -> None:
        self.rank = current_rank().rank
        self.loss = 0.25 if self.rank != 3 else float("nan")
        self.config = {"lr": 0.1, "layers": [1, 2, 3] if self.rank != 2 else [1, 2, 4]}
        self.step = 0
        self.stop = False
        self.lock = threading.Lock()
        self.queue: queue.Queue[int] = queue.Queue()
        self.pair = socket.socketpair()

    def _train(self) -> int:
        while not self.stop:
            self.step += 1  # @spin
        return self.step

    @endpoint
    def spin(self) -> int:
        return self._train()

    @endpoint
    def receive(self, odd: tuple[int, ...] = ()) -> Any:
        """All ranks wait for a byte; the odd ones for a queue."""
        self.step += 1
        if self.rank in odd:
            return self.queue.get()  # @queue
        return len(self.pair[0].recv(1))  # @recv

    @endpoint
    def locked(self) -> str:
        self.lock.acquire()
        self.lock.acquire()  # @lock
        return "got it"

    @endpoint
    def compute(self, value: int) -> int:
        doubled = value * 2  # @compute
        return doubled + self.rank

    @endpoint
    def fail(self, ranks: tuple[int, ...]) -> int:
        secret = self.rank * 7
        if self.rank in ranks:
            raise ValueError(f"rank {self.rank} is bad, {secret}")  # @fail
        return self.rank

    @endpoint
    def say(self, lines: list[str]) -> None:
        for line in lines:
            print(line)
        print(f"mine is {self.rank}" if self.rank == 1 else "mine is common", flush=True)
