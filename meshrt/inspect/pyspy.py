"""The stacks of any Python process, as ``py-spy dump --json`` writes them: as records (`meshrt.inspect.records`).

py-spy reads the memory of the process from outside, and stops it for the milliseconds that this takes. It knows many
versions of Python, and asks nothing of the process.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from meshrt.errors import MeshError
from meshrt.files import STDLIB_FILES
from meshrt.hooks.facts import Answered, Unanswered
from meshrt.inspect.records import Record, StackFrame, Threads, Times
from meshrt.inspect.tree import StackAnswer
from meshrt.inspect.visibility import cut, is_hidden_file
from meshrt.program.words import BLOCKED, RUNNING
from meshrt.show.installing import install_extra
from meshrt.transport.foreign import check_processes, may_look, python_of
from meshrt.transport.kernel import is_stopped

__all__ = ["MAIN", "ask", "find", "records_of"]

#: What the main thread is shown as.
MAIN = "main thread"
#: Seconds for one process, and processes that are read at once.
_SECONDS = 20.0
_AT_ONCE = 8
#: The standard library of any Python, wherever it is installed.
_STDLIB = re.compile(r"/.*/python3\.\d+t?/(?!(?:site|dist)-packages/)")


def find() -> str:
    """Return the path of py-spy: beside this interpreter, or on ``PATH``. Raises MeshError: it is not installed."""
    places = os.pathsep.join([os.path.dirname(os.path.abspath(sys.executable)), os.environ.get("PATH", os.defpath)])
    found = shutil.which("py-spy", path=places)
    if found is None:
        raise MeshError(f"where --pid needs py-spy, which is not installed: {install_extra('pyspy', 'py-spy')}")
    return found


def ask(mesh: str, pids: Sequence[int], *, verbose: bool = False) -> list[StackAnswer]:
    """Return the answers of processes: rank 0 of a mesh is the first one. Raises MeshError: there is no py-spy.

    Args:
        verbose: Also stack frames and threads that are no user code.
    """
    program = find()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda rank: _ask_one(program, mesh, rank, pids[rank], verbose), range(len(pids))))


def _ask_one(program: str, mesh: str, rank: int, pid: int, verbose: bool) -> StackAnswer:
    try:
        check_processes([pid])
    except MeshError as error:
        return Unanswered(mesh, (rank,), "gone", str(error))
    # One that is stopped already cannot be stopped, and does not change while it is read.
    command = [program, "dump", "--json", *(["--nonblocking"] if is_stopped(pid) else []), "--pid", str(pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=_SECONDS
        )
        if not done.returncode:
            threads = Threads(records_of(json.loads(done.stdout), pid, verbose=verbose))
            return Answered(mesh, (rank,), threads, {rank: Times()})
        why = _why(pid, done.stderr)
    except subprocess.TimeoutExpired:
        why = f"PID {pid}: py-spy has not answered within {_SECONDS:g} s"
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"PID {pid}: py-spy: {type(error).__name__}: {error}"
    return Unanswered(mesh, (rank,), "refused", why)


def _why(pid: int, said: str) -> str:
    """Return why py-spy has failed, from what it has written to standard error."""
    if "permission denied" in said.lower() or "not permitted" in said:
        return may_look(pid)
    try:
        python = python_of(pid)
    except OSError:
        return may_look(pid)
    if not python:
        return f"PID {pid} is not a Python process"
    reason = next((line for line in said.splitlines() if line.strip()), "no message")
    return f"PID {pid}: py-spy cannot read its Python {python}: {reason.removeprefix('Error: ')}"


def records_of(threads: Sequence[Mapping[str, object]], pid: int, *, verbose: bool = False) -> list[Record]:
    """Return the records of a process, the main thread first; of the other threads those that are in user code.

    Args:
        threads: The document of py-spy.
    Raises:
        KeyError, TypeError, ValueError: It is another document.
    """
    found = []
    for thread in threads:
        is_main = thread["os_thread_id"] == pid or thread["thread_name"] == "MainThread"
        frames = [_frame(each) for each in reversed(_list(thread["frames"]))]
        own = frames if verbose else cut(frames, [_as_here(frame.file) for frame in frames])
        shown = own or (frames if is_main else [])
        if shown:
            name = str(thread["thread_name"] or f"thread-{thread['os_thread_id'] or thread['thread_id']}")
            state = RUNNING if thread["active"] or thread["owns_gil"] else BLOCKED
            kind, actor = ("actor", MAIN) if is_main else ("thread", "")
            found.append(Record("MainThread" if is_main else name, kind, actor, "", state, shown))  # type: ignore[arg-type]
    return sorted(found, key=lambda record: record.kind != "actor")


def _frame(frame: Mapping[str, object]) -> StackFrame:
    file = str(frame["filename"])
    return StackFrame(file, int(str(frame["line"])), str(frame["name"]), is_hidden_file(_as_here(file)))


def _list(value: object) -> Sequence[Mapping[str, object]]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, not {value!r}")
    return value


def _as_here(file: str) -> str:
    """Return the name that a file of the standard library has here: the process may run another Python."""
    return _STDLIB.sub(STDLIB_FILES.replace("\\", "/"), file, count=1) if file.startswith("/") else file
