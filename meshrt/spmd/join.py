"""``meshrt.join()``: a process that meshrt has not started becomes a rank of a program, from one line in it on."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType

from meshrt.actor.context import enter
from meshrt.actor.joined import MainCall
from meshrt.errors import UsageError
from meshrt.mesh.spec import check_name
from meshrt.selection import Shape
from meshrt.spmd.main import Main
from meshrt.spmd.membership import Membership, own_membership
from meshrt.spmd.parts import Arrival, JobSpec
from meshrt.spmd.place import Place, place_of
from meshrt.spmd.starting import Starting
from meshrt.transport.process import current_runtime, has_runtime

__all__ = ["arrive", "join"]

#: The function of `multiprocessing.pool` that starts workers; with "spawn" and "forkserver" they do not have its frame.
_MAKES_WORKERS = "_repopulate_pool_static"


def join(
    name: str = "main", *, mesh: int | Mapping[str, int] | None = None, rank: int | None = None, wait: float = 5.0
) -> bool:
    """Make this process visible to the tools, as a rank of a program that meshrt runs beside it.

    Below a launcher of ranks (torchrun, srun, mpirun, or the variables ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK`` and
    ``LOCAL_WORLD_SIZE``), all processes of the job that join are ranks of one program. Elsewhere these are processes of
    one parent that say the same ``name`` and ``mesh``: the workers of a pool. ``mesh`` says how many there are.

    A process that is a rank already, as below ``meshrt run`` or after an earlier call, stays the rank that it is.

    The process stays what it was, and belongs to what has started it: it has its own output, signals and exit status.
    On its main thread.

    Args:
        name: What the process is shown as: an actor of this name, whose one call runs.
        mesh: How many processes join, or dimensions and their sizes. None: what the launcher says, or the pool of
            multiprocessing that has forked this process, else this one alone.
        rank: Of this process; None: what the launcher says, else the first one that is free.
        wait: Seconds until this returns at the latest.
    Returns:
        Whether it has joined. If not, the reason is on standard error, once, and it still joins when it can.
    Raises:
        UsageError: An argument is invalid; this is not the main thread; the process has meshes of its own.
    """
    check_name("an actor", name)
    membership = own_membership()
    if membership is not None or (has_runtime() and not current_runtime().is_root):
        return membership is None or membership.wait(wait)
    _check_free()
    place = place_of(os.environ) if rank is None else None
    mesh = _pool_size() if mesh is None and rank is None and place is None else mesh
    sizes = _sizes(mesh, place)
    count = math.prod(sizes.values())
    if rank is not None and not 0 <= rank < count:
        raise UsageError(f"rank={rank!r}, but the number of ranks is {count}; expected 0 to {count - 1}")
    if place is not None:
        rank = place.rank
    try:
        spec = _spec(name, sizes, place, alone=mesh is None and place is None)
        starts = place is None or place.local_rank == 0
        membership = _take_part(spec, -1 if rank is None else rank, Starting(spec) if starts else None)
        if membership.wait(wait):
            return True
        why = membership.why
    except OSError as error:  # no descriptor is left: what the process does matters more
        why = str(error)
    print(f"meshrt: this process has not joined: {why}", file=sys.stderr, flush=True)
    return False


def arrive(part: str, settled: Callable[[str], object]) -> None:
    """Become a rank as `meshrt attach` says: nothing is waited for, or printed. The main thread.

    Args:
        part: An `Arrival`, as JSON.
        settled: Called on another thread when it has joined, with ``""``, or with the reason why it never will.
    Raises:
        UsageError: The process is a part of a program already.
    """
    arrival = Arrival.from_json(part)
    spec = JobSpec.from_json(arrival.spec)
    starting = Starting(spec, arrival.command, arrival.variables, quiet=True)
    _take_part(spec, arrival.rank, starting, settled=settled, quiet=True)


def _take_part(
    spec: JobSpec,
    rank: int,
    starting: Starting | None,
    *,
    settled: Callable[[str], object] | None = None,
    quiet: bool = False,
) -> Membership:
    """Have this process become a rank of a program, on a thread of its own. The main thread.

    Args:
        spec: The program.
        rank: -1: the first one that is free.
        starting: Starts the program; None: another process does.
        settled: See `Membership`.
        quiet: The process writes nothing of meshrt to its standard error.
    Raises:
        UsageError: This is not the main thread; the process is a part of a program already.
    """
    _check_free()
    call = MainCall(spec.actor, "run", Main(), Shape.from_extent(spec.sizes), rank, quiet=quiet)
    enter(call.context)
    stacks = os.memfd_create("meshrt-fault", os.MFD_CLOEXEC)
    membership = Membership(spec.meeting, call, stacks, before=starting, settled=settled)
    _watch_end(membership)
    return membership


def _check_free() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("join() is for the main thread of a process")
    if has_runtime() or own_membership() is not None:
        raise UsageError("this process already belongs to a program")


def _pool_size() -> int | None:
    """Return how many workers the pool has that has forked this process, which its stack shows; None: there is none."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != _MAKES_WORKERS:
        frame = frame.f_back
    processes = frame.f_locals.get("processes") if frame is not None else None
    return processes if type(processes) is int else None


def _sizes(mesh: int | Mapping[str, int] | None, place: Place | None) -> dict[str, int]:
    if mesh is None:
        return {"n": 1} if place is None else {"hosts": place.hosts, "gpus": place.local_size}
    sizes = {"n": mesh} if isinstance(mesh, int) else dict(mesh)
    if not sizes or not all(type(size) is int and size > 0 for size in sizes.values()):
        raise UsageError(f"mesh={mesh!r}: expected a number of processes, or sizes by dimension, each 1 or more")
    if place is not None and math.prod(sizes.values()) != place.size:
        raise UsageError(f"mesh={mesh!r} does not have the {place.size} ranks that {place.launcher} has started")
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
