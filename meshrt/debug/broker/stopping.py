"""Root side: ranks that run are asked to stop where they are, and whoever has asked is told what becomes of that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from meshrt.debug.broker.jobs import Jobs
from meshrt.debug.broker.sessions import Session, SessionTable, session_key
from meshrt.debug.operations import Interrupt, JobReport, Kind
from meshrt.debug.protocol import STOPPED, SessionKey
from meshrt.debug.rank_operations import Interrupted, InterruptRank
from meshrt.hooks.facts import Answered, Gathered, Unanswered
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.records import ReadStacks, Threads, Times
from meshrt.inspect.tree import StackAnswer, innermost
from meshrt.program.groups import by_mesh
from meshrt.program.program import program_of
from meshrt.program.targets import Actor, Selected, Targets
from meshrt.program.words import silence, why_unanswered
from meshrt.show.text import since

__all__ = ["Asking", "Stopping", "running_of"]

_STACK_SECONDS = 1.0
_ASK_SECONDS = 2.0
#: Seconds after which an interrupt without effect so far is explained.
_EXPLAIN_SECONDS = 0.5


class Settling(Protocol):
    """Takes the results of ranks that are not waited for."""

    def settle(self, label: str, kind: Kind, text: str, ranks: Iterable[int]) -> None:
        """Take the result of ranks of an actor. Arguments as in `meshrt.debug.operations.JobAnswer`."""


class Asking(Settling, Protocol):
    """A request to stop ranks: that of a terminal (`meshrt.debug.broker.jobs.Job`), or that of a rank."""

    #: Nobody waits for its results any more.
    left: bool

    @property
    def shows_stops(self) -> bool:
        """Whether a stop is shown as a result of the request: then it is not announced."""

    def expect(self, key: SessionKey, label: str) -> None:
        """Wait for a rank of the actor ``label``."""

    def pending(self) -> tuple[SessionKey, ...]:
        """Return the keys of the ranks that have not answered."""

    def answer(self, key: SessionKey, kind: Kind, text: str) -> None:
        """Take the result of a rank that is waited for; any other rank is ignored."""


def running_of(selected: Selected, stopped: Collection[int], asking: Settling, silent: Sequence[str] = ()) -> list[int]:
    """Return the running ranks; dead ranks, and ranks that do not answer, are reported to ``asking``.

    Args:
        stopped: The stopped ranks, which are left out.
        silent: Kinds of silence that do not matter.
    """
    mesh = selected.actor.mesh
    running = []
    for rank in selected.ranks:
        if rank in mesh.ended:
            asking.settle(selected.actor.label, "gone", str(mesh.ended[rank]), [rank])
        elif rank in mesh.silent and mesh.silent[rank].state not in silent:
            asking.settle(selected.actor.label, "silent", silence(mesh.silent[rank].state), [rank])
        elif rank not in stopped:
            running.append(rank)
    return running


class Stopping:
    """The requests to stop ranks that run. On the root's loop."""

    def __init__(self, services: RootServices, table: SessionTable, targets: Targets, jobs: Jobs) -> None:
        self._services = services
        self._table = table
        self._targets = targets
        self._jobs = jobs
        #: Ranks that were asked to stop, and the requests that wait for the stop.
        self._asked: dict[SessionKey, list[Asking]] = {}
        #: Ranks that were reported as stopping later.
        self._late: set[SessionKey] = set()
        #: Ranks that a terminal has asked to stop, and that have not stopped.
        self.typed: set[SessionKey] = set()

    # -- what the ranks do ---------------------------------------------------------------------------------------------

    def stopped(self, session: Session) -> bool:
        """Take in that a rank is stopped. Returns whether a terminal that waits for the interrupt is told."""
        asking = self._asked.pop(session.key, [])
        self._late.discard(session.key)
        self.typed.discard(session.key)
        for one in asking:
            one.answer(session.key, "answered", session.text)
        return any(one.shows_stops for one in asking)

    def missed(self, key: SessionKey, why: str) -> bool:
        """Take in that an interrupt of a rank has no effect.

        Args:
            why: The reason for a refusal; "": the rank runs no endpoint.
        Returns:
            True if a notice has to say it: its stop was announced as late, or a terminal no longer waits for the job.
        """
        asking = self._asked.pop(key, [])
        self.typed.discard(key)
        for one in asking:
            one.answer(key, "refused" if why else "idle", why)
        news = key in self._late or any(one.left for one in asking)
        self._late.discard(key)
        return news

    def gone(self, mesh_id: str, rank: int, how: str) -> bool:
        """Take in that a rank's process has ended. Returns whether a request waited for its stop."""
        keys = [key for key in self._asked if (key.mesh_id, key.rank) == (mesh_id, rank)]
        self._late = {key for key in self._late if (key.mesh_id, key.rank) != (mesh_id, rank)}
        self.typed = {key for key in self.typed if (key.mesh_id, key.rank) != (mesh_id, rank)}
        told = [one.shows_stops for key in keys for one in self._asked[key]]
        for key in keys:
            for one in self._asked.pop(key):
                one.answer(key, "gone", how)
        return any(told)

    def _waits(self, key: SessionKey, asking: Asking) -> bool:
        return asking in self._asked.get(key, ())

    def give_up(self, key: SessionKey, asking: Asking) -> None:
        """Report nothing more of a rank to a request."""
        requests = self._asked.get(key, [])
        if asking in requests:
            requests.remove(asking)
        if not requests:
            self._asked.pop(key, None)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def interrupt(self, client: ToolClient, asked: Interrupt) -> JobReport:
        """Ask running ranks to stop where they are. Reports those that stop, and why the others cannot.

        Raises UsageError, SelectionError: no such actor or ranks.
        """
        selected = self._targets.select(asked.actor, asked.ranks, any_thread=True)
        actor = selected.actor
        job = self._jobs.new(client, len(selected.ranks))
        # A rank that steps, or is at work on a line, may do so for ever: it is asked like a running one.
        stopped = {rank: session for rank, session in self._table.among(selected).items() if session.state == STOPPED}
        job.settle(actor.label, "stopped", "", stopped)
        # A rank that holds the GIL in C code stops as soon as that code returns.
        running = running_of(selected, stopped, job, silent=("busy",))
        self.typed.update(session_key(actor, rank) for rank in running)
        self.ask(actor, running, job)
        return job.start()

    def ask(self, actor: Actor, ranks: Sequence[int], asking: Asking) -> None:
        """Ask ``ranks`` of an actor, which run, to stop where they are; ``asking`` gets the results."""
        for rank in ranks:
            asking.expect(session_key(actor, rank), actor.label)
            self._asked.setdefault(session_key(actor, rank), []).append(asking)

        def report(gathered: Gathered[Interrupted, None]) -> None:
            for group in gathered.groups:
                for rank in group.ranks:
                    key = session_key(actor, rank)
                    if not self._waits(key, asking):
                        continue  # reported when it stopped, or explained already
                    if isinstance(group, Answered):
                        if group.same.state != "asked":  # otherwise it is reported when it stops
                            self._settled(
                                key, asking, "idle" if group.same.state == "idle" else "stopped", group.same.text
                            )
                    elif group.kind == "silent":
                        self._explain_one(asking, key, group)
                    else:
                        self._settled(key, asking, group.kind, group.why)

        if ranks:
            self._services.gather(
                {actor.mesh.mesh_id: ranks}, InterruptRank(actor.name, actor.thread), _ASK_SECONDS, report
            )
            self._services.call_later(_EXPLAIN_SECONDS, lambda: self._explain(asking, actor))

    def _settled(self, key: SessionKey, asking: Asking, kind: Kind, text: str) -> None:
        self.give_up(key, asking)
        self.typed.discard(key)
        asking.answer(key, kind, text)

    def _explain(self, asking: Asking, actor: Actor) -> None:
        """Report where the ranks are that have not stopped yet: they stop as soon as they can."""
        keys = {(key.mesh_id, key.rank): key for key in asking.pending() if self._waits(key, asking)}
        if not keys:
            return

        def report(gathered: Gathered[Threads, Times]) -> None:
            for group in gathered.groups:
                for rank in group.ranks:
                    key = keys[group.mesh_id, rank]
                    gone = isinstance(group, Unanswered) and group.kind == "gone"  # `gone` reports that
                    if self._waits(key, asking) and not gone:
                        self._explain_one(asking, key, group)

        asked = ReadStacks("" if actor.thread else actor.name)
        self._services.gather(by_mesh(keys), asked, _STACK_SECONDS, report, stack_suffices=True)

    def _explain_one(self, asking: Asking, key: SessionKey, group: StackAnswer) -> None:
        # When the rank stops, that is announced like any other stop.
        self.give_up(key, asking)
        self._late.add(key)
        actors = program_of(self._services).sources.activity.actors(key.mesh_id, key.rank)
        place, seconds, state = innermost(group, key.rank, key.actor, key.thread, actors)
        why = "" if isinstance(group, Answered) else why_unanswered(group)
        if why:
            seconds = self._targets.silent_for(key.mesh_id, key.rank)
        if place:
            duration = f", for {since(0, seconds)}" if seconds >= 1 else ""
            silent = f"; {why}" if why else ""
            in_c = "" if state == "running" else "in C code: "  # a running rank may be in Python code
            asking.answer(key, "blocked", f"{in_c}{place}{duration}{silent}")
        elif not why:
            asking.answer(key, "idle", "")  # its endpoint ended before the interrupt
            self._late.discard(key)
        else:
            asking.answer(key, "silent", why)
