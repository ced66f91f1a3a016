"""Rank side: IDEs come and go. Loaded by the first that attaches.

* operation ``dap.open`` {channel, ide, session}: an IDE attaches; events report the result.
* operation ``dap.data`` {channel, data}: bytes from the IDE.
* operation ``dap.ack`` {channel, bytes}: the router has taken so many bytes of the engine.
* operation ``dap.close`` {channel, stay}: the IDE is lost. ``stay``: stopped threads stay stopped, and the root still
  gets ``dap.holds`` and ``dap.closed``. If no thread is stopped, the rank is free.
* events ``dap.waiting`` {channel, text}, ``dap.opened`` {channel, engine, pid, price}, ``dap.data`` {channel, data},
  ``dap.holds`` {channel, held, places}, ``dap.said`` {channel, text}, ``dap.raised`` {channel, rows: expressions of
  breakpoints that have raised, {what, file, line, expression, error, text, times}}, ``dap.leaving`` {channel},
  ``dap.closed`` {channel, why}.
"""

from __future__ import annotations

from types import FrameType

from meshrt.debug.dap.rank.pump import GONE, Pump
from meshrt.debug.rank.debugger import RankDebugger, debugger_of
from meshrt.errors import MeshError
from meshrt.hooks.facts import Body, EndpointCall
from meshrt.hooks.plugins import plugins
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks

__all__ = ["RankIde", "load"]


class RankIde:
    """The IDE that has this rank, if there is one. Operations run on the control thread; none waits."""

    def __init__(self, services: RankServices, debugger: RankDebugger) -> None:
        self._services = services
        self._debugger = debugger
        self._pump: Pump | None = None
        #: An IDE that has come while another one was leaving: its channel, its name, and its session.
        self._next: tuple[int, str, str] | None = None

    def open(self, body: Body) -> Body:
        """Attach an IDE."""
        channel, ide, session = int(body["channel"]), str(body["ide"]), str(body["session"])
        pump = self._pump
        if pump is None:
            self._begin(channel, ide, session)
        elif self._next is not None or (pump.channel and not pump.leaving):
            raise MeshError("an IDE is attached to this rank already")
        else:
            if not pump.leaving:
                self._debugger.handover.pass_on(ide, session)  # first: the end of the pump takes it back
            if pump.leaving or not pump.adopt(channel):
                self._next = channel, ide, session
        return {}

    def _begin(self, channel: int, ide: str, session: str) -> None:
        self._pump = pump = Pump(self._services, channel, self._ended)
        pump.begin()
        standing = self._debugger.handover.give(ide, pump, session)
        if standing:
            text = f"stands at a prompt of the debugger, {standing}; it is the IDE's when it goes on from there"
            self._services.notify("dap.waiting", {"channel": channel, "text": text})

    def data(self, body: Body) -> Body:
        """Pass bytes from the IDE on. Bytes of a former IDE are dropped."""
        pump = self._of(body)
        if pump is not None:
            pump.feed(bytes(body["data"]))
        return {}

    def ack(self, body: Body) -> Body:
        """The router has taken bytes of the engine."""
        pump = self._of(body)
        if pump is not None:
            pump.taken(int(body["bytes"]))
        return {}

    def close(self, body: Body) -> Body:
        """An IDE is lost."""
        if self._next is not None and self._next[0] == int(body["channel"]):
            self._next = None
        pump = self._of(body)
        if pump is not None:
            if body.get("stay") and pump.engine is not None:
                self._debugger.handover.orphan()  # first: the end of the pump takes it back
                pump.orphan()
            else:
                pump.close(GONE)
        return {}

    def _of(self, body: Body) -> Pump | None:
        pump = self._pump
        return pump if pump is not None and pump.channel == int(body["channel"]) else None

    def _ended(self, pump: Pump) -> None:
        """On the pump's thread, which is about to end."""
        self._debugger.handover.take_back()
        self._services.call_later(0, lambda: self._left(pump))

    def _left(self, pump: Pump) -> None:
        if self._pump is pump:
            self._pump = None
        waiting, self._next = self._next, None
        if waiting is not None:
            self._begin(*waiting)

    # -- hooks

    def signalled(self, frame: FrameType | None) -> None:
        """On the main thread, in a signal handler."""
        pump = self._pump
        if pump is not None:
            pump.signalled(frame)

    def endpoint_error(self, call: EndpointCall, error: BaseException) -> None:
        """An exception leaves an endpoint. For an IDE it is uncaught."""
        pump = self._pump
        if pump is not None and pump.engine is not None:
            pump.engine.failed(error)

    def proc_closing(self) -> None:
        """Let all threads resume, as the mesh is being stopped."""
        pump = self._pump
        if pump is not None:
            pump.close("the mesh is being stopped")


def load(services: RankServices) -> None:
    """Serve IDEs. Called once, by the first IDE that attaches."""
    plugins.load("debug", services, in_root=False)
    ide = RankIde(services, debugger_of(services))
    services.operations.update({"dap.open": ide.open, "dap.data": ide.data, "dap.ack": ide.ack, "dap.close": ide.close})
    hooks.signalled.append(ide.signalled)
    hooks.endpoint_error.append(ide.endpoint_error)
    hooks.proc_closing.append(ide.proc_closing)
