"""``meshrt run train.py`` in each process that a launcher starts: the script, as one rank of the job.

Each process forks one for the script (`meshrt.failure.run`, `meshrt.spmd.script_main`), which joins the program of the
job. The one of the first rank of each host starts what the ranks of that host join: on the first
host the program itself (`meshrt.spmd.job`), on the others a host agent.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import socket
from collections.abc import Sequence

from meshrt.errors import UsageError
from meshrt.failure.run import Below, run_below
from meshrt.host.osutil import has_ended, set_command_line
from meshrt.show.forks import fork
from meshrt.spmd.parts import ACTOR, JOB_IGNORES, JobSpec, Part
from meshrt.spmd.place import Place
from meshrt.spmd.world import dimensions
from meshrt.transport.directories import ERROR_FILE

__all__ = ["run"]

#: Seconds for which the first rank, if it has failed or was ended, waits for the end of the program and its report.
_REPORT = 3.0


def run(place: Place, words: Sequence[str], mesh: str) -> int:
    """Run the script as this rank. Returns its exit code.

    Args:
        mesh: Dimensions and sizes as typed, ``"dp=2,tp=4"``; "": those of the launcher.
    Raises:
        UsageError: ``mesh`` has another number of ranks.
        ChildProcess: In the process of the script, and in that of the job's program.
    """
    sizes = dimensions(None, mesh) if mesh else {"hosts": place.hosts, "gpus": place.local_size}
    if math.prod(sizes.values()) != place.size:
        raise UsageError(
            f"--mesh {mesh} has {math.prod(sizes.values())} ranks, but {place.launcher} has started {place.size}"
        )
    job = 0
    if place.local_rank == 0:
        job = _start_job(
            JobSpec(place.name, sizes, list(words), ACTOR, place.launcher, place.host, place.hosts, os.getpid())
        )

    def failed() -> None:
        # A launcher may end all that is left when the last rank has ended: the report is to be out before that.
        if place.rank == 0:
            with contextlib.suppress(OSError):  # no descriptor is free
                has_ended(job, _REPORT)

    def prepare(stacks: int) -> Below:
        from meshrt.spmd.script_main import run_script  # start-up: the program of the job starts first, and beside it

        watcher, noticed = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        # A copy of its own: the script's process closes it when the agent has it.
        part = Part(place.name, place.rank, sizes, ACTOR, os.dup(stacks), watcher.detach(), job)
        run = functools.partial(run_script, part, words)
        return Below(run, (part.stacks, part.watcher), noticed, failed)

    return run_below(prepare)


def _start_job(spec: JobSpec) -> int:
    """Fork the program of the job, or the agent of this host; it ends by itself, after its ranks. Returns its pid."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, JOB_IGNORES)
    pid = fork(functools.partial(_be_job, spec))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def _be_job(spec: JobSpec) -> int:
    os.setsid()
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
        null = os.open(os.devnull, flags)
        os.dup2(null, descriptor)
        os.close(null)
    os.environ.pop(ERROR_FILE, None)  # that of the rank
    from meshrt.host.child import keep_only  # start-up: beside the ranks
    from meshrt.spmd.job import ignore_signals, run_job  # start-up: as above

    keep_only(set())
    ignore_signals()
    set_command_line("meshrt: program of a job")
    return run_job(spec)
