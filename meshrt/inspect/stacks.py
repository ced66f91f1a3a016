"""Where the threads of this process are: their stacks, and which of them are blocked.

Runs on the control thread, beside threads that hold locks or are stopped at a breakpoint anywhere. So nothing here
takes a lock, calls user code or keeps a frame. A thread is blocked between two looks if it is in the same frame at the
same instruction and has used no processor time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from meshrt.files import RUNTIME_FILES
from meshrt.hooks.facts import Wait
from meshrt.inspect.records import StackFrame
from meshrt.inspect.visibility import cut, debugger_index, is_hidden_file

__all__ = ["Entry", "Mark", "Process", "Stack", "ThreadLook", "Threads", "entries_of", "frames_of", "kernel_runs"]

#: Most frames of a stack in an answer: outermost ones, and innermost ones.
_OUTER, _INNER = 40, 120
#: Linux: the clock of one thread's processor time, see MAKE_THREAD_CPUCLOCK in the kernel. Unlike
#: `time.pthread_getcpuclockid` it is safe for a thread that has just ended.
_CPU_CLOCK = 6
#: Processor time that handling one signal takes at most, in ns; usually a tenth of that.
_SIGNAL_NS = 1_000_000
_MAIN = type(threading.main_thread())
#: The folder of the code in which threads wait for answers.
_WAITS = os.path.join(RUNTIME_FILES, "transport", "")

Stack = list["Entry"]


class Entry(NamedTuple):
    """One frame of a stack at the time of the look. Keeps no object of the user's except code."""

    code: CodeType
    line: int
    lasti: int

    @property
    def file(self) -> str:
        """The full name of the source file."""
        return self.code.co_filename


class Mark(msgspec.Struct):
    """The instruction where a thread or task was at the last look, and since when (monotonic) it is known there."""

    where: tuple[object, ...]
    since: float
    #: Time of the last look (monotonic).
    seen: float
    cpu: int = -1
    #: Share of one processor that it used between the last two looks, from 0.0.
    load: float = 0.0
    #: Processor time that signals had taken from it until then, ns.
    signals: int = 0
    #: Signals are pending, or were at the look before: they have not taken all of that time yet.
    unhandled: bool = False

    def is_blocked(self) -> bool:
        """Whether it was there in at least two looks."""
        return self.seen > self.since


class Process(Protocol):
    """What this process knows of signals and waits, to tell a thread's own work from theirs. Any thread.

    Handling a signal takes processor time, but the call that it interrupts stays blocked. So does a ``get()``
    that is woken for others. See `meshrt.hooks.services.RankServices`.
    """

    @property
    def signals_sent(self) -> int: ...
    @property
    def signals_handled(self) -> int: ...
    @property
    def signalled_ns(self) -> int: ...
    @property
    def in_signal(self) -> bool: ...
    def waits_since(self, thread: int) -> float | None: ...
    def wait_of(self, waiter: object) -> Wait | None: ...


class ThreadLook(NamedTuple):
    """One thread at one look."""

    ident: int
    name: str
    native_id: int
    mark: Mark
    #: Outermost first; empty in a look without stacks.
    stack: Stack


