"""Actors that are busy in many ways; ``# @name`` marks a line. Ranks import this module."""

from __future__ import annotations

import asyncio
import bdb
import hashlib
import importlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from typing import Any

from meshrt import Actor, endpoint
from tests.support.markers import marked_line

__all__ = ["AsyncBusy", "Busy", "line_of"]


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


def count(state: dict[str, int]) -> None:
    state["turns"] += 1  # @count


class Busy(Actor):
    """Waits and computes. What it waits for comes from a thread of its own, when a file appears."""

    def __init__(self, gate: str = "") -> None:
        self.gate = gate
        self.state = {"turns": 0}
        self.other: Any = None

    def _opened(self) -> bool:
        return os.path.exists(self.gate)

    def _when_open(self, function: Any = lambda: None) -> threading.Thread:
        def wait() -> None:
            while not self._opened():
                time.sleep(0.005)
            function()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread

    @endpoint
    def loop(self) -> int:
        go = True
        turns = 0
        while go:
            turns += 1  # @loop
            if turns % 2_000_000 == 0 and self._opened():
                break
        return turns

    @endpoint
    def tight(self) -> str:
        go = True
        while go: pass  # fmt: skip  # noqa: E701  # @tight
        return "done"  # @after_tight

    @endpoint
    def receive(self) -> bytes:
        ours, theirs = socket.socketpair()
        self._when_open(lambda: theirs.send(b"hello"))
        data = ours.recv(10)  # @recv
        ours.close()
        theirs.close()
        return data  # @received

    @endpoint
    def lock(self) -> str:
        lock = threading.Lock()
        lock.acquire()
        self._when_open(lock.release)
        lock.acquire()  # @lock
        return "locked"

    @endpoint
    def semaphore(self) -> str:
        slots = threading.Semaphore(0)
        self._when_open(slots.release)
        slots.acquire()  # @semaphore
        return "a slot"

    @endpoint
    def condition(self) -> bool:
        changed = threading.Condition()

        def notify() -> None:
            with changed:
                changed.notify()

        with changed:
            self._when_open(notify)
            told = changed.wait(60)  # @condition
            return told

    @endpoint
    def join(self) -> bool:
        thread = self._when_open()
        thread.join()  # @join
        return thread.is_alive()

    @endpoint
    def take(self) -> str:
        items: queue.Queue[str] = queue.Queue()
        self._when_open(lambda: items.put("item"))
        item = items.get()  # @get
        return item  # @got

    @endpoint
    def sleep(self) -> str:
        while not self._opened():
            time.sleep(60)  # @sleep
        return "awake"

    @endpoint
    def asks(self) -> str:
        answer = self.other.wait.call_one().get()  # @call
        return f"it said {answer}"  # @called

    @endpoint
    def wait(self) -> str:
        opened = threading.Event()
        self._when_open(opened.set)
        opened.wait()  # @event
        return "open"

    @endpoint
    def know(self, other: Any) -> None:
        self.other = other

    @endpoint
    def short(self) -> int:
        return 1

    @endpoint
    def fork(self) -> int:
        pid = os.fork()
        if pid == 0:
            x = 0
            for _ in range(10):
                count({"turns": 0})
                x += 1
            os._exit(3 if x == 10 and sys.gettrace() is None and _no_tool() else 4)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @endpoint
    def fork_and_break(self) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                breakpoint()
                os._exit(7)
            except bdb.BdbQuit:
                os._exit(5)
            except BaseException:
                os._exit(6)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @endpoint
    def work(self, turns: int) -> int:
        total = 0
        for i in range(turns):
            total += i  # @work
        return total  # @worked

    @endpoint
    def thread(self) -> int:
        state = {"turns": 0}
        worker = threading.Thread(target=count, args=(state,), name="Helper")
        worker.start()
        worker.join()
        return state["turns"]

    @endpoint
    def prints(self) -> str:
        while not self._opened():
            print("working")
        return "printed"

    @endpoint
    def computes(self) -> bytes:
        return hashlib.pbkdf2_hmac("sha256", b"a", b"b", 600_000)  # @computed

    @endpoint
    def take_signals(self) -> None:
        for number in range(signal.SIGRTMIN, signal.SIGRTMAX):
            if callable(signal.getsignal(number)):
                signal.signal(number, lambda *_: None)

    @endpoint
    def imports(self, folder: str, name: str) -> Any:
        sys.path.insert(0, folder)
        try:
            return importlib.import_module(name).late(7)
        finally:
            sys.path.remove(folder)

    @endpoint
    def fail(self, value: Any = 7) -> None:
        secret = value  # noqa: F841
        raise ValueError(f"bad {value}")  # @fail

    @endpoint
    def exit(self) -> None:
        sys.exit(3)

    @endpoint
    def traced(self) -> str:
        """Say what watches this thread."""
        return f"{sys.gettrace()} {'no tool' if _no_tool() else 'a tool'}"


def _no_tool() -> bool:
    monitoring: Any = getattr(sys, "monitoring", None)
    return monitoring is None or not any(monitoring.get_tool(number) == "meshrt" for number in range(6))


class AsyncBusy(Actor):
    """Awaits."""

    def __init__(self) -> None:
        self.event: Any = None

    @endpoint
    async def wait(self) -> str:
        asked = "wait"  # noqa: F841
        answer = await self.deep(3)
        return answer  # @answered

    async def deep(self, level: int) -> str:
        if level:
            return await self.deep(level - 1)
        self.event = asyncio.Event()
        inner = 42
        await self.event.wait()  # @deep
        return f"woken {inner}"  # @woken

    @endpoint
    async def gathered(self) -> list[str]:
        return list(await asyncio.gather(self.deep(0), asyncio.sleep(0, "slept")))

    @endpoint
    async def spin(self) -> str:
        go = True
        while go:
            pass  # @spin
        return "spun"

    @endpoint
    async def value(self) -> int:
        return 5
