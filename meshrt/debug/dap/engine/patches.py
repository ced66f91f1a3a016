"""The functions of debugpy's engine that are replaced, once, after its import."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Callable
from types import FrameType, SimpleNamespace, TracebackType
from typing import cast

from meshrt.debug.dap.engine.evaluations import evaluations
from meshrt.debug.dap.engine.expressions import expressions
from meshrt.debug.dap.engine.pydevd_types import (
    Api,
    ApiClass,
    Comm,
    Debugger,
    DebuggerClass,
    EngineRequest,
    Files,
    Pydevd,
    Requests,
    SuspendedFrames,
    ThreadCommand,
    ThreadInfos,
    ThreadOfEngine,
    TracingTool,
    Variable,
    Variables,
)
from meshrt.debug.dap.engine.users_traces import idle
from meshrt.debug.dap.engine.watched import WatchedCode
from meshrt.debug.dap.shown import CONTEXTS, WHOLE, briefly, cut
from meshrt.debug.dap.wire import Fields, failure
from meshrt.debug.stepping import user_frame
from meshrt.inspect.visibility import is_generated

__all__ = ["patch", "replace_idle", "watch"]

_INTERRUPTED = "KeyboardInterrupt: the evaluation was interrupted because the rank was resumed"


def patch(pydevd: Pydevd, api: ApiClass) -> None:
    """Replace all of these functions.

    Args:
        pydevd: The module.
        api: The class that carries out requests, ``PyDevdAPI``.
    """
    # At the end of the process pydevd would shut itself down while another thread stops it.
    pydevd.atexit = SimpleNamespace(register=lambda _stop: None)
    _go_on_at_once(pydevd, api)
    _hide_generated(pydevd.PyDB)
    expressions.replace(pydevd.PyDB)
    infos = importlib.import_module("_pydevd_bundle.pydevd_additional_thread_info")
    _pass_over_unborn(cast(ThreadInfos, sys.modules[infos.PyDBAdditionalThreadInfo.__module__]))
    _pause_users_code(pydevd)
    comm = cast(Comm, importlib.import_module("_pydevd_bundle.pydevd_comm"))
    _count_evaluations(comm)
    _raise_what_fails(comm.pydevd_vars)
    _show_briefly(comm, cast(SuspendedFrames, importlib.import_module("_pydevd_bundle.pydevd_suspended_frames")))
    _break_in_fetched_files(cast(Files, importlib.import_module("pydevd_file_utils")))
    _answer_all(comm, cast(Requests, importlib.import_module("_pydevd_bundle.pydevd_process_net_command_json")))


def _go_on_at_once(pydevd: Pydevd, api: ApiClass) -> None:
    """Wake threads that have to resume; by themselves they check every 0.2 s."""
    resume = api.request_resume_thread

    def request_resume_thread(self: Api, thread_id: str) -> None:
        resume(self, thread_id)
        debugger = pydevd.get_global_debugger()
        if debugger is not None:
            for event in list(debugger._thread_events.values()):
                event.set()

    api.request_resume_thread = request_resume_thread


def _break_in_fetched_files(files: Files) -> None:
    """Accept breakpoints in files that are on the script's machine alone: the code that runs is of them."""
    is_here = files.exists
    files.exists = lambda filename: is_here(filename) or bool(linecache.getlines(filename))


def _hide_generated(pydb: DebuggerClass) -> None:
    """Stop no thread in generated code of the runtime: a step out of an endpoint would end there."""
    file_type = pydb.get_file_type

    def get_file_type(self: Debugger, frame: FrameType, *names: object) -> object:
        return self.PYDEV_FILE if is_generated(frame) else file_type(self, frame, *names)

    pydb.get_file_type = get_file_type


def _pause_users_code(pydevd: Pydevd) -> None:
    """Pause no thread outside the user's code: the user would see a stopped rank with an empty stack."""
    suspend = pydevd.PyDB.do_wait_suspend

    def do_wait_suspend(
        self: Debugger, thread: ThreadOfEngine, frame: FrameType, *others: object, **options: object
    ) -> None:
        if thread.stop_reason == pydevd.CMD_THREAD_SUSPEND and user_frame(frame)[0] is None:
            return  # it has to stop later, and does at its next line
        suspend(self, thread, frame, *others, **options)

    pydevd.PyDB.do_wait_suspend = do_wait_suspend


def _count_evaluations(comm: Comm) -> None:
    """Number what threads evaluate for an IDE, and answer requests whose evaluation is interrupted."""
    command, variables = comm.InternalThreadCommand, comm.pydevd_vars
    evaluations.evaluators.update(
        function.__code__ for function in (variables.evaluate_expression.__wrapped__, variables.eval_in_context)
    )
    begin: Callable[..., None] = vars(command)["__init__"]
    work = command.do_it

    def __init__(self: ThreadCommand, *args: object, **options: object) -> None:
        begin(self, *args, **options)
        self.meshrt_number = evaluations.post()

    def do_it(self: ThreadCommand, debugger: Debugger) -> None:
        first = next(iter(self.args), None)
        request = cast(EngineRequest, first) if hasattr(first, "seq") else None
        why = ""
        try:
            if not evaluations.run(self.meshrt_number, lambda: work(self, debugger)):
                why = _INTERRUPTED
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            # Raised by the typed line, as by `exit()`. The engine answers for errors only, and the rank must not end.
            why = f"{type(error).__name__}: {error}"
        except Exception as error:
            # The engine would print it on the program's terminal, and some requests would have no answer.
            if request is None:
                raise
            why = f"{type(error).__name__}: {error}"
        finally:
            _look_for_more(debugger, self.thread_id)
        if why and request is not None:
            debugger.writer.add_command(_refusal(comm, request, why))

    setattr(command, "__init__", __init__)  # noqa: B010  # an assignment would be unsound in a subclass
    command.do_it = do_it


