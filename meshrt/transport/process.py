"""What this process has of the running program: its secret, its directories, its driver. One per process.

The root makes it when the first mesh is made, a rank when it starts. A forked child of either has none: what it has
inherited is closed there, and using it raises `ForkedMeshError`.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from meshrt.errors import ShutdownError, UsageError
from meshrt.transport.connecting import Connector
from meshrt.transport.driver import Driver
from meshrt.transport.interrupts import called_by_python
from meshrt.transport.tree import ProgramTree
from meshrt.transport.waiting import in_forked_child
from meshrt.wire.addresses import HostAddress, MeshAddress
from meshrt.wire.certificate import Certificate
from meshrt.wire.frames import Frame
from meshrt.wire.handshake import Identity

__all__ = [
    "INCARNATION",
    "ProcessRuntime",
    "SharedMemory",
    "connected_to",
    "current_runtime",
    "has_runtime",
    "set_runtime",
]


#: Environment variable of a rank that was started again: how often.
INCARNATION = "MESHRT_INCARNATION"


class SharedMemory(Protocol):
    """The part of this process in the shared memory of its host (`meshrt.store.store.Store`)."""

    @property
    def claim(self) -> Callable[[Frame], Frame]:
        """Takes the shared memory of a message."""

    @property
    def identity(self) -> Callable[[], Identity]:
        """Returns the identity of this process for processes that share memory with it."""

    def close(self) -> None:
        """End the part, also in a forked child; what was taken stays valid."""


class ProcessRuntime:
    """The program, seen from this process.

    Args:
        run_id: The program's id.
        address: Of the host of this process.
        secret: Both sides of a link prove that they have it.
        tree: How this process reaches the control tree.
        store: Its part in the shared memory of its host; None: it has none.
        host: The name of that host; "": that of this machine.
        mesh_id, rank: Which rank this is; "" and 0 in the root.
        certificate: Returns that of the program; None: it has one machine.
        machine: The number of this machine, where there is no store to say it.
    """

    def __init__(
        self,
        run_id: str,
        address: HostAddress,
        secret: bytes,
        tree: ProgramTree,
        store: SharedMemory | None = None,
        *,
        is_root: bool,
        host: str = "",
        mesh_id: str = "",
        rank: int = 0,
        certificate: Callable[[], Certificate | None] = lambda: None,
        machine: int = 0,
    ) -> None:
        #: Of the host; it begins with that of the program.
        self.run_id = run_id
        self.program_id: str = run_id.partition(".")[0]
        self.directory: str = os.fsdecode(address.directory)
        #: Where this process listens, as a mesh of its own or as a rank.
        self.own_address: MeshAddress = MeshAddress((address,), 1)
        self.secret = secret
        self.tree = tree
        self.is_root = is_root
        self.host: str = host or socket.gethostname()
        self.mesh_id = mesh_id
        self.rank = rank
        self.pid: int = os.getpid()
        self.driver: Driver = (
            Driver(secret, tree, connector=Connector(lambda: machine, certificate, secret, tree.relay))
            if store is None
            else Driver(
                secret,
                tree,
                store.claim,
                store.identity,
                Connector(lambda: store.identity().machine, certificate, secret, tree.relay),
            )
        )
        self.call_ids: Iterator[int] = itertools.count(1)
        #: Read as a `meshrt.store.store.Store`, which this floor does not know.
        self.store: Any = store
        #: By number: the channels that are open in this process (`meshrt.actor.inboxes.Inbox`).
        self.inboxes: dict[str, Any] = {}
        #: It is being stopped: who sends to its channels is told of that, and not of each channel that is closed then.
        self.stopping: bool = False
        #: Kept here by `meshrt.mesh`: who owns the meshes that this process has made, and the root's process as a mesh
        #: of one.
        self.owner: Any = None
        self.own_mesh: Any = None

    def close(self) -> None:
        """Close the links of this process."""
        self.driver.close()
        if self.store is not None:
            self.store.close()


#: The names of the programs that this process is connected to, which are not its own (`meshrt.mesh.foreign`).
connected_to: list[str] = []
_runtime: ProcessRuntime | None = None
_forked = False
#: There was one, which has ended.
_ended = False
_after_fork: list[Callable[[], object]] = []


def set_runtime(
    runtime: ProcessRuntime | None, *, on_fork: Callable[[], object] | None = None, ended: bool = False
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
            raise in_forked_child()
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
            runtime.store.close()
        for function in _after_fork:
            function()


os.register_at_fork(after_in_child=_in_forked_child)
