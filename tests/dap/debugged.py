"""Actors that tests look at in an IDE; ``# @name`` marks a line. Ranks import this: it imports no test tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import queue
import socket
import sys
import threading
import time
from typing import Any

from meshrt import Actor, concurrent_endpoint, current_rank, endpoint
from tests.support.gil import hold_gil

__all__ = ["AsyncDebugged", "Debugged"]


class Debugged(Actor):
    """Counts, waits, fails."""

    def __init__(self) -> None:
        self.rank = current_rank().rank
        self.count = 0
        self.go = threading.Event()

    @endpoint
    def step(self, by: int) -> int:
        before = self.count
        self.count = add(before, by)  # @step
        after = self.count  # @after
        return after

    @endpoint
    def turns(self, number: int) -> int:
        total = 0
        for turn in range(number):
            total += turn  # @turn
        return total

    @endpoint
    def keep(self, value: Any) -> None:
        self.kept = value

    @endpoint
    def dumped(self, value: Any) -> str:
        """Call code that is not the user's own."""
        return json.dumps(value)

    @endpoint
    def say(self, *parts: str) -> None:
        for part in parts:
            print(part, end="", flush=True)

    @endpoint
    def fail(self) -> None:
        try:
            raise KeyError("caught")  # @caught
        except KeyError:
            pass
        raise ValueError("wrong value")  # @fail

    @endpoint
    def stop_here(self) -> int:
        here = self.rank
        breakpoint()  # @breakpoint
        return here

    @endpoint
    def wait(self, kind: str) -> str:
        """Block until it is let go by ``self.go``, in one of many ways."""
        pair = socket.socketpair()
        lock, items, condition = threading.Lock(), queue.Queue[str](), threading.Condition()
        lock.acquire()

        def let_go() -> None:
            self.go.wait()
            pair[1].send(b"x")
            lock.release()
            items.put("x")
            with condition:
                condition.notify()

        helper = threading.Thread(target=let_go, name="helper")
        helper.start()
        if kind == "recv":
            pair[0].recv(1)  # @recv
        elif kind == "lock":
            lock.acquire()  # @lock
        elif kind == "queue":
            items.get()  # @queue
        elif kind == "condition":
            with condition:
                condition.wait()  # @condition
        elif kind == "sleep":
            while not self.go.is_set():
                time.sleep(1000)  # @sleep
        elif kind == "loop":
            turns = 0
            while not self.go.is_set():
                turns += 1  # @hot
        helper.join()  # @join
        self.go.clear()  # not at first: a pause may come before anything here has run, and let it go then
        for sock in pair:
            sock.close()
        return kind

    @endpoint
    def hold(self, fifo: str, *, on: bool = False) -> None:
        """Hold the GIL in C code until somebody writes into ``fifo``; ``on``: and wait until it is let go."""
        hold_gil(fifo)
        if on:
            self.go.wait()

    @endpoint
    def fork(self) -> int:
        """Return how a child ends that runs what the tests set breakpoints in: 5, if nothing stops it."""
        pid = os.fork()  # @fork
        if pid == 0:
            status = 1
            try:
                status = add_in_two_threads()
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @endpoint
    def multiprocess(self) -> int | None:
        """The same, with a process of multiprocessing."""
        child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(add_in_two_threads()))
        child.start()
        child.join()
        return child.exitcode

    @endpoint
    def traced(self) -> list[str]:
        """What a tracer has left, of all threads and of the streams of this rank."""
        found = [
            f"{name} {value}" for name, value in (("sys", sys.gettrace()), ("threads", threading.gettrace())) if value
        ]
        found += [name for name in ("stdout", "stderr") if "pydevd" in type(getattr(sys, name)).__module__]
        for frame in sys._current_frames().values():
            each: Any = frame
            while each is not None:
                if each.f_trace is not None:
                    found.append(str(each))
                each = each.f_back
        return found

    @endpoint
    def facts(self) -> tuple[int, int, int]:
        """Pid, number of threads, number of descriptors."""
        return os.getpid(), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


class AsyncDebugged(Actor):
    """On an event loop."""

    def __init__(self) -> None:
        self.rank = current_rank().rank

    @endpoint
    async def wait(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return await self.deeper(seconds)

    async def deeper(self, seconds: float) -> float:
        result = seconds * 2  # @deeper
        return result

    @concurrent_endpoint
    async def sleep(self) -> int:
        """Sleep until `wake` is called."""
        self.sleeping = asyncio.ensure_future(asyncio.sleep(1_000_000))
        with contextlib.suppress(asyncio.CancelledError):
            await self.sleeping
        return self.rank

    @concurrent_endpoint
    async def sleeps(self) -> bool:
        return hasattr(self, "sleeping")

    @concurrent_endpoint
    async def wake(self) -> None:
        self.sleeping.cancel()  # @wake

    @endpoint
    async def spin(self) -> None:
        self.busy = True
        while self.busy:  # noqa: ASYNC110  # a loop that is busy
            await asyncio.sleep(0)


def add(before: int, by: int) -> int:
    """Called by an endpoint."""
    total = before + by  # @add
    return total


def add_in_two_threads() -> int:
    """Run `add` on this thread and on a new one."""
    sums = [add(1, 1)]
    thread = threading.Thread(target=lambda: sums.append(add(1, 2)))
    thread.start()
    thread.join()
    return sum(sums)
