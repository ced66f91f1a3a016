"""``proc_mesh(watchdog=seconds)``: reports which ranks have not answered a call for so long, and where they are.

The watchdog ends nothing: the call goes on, and is reported again after twice the time. There is no report while the
user holds a rank at a breakpoint, and the time begins anew behind that.

It looks at the calls that are not answered, `_LOOKS` times within its time. So it keeps nothing of a call that is
answered, and sending one costs nothing.
"""

from __future__ import annotations

import time

from meshrt.hooks.facts import Gathered
from meshrt.hooks.services import PendingCall, RootServices
from meshrt.inspect.records import ReadStacks, Threads, Times
from meshrt.inspect.text import render_stacks
from meshrt.inspect.tree import Stacks
from meshrt.selection import counted

__all__ = ["Watchdog"]

_LOOKS = 8
_STACK_SECONDS = 1.0
_LINES = 40


class Watchdog:
    """Watches the calls of the script to a mesh, until that is stopped. On the root's loop.

    Args:
        seconds: Without an answer, until the first report.
    """

    def __init__(self, services: RootServices, mesh_id: str, seconds: float) -> None:
        self._services = services
        self._mesh_id = mesh_id
        self._seconds = seconds
        #: Of unanswered calls, by their number: when the first look saw it (monotonic), seconds until the next report.
        self._seen: dict[int, tuple[float, float]] = {}

    def look(self) -> None:
        """Report what is overdue, and look again later."""
        if all(mesh.mesh_id != self._mesh_id for mesh in self._services.meshes()):
            return
        pending = self._services.pending_calls().items()
        calls = {number: call for number, call in pending if call.mesh_id == self._mesh_id and not call.done()}
        now = time.monotonic()
        before = {} if self._services.held() else self._seen
        self._seen = {number: before.get(number, (now, self._seconds)) for number in calls}
        for number, (since, waited) in tuple(self._seen.items()):
            if now - since >= waited:
                self._seen[number] = since, 2 * waited + self._seconds
                self._report(calls[number], waited)
        self._services.call_later(self._seconds / _LOOKS, self.look)

    def _report(self, call: PendingCall, waited: float) -> None:
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
