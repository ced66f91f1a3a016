"""Root side: a rank at ``breakpoint(all=True)`` has the other ranks of its actor stopped.

::

    (nothing) --a rank asks--> coming --nobody has asked for a moment--> asked --all that asked are resumed--> (nothing)

Ranks that run the same code reach the same breakpoint one after the other. So the others are interrupted when no rank
has asked for `QUIET_SECONDS`, or after `LONGEST_TICKS` times as long: each rank that comes there meanwhile stops at its
own breakpoint. What has not been carried out when the ranks that asked are resumed is withdrawn: a rank that C code
kept would stop later, in a program that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meshrt.debug.broker.sessions import Session, SessionTable, key_of
from meshrt.debug.broker.stopping import Stopping, running_of
from meshrt.debug.operations import Kind
from meshrt.debug.protocol import RUNNING, STEPPING, SessionKey
from meshrt.debug.rank_operations import StopOthers, WithdrawInterrupt
from meshrt.hooks.services import RootServices
from meshrt.program.groups import by_mesh
from meshrt.program.targets import Actor, Selected, Targets

__all__ = ["AllRanks"]

QUIET_SECONDS = 0.1
LONGEST_TICKS = 10
_WITHDRAW_SECONDS = 2.0

#: Told to the terminals of a rank: its key, and the text for one rank and for several.
Tell = Callable[[SessionKey, str, str], None]


class _Wave:
    """One actor whose ranks are to be stopped. It is an `Asking`: what does not stop is told as a notice."""

    left = False
    shows_stops = False

    def __init__(self, mesh_id: str, actor: str, tell: Tell) -> None:
        self._mesh_id = mesh_id
        self._actor = actor
        self._tell = tell
        #: Those that stop at their own ``breakpoint(all=True)``.
        self.askers: set[SessionKey] = set()
        #: Ranks that were asked to stop and have not stopped.
        self.asked: set[SessionKey] = set()
        #: Those whose result has not been told.
        self._pending: dict[SessionKey, str] = {}
        self.quiet = True  # no rank has asked since the last tick
        self.ticks = 0  # 0: no tick is to come

    def expect(self, key: SessionKey, label: str) -> None:
        """See `Asking`."""
        self._pending[key] = label
        self.asked.add(key)

    def pending(self) -> tuple[SessionKey, ...]:
        """See `Asking`."""
        return tuple(self._pending)

    def answer(self, key: SessionKey, kind: Kind, text: str) -> None:
        """See `Asking`."""
        label = self._pending.pop(key, None)
        if label is None:
            return
        if kind not in ("blocked", "silent"):
            self.asked.discard(key)  # it is stopped, or will not stop
        self.settle(label, kind, text, [key.rank])

    def settle(self, label: str, kind: Kind, text: str, ranks: Iterable[int]) -> None:
        """See `Asking`."""
        match kind:
            case "blocked":
                said = f"not stopped yet: {text}"
            case "silent" | "refused":
                said = f"not stopped: {text}"
            case _:
                return  # it is announced as every stop and every end is; one that is idle has nothing to stop
        for rank in ranks:
            self._tell(SessionKey(self._mesh_id, self._actor, rank), f"is {said}", f"are {said}")


class AllRanks:
    """The waves of all actors. On the root's loop."""

    def __init__(
        self, services: RootServices, table: SessionTable, targets: Targets, stopping: Stopping, tell: Tell
    ) -> None:
        self._services = services
        self._table = table
        self._targets = targets
        self._stopping = stopping
        self._tell = tell
        self._waves: dict[tuple[str, str], _Wave] = {}

    # -- what the ranks do ---------------------------------------------------------------------------------------------

    def asked(self, mesh_id: str, rank: int, report: StopOthers) -> None:
        """Take in that a rank is about to stop at a ``breakpoint(all=True)``."""
        address = mesh_id, report.actor
        wave = self._waves.get(address)
        if wave is None:
            wave = self._waves[address] = _Wave(mesh_id, report.actor, self._tell)
        wave.askers.add(key_of(mesh_id, rank, report))
        wave.quiet = False
        if not wave.ticks:
            wave.quiet, wave.ticks = True, 1
            self._services.call_later(QUIET_SECONDS, lambda: self._tick(address, wave))

    def stopped(self, key: SessionKey) -> None:
        """Take in that a rank is stopped, or will not stop."""
        wave = self._waves.get((key.mesh_id, key.actor))
        if wave is not None:
            wave.asked.discard(key)

    def resumes(self, session: Session) -> None:
        """Take in that a session is resumed, or is about to be."""
        self.ended(session.key)

    def ended(self, key: SessionKey) -> None:
        """Take in that a session has ended, or goes on: with the last one that has asked, the others need not stop."""
        self._over((key.mesh_id, key.actor), {key})

    def gone(self, mesh_id: str, rank: int) -> None:
        """Take in that a rank's process has ended."""
        for address in [address for address in self._waves if address[0] == mesh_id]:
            self._waves[address].asked = {key for key in self._waves[address].asked if key.rank != rank}
            self._over(address, {key for key in self._waves[address].askers if key.rank == rank})

    # -- waves ---------------------------------------------------------------------------------------------------------

    def _tick(self, address: tuple[str, str], wave: _Wave) -> None:
        if self._waves.get(address) is not wave:
            return
        if not wave.quiet and wave.ticks < LONGEST_TICKS:
            wave.quiet = True
            wave.ticks += 1
            self._services.call_later(QUIET_SECONDS, lambda: self._tick(address, wave))
            return
        wave.ticks = 0
        actor = next((each for each in self._targets.actors() if _address(each) == address and not each.thread), None)
        if actor is not None:
            self._stop(actor, wave)

    def _stop(self, actor: Actor, wave: _Wave) -> None:
        """Ask all ranks that run, and were not asked yet, to stop."""
        askers = {key.rank for key in wave.askers}
        views = {actor.views.get(rank) for rank in askers}
        ranks = [rank for rank, view in actor.views.items() if view in views and rank not in askers]
        selected = Selected(actor, tuple(sorted(ranks)))
        sessions = self._table.among(selected).items()
        # A rank at work on a line that was typed is stopped.
        stopped = [rank for rank, session in sessions if session.state not in (RUNNING, STEPPING)]
        stopped += [key.rank for key in wave.asked]
        running = running_of(selected, stopped, wave, silent=("busy",))
        self._stopping.ask(actor, running, wave)

    def _over(self, address: tuple[str, str], keys: set[SessionKey]) -> None:
        wave = self._waves.get(address)
        if wave is None or not keys & wave.askers:
            return
        wave.askers -= keys
        if wave.askers:
            return
        del self._waves[address]
        for key in wave.asked:
            self._stopping.give_up(key, wave)
        withdrawn = [(key.mesh_id, key.rank) for key in sorted(wave.asked - self._stopping.typed)]
        if withdrawn:
            withdraw = WithdrawInterrupt(address[1])
            self._services.gather(by_mesh(withdrawn), withdraw, _WITHDRAW_SECONDS, lambda _gathered: None)


def _address(actor: Actor) -> tuple[str, str]:
    return actor.mesh.mesh_id, actor.name
