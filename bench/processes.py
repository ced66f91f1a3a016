"""Processes as ``/proc`` shows them: who descends from whom, who still runs, what memory each holds."""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["adopt_orphans", "available_memory", "descendants", "kill_descendants", "load_average", "pss", "running"]

PR_SET_CHILD_SUBREAPER = 36


def stat_fields(pid: int) -> tuple[str, int] | None:
    """Return the state letter and the parent of a process, or ``None`` where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return state, int(parent)


def running(pid: int) -> bool:
    """Say whether a process is there and is no zombie."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"


def descendants(ancestor: int) -> list[int]:
    """Return the processes below ``ancestor`` that run, in no order. Zombies do not count."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_fields(int(name))):
            states[int(name)] = fields[0]
            children.setdefault(fields[1], []).append(int(name))
    found: list[int] = []
    below = list(children.get(ancestor, ()))
    while below:
        pid = below.pop()
        below += children.get(pid, ())
        if states[pid] not in "ZX":
            found.append(pid)
    return found


def pss(pid: int) -> float:
    """Return the proportional set size of a process in MiB: shared pages count by their share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no memory map")


def available_memory() -> float:
    """Return how much memory new processes can have before the machine swaps, in GiB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / (1 << 20)
    raise ValueError("the kernel does not tell what memory is available")


def load_average() -> float:
    """Return the number of processes that wanted a core, averaged over the last minute."""
    return os.getloadavg()[0]


def adopt_orphans() -> None:
    """Make this process the new parent of descendants whose parent dies, so that none can be lost."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def kill_descendants(patience: float = 10.0) -> int:
    """Kill and reap whatever runs below this process; return how many processes that were.

    Needs :func:`adopt_orphans`. A process can fork while it is being killed, hence the repetition.

    Raises:
        TimeoutError: Some are still there after ``patience`` seconds.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + patience
    while left := descendants(os.getpid()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {left} survive SIGKILL")
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(left)
        reap()
        time.sleep(0.01)
    reap()
    return len(killed)


def reap() -> None:
    """Collect the ended children: the first process of a pid namespace has all orphans of it as children."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
