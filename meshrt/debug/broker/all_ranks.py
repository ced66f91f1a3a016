"""Root side: a rank at ``breakpoint(all=True)`` has the other ranks of its actor stopped.

::

    (nothing) --a rank asks--> coming --nobody has asked for a moment--> asked --all that asked are resumed--> (nothing)

Ranks that run the same code reach the same breakpoint one after the other. So the others are interrupted when no rank
has asked for `QUIET_SECONDS`, or after `LONGEST_TICKS` times as long: each rank that comes there meanwhile stops at its
own breakpoint. What has not been carried out when the ranks that asked are resumed is withdrawn: a rank that C code
kept would stop later, in a program that runs. They are resumed when the others know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meshrt.debug.broker.sessions import Session, SessionTable, key_of
from meshrt.debug.broker.stopping import Stopping, running_of
from meshrt.debug.operations import Kind
from meshrt.debug.protocol import RUNNING, STEPPING, SessionKey
from meshrt.debug.rank_operations import StopOthers, WithdrawInterrupt
from meshrt.hooks.facts import Gathered
from meshrt.hooks.operations import Nothing
from meshrt.hooks.services import RootServices
from meshrt.program.groups import by_mesh
from meshrt.program.targets import Actor, Selected, Targets

__all__ = ["AllRanks"]

QUIET_SECONDS = 0.1
LONGEST_TICKS = 10
_WITHDRAW_SECONDS = 2.0
#: After so long a rank that has not answered is asked again.
_AGAIN_SECONDS = 2.0

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
        #: Ranks that were asked to stop and have not stopped; and those of them that have not answered.
        self.asked: set[SessionKey] = set()
        self.silent: set[SessionKey] = set()
        self._told: set[tuple[int, str]] = set()
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
        if kind == "silent":
            self.silent.add(key)
        elif kind != "blocked":
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
            if (rank, said) in self._told:
                continue  # it was asked again
            self._told.add((rank, said))
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
        self._begin(address, wave)

    def joined(self, mesh_id: str, rank: int, actor: str) -> None:
        """Take in that an actor has begun on a rank: a process may have joined while others are stopped."""
        wave = self._waves.get((mesh_id, actor))
        if wave is not None:
            # What it was asked before, as it was expected already, may not have reached it.
            key = SessionKey(mesh_id, actor, rank)
            wave.asked.discard(key)
            wave.silent.discard(key)
            self._stopping.give_up(key, wave)
            self._begin((mesh_id, actor), wave)

    def stopped(self, key: SessionKey) -> None:
        """Take in that a rank is stopped, or will not stop."""
        wave = self._waves.get((key.mesh_id, key.actor))
        if wave is not None:
            wave.asked.discard(key)
            wave.silent.discard(key)

    def resumes(self, sessions: Iterable[Session], resume: Callable[[], None]) -> None:
        """Take in that sessions are about to be resumed.

        Args:
            resume: Resumes them. Called when all ranks that need not stop any more know that, or are silent: one may
                wait in C code for what these do next.
        """
        over = [(key.actor, self._over((key.mesh_id, key.actor), {key})) for key in (each.key for each in sessions)]
        withdrawn = [(actor, ranks) for actor, ranks in over if ranks]
        left = len(withdrawn)

        def know(gathered: Gathered[Nothing, None]) -> None:
            nonlocal left
            left -= gathered.done
            if not left and gathered.done:
                resume()

        for actor, ranks in withdrawn:
            self._withdraw(actor, ranks, know)
        if not withdrawn:
            resume()

    def ended(self, key: SessionKey) -> None:
        """Take in that a session has ended, or goes on: with the last one that has asked, the others need not stop."""
        ranks = self._over((key.mesh_id, key.actor), {key})
        if ranks:
            self._withdraw(key.actor, ranks, lambda _gathered: None)

    def gone(self, mesh_id: str, rank: int) -> None:
        """Take in that a rank's process has ended."""
        for address in [address for address in self._waves if address[0] == mesh_id]:
            self._waves[address].asked = {key for key in self._waves[address].asked if key.rank != rank}
            for key in [key for key in self._waves[address].askers if key.rank == rank]:
                self.ended(key)

    # -- waves ---------------------------------------------------------------------------------------------------------

    def _begin(self, address: tuple[str, str], wave: _Wave) -> None:
        if not wave.ticks:
            wave.quiet, wave.ticks = True, 1
            self._services.call_later(QUIET_SECONDS, lambda: self._tick(address, wave))

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
        silent, wave.silent = wave.silent, set()
        for key in silent:
            self._stopping.give_up(key, wave)
        views = {actor.views.get(rank) for rank in askers}
        ranks = [rank for rank, view in actor.views.items() if view in views and rank not in askers]
        selected = Selected(actor, tuple(sorted(ranks)))
        sessions = self._table.among(selected).items()
        # A rank at work on a line that was typed is stopped.
        stopped = [rank for rank, session in sessions if session.state not in (RUNNING, STEPPING)]
        stopped += [key.rank for key in wave.asked - silent]
        running = running_of(selected, stopped, wave, silent=("busy",))
        self._stopping.ask(actor, running, wave)
        if running:
            self._services.call_later(_AGAIN_SECONDS, lambda: self._ask_silent(actor, wave))

    def _ask_silent(self, actor: Actor, wave: _Wave) -> None:
        """Ask once more those that have not answered, which may not have had the request."""
        if self._waves.get(_address(actor)) is wave and wave.silent:
            self._stop(actor, wave)

    def _withdraw(
        self, actor: str, ranks: Iterable[tuple[str, int]], report: Callable[[Gathered[Nothing, None]], None]
    ) -> None:
        withdraw = WithdrawInterrupt(actor)
        self._services.gather(by_mesh(ranks), withdraw, _WITHDRAW_SECONDS, report, stack_suffices=True)

    def _over(self, address: tuple[str, str], keys: set[SessionKey]) -> list[tuple[str, int]]:
        """Take ``keys`` from those that have asked; returns the ranks that need not stop any more."""
        wave = self._waves.get(address)
        if wave is None or not keys & wave.askers:
            return []
        wave.askers -= keys
        if wave.askers:
            return []
        del self._waves[address]
        for key in wave.asked:
            self._stopping.give_up(key, wave)
        return [(key.mesh_id, key.rank) for key in sorted(wave.asked - self._stopping.typed)]


def _address(actor: Actor) -> tuple[str, str]:
    return actor.mesh.mesh_id, actor.name
