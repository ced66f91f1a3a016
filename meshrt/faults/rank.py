"""The rank's side of a plan of faults: counts calls by the hooks of endpoints, and has the fault itself.

The root is told first, and answers: a process that is killed tells nothing any more.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence

from meshrt.actor.context import current_call
from meshrt.errors import MeshError
from meshrt.faults.operations import Armed, BeginOnRank, EndOnRank, Happens, LookOnRank, Planned, Seen
from meshrt.hooks.facts import EndpointCall
from meshrt.hooks.operations import Grouped
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks

__all__ = ["RankFaults", "load"]

#: Seconds that the root has to note a fault. If it does not, the fault does not happen, and its plan says so.
_SECONDS = 30.0


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    # To this thread: it executes no further instruction. Other threads would take a signal to the process later.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _cut() -> None:
    call = current_call()
    if call is not None and call.link is not None:
        with socket.socket(fileno=os.dup(call.link.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)


_FAULTS: Mapping[str, Callable[[], object]] = {"kill": _kill, "stop": _stop, "cut": _cut}


class _Plan:
    """The plan of one test, on this rank. Hooks call it on the threads of actors."""

    def __init__(
        self,
        faults: Sequence[Planned],
        rank: int,
        tell: Callable[[int], object],
        actions: Mapping[str, Callable[[], object]],
    ) -> None:
        self._own = [(number, fault) for number, fault in enumerate(faults) if rank in fault.ranks]
        self._tell = tell
        self._actions = actions
        self._lock = threading.Lock()
        self._ended = False
        self.calls = [0] * len(faults)
        self.happening: list[int] = []
        phases = {fault.after for _, fault in self._own}
        added = [hooks.add(hooks.endpoint_enter, self.enter)] if False in phases else []
        self._remove = [*added, *([hooks.add(hooks.endpoint_exit, self.exit)] if True in phases else [])]

    def enter(self, call: EndpointCall) -> None:
        """A call begins."""
        self._reached(call, after=False)

    def exit(self, call: EndpointCall) -> None:
        """A call has run, and is not answered yet."""
        self._reached(call, after=True)

    def _reached(self, call: EndpointCall, *, after: bool) -> None:
        due = []
        with self._lock:
            for number, fault in self._own:
                if (fault.endpoint, fault.after) != (call.endpoint, after) or fault.actor not in ("", call.actor):
                    continue
                self.calls[number] += 1
                if self.calls[number] == fault.number and not self._ended:
                    due.append((number, fault))
                    self.happening.append(number)
        for number, fault in due:
            try:
                self._tell(number)
            except MeshError:
                if self._ended:  # the root has ended the plan, too, and wants no fault any more
                    return
                raise
            self._actions[fault.kind]()

    def end(self) -> None:
        """Count no more."""
        with self._lock:
            self._ended = True
        for remove in self._remove:
            remove()


class RankFaults:
    """The plans of this rank. On the control thread.

    Args:
        actions: What to do for a fault of each kind.
    """

    def __init__(self, services: RankServices, actions: Mapping[str, Callable[[], object]] = _FAULTS) -> None:
        self._services = services
        self._actions = actions
        self._plans: dict[str, _Plan] = {}

    def begin(self, begin: BeginOnRank) -> Grouped[Armed, None]:
        """Count calls from now on."""
        if begin.plan not in self._plans:
            services, name = self._services, begin.plan

            def tell(number: int) -> object:
                return services.ask(Happens(name, number), _SECONDS)

            self._plans[name] = _Plan(begin.faults, services.rank, tell, self._actions)
        return Grouped(Armed(self._services.elsewhere))

    def look(self, look: LookOnRank) -> Grouped[None, Seen]:
        """Return how far this rank is."""
        return Grouped(None, self._seen(look.plan))

    def end(self, end: EndOnRank) -> Grouped[None, Seen]:
        """Forget a plan; returns how far this rank was."""
        seen = self._seen(end.plan)
        plan = self._plans.pop(end.plan)
        plan.end()
        return Grouped(None, Seen(seen.calls, seen.busy, list(plan.happening)))

    def _seen(self, name: str) -> Seen:
        plan = self._plans.get(name)
        if plan is None:
            raise MeshError("this rank has no such plan of faults")
        at_work = any(actor.serves is not None for actor in self._services.actors())
        busy = at_work or any(work.waiting or work.more or work.unseen for work in self._services.workload())
        return Seen(list(plan.calls), busy, list(plan.happening))


def load(services: RankServices) -> None:
    """Take plans: called once, by the first request."""
    faults = RankFaults(services)
    services.serve(BeginOnRank, faults.begin)
    services.serve(LookOnRank, faults.look)
    services.serve(EndOnRank, faults.end)
