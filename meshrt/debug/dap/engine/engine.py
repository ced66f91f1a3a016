"""Starts and stops the engine, makes it stop threads, and tells where they are stopped.

It is pydevd without debugpy's adapter: it speaks DAP itself. It would listen on a port; it is given one end of
a socket pair instead. Nothing is traced before `Engine.start`, and nothing is left of that after `Engine.stop`.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import cast

from meshrt.debug.dap.engine.evaluations import evaluations
from meshrt.debug.dap.engine.live_threads import LiveThreads
from meshrt.debug.dap.engine.loading import TRACES, load, loaded, watched_code
from meshrt.debug.dap.engine.pydevd_types import Api, ApiClass, SysMonitoring, ThreadLifecycle
from meshrt.debug.dap.engine.untraced import Untraced, pass_over_forks
from meshrt.debug.dap.engine.users_traces import UsersTraces
from meshrt.debug.dap.wire import MessageDecoder, encode
from meshrt.errors import MeshError
from meshrt.files import RUNTIME_FILES
from meshrt.hooks.facts import ActorState
from meshrt.inspect.visibility import is_debugging_file, is_plumbing

__all__ = ["Engine", "end_in_child", "places", "say_goodbye"]

_PRICE = (
    "Python 3.11 traces every call while an IDE is attached: calls of Python functions take 5 to 15 times as long. "
    "After it has detached, they do not."
)

#: Seconds for the engine to resume all threads.
_PATIENCE = 2.0
#: The number of the request: no IDE's.
_NUMBER = -1
#: Bytes that are read at once.
_CHUNK = 128 << 10

_log = logging.getLogger("meshrt")


class Engine:
    """The engine of this process, from one `start` to its `stop`. On a `RuntimeThread`, unless said otherwise.

    Raises:
        MeshError: debugpy is not installed here.
    """

    def __init__(self) -> None:
        self._pydevd = load()
        pass_over_forks()
        self._socket: socket.socket | None = None
        self._users_traces: UsersTraces | None = None
        self._live_threads = LiveThreads()

    @property
    def price(self) -> str:
        """The cost to the program while the engine traces, as a text; "" if it is negligible."""
        return _PRICE if TRACES else ""

    # -- on the thread that made it

    def start(self) -> socket.socket:
        """Trace all threads, and serve DAP at the socket that is returned. Raises MeshError: another one does."""
        pydevd = self._pydevd
        if pydevd.get_global_debugger() is not None:
            raise MeshError("pydevd, the engine of debugpy and PyCharm, already debugs this process")
        _check_tool()
        if TRACES:
            self._users_traces = UsersTraces()
        watched = watched_code()
        if watched is not None:
            watched.begin()
        ours, its = socket.socketpair()
        if not TRACES:
            self._live_threads.watch(pydevd.pydevd_sys_monitoring)
        connect = pydevd.start_client
        pydevd.start_client = lambda _host, _port: its
        try:
            pydevd.settrace(
                host="meshrt",
                port=0,
                suspend=False,
                patch_multiprocessing=False,
                block_until_connected=True,
                wait_for_ready_to_run=False,
                notify_stdin=False,
                dont_trace_start_patterns=(os.path.dirname(sys.modules["debugpy"].__file__ or ""), RUNTIME_FILES),
            )
        except BaseException:
            ours.close()
            its.close()
            if watched is not None:
                watched.let_go()
            self._live_threads.leave()
            self._put_traces_back()
            raise
        finally:
            pydevd.start_client = connect
        self._socket = ours
        return ours

    def stop(self) -> None:
        """Trace nothing any more. A client has said goodbye before (`disconnect`): the threads run."""
        watched = watched_code()
        if watched is not None:
            watched.let_go()
        # While the socket is open: the engine's own reader would find its end, and take the engine apart beside us.
        self._pydevd.stoptrace()
        # Whatever still ends on its threads ends with what is left, and not with the next engine.
        self._pydevd.set_global_debugger(None)
        self._live_threads.leave()
        # What an IDE has asked to read as well (``redirectOutput``) would stay wrapped for the life of the rank.
        for name in ("stdout", "stderr"):
            self._pydevd.pydevd_io.stop_redirect_stream_to_pydb_io_messages(name)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._put_traces_back()

    def _put_traces_back(self) -> None:
        if self._users_traces is not None:
            tracing = self._pydevd.pydevd_tracing
            # Python 3.11 cannot set a trace function for another thread; the engine's library can.
            self._users_traces.put_back(
                tracing.SetTrace,
                lambda function, ident: tracing.set_trace_to_threads(function, [ident], create_dummy_thread=False),
            )

    def forget_breakpoints(self) -> None:
        """Remove all breakpoints of an IDE; stopped threads stay stopped."""
        debugger = self._pydevd.get_global_debugger()
        if debugger is not None:
            api = _api()
            api.remove_all_breakpoints(debugger, "*")
            api.remove_all_exception_breakpoints(debugger)

    def withdraw_pause(self) -> None:
        """Withdraw a pause from the threads that have not stopped for it yet; those that have stopped resume."""
        debugger = self._pydevd.get_global_debugger()
        if debugger is None:
            return
        notification = debugger.threads_suspended_single_notification
        with notification._lock:
            notification._pause_requested = False
        lifecycle = cast(ThreadLifecycle, importlib.import_module("_pydevd_bundle.pydevd_thread_lifecycle"))
        with lifecycle.suspend_threads_lock:
            _api().request_resume_thread("*")
        if not TRACES:
            self._pydevd.pydevd_sys_monitoring.update_monitor_events()
            self._pydevd.pydevd_sys_monitoring.restart_events()

    # -- on the thread that runs user code

    def breakpoint(self, frame: FrameType) -> None:
        """Stop the calling thread at ``frame``, or where it continues."""
        self._pydevd.settrace(
            suspend=True,
            trace_only_current_thread=True,
            patch_multiprocessing=False,
            stop_at_frame=frame,
            notify_stdin=False,
        )

    def suspend(self, frame: FrameType) -> None:
        """Stop the calling thread here, in the call in which ``frame`` waits, if a client has requested a pause."""
        debugger = self._pydevd.get_global_debugger()
        if debugger is None:
            return
        thread = threading.current_thread()
        info = self._pydevd.set_additional_thread_info(thread)
        if info.pydev_state == self._pydevd.STATE_SUSPEND and not info.is_in_wait_loop:
            with Untraced(self._pydevd, info):
                debugger.do_wait_suspend(thread, frame, "line", None)

    def failed(self, error: BaseException) -> None:
        """Stop where ``error`` was raised, before it unwinds, if a client asked for uncaught exceptions."""
        debugger = self._pydevd.get_global_debugger()
        if debugger is not None:
            debugger.trigger_exception_handler((type(error), error, error.__traceback__), as_uncaught=True)


def say_goodbye(sock: socket.socket, decoder: MessageDecoder) -> None:
    """Send the engine the goodbye that the IDE has not sent, and wait until all threads resume.

    Args:
        sock: The socket to the engine; it has a time-out from here on.
        decoder: The decoder of the engine's messages; it may be in the middle of a message.
    """
    goodbye = {"seq": _NUMBER, "type": "request", "command": "disconnect", "arguments": {}}
    sock.settimeout(_PATIENCE)
    try:
        sock.sendall(encode(goodbye))
        while True:
            data = sock.recv(_CHUNK)
            if not data or any(each.get("request_seq") == _NUMBER for each in decoder.receive_data(data)):
                return
    except OSError as error:
        _log.warning("the engine of an IDE does not detach properly: %s", error)


def places(actors: Iterable[ActorState]) -> dict[str, tuple[str, int, str]]:
    """Return where actors are stopped in the engine: ``{actor: (file, line, function)}``; "" for another thread."""
    frames = sys._current_frames()
    main = threading.main_thread().ident
    idents = {main if actor.thread is None else actor.thread: actor.name for actor in actors}
    found: dict[str, tuple[str, int, str]] = {}
    for ident, frame in frames.items():
        stopped = False
        each: FrameType | None = frame
        while each is not None and is_plumbing(each):
            stopped = stopped or is_debugging_file(each.f_code.co_filename)
            each = each.f_back
        if stopped and each is not None:
            found.setdefault(idents.get(ident, ""), (each.f_code.co_filename, each.f_lineno, each.f_code.co_name))
    return found


def end_in_child() -> None:
    """In a forked child of user code: trace nothing any more, however far an engine was on its way to do so.

    The engine's threads are missing in the child, so none can resume a stopped thread or say goodbye. Trace functions
    of frames stay: Python does not call them in a thread without a trace function.
    """
    pydevd = loaded()
    if pydevd is None:
        return
    evaluations.forked()
    debugger = pydevd.get_global_debugger()
    if debugger is not None:
        debugger.pydb_disposed = True  # forked by a line of the console: the thread is not stopped here
    watched = watched_code()
    if watched is not None:
        watched.let_go()
    pydevd.set_global_debugger(None)
    # Not `stoptrace`, which flushes standard output: what is buffered there is the parent's to write.
    pydevd.pydevd_tracing.restore_sys_set_trace_func()
    if TRACES:
        sys.settrace(None)
        threading.settrace(None)
    else:
        pydevd.pydevd_sys_monitoring.stop_monitoring(all_threads=True)
    importlib.import_module("_pydev_bundle.pydev_monkey").undo_patch_thread_modules()


def _api() -> Api:
    """Return what carries out requests."""
    return cast(ApiClass, importlib.import_module("_pydevd_bundle.pydevd_api").PyDevdAPI)()


def _check_tool() -> None:
    """Raise MeshError if another tool has the monitoring number that the engine needs."""
    if TRACES:
        return
    monitoring = cast(SysMonitoring, getattr(sys, "monitoring"))  # noqa: B009  # Python 3.11 has none
    other = monitoring.get_tool(monitoring.DEBUGGER_ID)
    if other not in (None, "pydevd"):
        raise MeshError(f"{other!r} uses sys.monitoring's debugger id ({monitoring.DEBUGGER_ID}) in this rank")
