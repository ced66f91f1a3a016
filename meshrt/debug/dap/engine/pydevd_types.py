"""What is used of pydevd, debugpy's engine: its modules, classes and objects as types. It has none of its own.

Modules and classes are given as the attributes that they have, as functions in them are replaced
(`meshrt.debug.dap.engine.patches`). ``tests/dap/test_engine.py`` compares the names with the release that is pinned.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Protocol

from meshrt.debug.dap.wire import Fields, Message

__all__ = [
    "Api",
    "ApiClass",
    "Breakpoint",
    "Comm",
    "Debugger",
    "DebuggerClass",
    "EngineRequest",
    "Log",
    "Monitoring",
    "Pydevd",
    "Requests",
    "SuspendedFrames",
    "SysMonitoring",
    "ThreadCommand",
    "ThreadInfo",
    "ThreadInfos",
    "ThreadLifecycle",
    "ThreadOfEngine",
    "Tracing",
    "TracingTool",
    "Variable",
    "Variables",
]


# -- objects


class ThreadInfo(Protocol):
    """What it knows of a thread."""

    pydev_state: int
    is_in_wait_loop: bool
    is_tracing: int
    pydev_message: str


class ThreadOfEngine(Protocol):
    """A thread, with what it has noted there."""

    ident: int | None
    stop_reason: int


class Breakpoint(Protocol):
    """A breakpoint; one of exceptions has neither a line nor a hit condition."""

    line: int
    condition: str | None
    expression: str
    hit_condition: str | None
    _hit_condition_lock: threading.Lock
    _hit_count: int


class _Notification(Protocol):
    _lock: threading.Lock
    _pause_requested: bool


class _Writer(Protocol):
    def add_command(self, command: object) -> None: ...


class Debugger(Protocol):
    """The debugger of a process."""

    PYDEV_FILE: object
    pydb_disposed: bool
    threads_suspended_single_notification: _Notification
    writer: _Writer
    _thread_events: dict[str, threading.Event]

    def do_wait_suspend(self, thread: threading.Thread, frame: FrameType, event: str, arg: object) -> None: ...

    def trigger_exception_handler(
        self, excinfo: tuple[type[BaseException], BaseException, TracebackType | None], *, as_uncaught: bool
    ) -> None: ...

    def get_internal_queue_and_event(self, thread_id: str) -> tuple[queue.Queue[object], threading.Event]: ...


class Api(Protocol):
    """Carries out requests."""

    def request_resume_thread(self, thread_id: str) -> None: ...

    def remove_all_breakpoints(self, debugger: Debugger, filename: str) -> None: ...

    def remove_all_exception_breakpoints(self, debugger: Debugger) -> None: ...


class _Arguments(Protocol):
    context: str | None


class EngineRequest(Protocol):
    """A request of an IDE."""

    seq: int
    command: str
    arguments: _Arguments


class ThreadCommand(Protocol):
    """What a stopped thread is to do; ``meshrt_number`` is ours."""

    thread_id: str
    args: Sequence[object]
    meshrt_number: int


class Variable(Protocol):
    """A variable that an IDE is shown; ``value`` is the user's."""

    value: object


# -- classes


class DebuggerClass(Protocol):
    """``PyDB``."""

    get_file_type: Callable[..., object]
    do_wait_suspend: Callable[..., None]
    handle_breakpoint_condition: Callable[[Debugger, ThreadInfo, Breakpoint, FrameType], bool]
    handle_breakpoint_expression: Callable[[Debugger, Breakpoint, ThreadInfo, FrameType], None]


class ApiClass(Protocol):
    """``PyDevdAPI``."""

    request_resume_thread: Callable[[Api, str], None]

    def __call__(self) -> Api: ...


class ThreadCommandClass(Protocol):
    """``InternalThreadCommand``."""

    do_it: Callable[[ThreadCommand, Debugger], None]


class VariableClass(Protocol):
    """``_AbstractVariable``."""

    get_var_data: Callable[..., Fields]


