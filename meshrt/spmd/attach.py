"""``meshrt attach PID ...``: processes that have never heard of meshrt become ranks of a program.

::

    this command        checks the processes, and has each run `meshrt.spmd.injected` (``sys.remote_exec``, PEP 768)
      each process      loads meshrt, and does what `meshrt.join` does (`meshrt.spmd.join.arrive`)
        the first one   starts the program, by the interpreter of this command

Nothing is changed in any process before all of them have been checked. A process that does not come to a point where it
can run this is left to do so later: the command has gone then, and the process joins all the same.
"""

from __future__ import annotations

import importlib.util
import math
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from meshrt import __version__
from meshrt.commandline.command import Arguments
from meshrt.errors import MeshError, UsageError
from meshrt.mesh.spec import check_name
from meshrt.show.status import ExitCode
from meshrt.show.streams import write_out
from meshrt.spmd.parts import Arrival, JobSpec
from meshrt.spmd.telling import Arrivals, Folder
from meshrt.spmd.world import dimensions
from meshrt.transport.foreign import (
    check_processes,
    may_look,
    owner_of,
    python_of,
    refuses_scripts,
    user_name,
    words_of,
)
from meshrt.transport.helper import interpreter
from meshrt.transport.kernel import is_stopped
from meshrt.transport.places import make_runtime_base

__all__ = ["show"]

