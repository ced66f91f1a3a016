"""Linux calls that Python lacks, and what the kernel tells about processes."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from meshrt.transport.reserve import reserve

__all__ = [
    "RUN_VARIABLE",
    "children_of",
    "die_with_parent",
    "forget_bytes",
    "has_ended",
    "kill_child",
    "kill_run",
    "outgoing_address",
    "outlive_parent",
    "raise_file_limit",
    "set_command_line",
    "set_name",
    "set_subreaper",
    "status_of",
    "unbuffer_c_streams",
]

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
#: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_PUNCH_HOLE = 3

#: In the environment of every process of a program, so that strays can be found whatever their parent is.
RUN_VARIABLE = "MESHRT_RUN"

#: What is raised for a process that has ended.
_GONE = (FileNotFoundError, ProcessLookupError)

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int | bytes) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when ``parent`` ends; exits at once if it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo `die_with_parent`."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def unbuffer_c_streams() -> None:
    """Have ``stdout`` and ``stderr`` of C write at once, as ``python -u`` has them."""
    for name in ("stdout", "stderr"):
        _libc.setvbuf(ctypes.c_void_p.in_dll(_libc, name), None, 2, 0)  # _IONBF


def has_ended(pid: int, seconds: float = 0.0) -> bool:
    """Wait until a process has ended; returns whether it has. A zombie has. Raises OSError: no descriptor is free."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        return bool(ended.poll(max(seconds, 0.0) * 1000))
    finally:
        os.close(descriptor)


def set_subreaper() -> None:
    """Become the parent of every orphan below this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """Set the name that ps and top show (15 bytes)."""
    with contextlib.suppress(OSError):
        _prctl(_PR_SET_NAME, name.encode()[:15])


def set_command_line(text: str) -> None:
    """Replace the command line that ``ps`` shows, in the memory where the kernel reads it; a longer text is cut.

    Source: proc(5), ``arg_start`` and ``arg_end`` in ``/proc/[pid]/stat``.
    """
    with contextlib.suppress(OSError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if 0 < start < end:
            ctypes.memmove(start, text.encode()[: end - start - 1].ljust(end - start, b"\0"), end - start)


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def children_of(pid: int) -> list[int]:
    """Return the pids of the children of every thread of a process; none if it has ended.

    Raises OSError if they cannot be looked up, which does not mean that there are none.
    """
    return reserve.run(_children_of, pid)


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(*_GONE):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(*_GONE):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def forget_bytes(descriptor: int, length: int) -> None:
    """Give back the memory of the first bytes of a file in memory; the others stay where they are.

    No writer is disturbed, as one would be by a file that becomes shorter.
    """
    if _libc.fallocate(descriptor, _PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(length)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"fallocate: {os.strerror(error)}")


#: ioctl of a pidfd (Linux 6.13), with a ``struct pidfd_info`` of 64 bytes: its mask is the first, and the status of a
#: process that was reaped (Linux 6.15) the last of its fields.
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_INFO = struct.Struct("Q52xi")


def status_of(pidfd: int, pid: int) -> int | None:
    """Return the wait status of a process that has ended and is no child of this one; None: it is not known any more.

    The kernel tells it as long as its parent has not reaped it, and, if it is not too old, behind that as well.
    """
    with contextlib.suppress(OSError, IndexError):
        state, *fields = reserve.run(Path(f"/proc/{pid}/stat").read_text).rpartition(") ")[2].split()
        if state == "Z":
            return int(fields[-1])
    with contextlib.suppress(OSError):
        answer = fcntl.ioctl(pidfd, _PIDFD_GET_INFO, _PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
        mask, status = _PIDFD_INFO.unpack(answer)
        if mask & _PIDFD_INFO_EXIT:
            return int(status)
    return None


def _kill_if(pid: int, condition: Callable[[], bool]) -> bool:
    """Kill the process that fulfils ``condition``, and never another one that gets its number meanwhile.

    Raises OSError if it cannot be looked up.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except _GONE:
        return False
    try:
        # What is read now belongs to the process of the pidfd, or the signal below finds it gone.
        if condition():
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            return True
    except (*_GONE, PermissionError):  # it has ended, or is another user's
        pass
    finally:
        os.close(pidfd)
    return False


def kill_child(parent: int, pid: int) -> bool:
    """Kill ``pid`` if it is a child of ``parent``. Returns whether it was. Raises OSError if that is unknown."""
    return reserve.run(_kill_if, pid, lambda: pid in children_of(parent))


def kill_run(run_id: str, belongs: Callable[[int], bool]) -> int:
    """Kill every process of a host agent that is left, except this one. Returns how many.

    Args:
        run_id: The mark that it carries in its environment.
        belongs: ``belongs(pid)``, used in place of the mark: by a property that it cannot clear.
    Raises:
        OSError: Processes cannot be looked up; some may be left.
    """
    mark = f"{RUN_VARIABLE}={run_id}".encode()

    def marked(pid: int) -> bool:
        return belongs(pid) or mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")

    killed: set[int] = set()
    while True:
        # Again until none is left: what one of them forks meanwhile may have a pid that was looked at already.
        entries = reserve.run(os.listdir, "/proc")
        pids = {int(entry) for entry in entries if entry.isdigit()} - killed - {os.getpid()}
        found = {pid for pid in pids if reserve.run(_kill_if, pid, lambda pid=pid: marked(pid))}  # type: ignore[misc]
        if not found:
            return len(killed)
        killed |= found


#: Addresses for documentation (RFC 5737, RFC 3849): the route to them is the route to other machines.
_OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def outgoing_address() -> str:
    """Return the IP address of the interface through which this machine reaches others; "" if there is none.

    Nothing is sent, and no name is looked up: the kernel is asked for a route.
    """
    for family, address in _OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((address, 9))
                return str(sock.getsockname()[0])
        except OSError:
            continue  # no such addresses here, or no way out
    return ""
