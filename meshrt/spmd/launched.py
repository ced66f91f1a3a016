"""``meshrt run train.py`` in each process that a launcher starts: the script, as one rank of the job.

Each process starts the script below itself (`meshrt.failure.run`), where it joins the program of the job
(`meshrt.spmd.membership`). The one of the first rank of each host starts what the ranks of that host join: on the first
host the program itself (`meshrt.spmd.job`), on the others a host agent.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import subprocess
from collections.abc import Sequence

from meshrt.errors import UsageError
from meshrt.failure.run import Below, run_below
from meshrt.spmd.parts import ACTOR, JOB_PROGRAM, PART, SCRIPT_PROGRAM, JobSpec, Part, job_environment
from meshrt.spmd.place import Place
from meshrt.spmd.world import dimensions
from meshrt.transport.helper import interpreter

__all__ = ["run"]

#: Seconds for which the first rank, if it has failed or was ended, waits for the end of the program and its report.
_REPORT = 3.0


def run(place: Place, words: Sequence[str], mesh: str) -> int:
    """Run the script as this rank. Returns its exit code.

    Args:
        mesh: Dimensions and sizes as typed, ``"dp=2,tp=4"``; "": those of the launcher.
    Raises:
        UsageError: ``mesh`` has another number of ranks.
    """
    sizes = dimensions(None, mesh) if mesh else {"hosts": place.hosts, "gpus": place.local_size}
    if math.prod(sizes.values()) != place.size:
        raise UsageError(
            f"--mesh {mesh} has {math.prod(sizes.values())} ranks, and {place.launcher} has started {place.size}"
        )
    job = None
    if place.local_rank == 0:
        job = _start_job(
            JobSpec(place.name, sizes, list(words), ACTOR, place.launcher, place.host, place.hosts, os.getpid())
        )

    def failed() -> None:
        # A launcher may end all that is left when the last rank has ended: the report is to be out before that.
        if place.rank == 0 and job is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(_REPORT)

    def prepare(stacks: int) -> Below:
        watcher, noticed = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        # A copy of its own: the script's process closes it when the agent has it.
        pid = 0 if job is None else job.pid
        part = Part(place.name, place.rank, sizes, ACTOR, os.dup(stacks), watcher.detach(), pid)
        command = [*interpreter(), "-u", str(SCRIPT_PROGRAM), *words]
        env = {PART: part.to_json()}
        return Below(command, env, (part.stacks, part.watcher), noticed, failed)

    try:
        return run_below(prepare)
    finally:
        if job is not None and job.poll() is None:
            job.returncode = 0  # it ends by itself, and is not to be warned of


def _start_job(spec: JobSpec) -> subprocess.Popen[bytes]:
    """Start the program of the job, or the agent of this host; it ends by itself, when its ranks have."""
    process = subprocess.Popen(
        [*interpreter(), str(JOB_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env=job_environment(),
    )
    if process.stdin is not None:
        with process.stdin:
            process.stdin.write(spec.to_json().encode())
    return process
