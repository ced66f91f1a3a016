"""What a machine can hold, and which GPUs it has: looked at there, by the host agent, or by the script for its own."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

from meshrt.errors import SpawnError
from meshrt.store.limits import free_in_group

__all__ = ["GPUS", "TOGETHER", "check_limits", "own_gpus"]

#: Environment variable: the GPUs that a process may use.
GPUS = "CUDA_VISIBLE_DEVICES"
#: Descriptors that the host agent needs for one rank, and private memory of an idle rank, bytes.
_FILES_PER_RANK = 7
#: Of the agent itself.
_FILES_BESIDE = 64
#: Ranks that are forked one right after the other. Memory that the agent writes to between two forks is memory that
#: both ranks have of their own: 2 MiB each, and as many page faults, if each rank is prepared before its fork.
TOGETHER = 16
#: Descriptors of a rank that the agent has until it is forked.
_FILES_TO_FORK = 5
_MEMORY_PER_RANK = 12 << 20
#: From so many ranks on, processes and memory are looked at.
_WORTH_A_LOOK = 32


def own_gpus(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a rank, with numbers of GPUs made those of this machine.

    A number is the place in what this process has in `GPUS`: the scheduler of each machine may have given it others.

    Raises:
        SpawnError: There is no such place.
    """
    given = [each.strip() for each in os.environ.get(GPUS, "").split(",") if each.strip()]
    asked = [each.strip() for each in env.get(GPUS, "").split(",") if each.strip()]
    if not given or not asked:
        return dict(env)
    return {**env, GPUS: ",".join(_gpu(each, given) for each in asked)}


def _gpu(asked: str, given: list[str]) -> str:
    if not asked.isdigit():
        return asked  # "-1": none; or the name of one
    if int(asked) < len(given):
        return given[int(asked)]
    if asked in given:
        return asked
    raise SpawnError(f"GPU {asked} was requested, but the host has {len(given)}: {GPUS}={','.join(given)}")


def _files(ranks: int, running: int) -> int:
    return (ranks + running) * _FILES_PER_RANK + min(ranks, TOGETHER) * _FILES_TO_FORK + _FILES_BESIDE


def check_limits(ranks: int, running: int) -> None:
    """Raise SpawnError if this machine cannot hold ``ranks`` more processes beside ``running`` ones.

    It checks open files, processes and free memory. It is an early refusal with a clear message, not a reservation.
    """
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _files(ranks, running)
    if files != resource.RLIM_INFINITY and needed > files:
        most = next((fewer for fewer in range(ranks, 0, -1) if _files(fewer, running) <= files), 0)
        raise SpawnError(
            f"{ranks} ranks need about {needed} open files in the host agent, the limit is {files}: "
            f"raise it (ulimit -Hn) or start at most {most}"
        )
    if ranks < _WORTH_A_LOOK:
        return
    import psutil  # start-up: a small mesh does not need the check

    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if processes != resource.RLIM_INFINITY and os.geteuid() != 0:
        uid = os.geteuid()
        own = (process for process in psutil.process_iter(["uids", "num_threads"]) if process.info["uids"])
        used = sum(process.info["num_threads"] or 0 for process in own if process.info["uids"].real == uid)
        if used + 3 * ranks > processes:
            raise SpawnError(
                f"{ranks} ranks need about {3 * ranks} threads, {used} of {processes} are in use: raise it (ulimit -u)"
            )
    free = min([psutil.virtual_memory().available, *free_in_group()])
    if ranks * _MEMORY_PER_RANK > free:
        raise SpawnError(
            f"{ranks} idle ranks need about {ranks * _MEMORY_PER_RANK >> 20} MiB, {free >> 20} MiB are free: "
            f"start at most {free // _MEMORY_PER_RANK}"
        )
