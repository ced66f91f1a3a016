"""What this process has of the running program: its secret, its directories, its driver. One per process.

The root makes it when the first mesh is made; a rank is born with it. A forked child of either has none: whatever it
inherited is closed there, and using it raises `ForkedMeshError`.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable
from typing import Any, Protocol

from meshrt.errors import ForkedMeshError, ShutdownError, UsageError
from meshrt.hooks.facts import Body
from meshrt.transport.driver import Driver, Tree
from meshrt.transport.fate import Fate
from meshrt.transport.interrupts import called_by_python

__all__ = [
    "INCARNATION",
    "ProcessRuntime",
    "ProgramTree",
    "current_runtime",
    "has_runtime",
    "set_runtime",
    "socket_path",
]


#: Environment variable of a rank that was started again: how often.
INCARNATION = "MESHRT_INCARNATION"


class ProgramTree(Tree, Protocol):
    """The control tree as a process of the program sees it."""

    def allow_restarts(self, mesh_id: str, ranks: list[int], actor: str, count: int) -> None:
        """Allow ranks to be started again, as far as an actor is concerned. Any thread."""

    def when_restarted(self, mesh_id: str, rank: int, actor: str, callback: Callable[[int, Fate], None]) -> None:
        """Call back, once, when the rank was started again and is to have the actor: its incarnation, and how the one
        before has ended. With incarnation 0 when it will not be: the mesh has ended."""

    def request_root(self, operation: str, body: Body, timeout: float) -> Body:
        """Ask the root. Not from the thread that serves the tree."""

    def ask_root(self, operation: str, body: Body, answered: Callable[[Body | None, str], None]) -> None:
        """Ask the root; ``answered(body, "")`` or ``answered(None, refusal)`` comes later, on another thread."""

    def unhandled(self, body: Body) -> None:
        """Tell the root of an error that no caller waits for. Any thread."""


class ProcessRuntime:
    """The program, seen from this process.

    Args:
        run_id: The program's id.
        directory: Its runtime directory.
        secret: What links prove.
        tree: How this process reaches the control tree.
    """

    def __init__(self, run_id: str, directory: str, secret: bytes, tree: ProgramTree, *, is_root: bool) -> None:
        self.run_id = run_id
        self.directory = directory
        self.secret = secret
        self.tree = tree
        self.is_root = is_root
        self.host = socket.gethostname()
        #: Which rank this is; "" and 0 in the root.
        self.mesh_id = ""
        self.rank = 0
        self.pid = os.getpid()
        self.driver = Driver(secret, tree)
        self.call_ids = itertools.count(1)
        #: The process's part in the shared memory of its host (`meshrt.store`).
        self.store: Any = None
        #: Kept here by `meshrt.mesh`: who owns the meshes of a rank, and the root's process as a mesh of one.
        self.owner: Any = None
        self.own_mesh: Any = None

    def close(self) -> None:
        """Close the links of this process."""
        self.driver.close()
        if self.store is not None:
            self.store.close()


_runtime: ProcessRuntime | None = None
_forked = False
#: There was one, which has ended.
_ended = False
_after_fork: list[Callable[[], None]] = []


def socket_path(directory: str, mesh_id: str, rank: int) -> str:
    """Return where a rank listens for callers."""
    return f"{directory}/{mesh_id}.{rank}"


def set_runtime(
    runtime: ProcessRuntime | None, *, on_fork: Callable[[], Any] | None = None, ended: bool = False
) -> None:
    """Install the runtime of this process; ``on_fork`` runs in forked children, to close what they inherited.

    Args:
        ended: There is none any more, because the program's meshes were ended.
    """
    global _runtime, _forked, _ended
    _runtime = runtime
    _forked = False
    _ended = ended
    _after_fork.clear()
    if on_fork is not None:
        _after_fork.append(on_fork)


def has_runtime() -> bool:
    """Whether this process belongs to a running program."""
    return _runtime is not None


def current_runtime() -> ProcessRuntime:
    """Return the runtime of this process.

    Raises:
        ForkedMeshError: This is a forked child of the process that owns it.
        ShutdownError: There is none any more.
        UsageError: There is none: no mesh was made here.
    """
    if _runtime is None:
        if _forked:
            raise ForkedMeshError(
                f"process {os.getpid()} was forked from a program with meshes and cannot use them; "
                "use the meshes in the parent, or start this work as an actor"
            )
        if _ended:
            raise ShutdownError(
                "the meshes of this program were ended, by shutdown_context() or by the end of the program; "
                "proc_mesh() makes a new one"
            )
        raise UsageError("no program runs in this process: make a mesh with proc_mesh() first")
    return _runtime


@called_by_python
def _in_forked_child() -> None:
    global _runtime, _forked
    runtime, _runtime = _runtime, None
    if runtime is not None:
        _forked = True
        runtime.driver.abandon()
        if runtime.store is not None:
            runtime.store.abandon()
        for function in _after_fork:
            function()


os.register_at_fork(after_in_child=_in_forked_child)