# -- modules


class Monitoring(Protocol):
    """``pydevd_sys_monitoring``: on Python 3.12 and newer."""

    start_monitoring: Callable[..., None]
    stop_monitoring: Callable[..., None]

    def update_monitor_events(self) -> None: ...

    def restart_events(self) -> None: ...

    def suspend_current_thread_tracing(self) -> bool: ...

    def resume_current_thread_tracing(self) -> None: ...


class SysMonitoring(Protocol):
    """``sys.monitoring``, which Python 3.11 does not have."""

    DEBUGGER_ID: int
    events: EventNumbers

    def get_tool(self, tool: int) -> str | None: ...

    def use_tool_id(self, tool: int, name: str) -> None: ...

    def get_local_events(self, tool: int, code: CodeType) -> int: ...

    def set_local_events(self, tool: int, code: CodeType, events: int) -> None: ...

    def register_callback(self, tool: int, event: int, function: None) -> object: ...


class EventNumbers(Protocol):
    """``sys.monitoring.events``."""

    PY_UNWIND: int


class TracingTool(Protocol):
    """The module that has the functions of `Monitoring`."""

    monitor: SysMonitoring
    threading: ModuleType


class Tracing(Protocol):
    """``pydevd_tracing``."""

    def SetTrace(self, function: object) -> None: ...  # its name

    def set_trace_to_threads(self, function: object, threads: Sequence[int], *, create_dummy_thread: bool) -> int: ...

    def restore_sys_set_trace_func(self) -> None: ...


class _Io(Protocol):
    def stop_redirect_stream_to_pydb_io_messages(self, name: str) -> None: ...


class Pydevd(Protocol):
    """``pydevd``."""

    CMD_THREAD_SUSPEND: int
    STATE_SUSPEND: int
    NO_FTRACE: object
    PyDB: DebuggerClass
    atexit: object
    pydevd_io: _Io
    pydevd_sys_monitoring: Monitoring
    pydevd_tracing: Tracing
    settrace: Callable[..., None]
    start_client: Callable[[str, int], socket.socket]

    def stoptrace(self) -> None: ...

    def get_global_debugger(self) -> Debugger | None: ...

    def set_global_debugger(self, debugger: None) -> None: ...

    def set_additional_thread_info(self, thread: threading.Thread) -> ThreadInfo: ...


class Log(Protocol):
    """``pydev_log``."""

    def exception(self, what: object, *args: object) -> None: ...


class Variables(Protocol):
    """``pydevd_vars``."""

    pydev_log: Log
    evaluate_expression: Wrapper
    eval_in_context: Function


class Function(Protocol):
    """A function."""

    __code__: CodeType


class Wrapper(Protocol):
    """A function that wraps another one."""

    __wrapped__: Function


class Comm(Protocol):
    """``pydevd_comm``."""

    CMD_RETURN: int
    InternalThreadCommand: ThreadCommandClass
    pydevd_vars: Variables
    _evaluate_response: Callable[[Debugger, EngineRequest, object, str], None]
    _evaluate_response_return_exception: Callable[
        [Debugger, EngineRequest, type[BaseException], BaseException, TracebackType | None], None
    ]

    def NetCommand(self, kind: int, seq: int, text: Message, *, is_json: bool) -> object: ...  # its name


class SuspendedFrames(Protocol):
    """``pydevd_suspended_frames``."""

    _AbstractVariable: VariableClass


class Requests(Protocol):
    """``pydevd_process_net_command_json``."""

    PyDevJsonCommandProcessor: type


class ThreadInfos(Protocol):
    """The module of ``PyDBAdditionalThreadInfo``."""

    is_thread_alive: Callable[[ThreadOfEngine], bool]


class ThreadLifecycle(Protocol):
    """``pydevd_thread_lifecycle``."""

    suspend_threads_lock: threading.Lock


class Files(Protocol):
    """``pydevd_file_utils``."""

    exists: Callable[[str], bool]