class Threads:
    """All threads but the calling one, look by look.

    Args:
        process: None: no signals are sent, and no thread waits for calls.
    """

    def __init__(self, process: Process | None = None) -> None:
        self._process = process
        self._marks: dict[int, Mark] = {}

    def look(self, *, stacks: bool) -> dict[int, ThreadLook]:
        """Return a look at every thread, by ident; with ``stacks`` including all frames."""
        # Without a call that releases the GIL: the references to the frames are dropped before the frames can end.
        frames = sys._current_frames()
        frames.pop(threading.get_ident(), None)
        found = {
            ident: (id(frame), frame.f_lasti, frame.f_code.co_filename, _walk(frame) if stacks else [])
            for ident, frame in frames.items()
        }
        del frames
        # Not `threading.enumerate`: a thread that is stopped at a breakpoint may hold its lock.
        known = dict(getattr(threading, "_active", {}))
        now = time.monotonic()
        looks = {}
        for ident, (frame_id, lasti, file, stack) in found.items():
            thread = known.get(ident)
            facts = vars(thread) if thread is not None else {}
            if facts.get("is_pydev_daemon_thread"):
                continue  # of the engine of an IDE
            # The main thread of a fork keeps the native id of its parent's; the kernel calls it as the process.
            is_main = isinstance(thread, _MAIN)
            native = os.getpid() if is_main else facts.get("_native_id") or 0
            before = self._marks.get(ident)
            mark = self._mark(before, (frame_id, lasti), _cpu_time(native), now, is_main=is_main)
            since = self._process.waits_since(ident) if self._process is not None and file.startswith(_WAITS) else None
            if since is not None and before is not None and since <= before.seen:
                mark.since = since  # in the same `get()` as at the last look, even if it was woken meanwhile
            looks[ident] = ThreadLook(ident, str(facts.get("_name") or f"thread-{ident}"), native, mark, stack)
        self._marks = {ident: look.mark for ident, look in looks.items()}
        return looks

    def _mark(self, before: Mark | None, where: tuple[int, int], cpu: int, now: float, *, is_main: bool) -> Mark:
        process = self._process if is_main else None
        if process is not None and process.in_signal and before is not None:
            return replace(before, seen=now)  # it goes on there once the handler has ended
        # Processor time that the thread did not use for itself.
        signals = 0 if process is None else process.signals_sent * _SIGNAL_NS + process.signalled_ns
        unhandled = process is not None and process.signals_sent > process.signals_handled
        if before is None:
            return Mark(where, now, now, cpu, 0.0, signals, unhandled)
        used = max(0, cpu - before.cpu - (signals - before.signals))
        if unhandled or before.unhandled:
            signals = min(signals, before.signals + cpu - before.cpu)
        load = used / 1e9 / (now - before.seen) if cpu >= 0 and before.cpu >= 0 else 0.0
        same = where == before.where and not used and cpu >= 0
        return Mark(where, before.since if same else now, now, cpu, max(0.0, load), signals, unhandled)


def _walk(frame: FrameType | None) -> Stack:
    stack = []
    while frame is not None:
        stack.append(Entry(frame.f_code, frame.f_lineno or 0, frame.f_lasti))
        frame = frame.f_back
    stack.reverse()
    return stack


def _cpu_time(native_id: int) -> int:
    if not native_id:
        return -1
    try:
        return time.clock_gettime_ns((~native_id << 3) | _CPU_CLOCK)
    except OSError:
        return -1  # it has ended


def kernel_runs(native_id: int) -> bool:
    """Whether this thread is ready to run: it waits only for a processor."""
    try:
        state = Path(f"/proc/self/task/{native_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "R"


def entries_of(stack: Stack, *, verbose: bool) -> tuple[Stack, bool]:
    """Return the frames of a stack that a user wants to see, and whether it is in the debugger.

    Args:
        verbose: All frames, also the runtime's (but not the debugger's below a prompt).
    """
    files = [entry.file for entry in stack]
    stop = debugger_index(files)
    stack, files = stack[:stop], files[:stop]
    return (stack if verbose else cut(stack, files)), stop is not None


def frames_of(stack: Stack) -> list[StackFrame]:
    """Return a stack as plain data; the middle of a very long one is left out."""
    left_out = len(stack) - _OUTER - _INNER
    kept = stack if left_out <= 1 else [*stack[:_OUTER], *stack[-_INNER:]]
    frames = [StackFrame(entry.file, entry.line, entry.code.co_name, is_hidden_file(entry.file)) for entry in kept]
    if left_out > 1:
        frames.insert(_OUTER, StackFrame(function=f"... {left_out} frames ..."))
    return frames
