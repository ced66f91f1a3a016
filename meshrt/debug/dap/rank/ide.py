"""Rank side: IDEs come and go. Loaded by the first that attaches."""

from __future__ import annotations

from types import FrameType

from meshrt.debug.dap.operations import Attach, Close, Taken, ToEngine, Waiting
from meshrt.debug.dap.rank.pump import GONE, Pump
from meshrt.debug.rank.debugger import RankDebugger, debugger_of
from meshrt.errors import MeshError
from meshrt.hooks.facts import EndpointCall
from meshrt.hooks.operations import Nothing
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
        #: An IDE that has come while another one was leaving.
        self._next: Attach | None = None

    def open(self, asked: Attach) -> Nothing:
        """Attach an IDE."""
        pump = self._pump
        if pump is None:
            self._begin(asked)
        elif self._next is not None or (pump.channel and not pump.leaving):
            raise MeshError("an IDE is already attached to this rank")
        else:
            if not pump.leaving:
                self._debugger.handover.pass_on(asked.ide, asked.session)  # first: the end of the pump takes it back
            if pump.leaving or not pump.adopt(asked.channel):
                self._next = asked
        return Nothing()

    def _begin(self, asked: Attach) -> None:
        self._pump = pump = Pump(self._services, asked.channel, self._ended)
        pump.begin()
        place = self._debugger.handover.give(asked.ide, pump, asked.session)
        if place:
            text = f"is stopped at a prompt of the debugger, {place}; the IDE takes control when the rank resumes"
            self._services.report(Waiting(asked.channel, text))

    def data(self, asked: ToEngine) -> Nothing:
        """Pass bytes from the IDE on. Bytes of a former IDE are dropped."""
        pump = self._of(asked.channel)
        if pump is not None:
            pump.feed(asked.data)
        return Nothing()

    def taken(self, asked: Taken) -> Nothing:
        """The router has taken bytes of the engine."""
        pump = self._of(asked.channel)
        if pump is not None:
            pump.taken(asked.count)
        return Nothing()

    def close(self, asked: Close) -> Nothing:
        """An IDE is lost."""
        if self._next is not None and self._next.channel == asked.channel:
            self._next = None
        pump = self._of(asked.channel)
        if pump is not None:
            if asked.stay and pump.engine is not None:
                self._debugger.handover.orphan()  # first: the end of the pump takes it back
                pump.orphan()
            else:
                pump.close(GONE)
        return Nothing()

    def _of(self, channel: int) -> Pump | None:
        pump = self._pump
        return pump if pump is not None and pump.channel == channel else None

    def _ended(self, pump: Pump) -> None:
        """On the pump's thread, which is about to end."""
        self._debugger.handover.take_back()
        self._services.call_later(0, lambda: self._left(pump))

    def _left(self, pump: Pump) -> None:
        if self._pump is pump:
            self._pump = None
        waiting, self._next = self._next, None
        if waiting is not None:
            self._begin(waiting)

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
    services.serve(Attach, ide.open)
    services.serve(ToEngine, ide.data)
    services.serve(Taken, ide.taken)
    services.serve(Close, ide.close)
    hooks.signalled.append(ide.signalled)
    hooks.endpoint_error.append(ide.endpoint_error)
    hooks.proc_closing.append(ide.proc_closing)
    hooks.program_lost.append(ide.proc_closing)
