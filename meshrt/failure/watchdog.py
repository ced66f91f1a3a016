"""``proc_mesh(watchdog=seconds)``: reports which ranks have not answered a call for so long, and where they are.

The watchdog ends nothing: the call goes on, and is checked again after twice the time. There is no report while the
user holds a rank at a breakpoint.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from meshrt.hooks.facts import Gathered
from meshrt.hooks.services import PendingCall, RootServices
from meshrt.hooks.table import hooks
from meshrt.inspect.records import ReadStacks, Threads, Times
from meshrt.inspect.text import render_stacks
from meshrt.inspect.tree import Stacks
from meshrt.selection import counted

__all__ = ["Watchdog"]

_STACK_SECONDS = 1.0
_LINES = 40


class Watchdog:
    """The calls of the script to meshes with a watchdog. On the root's loop, except `sent`."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._seconds: dict[str, float] = {}
        #: Ends it. No call pays for a watchdog before there is one.
        self.end: Callable[[], None] = lambda: None

    def watch(self, mesh_id: str, seconds: float) -> None:
        """Watch calls to a mesh; ``seconds``: without an answer, until the first report."""
        if not self._seconds:
            self.end = hooks.add(hooks.call_sent, self.sent)
        self._seconds[mesh_id] = seconds

    def sent(self, call: PendingCall) -> None:
        """A call was sent. Any thread."""
        seconds = self._seconds.get(call.mesh_id)
        if seconds is not None:
            known = weakref.ref(call)  # a weak reference: the watchdog does not keep the answers of a call
            self._services.call_soon(lambda: self._later(known, seconds, seconds))

    def _later(self, known: weakref.ref[PendingCall], seconds: float, waited: float) -> None:
        self._services.call_later(seconds, lambda: self._look(known, seconds, waited))

    def _look(self, known: weakref.ref[PendingCall], seconds: float, waited: float) -> None:
        call = known()
        if call is None or call.done():
            return
        if self._services.held():
            self._later(known, seconds, waited)
            return
        overdue = call.overdue(waited)
        missing = [place.rank for place in overdue.missing]
        keys = [(place.mesh_id, place.rank, place.actor) for place in overdue.missing]
        mesh = next((mesh for mesh in self._services.meshes() if mesh.mesh_id == call.mesh_id), None)
        if mesh is None or not missing:
            return
        stacks = Stacks()
        stacks.expect(call.mesh_id, mesh.name, mesh.shape, missing, (call.actor,))

        def report(gathered: Gathered[Threads, Times]) -> None:
            for group in gathered.groups:
                stacks.add(group)
            if gathered.done:
                lines = render_stacks(stacks.answer(), once=True).split("\n")
                left_out = [f"... {counted(len(lines) - _LINES, 'more line')}"] if len(lines) > _LINES else []
                where = "\n".join([*lines[:_LINES], *left_out])
                kept = stacks.standstill(keys)
                why = f"; {kept.text}" if kept is not None else ""
                self._services.announce(f"watchdog: {overdue}{why}; stacks of these ranks:\n{where}")

        # All ranks are asked: any of them may block those that wait.
        everybody = {mesh.mesh_id: mesh.alive for mesh in self._services.meshes()}
        self._services.gather(everybody, ReadStacks(), _STACK_SECONDS, report, stack_suffices=True)
        self._later(known, 2 * seconds, waited + 2 * seconds)
