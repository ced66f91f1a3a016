"""The trace functions of user code on Python 3.11, which an engine replaces: how they are found and put back.

Python tells only the calling thread its trace function. Those of others are read from the interpreter's own list of
threads, in a layout that no release of 3.11 changes any more, and that is tried on the calling thread first.

A thread gets its function back at its next line, or call at the latest, and sets it there itself.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable
from operator import attrgetter
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, cast

from meshrt.debug.rank.users_trace import above, is_ours

__all__ = ["UsersTraces", "idle", "trace_functions"]

#: A trace function: what it is given, and what it returns, is a matter of user code.
Trace = Callable[[FrameType, str, Any], Any]
#: ``SetTrace(function)`` for the calling thread; ``(function, ident)`` for another one.
SetTrace = Callable[[Trace | None], object]
SetTraceOf = Callable[[Trace, int], object]


class _Traced(ctypes.Union):
    """The trace function of a thread."""

    _fields_ = (("address", ctypes.c_void_p), ("function", ctypes.py_object))


class _ThreadState(ctypes.Structure):
    """``PyThreadState`` of Python 3.11, as far as it is read."""


_ThreadState._fields_ = (
    ("prev", ctypes.POINTER(_ThreadState)),
    ("next", ctypes.POINTER(_ThreadState)),
    ("interp", ctypes.c_void_p),
    ("flags_and_limits", ctypes.c_int * 7),
    ("c_frame", ctypes.c_void_p),
    ("profile_c_function", ctypes.c_void_p),
    ("trace_c_function", ctypes.c_void_p),
    ("profiled", ctypes.c_void_p),
    ("traced", _Traced),
    ("errors_and_dict", ctypes.c_void_p * 5),
    ("gilstate_counter", ctypes.c_int),
    ("async_exception", ctypes.c_void_p),
    ("thread_id", ctypes.c_ulong),
)


def trace_functions() -> dict[int, Trace]:
    """Return the trace functions of all threads that have one, by ident; of the calling one alone, if no more is known.

    Threads begin and end meanwhile: one that does may be left out.
    """
    mine = cast(Trace | None, sys.gettrace())
    found: dict[int, Trace] = {} if mine is None else {get_ident(): mine}
    state = _own_state()
    if state is None:
        return found
    collects = gc.isenabled()
    gc.disable()  # otherwise a finalizer of the user, and another thread, may run in between
    try:
        for direction in ("next", "prev"):
            depth = 1
            while (one := _look(state, f"{direction}.contents." * depth)) is not None:
                ident, function = one
                if function is not None:
                    found[ident] = function
                depth += 1
    finally:
        if collects:
            gc.enable()
    return found


def _look(state: _ThreadState, path: str) -> tuple[int, Trace | None] | None:
    """Return the ident of a thread and its trace function; None: the list ends before it.

    From the calling thread, which cannot end meanwhile, in one call of C code: no other thread runs until it returns.
    """
    try:
        ident, address = attrgetter(f"{path}thread_id", f"{path}traced.address")(state)
    except ValueError:  # a null pointer
        return None
    if address is None:
        return ident, None
    try:
        found: tuple[int, Trace] = attrgetter(f"{path}thread_id", f"{path}traced.function")(state)
    except ValueError:  # it has ended since, or is not traced any more
        return ident, None
    return found


def _own_state() -> _ThreadState | None:
    """Return the state of the calling thread; None: it does not look as expected."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11):
        return None
    get = ctypes.pythonapi.PyThreadState_Get
    get.restype = ctypes.POINTER(_ThreadState)
    state: _ThreadState = get().contents

    def probe(frame: FrameType, event: str, arg: object) -> None:
        """Looked for, never called for anything."""

    before = sys.gettrace()
    sys.settrace(probe)
    try:
        fits = bool(state.traced.address == id(probe) and state.thread_id == get_ident())
    finally:
        sys.settrace(before)
    return state if fits else None


class _Leaving:
    """The trace function of a thread that an engine has left: it puts back what was there, and is gone.

    Args:
        set_trace: For the calling thread.
        users: The user's trace function; None: there was none.
        local: The user's local one of the innermost stack frame.
    """

    def __init__(self, set_trace: SetTrace, users: Trace | None, local: Trace | None) -> None:
        self._set_trace = set_trace
        self.users = users
        self._local = local

    def __call__(self, frame: FrameType, event: str, arg: object) -> object:
        local, self._local = self._local, None
        frame.f_trace = local
        now: object = sys.gettrace()
        if now is not self:
            return None  # another trace function is set now
        self._set_trace(None)
        if self.users is None:
            return None
        sys.settrace(self.users)
        follow = self.users if event == "call" else local
        return None if follow is None else follow(frame, event, arg)


def idle(frame: FrameType, event: str, arg: object) -> None:
    """The local trace function for stack frames in which an engine looks for nothing.

    One that is inside the engine while that leaves gets it afterwards: there, too, its thread is to notice.
    """
    now = sys.gettrace()
    if isinstance(now, _Leaving):
        now(frame, event, arg)
    else:
        frame.f_trace = None


class UsersTraces:
    """What was there when an engine came. `put_back` may be called on another thread."""

    def __init__(self) -> None:
        self._of_new_threads = threading.gettrace()
        self._functions: dict[int, Trace] = {}
        #: The local trace functions of threads that the user traces, the outermost stack frame first. A frame is known
        #: by its place in the stack, its id and its code: held, it would keep its variables as long as the engine is
        #: there.
        self._frames: dict[int, list[tuple[int, CodeType, Trace | None]]] = {}
        frames = sys._current_frames()
        for ident, function in trace_functions().items():
            users = function.users if isinstance(function, _Leaving) else function  # not noticed yet, since the last
            if users is None or is_ours(users):
                continue
            self._functions[ident] = users
            stack = reversed(list(above(frames.get(ident))))
            self._frames[ident] = [(id(frame), frame.f_code, frame.f_trace) for frame in stack]

    def put_back(self, set_trace: SetTrace, set_trace_of: SetTraceOf) -> None:
        """Remove the engine's trace function from all threads, as each call would still pay for it."""
        threading.settrace(self._of_new_threads)
        # Threads that are marked as not the user's still have their functions.
        untraced = {each.ident for each in threading.enumerate() if getattr(each, "pydev_do_not_trace", False)}
        for ident, innermost in sys._current_frames().items():
            if ident in untraced:
                continue
            known = self._frames.get(ident, [])
            stack = list(above(innermost))[::-1]
            local = None
            for place, frame in enumerate(stack):
                known = known if known[place : place + 1] and known[place][:2] == (id(frame), frame.f_code) else []
                local = known[place][2] if known else None
                if frame is not innermost:
                    frame.f_trace = local
            leaving = _Leaving(set_trace, self._functions.get(ident), local)
            set_trace_of(leaving, ident)
            # It notices at its next line, also in a loop that calls nothing; those outside of it need not. Not before
            # its thread has the function: it would be gone by then. (A local function of the user's that runs just now
            # takes this place again when it returns; then the thread notices with its next call.)
            innermost.f_trace = leaving
