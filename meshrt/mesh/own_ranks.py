"""Ranks that are threads of the script's own process: ``this_proc()``, and actors in tests (`meshrt.testing`).

Calls reach them as they reach other ranks, through sockets: order, copies of arguments and errors are the same.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import time
from collections.abc import Callable

from meshrt.actor.actors import ActorHost
from meshrt.actor.context import current_call
from meshrt.actor.control import ControlThread
from meshrt.actor.inboxes import close_inboxes
from meshrt.actor.mailbox import Mailbox
from meshrt.hooks.fate import Fate
from meshrt.mesh.proc_mesh import ProcMesh
from meshrt.mesh.program import start_root
from meshrt.mesh.registry import OwnMesh
from meshrt.mesh.root import Root
from meshrt.selection import Shape, Slice
from meshrt.transport.acceptor import listening_socket
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.wire.addresses import MeshAddress, socket_path

__all__ = ["OwnRanks", "script_proc", "this_proc"]

_making = threading.Lock()
#: Seconds for what is interrupted, or awaited no more, at the end.
_END = 2.0


class OwnRanks:
    """A mesh of them; it ends with the program, or by `stop`. Any thread.

    Args:
        root: The program.
        count: How many.
        make_mailbox: See `ActorHost`.

    Attributes:
        mesh_id: Their mesh.
        address: Where they listen.
    """

    def __init__(self, root: Root, count: int, make_mailbox: Callable[..., Mailbox] = Mailbox) -> None:
        root.loop.begin()
        self._root = root
        self._make_mailbox = make_mailbox
        self.mesh_id = secrets.token_hex(4)
        self.address = MeshAddress((root.run.address,), count)
        ranks = [self._start(rank) for rank in range(count)]
        self._hosts = [host for host, _ in ranks]
        #: Those that have been stopped, and of which a thread still runs.
        self._left: list[ActorHost] = []
        self._stopping = threading.Lock()
        self._controls = [control for _, control in ranks]
        root.registry.own[self.mesh_id] = OwnMesh(lambda: root.run.address, self._controls[0].admit, [])
        root.upkeep.at_look(self._listen_again)
        root.ending.at_end(self._end_with_program, self._in_forked_child)

    def _start(self, rank: int) -> tuple[ActorHost, ControlThread]:
        root = self._root
        report = functools.partial(root.services.on_own_actor, (self.mesh_id, rank))
        host = ActorHost(self.mesh_id, rank, report, None)
        host.make_mailbox = self._make_mailbox
        control = ControlThread(
            listening_socket(socket_path(root.run.directory, self.mesh_id, rank)),
            None,
            root.runtime.secret,
            f"{self.mesh_id}/{rank}/",
            host.deliver,
            lambda drain, _why: host.stop(drain),
            {},
        )
        control.identity = root.runtime.store.identity
        host.attach(control)
        host.before_raised.append(root.script.load_failures)
        control.start(None, root.runtime.driver)
        return host, control

    def _listen_again(self) -> None:
        if self.mesh_id in self._root.registry.own:
            for control in self._controls:
                control.listen_again()

    def _end_with_program(self) -> None:
        if self._root.registry.own.pop(self.mesh_id, None) is not None:
            for host in self._hosts:
                host.interrupt(cleanup=True)
            self._close()
        else:
            for host in self._left:
                host.close(_END)

    def _in_forked_child(self) -> None:
        """A fork of user code serves no caller; one that comes back from an endpoint ends there."""
        for host in self._hosts:
            with contextlib.suppress(OSError):
                host.abandon()

    def _close(self) -> None:
        for host, control in zip(self._hosts, self._controls, strict=True):
            control.close()
            host.close(0.0 if host in self._left else _END)

    @property
    def hosts(self) -> list[ActorHost]:
        """The actors of each rank, the first rank first."""
        return list(self._hosts)

    def deliver(self) -> None:
        """Wait until the actors have what was sent to them: it was written, and new callers are let in."""
        written = threading.Event()
        self._root.runtime.driver.queues.when_written(self.mesh_id, _END, lambda _left: written.set())
        written.wait(_END)
        for control in self._controls:
            control.settle(_END)

    def stop(
        self,
        grace: float,
        join: Callable[[ActorHost, float], bool] = ActorHost.join,
        now: Callable[[], float] = time.monotonic,
    ) -> list[str]:
        """End the actors behind what was sent to them; calls fail from then on.

        Args:
            grace: Seconds, after which what awaits is cancelled. A thread cannot be ended.
            join: Waits so many seconds for the threads of a rank; returns whether they have ended.
            now: The clock of these seconds.
        Returns:
            The actors whose threads still run, also if it was stopped before.
        """
        with self._stopping:
            return self._stop(grace, join, now)

    def settle(self) -> None:
        """Wait until it is decided who is told of what has failed here. A thread of the script; after `stop`."""
        here = threading.Event()
        self._root.services.call_soon(here.set)  # behind what the actors have reported
        here.wait(_END)
        self._root.ending.settle()

    def _stop(self, grace: float, join: Callable[[ActorHost, float], bool], now: Callable[[], float]) -> list[str]:
        own = self._root.registry.own.pop(self.mesh_id, None)
        if own is None:
            return self._end_left(time.monotonic() + grace)
        deadline = now() + grace
        written = threading.Event()
        self._root.runtime.driver.queues.when_written(self.mesh_id, grace, lambda _left: written.set())
        written.wait(grace)
        for control in self._controls:
            control.end()
            control.settle(_END)
        running = [host for host in self._hosts if not join(host, max(0.0, deadline - now()))]
        for host in running:
            host.interrupt(cleanup=True)
        self._left = [host for host in running if not join(host, _END)]
        self._close()
        for watcher in own.watchers:
            watcher(Fate("stopped"))
        self._root.runtime.driver.lost.fail_pending()
        self._root.upkeep.forget(self._listen_again)
        if not self._left:
            self._root.ending.forget(self._end_with_program)
        self._root.runtime.driver.forget(self.mesh_id)
        return self._names_of_left()

    def _end_left(self, deadline: float) -> list[str]:
        """It was stopped before: close what has ended since."""
        for host in self._left:
            host.close(max(0.0, deadline - time.monotonic()))
        if self._left:
            self._left = [host for host in self._left if host.mailboxes]
            if not self._left:
                self._root.ending.forget(self._end_with_program)
        return self._names_of_left()

    def _names_of_left(self) -> list[str]:
        return sorted({name for host in self._left for name in host.mailboxes})


def this_proc() -> ProcMesh:
    """Return the calling process, as a mesh without dimensions.

    In a rank: that rank. In the script: the script's own process; its actors end with the program, and other ranks
    may call them.
    """
    call = current_call()
    if call is not None:
        rank = Shape((), Slice(offset=call.base_rank, sizes=(), strides=()))
        return ProcMesh(call.instance.mesh_id, "this_proc", rank, current_runtime().own_address, None)
    if has_runtime() and not current_runtime().is_root:
        runtime = current_runtime()
        rank = Shape((), Slice(offset=runtime.rank, sizes=(), strides=()))
        return ProcMesh(runtime.mesh_id, "this_proc", rank, runtime.own_address, None)
    return script_proc()


def script_proc() -> ProcMesh:
    """Return the script's own process, also where an actor runs in it."""
    root = start_root()
    with _making:
        mesh: ProcMesh | None = root.runtime.own_mesh
        if mesh is None:
            root.ending.at_end(functools.partial(close_inboxes, root.runtime))
            ranks = OwnRanks(root, 1)
            mesh = root.runtime.own_mesh = ProcMesh(ranks.mesh_id, "this_proc", Shape.unity(), ranks.address, None)
        return mesh
