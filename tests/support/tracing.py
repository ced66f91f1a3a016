"""Processes that a tracer holds: no signal but SIGKILL lets them go on."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

import pytest

__all__ = ["held"]

_DETACH, _SEIZE, _INTERRUPT = 17, 0x4206, 0x4207
_WALL = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, pid: int) -> None:
    if _libc.ptrace(request, pid, None, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


@contextlib.contextmanager
def held(pid: int) -> Iterator[None]:
    """Hold a process, as a debugger does, until the end of the block. By one thread."""
    try:
        _ptrace(_SEIZE, pid)
    except PermissionError:
        pytest.skip("this user may not trace processes here")
    _ptrace(_INTERRUPT, pid)
    os.waitpid(pid, _WALL)
    try:
        yield
    finally:
        _ptrace(_DETACH, pid)
