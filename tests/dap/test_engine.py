"""debugpy, as `meshrt.debug.dap.engine.engine` and `loading` use it: its private names, and what it leaves behind."""

from __future__ import annotations

import json

import pytest

from tests.dap import rounds
from tests.support.programs import run_python

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

NAMES = """
import inspect, sys
from meshrt.debug.dap.engine.engine import Engine
pydevd = Engine()._pydevd
import pydevd_tracing
from _pydevd_bundle import pydevd_api, pydevd_constants

from meshrt.debug.dap.engine.loading import KNOWN
assert sys.modules["debugpy"].__version__ == KNOWN, "hold what is below against this release, and name it there"
assert pydevd is sys.modules["pydevd"] and not sys.gettrace()
for name in ("start_client", "set_global_debugger", "stoptrace", "get_global_debugger", "set_additional_thread_info"):
    assert callable(getattr(pydevd, name)), name
assert list(inspect.signature(pydevd.start_client).parameters) == ["host", "port"]
asked = {
    "host", "port", "suspend", "patch_multiprocessing", "block_until_connected", "wait_for_ready_to_run",
    "notify_stdin", "dont_trace_start_patterns", "trace_only_current_thread", "stop_at_frame",
}
missing = asked - set(inspect.signature(pydevd.settrace).parameters)
assert not missing, missing
assert pydevd.STATE_SUSPEND == pydevd_constants.STATE_SUSPEND
assert list(inspect.signature(pydevd.PyDB.do_wait_suspend).parameters)[1:3] == ["thread", "frame"]
assert isinstance(pydevd.CMD_THREAD_SUSPEND, int)
assert list(inspect.signature(pydevd.PyDB.trigger_exception_handler).parameters)[1:3] == ["excinfo", "as_uncaught"]
assert pydevd.PyDB()._thread_events == {}
from meshrt.debug.dap.engine import patches
from meshrt.debug.dap.engine import evaluations
changed = (pydevd_api.PyDevdAPI.request_resume_thread, pydevd.PyDB.get_file_type, pydevd.InternalThreadCommand.do_it)
assert {each.__module__ for each in changed} == {patches.__name__}, changed
from _pydevd_bundle import pydevd_breakpoints
point = pydevd_breakpoints.LineBreakpoint(1, 3, "x", "None", "'x'", hit_condition="@HIT@ == 2")
assert not point._hit_condition_lock.locked() and (point._hit_count, point.line, point.condition) == (0, 3, "x")
judged = [pydevd.PyDB().handle_breakpoint_condition(None, point, inspect.currentframe()) for _ in range(2)]
assert judged == [False, True] and point._hit_count == 2, judged
assert pydevd_api.PyDevdAPI.remove_all_breakpoints and pydevd_api.PyDevdAPI.remove_all_exception_breakpoints
notification = pydevd.PyDB().threads_suspended_single_notification
assert notification._pause_requested is False and notification._lock.acquire(False)
from _pydevd_bundle import pydevd_comm, pydevd_thread_lifecycle, pydevd_vars
with pydevd_thread_lifecycle.suspend_threads_lock:
    pass
assert pydevd_vars.evaluate_expression.__wrapped__.__code__ and pydevd_vars.eval_in_context.__code__
assert len(evaluations.evaluations.evaluators) == 2
command = pydevd_comm.InternalThreadCommand("1", print, "what", "is", "asked")
assert command.args == ("what", "is", "asked") and command.meshrt_number == 1, vars(command)
from _pydevd_bundle import pydevd_suspended_frames
shows = pydevd_suspended_frames._ObjectVariable.get_var_data, pydevd_comm._evaluate_response
assert {each.__module__ for each in shows} == {patches.__name__}, shows
told = pydevd_comm.NetCommand(pydevd_comm.CMD_RETURN, 0, {"request_seq": 5}, is_json=True)
assert told.as_dict["request_seq"] == 5, told.as_dict
from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor
handler = PyDevJsonCommandProcessor.on_attach_request
assert handler.__module__ == patches.__name__
assert PyDevJsonCommandProcessor(None).on_nothing_request and not hasattr(PyDevJsonCommandProcessor(None), "nothing")
import threading
# A thread that was started and does not run yet is passed over, without a word on the standard error.
unborn = threading.Thread()
pydevd.set_additional_thread_info(unborn).update_stepping_info()
info = pydevd.set_additional_thread_info(threading.current_thread())
assert (info.pydev_state, info.is_in_wait_loop, info.is_tracing) != (None, None, None)
assert callable(pydevd_tracing.SetTrace)
assert pydevd.pydevd_tracing is pydevd_tracing and callable(pydevd_tracing.restore_sys_set_trace_func)
assert callable(pydevd.pydevd_io.stop_redirect_stream_to_pydb_io_messages)
from _pydev_bundle import pydev_monkey
assert callable(pydev_monkey.undo_patch_thread_modules)
assert "create_dummy_thread" in inspect.signature(pydevd_tracing.set_trace_to_threads).parameters
if sys.version_info >= (3, 12):
    assert callable(pydevd.pydevd_sys_monitoring.update_monitor_events)
    assert callable(pydevd.pydevd_sys_monitoring.restart_events)
    from meshrt.debug.dap.engine.loading import watched_code
    tool = sys.modules[pydevd.pydevd_sys_monitoring.stop_monitoring.__module__]
    assert tool.monitor is watched_code().monitoring
    assert "all_threads" in inspect.signature(pydevd.pydevd_sys_monitoring.stop_monitoring).parameters
    assert callable(pydevd.pydevd_sys_monitoring.suspend_current_thread_tracing)
    assert callable(pydevd.pydevd_sys_monitoring.resume_current_thread_tracing)
else:
    from meshrt.debug.dap.engine.users_traces import idle
    from _pydevd_bundle import pydevd_cython
    assert pydevd.NO_FTRACE is pydevd_cython.NO_FTRACE is idle
"""


