"""``meshrt.join()``: a process that meshrt has not started becomes a rank of a program, from one line in it on."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType

from meshrt.actor.context import enter
from meshrt.actor.joined import MainCall
from meshrt.errors import MeshError, UsageError
from meshrt.host.meeting import meeting_path
from meshrt.mesh.spec import check_name
from meshrt.selection import Shape
from meshrt.spmd.main import Main
from meshrt.spmd.membership import Membership
from meshrt.spmd.parts import JOB_PROGRAM, JobSpec, job_environment
from meshrt.spmd.place import Place, place_of
from meshrt.transport.helper import interpreter
from meshrt.transport.places import make_runtime_base
from meshrt.transport.process import has_runtime

__all__ = ["join"]

#: Seconds for the program of a job to let processes in.
_START = 30.0
_LOOK = 0.02
#: A program that is nobody's child: its starter need not wait for it. A shell gives what it starts in the background no
#: standard input, so the command is brought by another descriptor.
_DETACH = ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 3<&- >/dev/null &', "sh"]

_membership: Membership | None = None


def join(
    name: str = "main", *, mesh: int | Mapping[str, int] | None = None, rank: int | None = None, wait: float = 5.0
) -> bool:
    """Let the tools see this process from now on, as a rank of a program that meshrt runs beside it.

    Below a launcher of ranks (torchrun, srun, mpirun, or the variables ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK`` and
    ``LOCAL_WORLD_SIZE``), all processes of the job that join are ranks of one program. Elsewhere these are processes of
    one parent that say the same ``name`` and ``mesh``: the workers of a pool. ``mesh`` says how many there are.

    The process stays what it was, and belongs to what has started it: it has its own output, signals and exit status.
    On its main thread.

    Args:
        name: What the process is shown as: an actor of this name, whose one call runs.
        mesh: How many processes join, or dimensions and their sizes. None: what the launcher says, else this one alone.
        rank: Of this process; None: what the launcher says, else the first one that is free.
        wait: Seconds until this returns at the latest.
    Returns:
        Whether it has joined. If not, the reason is on standard error, and it still joins when it can.
    Raises:
        UsageError: An argument is invalid; this is not the main thread; the process is a part of a program already.
    """
    global _membership
    check_name("an actor", name)
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("join() is for the main thread of a process")
    if has_runtime() or (_membership is not None and _membership.pid == os.getpid()):
        raise UsageError("this process is a part of a program already")
    place = place_of(os.environ) if rank is None else None
    sizes = _sizes(mesh, place)
    count = math.prod(sizes.values())
    if rank is not None and not 0 <= rank < count:
        raise UsageError(f"rank={rank!r}, and there are {count}; expected 0 to {count - 1}")
    spec = _spec(name, sizes, place, alone=mesh is None and place is None)
    if place is not None:
        rank = place.rank
    call = MainCall(name, "run", Main(), Shape.from_extent(sizes), -1 if rank is None else rank)
    enter(call.context)
    starts = place is None or place.local_rank == 0
    _membership = Membership(
        spec.meeting, call, os.memfd_create("meshrt-fault", os.MFD_CLOEXEC), before=_Starting(spec) if starts else None
    )
    _watch_end(_membership)
    if _membership.wait(wait):
        return True
    print(f"meshrt: this process has not joined: {_membership.why}", file=sys.stderr, flush=True)
    return False


def _sizes(mesh: int | Mapping[str, int] | None, place: Place | None) -> dict[str, int]:
    if mesh is None:
        return {"n": 1} if place is None else {"hosts": place.hosts, "gpus": place.local_size}
    sizes = {"n": mesh} if isinstance(mesh, int) else dict(mesh)
    if not sizes or not all(type(size) is int and size > 0 for size in sizes.values()):
        raise UsageError(f"mesh={mesh!r}: expected a number of processes, or sizes by dimension, each 1 or more")
    if place is not None and math.prod(sizes.values()) != place.size:
        raise UsageError(f"mesh={mesh!r} has not {place.size} ranks, as many as {place.launcher} has started")
    return sizes


def _spec(name: str, sizes: Mapping[str, int], place: Place | None, *, alone: bool) -> JobSpec:
    """Return the program; processes that belong together make the same one, but for their pid."""
    if place is not None:
        meeting, launcher, host, hosts = place.name, place.launcher, place.host, place.hosts
    else:
        import psutil  # start-up: `from meshrt import *` does not need it

        siblings = psutil.Process(os.getpid() if alone else os.getppid())
        what = f"{siblings.pid}\0{siblings.create_time()}\0{name}\0{sizes}"
        meeting, launcher, host, hosts = hashlib.sha256(what.encode()).hexdigest()[:16], "join()", 0, 1
    words = sys.orig_argv[1:]
    return JobSpec(meeting, dict(sizes), words, name, launcher, host, hosts, os.getpid(), name)


class _Starting:
    """Starts the program, unless another process has. On the thread that joins."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec

    def __call__(self) -> None:
        """Raises OSError, MeshError: it cannot be started."""
        base = os.open(make_runtime_base(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(base, fcntl.LOCK_EX)  # one of those that join at once starts it
            if not self._answers():
                self._start()
        finally:
            os.close(base)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                sock.connect(meeting_path(self._spec.meeting))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
        return True

    def _start(self) -> None:
        done = subprocess.run(
            [*_DETACH, *interpreter(), str(JOB_PROGRAM)],
            input=self._spec.to_json().encode(),
            start_new_session=True,
            env=job_environment(),
            check=False,
        )
        if done.returncode:
            raise MeshError(f"the program of the job cannot be started: /bin/sh has exited with {done.returncode}")
        deadline = time.monotonic() + _START
        while not self._answers():
            if time.monotonic() > deadline:
                raise MeshError(f"the program of the job does not let processes in after {_START:g} s")
            time.sleep(_LOOK)


def _watch_end(membership: Membership) -> None:
    """Have the end of the process told, and the exception by which it ends."""
    before, pid = sys.excepthook, os.getpid()

    def excepthook(kind: type[BaseException], error: BaseException, walker: TracebackType | None) -> None:
        if os.getpid() == pid and not issubclass(kind, KeyboardInterrupt):
            with contextlib.suppress(OSError):
                membership.raised(error)
        before(kind, error, walker)

    sys.excepthook = excepthook
    atexit.register(membership.ends)
