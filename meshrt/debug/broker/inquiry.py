"""Root side: requests that reach stopped and running ranks: print values, show output, interrupt.

A stopped rank answers at its prompt, in the stack frame where it is stopped. A running rank answers beside its own
work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from meshrt.debug.broker.jobs import Job, Jobs
from meshrt.debug.broker.lines import Lines, checked
from meshrt.debug.broker.sessions import Session, SessionTable, session_key
from meshrt.debug.operations import Interrupt, JobReport, Logs, Print
from meshrt.debug.protocol import BUSY, STOPPED, SessionKey
from meshrt.debug.rank_operations import Evaluate, Interrupted, InterruptRank, Value
from meshrt.hooks.facts import Answered, Gathered, Unanswered
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.facts import Facts
from meshrt.inspect.output import line_count, tails
from meshrt.inspect.records import ReadStacks, Threads, Times
from meshrt.inspect.tree import StackAnswer, innermost
from meshrt.program.groups import by_mesh
from meshrt.program.program import program_of
from meshrt.program.targets import Actor, Selected, Targets
from meshrt.program.words import silence, why_unanswered
from meshrt.show.text import since

__all__ = ["Inquiry"]

#: Seconds until a running rank counts as one that does not answer.
_EVAL_SECONDS = 8.0
_STACK_SECONDS = 1.0
_ASK_SECONDS = 2.0
#: Seconds after which an interrupt without effect so far is explained.
_EXPLAIN_SECONDS = 0.5


class Inquiry:
    """The operations of the broker that reach running ranks. On the root's loop."""

    def __init__(self, services: RootServices, table: SessionTable, targets: Targets, jobs: Jobs, lines: Lines) -> None:
        self._services = services
        self._table = table
        self._targets = targets
        self._jobs = jobs
        self._lines = lines
        #: Ranks that were asked to stop, and the jobs that wait for the stop.
        self._interrupting: dict[SessionKey, list[Job]] = {}
        #: Ranks that were reported as stopping later.
        self._late: set[SessionKey] = set()

    # -- what the ranks do ---------------------------------------------------------------------------------------------

    def stopped(self, session: Session) -> bool:
        """Take in that a rank is stopped. Returns whether a terminal that waits for the interrupt is told."""
        jobs = self._interrupting.pop(session.key, [])
        self._late.discard(session.key)
        for job in jobs:
            job.answer(session.key, "answered", session.text)
        return any(not job.left for job in jobs)

    def missed(self, key: SessionKey, why: str) -> bool:
        """Take in that an interrupt of a rank has no effect.

        Args:
            why: The reason for a refusal; "": the rank runs no endpoint.
        Returns:
            True if a notice has to say it: its stop was announced as late, or a terminal no longer waits for the job.
        """
        jobs = self._interrupting.pop(key, [])
        for job in jobs:
            job.answer(key, "refused" if why else "idle", why)
        news = key in self._late or any(job.left for job in jobs)
        self._late.discard(key)
        return news

    def gone(self, mesh_id: str, rank: int, how: str) -> bool:
        """Take in that a rank's process has ended. Returns whether a job waited for its stop."""
        keys = [key for key in self._interrupting if (key.mesh_id, key.rank) == (mesh_id, rank)]
        self._late = {key for key in self._late if (key.mesh_id, key.rank) != (mesh_id, rank)}
        for key in keys:
            for job in self._interrupting.pop(key):
                job.answer(key, "gone", how)
        return bool(keys)

    def _waits(self, key: SessionKey, job: Job) -> bool:
        return job in self._interrupting.get(key, ())

    def _give_up(self, key: SessionKey, job: Job) -> None:
        jobs = self._interrupting.get(key, [])
        if job in jobs:
            jobs.remove(job)
        if not jobs:
            self._interrupting.pop(key, None)

    # -- values --------------------------------------------------------------------------------------------------------

    async def print(self, client: ToolClient, asked: Print) -> JobReport:
        """Evaluate an expression on ranks. Raises UsageError, SelectionError: no such actor or ranks."""
        line = checked(f"{asked.command} {asked.expression}")
        selected = self._targets.select(asked.actor, asked.ranks)
        actor = selected.actor
        job = self._jobs.new(client, len(selected.ranks))
        # A stepping rank counts as running: it may never come back.
        stopped = {
            rank: session
            for rank, session in self._table.among(selected).items()
            if session.state in (STOPPED, BUSY) and rank not in actor.mesh.silent
        }
        running = self._running(selected, stopped, job)
        self._lines.cast(job, [(session, actor.label) for session in stopped.values()], line, pdb_only=True)
        for rank in running:
            job.expect(session_key(actor, rank), actor.label)

        def report(gathered: Gathered[Value, Facts]) -> None:
            for group in gathered.groups:
                for rank in group.ranks:
                    key = session_key(actor, rank)
                    if isinstance(group, Answered):
                        text = f"{'*** ' if group.same.error else ''}{group.same.text}"
                        job.answer(key, "answered", text, group.per.get(rank), failed=group.same.error)
                    else:
                        job.answer(key, group.kind, why_unanswered(group))

        if running:
            evaluate = Evaluate(actor.name, asked.command, asked.expression, actor.label, asked.ranks, job.limit)
            self._services.gather({actor.mesh.mesh_id: running}, evaluate, _EVAL_SECONDS, report)
        return job.start()

    def _running(
        self, selected: Selected, stopped: dict[int, Session], job: Job, silent: Sequence[str] = ()
    ) -> list[int]:
        """Return the running ranks; dead ranks, and ranks that do not answer, are reported to ``job``.

        Args:
            stopped: The stopped ranks, which are left out.
            silent: Kinds of silence that do not matter.
        """
        mesh = selected.actor.mesh
        running = []
        for rank in selected.ranks:
            if rank in mesh.ended:
                job.settle(selected.actor.label, "gone", str(mesh.ended[rank]), [rank])
            elif rank in mesh.silent and mesh.silent[rank].state not in silent:
                job.settle(selected.actor.label, "silent", silence(mesh.silent[rank].state), [rank])
            elif rank not in stopped:
                running.append(rank)
        return running

    # -- stopping ------------------------------------------------------------------------------------------------------

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
        running = self._running(selected, stopped, job, silent=("busy",))
        for rank in running:
            job.expect(session_key(actor, rank), actor.label)
            self._interrupting.setdefault(session_key(actor, rank), []).append(job)

        def report(gathered: Gathered[Interrupted, None]) -> None:
            for group in gathered.groups:
                for rank in group.ranks:
                    key = session_key(actor, rank)
                    if not self._waits(key, job):
                        continue  # reported when it stopped, or explained already
                    if isinstance(group, Answered):
                        if group.same.state != "asked":  # otherwise it is reported when it stops
                            self._give_up(key, job)
                            job.answer(key, "idle" if group.same.state == "idle" else "stopped", group.same.text)
                    elif group.kind == "silent":
                        self._explain_one(job, key, group)
                    else:
                        self._give_up(key, job)
                        job.answer(key, group.kind, group.why)

        if running:
            interrupt = InterruptRank(actor.name, actor.thread)
            self._services.gather({actor.mesh.mesh_id: running}, interrupt, _ASK_SECONDS, report)
            self._services.call_later(_EXPLAIN_SECONDS, lambda: self._explain(job, actor))
        return job.start()

    def _explain(self, job: Job, actor: Actor) -> None:
        """Report where the ranks are that have not stopped yet: they stop as soon as they can."""
        keys = {(key.mesh_id, key.rank): key for key in job.pending() if self._waits(key, job)}
        if not keys:
            return

        def report(gathered: Gathered[Threads, Times]) -> None:
            for group in gathered.groups:
                for rank in group.ranks:
                    key = keys[group.mesh_id, rank]
                    gone = isinstance(group, Unanswered) and group.kind == "gone"  # `gone` reports that
                    if self._waits(key, job) and not gone:
                        self._explain_one(job, key, group)

        asked = ReadStacks("" if actor.thread else actor.name)
        self._services.gather(by_mesh(keys), asked, _STACK_SECONDS, report, stack_suffices=True)

    def _explain_one(self, job: Job, key: SessionKey, group: StackAnswer) -> None:
        # When the rank stops, that is announced like any other stop.
        self._give_up(key, job)
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
            job.answer(key, "blocked", f"{in_c}{place}{duration}{silent}")
        elif not why:
            job.answer(key, "idle", "")  # its endpoint ended before the interrupt
            self._late.discard(key)
        else:
            job.answer(key, "silent", why)

    # -- output --------------------------------------------------------------------------------------------------------

    async def logs(self, client: ToolClient, asked: Logs) -> JobReport:
        """Return the last lines that each rank has printed, as the first report of a job.

        Raises UsageError, SelectionError: no such actor or ranks, or an invalid number of lines.
        """
        selected = self._targets.select(asked.actor, asked.ranks)
        count = line_count(asked.lines)
        actor = selected.actor
        job = self._jobs.new(client, len(selected.ranks))
        files = {rank: self._services.log_file(actor.mesh.mesh_id, rank) for rank in selected.ranks}
        texts = await asyncio.get_running_loop().run_in_executor(None, tails, files, count)
        for rank, tail in texts.items():
            job.settle(
                actor.label, "refused" if tail.problem else "answered", tail.problem or tail.text or "(nothing)", [rank]
            )
        return job.start()
