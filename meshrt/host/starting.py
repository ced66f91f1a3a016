"""Starting ranks: forked by the agent itself, or by a zygote where modules are to be preloaded."""

from __future__ import annotations

import errno
import importlib
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Container, Iterable

from meshrt.hooks.plugins import PLUGINS, import_plugins
from meshrt.host.child import Birth, Child, Plumbing, become_rank
from meshrt.host.limits import TOGETHER
from meshrt.host.logspace import LogSpace
from meshrt.host.output import Log, RankLog
from meshrt.host.sending import OutputQueue, SentLog
from meshrt.host.zygote import Zygote
from meshrt.transport.directories import log_path
from meshrt.wire.control import Address

__all__ = ["Starter"]

#: Seconds of forking between two looks at everything else: a large mesh takes some to fork.
_AT_A_TIME = 0.02
#: From so many ranks on, the agent imports before it forks what each of them would import for itself (50 ms once, or 20
#: ms and 2 MB in each of them, when all have their first stop or failure at once; asyncio as much again).
_MANY = 64


class Starter:
    """Starts ranks, and reports the result for each.

    Args:
        selector: Where zygotes are waited for.
        children: Every rank of the agent. One that a zygote will fork is entered before it has a pid.
        main: What a rank runs.
        born: ``born(child, pid)``: its process has been forked.
        failed: ``failed(birth, reason)``: it has none, and its resources are freed.
        warn: Prints a warning.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        children: dict[Address, Child],
        main: Callable[..., None],
        born: Callable[[Child, int], None],
        failed: Callable[[Birth, str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._selector = selector
        self._children = children
        self._main = main
        self._born = born
        self._failed = failed
        self._warn = warn
        #: Set when the root has said how large the logs may become.
        self.log_space: LogSpace | None = None
        #: Set on another machine than the root's: what ranks print is written there.
        self.output_queue: OutputQueue | None = None
        #: Processes that preload modules, by pid.
        self.zygotes: dict[int, Zygote] = {}
        #: Ranks to be forked, with their log directory. They have no descriptors yet.
        self._waiting: deque[tuple[Birth, str]] = deque()

    def start(self, births: Iterable[Birth], log_directory: str) -> None:
        """Have the ranks forked one by one, by `go_on`."""
        self._waiting.extend((birth, log_directory) for birth in births)
        if len(self._waiting) >= _MANY:
            _import_for_all()

    @property
    def waits(self) -> bool:
        """Is there more to be done by `go_on`?"""
        return bool(self._waiting)

    def is_to_start(self, mesh: str) -> bool:
        """Do ranks of the mesh wait to be forked?"""
        return any(birth.mesh_id == mesh for birth, _ in self._waiting)

    def go_on(self) -> None:
        """Fork some of those that wait."""
        until = time.monotonic() + _AT_A_TIME
        while self._waiting and time.monotonic() < until:
            self._begin([self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))])

    def hurry(self, wanted: Container[Address]) -> None:
        """Fork these now if they wait: something is to be sent to them."""
        if self._waiting:
            waiting, self._waiting = self._waiting, deque()
            for birth, log_directory in waiting:
                if (birth.mesh_id, birth.rank) in wanted:
                    self._begin([(birth, log_directory)])
                else:
                    self._waiting.append((birth, log_directory))

    def _begin(self, births: Iterable[tuple[Birth, str]]) -> None:
        prepared = self._prepared(births)
        results = [self._fork(*both) for both in prepared]
        for (child, plumbing), pid in zip(prepared, results, strict=True):
            plumbing.close()
            if isinstance(pid, OSError):
                self._give_up(child, f"fork failed: {pid.strerror} (see ulimit -u, and memory)")
            else:
                self._born(child, pid)

    def start_preloaded(
        self, mesh: str, births: Iterable[Birth], log_directory: str, modules: list[str], env: dict[str, str]
    ) -> None:
        """Have them forked by a process that has imported ``modules``."""
        prepared = self._prepared((birth, log_directory) for birth in births)
        for child, _ in prepared:
            self._children[child.address] = child
        if len(prepared) >= _MANY:
            _import_for_all()
        try:
            zygote = Zygote(mesh, prepared, modules, env, self._main)
        except OSError as error:
            for child, plumbing in prepared:
                plumbing.close()
                self._give_up(child, f"the process that preloads modules could not be started: {error.strerror}")
            return
        for _, plumbing in prepared:
            plumbing.close()
        self.zygotes[zygote.pid] = zygote
        self._selector.register(zygote.pipe, selectors.EVENT_READ, lambda _events: self._from_zygote(zygote))
        self._selector.register(zygote.pidfd, selectors.EVENT_READ, lambda _events: self._on_zygote_exit(zygote))

    def _prepared(self, births: Iterable[tuple[Birth, str]]) -> list[tuple[Child, Plumbing]]:
        """Return those whose plumbing could be made; the others are reported."""
        prepared = []
        for birth, log_directory in births:
            try:
                prepared.append(self.prepare(birth, log_directory))
            except OSError as error:
                hint = " (see ulimit -n)" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
                self._failed(birth, f"its socket, pipe or log cannot be created: {error.strerror}{hint}")
        return prepared

    def prepare(self, birth: Birth, log_directory: str, *, joined: bool = False) -> tuple[Child, Plumbing]:
        """Return both ends of the plumbing of a rank. Raises OSError, and leaves nothing then.

        Args:
            joined: Its process exists.
        """
        log: Log
        if self.output_queue is not None:
            log = SentLog((birth.mesh_id, birth.rank), self.output_queue, self._warn)
        else:
            path = log_path(log_directory, birth.mesh_name, birth.mesh_id, birth.rank)
            log = RankLog(path, self._warn, self.log_space)
        return Child.prepare(birth, log, joined=joined)

    def _fork(self, child: Child, plumbing: Plumbing) -> int | OSError:
        """Return its pid, or why it has none."""
        try:
            pid = os.fork()
        except OSError as error:
            return error
        if pid == 0:
            become_rank(child.birth, plumbing, self._main)
        return pid

    def _give_up(self, child: Child, reason: str) -> None:
        self._children.pop(child.address, None)
        child.close()
        self._failed(child.birth, reason)

    def _from_zygote(self, zygote: Zygote) -> None:
        if zygote.pid in self.zygotes:
            for rank, pid in zygote.reports():
                self._born(self._children[zygote.mesh_id, rank], pid)

    def _on_zygote_exit(self, zygote: Zygote) -> None:
        # Its end, not that of the pipe: what a preloaded module started may hold the pipe for ever.
        self._from_zygote(zygote)
        del self.zygotes[zygote.pid]
        self._selector.unregister(zygote.pipe)
        self._selector.unregister(zygote.pidfd)
        reason = zygote.close()
        for child in zygote.children:
            if not child.pid:
                self._give_up(child, reason)

    def give_up(self, mesh: str) -> None:
        """The ranks of a mesh that have not been forked yet do not start; its zygotes are killed."""
        left = [birth for birth, _ in self._waiting if birth.mesh_id == mesh]
        self._waiting = deque(both for both in self._waiting if both[0].mesh_id != mesh)
        for birth in left:
            self._failed(birth, "its mesh was stopped first")
        for zygote in self.zygotes.values():
            if zygote.mesh_id == mesh:
                zygote.kill()


def _import_for_all() -> None:
    import_plugins(PLUGINS)
    importlib.import_module("asyncio")  # most modules of actors import it