def _look_for_more(debugger: Debugger, thread_id: str) -> None:
    """Let a stopped thread carry out its next request at once.

    It carries out one request each time it wakes. Several that arrive together wake it once, as its event is set
    already; for each of the others it would wait 0.2 s.
    """
    queue, event = debugger.get_internal_queue_and_event(thread_id)
    if not queue.empty():
        event.set()


def _raise_what_fails(variables: Variables) -> None:
    """Let a variable that cannot be set be an error: the engine prints why, and answers with the value that it has."""
    log = variables.pydev_log

    def exception(what: object = "", *args: object) -> None:
        if isinstance(what, Exception):
            raise what
        log.exception(what, *args)

    variables.pydev_log = SimpleNamespace(**{**vars(log), "exception": exception})


def _show_briefly(comm: Comm, frames: SuspendedFrames) -> None:
    """Shorten values on a console, and leave the engine's own traceback out of a syntax error."""
    variable, respond, explain = (
        frames._AbstractVariable,
        comm._evaluate_response,
        comm._evaluate_response_return_exception,
    )
    data_of = variable.get_var_data

    def get_var_data(
        self: Variable, fmt: Fields | None = None, context: str | None = None, **options: object
    ) -> Fields:
        data = data_of(self, fmt=fmt, context=context, **options)
        if context in CONTEXTS and not (fmt or {}).get(WHOLE):
            data["value"] = briefly(self.value, data["value"])
        return data

    def evaluate_response(debugger: Debugger, request: EngineRequest, result: object, error_message: str = "") -> None:
        if type(result) is str and not error_message and request.arguments.context in CONTEXTS:
            result = cut(result)
        respond(debugger, request, result, error_message)

    def return_exception(
        debugger: Debugger,
        request: EngineRequest,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        typed = isinstance(error, SyntaxError) and error.filename == "<string>"
        explain(debugger, request, kind, error, None if typed else traceback)

    variable.get_var_data = get_var_data
    comm._evaluate_response, comm._evaluate_response_return_exception = evaluate_response, return_exception


def _answer_all(comm: Comm, requests: Requests) -> None:
    """Refuse requests that the engine cannot understand; it would end, or print that and let the IDE wait."""
    processor = requests.PyDevJsonCommandProcessor
    for name in [name for name in vars(processor) if _is_handler(name)]:
        setattr(processor, name, _careful(comm, getattr(processor, name)))

    def unknown(self: object, name: str) -> Callable[[Debugger, EngineRequest], object]:
        if not _is_handler(name):
            raise AttributeError(name)
        return lambda _debugger, request: _refusal(comm, request, f"debugpy's engine has no {request.command}")

    setattr(processor, "__getattr__", unknown)  # noqa: B010  # it has none yet


def _is_handler(name: str) -> bool:
    return name.startswith("on_") and name.endswith("_request")


def _careful(comm: Comm, handle: Callable[..., object]) -> Callable[..., object]:
    def handler(self: object, debugger: Debugger, request: EngineRequest) -> object:
        try:
            return handle(self, debugger, request)
        except Exception as error:  # of its own: it must not end for what an IDE sends
            why = f"the arguments are not valid for debugpy's engine ({type(error).__name__}: {error})"
            return _refusal(comm, request, f"{request.command}: {why}")

    return handler


def _refusal(comm: Comm, request: EngineRequest, why: str) -> object:
    answer = failure({"seq": request.seq, "command": request.command}, why)
    return comm.NetCommand(comm.CMD_RETURN, 0, answer, is_json=True)


def _pass_over_unborn(infos: ThreadInfos) -> None:
    """Treat a thread that was started and does not run yet as not alive.

    The engine goes through ``threading.enumerate()``, which has such threads, and writes about each that it finds to
    the standard error: they have no ident. It passes over them then, as it passes over those that have ended.
    """
    alive = infos.is_thread_alive

    def is_thread_alive(thread: ThreadOfEngine) -> bool:
        return thread.ident is not None and alive(thread)

    infos.is_thread_alive = is_thread_alive


def replace_idle(pydevd: Pydevd) -> None:
    """Replace the trace function of frames that the engine ignores by one that lets their threads leave the engine."""
    replaced = pydevd.NO_FTRACE
    for module in list(sys.modules.values()):
        if (
            getattr(module, "__name__", "").startswith(("pydevd", "_pydevd"))
            and vars(module).get("NO_FTRACE") is replaced
        ):
            module.NO_FTRACE = idle  # type: ignore[attr-defined]  # as they have it by name


def watch(pydevd: Pydevd) -> WatchedCode:
    """Record the code objects that the engine watches."""
    tool = cast(TracingTool, sys.modules[pydevd.pydevd_sys_monitoring.stop_monitoring.__module__])
    watched = WatchedCode(tool.monitor, tool.monitor.DEBUGGER_ID)
    tool.monitor = watched.monitoring
    return watched