_HERE = ".".join(map(str, sys.version_info[:2]))
_FIRST = (3, 14)
#: Packages without which a process cannot join.
_NEEDED = ("msgpack", "msgspec", "cloudpickle", "psutil", "uvloop")
#: Those, and what they and tools load in a rank.
_LENT = (*_NEEDED, "cryptography", "cffi", "_cffi_backend", "pycparser", "debugpy", "tabulate")
#: Variables that the program gets from this command.
_VARIABLES = ("PYTHON", "MESHRT_", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR", "TMPDIR")
_CALL = "\n\ntake_in(**{!r})\n"
_SWITCHES = "by -X disable-remote-debug, PYTHON_DISABLE_REMOTE_DEBUG, or when its Python was built"
_INSTEAD = (
    "start the script with `meshrt run SCRIPT`, or put `meshrt.join()` into it; `meshrt where --pid PID` shows the "
    "stacks of a process of any version"
)


def show(given: Arguments) -> int:
    """Run the command. Returns the exit code."""
    pids: list[int] = given["pids"]
    if sys.version_info < _FIRST:
        raise UsageError(
            f"Python 3.14 or newer is required, for sys.remote_exec; this is Python {_HERE}. Instead, {_INSTEAD}"
        )
    name = check_name("an actor", given["name"])
    sizes = dimensions(None, given["mesh"]) if given["mesh"] else {"n": len(pids)}
    if (count := math.prod(sizes.values())) != len(pids):
        raise UsageError(f"--mesh {given['mesh']} has {count} ranks, but the number of PIDs is {len(pids)}")
    try:
        _check(pids)
    except UsageError as error:
        if len(pids) > 1:
            raise
        raise UsageError(
            f"{error}; to attach to a stopped rank, name its actor: meshrt attach ACTOR {pids[0]}"
        ) from None
    base = make_runtime_base()
    with Folder(base) as folder:
        spec = _spec(base, pids, name, sizes)
        scripts = [folder.write(pid, _script(folder, pid, spec, rank, base)) for rank, pid in enumerate(pids)]
        for pid, script in zip(pids, scripts, strict=True):
            _check_files(pid, script)
        refused: dict[int, tuple[str, str]] = {}
        for pid, script in zip(pids, scripts, strict=True):
            why = _inject(pid, script)
            if why:
                refused[pid] = ("failed", why)
            else:
                folder.expect(pid)
        arrivals = {**folder.wait(given["timeout"]), **refused}
    return _report(arrivals, pids, name, given["timeout"])


def _check(pids: Sequence[int]) -> None:
    """Raise MeshError for the first process that cannot be taken in, as far as that is seen from outside."""
    check_processes(pids)
    for pid in pids:
        if pid == os.getpid():
            raise UsageError(f"PID {pid} is this command")
        owner = owner_of(pid)
        if owner is not None and owner != os.geteuid():
            user = user_name(owner)
            raise MeshError(
                f"PID {pid} belongs to the user {user} and can only join a program of that user: run the "
                f"command as {user}"
            )
        try:
            python = python_of(pid)
        except PermissionError:
            raise MeshError(may_look(pid)) from None
        if not python:
            raise UsageError(f"PID {pid} is not a Python process")
        if refuses_scripts(pid):
            raise MeshError(f"PID {pid} has disabled remote debugging, {_SWITCHES}")
        if python != _HERE:
            older = tuple(map(int, python.split("."))) < _FIRST
            how = (
                f"meshrt cannot attach to a Python before 3.14; {_INSTEAD}"
                if older
                else "use the meshrt of that version"
            )
            raise MeshError(f"PID {pid} runs Python {python}, this command {_HERE}; expected the same version: {how}")


def _check_files(pid: int, script: Path) -> None:
    """Raise MeshError: a process has another file system than this command."""
    try:
        if os.path.samestat(os.stat(f"/proc/{pid}/root{script}"), os.stat(script)):
            return
    except PermissionError:
        raise MeshError(may_look(pid)) from None
    except OSError:
        pass
    raise MeshError(f"PID {pid} has another file system than this command, as in a container: run the command there")


def _spec(base: Path, pids: Sequence[int], name: str, sizes: dict[str, int]) -> JobSpec:
    meeting = str(base / f"meet-{secrets.token_hex(8)}")
    return JobSpec(meeting, sizes, words_of(pids[0])[1:], name, "attach", 0, 1, pids[0], name)


def _script(folder: Folder, pid: int, spec: JobSpec, rank: int, base: Path) -> str:
    """Return what a process runs."""
    variables = {key: value for key, value in os.environ.items() if key.startswith(_VARIABLES)}
    arrival = Arrival(spec.to_json(), rank, interpreter(), {**variables, "MESHRT_RUNTIME_DIR": str(base)})
    package = Path(__file__).resolve().parents[1]
    places = {each: place for each in _LENT if (place := _place(each))}
    values = {
        "script": str(folder.script(pid)),
        "teller": folder.teller,
        "folder": str(package.parent),
        "version": __version__,
        "places": places,
        "needed": list(_NEEDED),
        "part": arrival.to_json(),
    }
    text = package.joinpath("spmd", "injected.py").read_text(encoding="utf-8")
    # Nothing of it leaves the process, not even an error of an import that the process has changed.
    return f"try:\n    exec({text + _CALL.format(values)!r})\nexcept BaseException:\n    pass\n"


def _place(package: str) -> str:
    """Return the directory in which a package is found here; "": there is none."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    return os.path.dirname(os.path.dirname(spec.origin) if spec.submodule_search_locations else spec.origin)


def _inject(pid: int, script: Path) -> str:
    """Have a process run a script. Returns why it cannot be had to; "": it will."""
    try:
        getattr(sys, "remote_exec")(pid, str(script))  # noqa: B009  since Python 3.14
    except PermissionError:
        return may_look(pid)
    except (OSError, RuntimeError) as error:
        if "not enabled" not in str(error):
            return f"the kernel or Python says: {error}"
        return f"remote debugging is disabled there, {_SWITCHES}"
    return ""


def _report(arrivals: Arrivals, pids: Sequence[int], name: str, seconds: float) -> int:
    """Say what has become of the processes. Returns the exit code; raises MeshError: not all have joined."""
    joined, failed = [], []
    for rank, pid in enumerate(pids):
        state, why = arrivals.get(pid, ("", ""))
        if state == "joined":
            joined.append(f"PID {pid} is rank {rank} of {name}")
        elif state == "failed":
            failed.append(f"PID {pid} has not joined: {why}")
        elif state in ("loading", "here"):
            failed.append(f"PID {pid} is joining as rank {rank}, but has not finished joining yet")
        elif not os.path.exists(f"/proc/{pid}"):
            failed.append(f"PID {pid} has ended")
        else:
            what = "a signal has stopped it" if is_stopped(pid) else "its main thread is in C code"
            silent = f"PID {pid} has run no Python code for {seconds:g} s because {what}"
            failed.append(f"{silent}: it joins as rank {rank} when it runs Python code again")
    write_out(sys.stdout, "".join(f"{line}\n" for line in joined))
    if failed:
        raise MeshError("\n".join(failed))
    return ExitCode.OK