def test_its_private_names() -> None:
    done = run_python("-c", NAMES)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_it_comes_and_goes_without_a_trace() -> None:
    done = run_python("-m", rounds.__name__)
    # Nothing on the terminal of the user, nothing listened at, and nothing left.
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == []


BLOCKED = """
import shlex, sys
from meshrt.debug.dap.engine.engine import Engine
from meshrt.errors import MeshError
from tests.support.programs import project

sys.modules["debugpy"] = None
try:
    Engine()
except MeshError as error:
    assert "the ranks' Python has no debugpy (" in str(error), error
    _, _, command = str(error).partition("; to install it: ")
    needed = project()["optional-dependencies"]["dap"]
    assert shlex.split(command) == [sys.executable, "-m", "pip", "install", *needed], error
else:
    sys.exit("it was there")
"""

OTHERWISE = """
import importlib, os, sys
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
from meshrt.debug.dap.engine.engine import Engine
from meshrt.errors import MeshError

importlib.import_module("debugpy._vendored.force_pydevd")
importlib.import_module("pydevd")
del importlib.import_module("_pydevd_bundle.pydevd_comm").InternalThreadCommand
for _ in range(2):
    try:
        Engine()
    except MeshError as error:
        assert "is not compatible with this meshrt (" in str(error) and "InternalThreadCommand" in str(error), error
        assert str(error).endswith(" -m pip install debugpy==1.8.22"), error
    else:
        sys.exit("it was as it is known")
"""

TAKEN = """
from meshrt.debug.dap.engine.engine import Engine
from meshrt.errors import MeshError

engine = Engine()
engine._pydevd.set_global_debugger(object())
try:
    engine.start()
except MeshError as error:
    assert "already debugs this process" in str(error), error
else:
    raise SystemExit("it was free")
"""


@pytest.mark.parametrize("script", [BLOCKED, OTHERWISE, TAKEN], ids=["not installed", "of another release", "taken"])
def test_what_cannot_be_is_told(script: str) -> None:
    done = run_python("-c", script)
    assert (done.returncode, done.stderr) == (0, "")
