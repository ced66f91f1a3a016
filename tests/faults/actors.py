"""The actors of the fault tests: they die, hang and misbehave on request. Ranks import this module."""

from __future__ import annotations

import asyncio
import collections
import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from meshrt import Actor, current_rank, endpoint

__all__ = ["DEATHS", "AsyncVictim", "BornDead", "Victim", "end_process", "raise_kind", "wait_for_file"]

#: What ends a process, by name -> (exit code, signal) that the error has to tell.
DEATHS: dict[str, tuple[int | None, int | None]] = {
    "sigkill": (None, signal.SIGKILL),
    "sigsegv": (None, signal.SIGSEGV),
    "sigabrt": (None, signal.SIGABRT),
    "exit0": (0, None),
    "exit7": (7, None),
}


def end_process(kind: str) -> None:
    """End this process, now."""
    match kind:
        case "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sigsegv":
            ctypes.string_at(0)
        case "sigabrt":
            os.abort()
        case "exit0":
            os._exit(0)
        case "exit7":
            os._exit(7)


def raise_kind(kind: str) -> None:
    """Raise what is no ordinary exception."""
    match kind:
        case "sys.exit":
            sys.exit(3)
        case "KeyboardInterrupt":
            raise KeyboardInterrupt("by hand")
        case "GeneratorExit":
            raise GeneratorExit("by hand")
        case "CancelledError":
            raise asyncio.CancelledError("by hand")
        case "StopIteration":
            raise StopIteration("by hand")
        case "BaseExceptionGroup":
            raise BaseExceptionGroup("by hand", [KeyboardInterrupt(), ValueError("inner")])


def wait_for_file(path: str) -> None:
    """Return when the file exists."""
    while not os.path.exists(path):
        time.sleep(0.002)


def note_and_wait(note: str, gate: str) -> None:
    """Create the file ``note`` and wait for the file ``gate``."""
    Path(note).touch()
    wait_for_file(gate)


def _chosen(ranks: tuple[int, ...]) -> bool:
    return not ranks or current_rank().rank in ranks


