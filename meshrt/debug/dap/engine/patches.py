"""The functions of debugpy's engine that are replaced, once, after its import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

from meshrt.debug.dap.engine.evaluations import evaluations
from meshrt.debug.dap.engine.expressions import expressions
from meshrt.debug.dap.engine.users_traces import idle
from meshrt.debug.dap.engine.watched import WatchedCode
from meshrt.debug.dap.shown import CONTEXTS, WHOLE, briefly, cut
from meshrt.debug.dap.wire import failure
from meshrt.debug.stepping import user_frame
from meshrt.inspect.visibility import is_generated

__all__ = ["patch", "replace_idle", "watch"]

_INTERRUPTED = "KeyboardInterrupt: it has been interrupted, as the rank was to go on"


def patch(pydevd: Any, api: Any) -> None:
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
    infos: Any = importlib.import_module("_pydevd_bundle.pydevd_additional_thread_info")
    _pass_over_unborn(sys.modules[infos.PyDBAdditionalThreadInfo.__module__])
    _pause_users_code(pydevd)
    comm = importlib.import_module("_pydevd_bundle.pydevd_comm")
    _count_evaluations(comm)
    _raise_what_fails(comm.pydevd_vars)
    _show_briefly(comm, importlib.import_module("_pydevd_bundle.pydevd_suspended_frames"))
    _answer_all(comm, importlib.import_module("_pydevd_bundle.pydevd_process_net_command_json"))


def _go_on_at_once(pydevd: Any, api: Any) -> None:
    """Wake threads that have to resume; by themselves they check every 0.2 s."""
    resume = api.request_resume_thread

    def request_resume_thread(self: Any, thread_id: str) -> None:
        resume(self, thread_id)
        debugger = pydevd.get_global_debugger()
        if debugger is not None:
            for event in list(debugger._thread_events.values()):
                event.set()

    api.request_resume_thread = request_resume_thread


def _hide_generated(pydb: Any) -> None:
    """Stop no thread in generated code of the runtime: a step out of an endpoint would end there."""
    file_type = pydb.get_file_type

    def get_file_type(self: Any, frame: FrameType, *names: Any) -> Any:
        return self.PYDEV_FILE if is_generated(frame) else file_type(self, frame, *names)

    pydb.get_file_type = get_file_type


def _pause_users_code(pydevd: Any) -> None:
    """Pause no thread outside the user's code: the user would see a stopped rank with an empty stack."""
    stand = pydevd.PyDB.do_wait_suspend

    def do_wait_suspend(self: Any, thread: Any, frame: FrameType, *others: Any, **options: Any) -> None:
        if thread.stop_reason == pydevd.CMD_THREAD_SUSPEND and user_frame(frame)[0] is None:
            return  # it has to stop later, and does at its next line
        stand(self, thread, frame, *others, **options)

    pydevd.PyDB.do_wait_suspend = do_wait_suspend


def _count_evaluations(comm: Any) -> None:
    """Number what threads evaluate for an IDE, and answer requests whose evaluation is interrupted."""
    command, variables = comm.InternalThreadCommand, comm.pydevd_vars
    evaluations.evaluators.update(
        function.__code__ for function in (variables.evaluate_expression.__wrapped__, variables.eval_in_context)
    )
    begin, work = command.__init__, command.do_it

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.meshrt_number = evaluations.post()

    def do_it(self: Any, debugger: Any) -> None:
        request = next(iter(self.args), None)
        why = ""
        try:
            if not evaluations.run(self.meshrt_number, lambda: work(self, debugger)):
                why = _INTERRUPTED
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            # Raised by the typed line, as by `exit()`. The engine answers for errors only, and the rank must not end.
            why = f"{type(error).__name__}: {error}"
        except Exception as error:
            # The engine would print it on the program's terminal, and some requests would have no answer.
            if not hasattr(request, "seq"):
                raise
            why = f"{type(error).__name__}: {error}"
        finally:
            _look_for_more(debugger, self.thread_id)
        if why and hasattr(request, "seq"):
            debugger.writer.add_command(_refusal(comm, request, why))

    command.__init__, command.do_it = __init__, do_it


def _look_for_more(debugger: Any, thread_id: str) -> None:
    """Let a stopped thread carry out its next request at once.

    It carries out one request each time it wakes. Several that arrive together wake it once, as its event is set
    already; for each of the others it would wait 0.2 s.
    """
    queue, event = debugger.get_internal_queue_and_event(thread_id)
    if not queue.empty():
        event.set()


