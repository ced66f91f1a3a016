"""The exit of a rank's interpreter: what a script's interpreter does when the script ends, behind the last actor.

::

    threads that are no daemons --> atexit --> open files are written --> modules of the user: __del__ --> files again

These are the parts of ``Py_FinalizeEx`` that user code can see. That function itself would end what the rank shares
with its agent, of which it is a fork, and the control thread, which tells of a crash or of a hang here; and it takes
several times as long (docs/design.md).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import NoReturn, TypeGuard

from meshrt.actor.ending import StopInterrupt
from meshrt.actor.endpoint import forget_endpoints
from meshrt.actor.script_signals import of_script
from meshrt.files import RUNTIME_FILES, is_library_file
from meshrt.uncaught import show_uncaught
from meshrt.wire.codec import text_of

__all__ = ["InterpreterExit", "end_forked_child", "exit_code", "note_modules"]

_IO = io.IOBase.__mro__[1]  # the base of all files, that of Python's library and those of users: no ABC, which is slow


#: The modules that a rank has from its agent, and that are not the user's.
_of_agent: frozenset[str] = frozenset()


#: Threads have been waited for.
_joined = False


def note_modules() -> None:
    """Note which modules ranks have from this process. In the agent, before it forks or imports any of the user's.

    A look at a module copies its memory in a rank: 2 MiB, and a fifth of the time that a rank needs to start and end.
    """
    global _of_agent
    every: list[tuple[str, object]] = list(sys.modules.items())  # a site may have put anything there
    _of_agent = frozenset(name for name, module in every if not _is_module_of_user(module))


class InterpreterExit:
    """Runs on the main thread: once, or for a script with `end_script` before.

    A `StopInterrupt`, or SIGINT, ends the step that runs, not those behind it.
    """

    def __init__(self) -> None:
        #: The step that runs; "": none does.
        self._step = ""

    @property
    def runs(self) -> bool:
        """Whether it runs now: the interrupt of the main thread is for it. Any thread."""
        return bool(self._step)

    def running(self) -> list[str]:
        """Return what runs now, in words: nothing, the step, or the threads that it waits for. Any thread."""
        if self._step != "threads":
            return [self._step] if self._step else []
        return [f"thread {thread.name!r}, which is not a daemon," for thread in _others()] or ["waiting for threads"]

    def run(self, *, whole: bool) -> None:
        """Run the steps. What user code raises is printed, as by an interpreter.

        Args:
            whole: False: an error is the reason, and the end is to be soon: only what loses no data.
        """
        self._run(slice(None) if whole else slice(1, 3))

    def end_script(self) -> None:
        """Run the steps after which the names of the script still can be seen."""
        self._run(slice(3))

    def _run(self, those: slice) -> None:
        steps: list[tuple[str, Callable[[], object]]] = [
            ("threads", _join_threads),
            ("atexit functions", atexit._run_exitfuncs),
            # First: of a file that is a part of a cycle, the collector may close the descriptor before it is written.
            ("writing open files", _flush_files),
            ("clearing modules (__del__)", _end_modules),
            ("writing open files", _flush_files),
        ]
        for step, function in steps[those]:
            try:
                self._step = step
                with of_script():
                    function()
            except StopInterrupt:
                pass  # it was reported by its name when the grace was over
            except KeyboardInterrupt:
                if self._step != "threads" or _others():
                    what = self.running()[0].rstrip(",")
                    print(f"meshrt: interrupted at the exit of this rank: {what}", file=sys.stderr)
            except BaseException as error:  # the steps behind it are to run all the same
                print(f"meshrt: error at the exit of this rank ({self._step}): {text_of(error)}", file=sys.stderr)
        self._step = ""


def exit_code(error: BaseException | None) -> int:
    """Return the exit code of an interpreter after ``error``; shows it as that does."""
    if error is None:
        return 0
    with contextlib.suppress(OSError, ValueError):  # user code may have closed the streams
        if not isinstance(error, SystemExit):
            try:
                show_uncaught(error)
            except SystemExit as end:
                return exit_code(end)
        elif error.code is None or isinstance(error.code, int):
            return error.code or 0
        else:
            print(text_of(error.code), file=sys.stderr)
    return 1


def end_forked_child(error: BaseException | None) -> NoReturn:
    """End a child that user code has forked and that came back, the way an interpreter ends."""
    code = exit_code(error)
    InterpreterExit().end_script()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _join_threads() -> None:
    """Wait for threads, once: a wait that SIGINT has ended does not begin again."""
    global _joined
    if not _joined:
        _joined = True
        threading._shutdown()  # type: ignore[attr-defined]  # private, in all versions


def _others() -> list[threading.Thread]:
    # Not `threading.enumerate`: a thread that is stopped in the debugger may hold its lock.
    main, known = threading.main_thread(), dict[int, threading.Thread](getattr(threading, "_active", {}))
    return [thread for thread in known.values() if not thread.daemon and thread is not main]


def _end_modules() -> None:
    """Drop the modules of the user, and then what is left in them: as Python does, names with an underscore first."""
    # Daemons do not run any more while an interpreter ends. Here they do, and would print that their globals are None.
    threading.excepthook = lambda _args: None
    forget_endpoints()
    modules = _drop_modules()
    gc.collect()  # what nothing else uses ends here, and finds its globals whole
    left = [vars(module) for reference in modules if (module := reference()) is not None]
    for namespace in [*left, *_sent_by_value()]:
        for private in (True, False):
            for name in reversed(tuple(namespace)):  # imports are the first ones: what is deleted finds them
                if name != "__builtins__" and name.startswith("_") is private:
                    namespace[name] = None


def _drop_modules() -> list[weakref.ref[types.ModuleType]]:
    """Remove the modules that were imported from files of the user; returns them, the last one first."""
    found = []
    # A daemon may import meanwhile. All are kept until the end: what one drops may use the next.
    every: list[tuple[str, object]] = [
        (name, sys.modules.get(name)) for name in [*sys.modules] if name not in _of_agent
    ]
    for name, module in reversed(every):
        if _is_module_of_user(module):
            found.append(weakref.ref(module))
            sys.modules.pop(name, None)
    return found


def _is_module_of_user(module: object) -> TypeGuard[types.ModuleType]:
    return isinstance(module, types.ModuleType) and _is_users(vars(module))


def _sent_by_value() -> list[dict[str, object]]:
    """Return the globals of functions that were pickled by value: they are in no module."""
    found = {}
    for function in gc.get_objects():
        if type(function) is types.FunctionType:
            namespace = function.__globals__
            if id(namespace) not in found and (namespace.get("__name__") == "__main__" or _is_users(namespace)):
                found[id(namespace)] = namespace
    return list(found.values())


def _is_users(namespace: dict[str, object]) -> bool:
    file = namespace.get("__file__")
    return isinstance(file, str) and not file.startswith(RUNTIME_FILES) and not is_library_file(file)


def _flush_files() -> None:
    """Write what is in the buffers of files that are still open. Not of those of the agent: they are frozen."""
    is_file: dict[type, bool] = {}
    for each in gc.get_objects():
        kind = type(each)
        if kind not in is_file:
            is_file[kind] = _IO in kind.__mro__
        if is_file[kind]:
            with contextlib.suppress(ValueError):  # it is closed
                _flush(each)


def _flush(file: io.IOBase) -> None:
    try:
        file.flush()
    except OSError as error:
        name = text_of(getattr(file, "name", file))
        print(f"meshrt: the rest of {name} could not be written at the exit of this rank: {error}", file=sys.stderr)