class Unfinished(Actor):
    """Its constructor does not end."""

    def __init__(self) -> None:
        time.sleep(1000)

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Victim(Actor):
    """Sync endpoints."""

    def __init__(self, *kept: Any) -> None:
        self.kept = list(kept)

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def count(self, *values: Any) -> int:
        return len(values)

    @endpoint
    def apply(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    @endpoint
    def die(self, kind: str, ranks: tuple[int, ...] = (), gate: str = "") -> int:
        """The chosen ranks die; the others wait for the file ``gate`` (if any) and answer."""
        if _chosen(ranks):
            end_process(kind)
        if gate:
            wait_for_file(gate)
        return current_rank().rank

    @endpoint
    def wait_for(self, gate: str, note: str = "") -> int:
        """Say in the file ``note`` that this rank is inside, then wait for the file ``gate``."""
        if note:
            Path(f"{note}{current_rank().rank}").touch()
        wait_for_file(gate)
        return current_rank().rank

    @endpoint
    def misbehave(self, kind: str) -> None:
        raise_kind(kind)

    @endpoint
    def answer_and_die(self, value: Any) -> Any:
        """Answer, and end before anything else can run."""
        return _DiesWhenWritten(value)

    @endpoint
    def hold_gil(self, seconds: float, note: str = "") -> str:
        """Keep the GIL in C for about ``seconds``: no other thread of this rank runs meanwhile."""
        if note:
            Path(note).touch()
        count = 1 << 20
        begin = time.monotonic()
        collections.deque(itertools.repeat(None, count), maxlen=0)
        speed = count / (time.monotonic() - begin)
        collections.deque(itertools.repeat(None, int(seconds * speed)), maxlen=0)
        return "done"

    @endpoint
    def in_thread(self, kind: str) -> str:
        """Raise in a thread, and wait for its end."""
        thread = threading.Thread(target=_thread_raises, args=(kind,))
        thread.start()
        thread.join()
        return "fine"

    @endpoint
    def unraisable(self) -> str:
        """Raise where Python can only report it."""

        class Bad:
            def __del__(self) -> None:
                raise ValueError("from __del__")

        Bad()
        return "fine"

    @endpoint
    def recurse(self) -> None:
        def deeper(depth: int) -> int:
            return deeper(depth + 1) + 1

        deeper(0)

    @endpoint
    def fork_child(self) -> int:
        """Fork a child that keeps every descriptor and lives for long."""
        pid = os.fork()
        if pid == 0:
            while True:
                time.sleep(60)
        return pid

    @endpoint
    def fork_and_fall_through(self, how: str) -> int:
        """Fork a child that returns, raises or calls ``sys.exit`` in the middle of the parent, as many programs do."""
        pid = os.fork()
        if pid == 0:
            if how == "exit":
                sys.exit(5)
            if how == "raise":
                raise ValueError("in the child")
            return 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @endpoint
    def daemon(self, kind: str) -> int:
        """Start a process in a session of its own: ``"exec"`` or ``"fork"`` (a child), ``"double"`` (an orphan)."""
        if kind == "exec":
            return subprocess.Popen(["sleep", "600"], start_new_session=True).pid
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            if kind == "double" and os.fork():
                os._exit(0)
            os.write(write_end, str(os.getpid()).encode())
            os.closerange(0, 64)
            while True:
                time.sleep(60)
        if kind == "double":
            os.waitpid(pid, 0)
        found = int(os.read(read_end, 32))
        os.close(read_end)
        os.close(write_end)
        return found

    @endpoint
    def close_range(self, low: int, high: int) -> str:
        os.closerange(low, high)
        return "closed"

    @endpoint
    def call_itself(self, mesh: Any) -> Any:
        return mesh.pid.call_one().get(timeout=0.3)

    @endpoint
    def keep(self, value: Any) -> int:
        self.kept.append(value)
        return len(self.kept)

    @endpoint
    def all_kept(self) -> list[Any]:
        return self.kept


class _DiesWhenWritten:
    """Its pickle is written like any other; a thread ends the process as soon as the bytes are out of it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        threading.Thread(target=_die_when_idle, daemon=True).start()
        return _rebuilt, (self.value,)


def _rebuilt(value: Any) -> Any:
    return value


def _die_when_idle() -> None:
    """End the process once its main thread waits for the next message: the answer has been written then."""
    main = threading.main_thread().ident
    while main is not None:
        frame = sys._current_frames().get(main)
        if frame is not None and frame.f_code.co_name == "collect":
            os._exit(0)
        time.sleep(0.0002)


def _thread_raises(kind: str) -> None:
    if kind == "error":
        raise ValueError("from a thread")
    sys.exit(4)


class AsyncVictim(Actor):
    """Async endpoints."""

    @endpoint
    async def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def die(self, kind: str, ranks: tuple[int, ...] = (), gate: str = "") -> int:
        await asyncio.sleep(0)
        if _chosen(ranks):
            end_process(kind)
        if gate:
            await asyncio.to_thread(wait_for_file, gate)
        return current_rank().rank

    @endpoint
    async def misbehave(self, kind: str) -> None:
        await asyncio.sleep(0)
        raise_kind(kind)

    @endpoint
    async def block(self, gate: str, note: str) -> str:
        """Block the event loop, as one must not."""
        note_and_wait(note, gate)
        return "blocked"


class BornDead(Actor):
    """Ends, or raises, in ``__init__`` on the chosen ranks."""

    def __init__(self, kind: str, ranks: tuple[int, ...] = (), gate: str = "") -> None:
        if _chosen(ranks):
            print(f"last words of rank {current_rank().rank}", file=sys.stderr)
            if kind in DEATHS:
                end_process(kind)
            elif kind == "error":
                raise LookupError(f"rank {current_rank().rank} does not start")
            else:
                raise_kind(kind)
        if gate:
            wait_for_file(gate)

    @endpoint
    def pid(self) -> int:
        return os.getpid()