def _raise_what_fails(variables: Any) -> None:
    """Let a variable that cannot be set be an error: the engine prints why, and answers with the value that it has."""
    log = variables.pydev_log

    def exception(what: Any = "", *args: Any) -> None:
        if isinstance(what, Exception):
            raise what
        log.exception(what, *args)

    variables.pydev_log = SimpleNamespace(**{**vars(log), "exception": exception})


def _show_briefly(comm: Any, frames: Any) -> None:
    """Shorten values on a console, and leave the engine's own traceback out of a syntax error."""
    variable, respond, explain = (
        frames._AbstractVariable,
        comm._evaluate_response,
        comm._evaluate_response_return_exception,
    )
    data_of = variable.get_var_data

    def get_var_data(self: Any, fmt: Any = None, context: Any = None, **options: Any) -> Any:
        data = data_of(self, fmt=fmt, context=context, **options)
        if context in CONTEXTS and not (fmt or {}).get(WHOLE):
            data["value"] = briefly(self.value, data["value"])
        return data

    def evaluate_response(debugger: Any, request: Any, result: Any, error_message: str = "") -> None:
        brief = type(result) is str and not error_message and request.arguments.context in CONTEXTS
        respond(debugger, request, cut(result) if brief else result, error_message)

    def return_exception(debugger: Any, request: Any, kind: Any, error: Any, traceback: Any) -> None:
        typed = isinstance(error, SyntaxError) and error.filename == "<string>"
        explain(debugger, request, kind, error, None if typed else traceback)

    variable.get_var_data = get_var_data
    comm._evaluate_response, comm._evaluate_response_return_exception = evaluate_response, return_exception


def _answer_all(comm: Any, requests: Any) -> None:
    """Refuse requests that the engine cannot understand; it would end, or print that and let the IDE wait."""
    processor = requests.PyDevJsonCommandProcessor
    for name in [name for name in vars(processor) if _is_handler(name)]:
        setattr(processor, name, _careful(comm, getattr(processor, name)))

    def unknown(self: Any, name: str) -> Any:
        if not _is_handler(name):
            raise AttributeError(name)
        return lambda _debugger, request: _refusal(comm, request, f"{request.command} is not for debugpy's engine")

    processor.__getattr__ = unknown


def _is_handler(name: str) -> bool:
    return name.startswith("on_") and name.endswith("_request")


def _careful(comm: Any, handle: Callable[..., Any]) -> Callable[..., Any]:
    def handler(self: Any, debugger: Any, request: Any) -> Any:
        try:
            return handle(self, debugger, request)
        except Exception as error:  # of its own: what an IDE may send is its matter
            why = f"debugpy's engine makes no sense of its arguments ({type(error).__name__}: {error})"
            return _refusal(comm, request, f"{request.command}: {why}")

    return handler


def _refusal(comm: Any, request: Any, why: str) -> Any:
    answer = failure({"seq": request.seq, "command": request.command}, why)
    return comm.NetCommand(comm.CMD_RETURN, 0, answer, is_json=True)


def _pass_over_unborn(infos: Any) -> None:
    """Treat a thread that was started and does not run yet as not alive.

    The engine goes through ``threading.enumerate()``, which has such threads, and writes about each that it finds to
    the standard error: they have no ident. It passes over them then, as it passes over those that have ended.
    """
    alive = infos.is_thread_alive

    def is_thread_alive(thread: Any) -> bool:
        return thread.ident is not None and bool(alive(thread))

    infos.is_thread_alive = is_thread_alive


def replace_idle(pydevd: Any) -> None:
    """Replace the trace function of frames that the engine ignores by one that lets their threads leave the engine."""
    replaced = pydevd.NO_FTRACE
    for module in list(sys.modules.values()):
        if (
            getattr(module, "__name__", "").startswith(("pydevd", "_pydevd"))
            and vars(module).get("NO_FTRACE") is replaced
        ):
            module.NO_FTRACE = idle  # type: ignore[attr-defined]  # as they have it by name


def watch(pydevd: Any) -> WatchedCode:
    """Record the code objects that the engine watches."""
    tool: Any = sys.modules[pydevd.pydevd_sys_monitoring.stop_monitoring.__module__]
    watched = WatchedCode(tool.monitor, tool.monitor.DEBUGGER_ID)
    tool.monitor = watched.monitoring
    return watched
