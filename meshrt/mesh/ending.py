"""The end of the program, step by step: at exit, by ``shutdown_context()``, and in a forked child.

::

    open --shutdown--> closed: waits for ranks that start, and for owners that decide; stops every mesh
                         `--> reports, then takes the parts of the root apart, the last one first

Ctrl-C ends the waits for ranks; what comes after them is short, and is done whatever happens.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable

from meshrt.hooks.plugins import plugins
from meshrt.hooks.table import hooks
from meshrt.mesh.alarm import Alarm
from meshrt.mesh.host_agents import HostAgents
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.records import RecordsOfRanks
from meshrt.mesh.registry import Registry
from meshrt.mesh.run import Run
from meshrt.mesh.script import Script
from meshrt.mesh.stopping import OverdueAgents, Stopping
from meshrt.mesh.supervision import Supervision
from meshrt.mesh.terminal import Terminal, TerminalLog
from meshrt.mesh.terminal_access import TerminalAccess
from meshrt.transport.interrupts import Shield
from meshrt.transport.process import ProcessRuntime, set_runtime
from meshrt.transport.reserve import reserve

__all__ = ["Ending"]

#: Seconds for which the end of a program waits for ranks that are still being started.
_START_MAX = 10.0
#: ... and for owners that decide on a failure.
_DECIDE = 1.0


class Ending:
    """The end of one root. Threads of the script.

    Args:
        over: Called at the very end: another root may be made.
        the others: The parts of the root that take part in its end.
    """

    def __init__(
        self,
        run: Run,
        runtime: ProcessRuntime,
        loop: RootLoop,
        registry: Registry,
        terminal: Terminal,
        log: TerminalLog,
        alarm: Alarm,
        supervision: Supervision,
        stopping: Stopping,
        overdue: OverdueAgents,
        script: Script,
        agents: HostAgents,
        records: RecordsOfRanks,
        access: TerminalAccess,
        over: Callable[[], None],
    ) -> None:
        self._run = run
        self._runtime = runtime
        self._loop = loop
        self._registry = registry
        self._terminal = terminal
        self._log = log
        self._alarm = alarm
        self._supervision = supervision
        self._stopping = stopping
        self._overdue = overdue
        self._script = script
        self._agents = agents
        self._records = records
        self._access = access
        self._over = over
        self._closed = False
        self._exits = False
        self._last: list[Callable[[], object]] = []
        self._forked: dict[Callable[[], object], Callable[[], object]] = {}

    @property
    def closed(self) -> bool:
        """Whether the end has begun: no mesh is started any more. Any thread."""
        return self._closed

    def at_end(self, function: Callable[[], object], forked: Callable[[], object] | None = None) -> None:
        """Run ``function`` when the meshes have ended, in order; and ``forked`` in each forked child of the script."""
        self._last.append(function)
        if forked is not None:
            self._forked[function] = forked

    def forget(self, function: Callable[[], object]) -> None:
        """Do not run a function at the end that was given to `at_end`."""
        self._last.remove(function)
        self._forked.pop(function, None)

    def main_ended(self, why: str) -> None:
        """The main thread has ended by an error: the waits of other threads end."""
        self._script.main_ended = True
        self._alarm.end_waits(why)

    def exits(self) -> None:
        """The interpreter exits: failures set the exit status."""
        self._exits = True

    def settle(self) -> None:
        """Wait until it is decided who is told of each failure so far. A thread of the script."""
        self._supervision.settle(_DECIDE)

    def shutdown(self, grace: float = 5.0, why: str = "") -> None:
        """Stop everything; Ctrl-C skips the grace, a second one kills at once. ``why``: an error is the reason."""
        if self._closed or not self._run.is_here:
            return
        self._closed = True
        self._alarm.silence()
        for record in self._registry.running():
            record.abandoned = record.abandoned or record.stopped is None
        shield = self._runtime.driver.shield
        shield.close()
        with contextlib.ExitStack() as end:
            for part in self._parts(shield):
                end.callback(part)
            for wait in (grace, 0.0):
                try:
                    self._overdue.resume(self._agents.all())
                    self._overdue.hear()
                    if wait:
                        self._let_start()
                        self.settle()
                    self._alarm.end_hook()
                    self._stop_all(wait, why)
                    self._overdue.hear()
                    break
                except (KeyboardInterrupt, TimeoutError):
                    continue

    def _stop_all(self, grace: float, why: str) -> None:
        """Stop every mesh, the latest first, for it may use those before it until its end.

        Each has its grace, but those before a slow one wait only so long for it. What a rank has made is stopped
        together with the rank's own mesh. Raises TimeoutError.
        """
        deadline = time.monotonic() + grace
        futures = []
        for meshes in self._registry.running_by_script():
            begun = [self._stopping.stop(record.mesh_id, grace, why) for record in meshes]
            for future in begun:
                self._runtime.driver.wait(future, max(0.0, deadline - time.monotonic()))
            futures += begun
        for future in futures:
            future.get(grace + 2.0)

    def _let_start(self) -> None:
        """Wait for meshes that are starting: what was sent to them has not left yet; the grace is for serving it.

        Not for those whose ranks join: the others may never come.
        """
        deadline = time.monotonic() + _START_MAX
        for record in self._registry.running():
            if record.joined:
                continue
            self._runtime.driver.wait(record.initialized, max(0.0, deadline - time.monotonic()))

    def _parts(self, shield: Shield) -> Iterable[Callable[[], object]]:
        """Return what is done at the end, the last step first. Each is done, whatever those before it raise."""
        yield from (self._over, shield.uninstall, functools.partial(_open, shield))
        yield from (self._run.close, reserve.release, functools.partial(set_runtime, None, ended=True))
        yield from (self._runtime.close, self._terminal.close, self._log.end, self._records.end)
        yield from (self._agents.end, self._loop.end, self._script.uninstall, self._run_last)
        yield from (functools.partial(self._script.at_end, sets_status=self._exits), self._supervision.finish)

    def _run_last(self) -> None:
        for function in self._last:
            function()

    def in_forked_child(self) -> None:
        """A fork of the script must not keep its links open: agents and terminals would not see its end."""
        hooks.clear()
        plugins.clear()
        self._run.abandon()
        self._script.uninstall()
        self._agents.abandon()
        self._access.abandon()
        for forked in tuple(self._forked.values()):
            forked()


def _open(shield: Shield) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        shield.open()
