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
from meshrt.debug.protocol import BUSY, EVAL, INTERRUPT, STOPPED, SessionKey
from meshrt.hooks.facts import Body, Gathered, Group
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect import STACKS, innermost
from meshrt.inspect.asking import why_silent
from meshrt.inspect.known import actors_known
from meshrt.inspect.output import line_count, tails
from meshrt.program.groups import by_mesh
from meshrt.program.targets import Actor, Selected, Targets
from meshrt.program.words import silence
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

    async def print(self, client: ToolClient, body: Body) -> Body:
        """Evaluate ``expression`` on ranks: in the frame where a rank is stopped, else in the actor's namespace.

        Returns the first report of a job. Raises UsageError, SelectionError: no such actor or ranks.
        """
        selected = self._targets.select(str(body["actor"]), str(body.get("ranks", "")))
        command, expression = str(body["command"]), str(body["expression"])
        label = selected.actor.label
        named = " ".join(filter(None, (str(body["actor"]), str(body.get("ranks", "")))))
        job = self._jobs.new(client, len(selected.ranks))
        # A stepping rank counts as running: it may never come back.
        standing = {
            rank: session
            for rank, session in self._table.among(selected).items()
            if session.state in (STOPPED, BUSY) and rank not in selected.actor.mesh.silent
        }
        running = self._running(selected, standing, job)
        self._lines.cast(
            job,
            [(session, label) for session in standing.values()],
            pdb_only=True,
            line=checked(f"{command} {expression}"),
            brief=True,
        )
        asked = {
            "actor": selected.actor.name,
            "command": command,
            "expression": checked(expression),
            "limit": job.limit,
            "named": named,
        }
        self._gather(job, selected, running, EVAL, asked, _EVAL_SECONDS)
        return job.start()

    def _running(
        self, selected: Selected, standing: dict[int, Session], job: Job, silent: Sequence[str] = ()
    ) -> list[int]:
        """Return the running ranks; dead ranks, and ranks that do not answer, are reported to ``job``.

        Args:
            standing: The stopped ranks, which are left out.
            silent: Kinds of silence that do not matter.
        """
        mesh = selected.actor.mesh
        running = []
        for rank in selected.ranks:
            if rank in mesh.ended:
                job.settle(selected.actor.label, "gone", mesh.ended[rank].how, [rank])
            elif rank in mesh.silent and mesh.silent[rank].state not in silent:
                job.settle(selected.actor.label, "silent", silence(mesh.silent[rank].state), [rank])
            elif rank not in standing:
                running.append(rank)
        return running

    def _gather(
        self, job: Job, selected: Selected, ranks: Sequence[int], operation: str, body: Body, seconds: float
    ) -> None:
        actor = selected.actor
        for rank in ranks:
            job.expect(session_key(actor, rank), actor.label)
        if not ranks:
            return

        def report(gathered: Gathered) -> None:
            for group in gathered.groups:
                for rank in group.ranks:
                    key = session_key(actor, rank)
                    if group.kind == "answered":
                        facts = group.per.get(rank) if group.per else None
                        failed = bool(group.same["error"])
                        text = f"{'*** ' if failed else ''}{group.same['text']}"
                        job.answer(key, "answered", text, facts, failed=failed)
                    elif group.kind == "silent":
                        job.answer(key, "silent", why_silent(group.same))
                    else:
                        job.answer(key, group.kind, str(group.same))

        self._services.gather({actor.mesh.mesh_id: ranks}, operation, body, seconds, report)

    # -- stopping ------------------------------------------------------------------------------------------------------

    async def interrupt(self, client: ToolClient, body: Body) -> Body:
        """Ask running ranks to stop where they are. Reports those that stop, and why the others cannot.

        Returns the first report of a job. Raises UsageError, SelectionError: no such actor or ranks.
        """
        selected = self._targets.select(str(body["actor"]), str(body.get("ranks", "")), any_thread=True)
        actor = selected.actor
        job = self._jobs.new(client, len(selected.ranks))
        # A rank that steps, or is at work on a line, may do so for ever: it is asked like a running one.
        standing = {rank: session for rank, session in self._table.among(selected).items() if session.state == STOPPED}
        job.settle(actor.label, "standing", "", standing)
        # A rank that holds the GIL in C code stops as soon as that code returns.
        running = self._running(selected, standing, job, silent=("busy",))
        for rank in running:
            job.expect(session_key(actor, rank), actor.label)
            self._interrupting.setdefault(session_key(actor, rank), []).append(job)

        def report(gathered: Gathered) -> None:
            for group in gathered.groups:
                state = group.same.get("state") if group.kind == "answered" else ""
                for rank in group.ranks:
                    key = session_key(actor, rank)
                    if state == "asked" or not self._waits(key, job):
                        continue  # reported when it stops, or explained already
                    if group.kind == "silent":
                        self._explain_one(job, key, group)
                        continue
                    self._give_up(key, job)
                    if group.kind == "answered":
                        job.answer(key, "standing" if state == "stopped" else str(state), str(group.same["text"]))
                    else:
                        job.answer(key, group.kind, str(group.same))

        if running:
            asked = {"actor": actor.name, "thread": actor.thread}
            self._services.gather({actor.mesh.mesh_id: running}, INTERRUPT, asked, _ASK_SECONDS, report)
            self._services.call_later(_EXPLAIN_SECONDS, lambda: self._explain(job, actor))
        return job.start()

    def _explain(self, job: Job, actor: Actor) -> None:
        """Report where the ranks are that have not stopped yet: they stop as soon as they can."""
        keys = {(key.mesh_id, key.rank): key for key in job.pending() if self._waits(key, job)}
        if not keys:
            return

        def report(gathered: Gathered) -> None:
            for group in gathered.groups:
                for rank in group.ranks:
                    key = keys[group.mesh_id, rank]
                    if self._waits(key, job) and group.kind != "gone":  # `gone` reports that
                        self._explain_one(job, key, group)

        asked = {"actor": "" if actor.thread else actor.name, "verbose": False}
        self._services.gather(by_mesh(keys), STACKS, asked, _STACK_SECONDS, report, stack_suffices=True)

    def _explain_one(self, job: Job, key: SessionKey, group: Group) -> None:
        # When the rank stops, that is announced like any other stop.
        self._give_up(key, job)
        self._late.add(key)
        actors = actors_known(self._services, key.mesh_id, key.rank)
        place, seconds, state = innermost(group, key.rank, key.actor, key.thread, actors)
        why = why_silent(group.same) if group.kind == "silent" else str(group.same)
        if group.kind == "silent":
            seconds = self._targets.silent_for(key.mesh_id, key.rank)
        if place:
            duration = f", for {since(0, seconds)}" if seconds >= 1 else ""
            silent = "" if group.kind == "answered" else f"; {why}"
            in_c = "" if state == "running" else "in C code: "  # a running rank may be in Python code
            job.answer(key, "blocked", f"{in_c}{place}{duration}{silent}")
        elif group.kind == "answered":
            job.answer(key, "idle", "")  # its endpoint ended before the interrupt
            self._late.discard(key)
        else:
            job.answer(key, "silent", why)

    # -- output --------------------------------------------------------------------------------------------------------

    async def logs(self, client: ToolClient, body: Body) -> Body:
        """Return the last ``lines`` lines that each rank has printed, as the first report of a job.

        Raises UsageError, SelectionError: no such actor or ranks, or an invalid number of lines.
        """
        selected = self._targets.select(str(body["actor"]), str(body.get("ranks", "")))
        count = line_count(body.get("lines"))
        actor = selected.actor
        job = self._jobs.new(client, len(selected.ranks))
        files = {rank: self._services.log_file(actor.mesh.mesh_id, rank) for rank in selected.ranks}
        texts = await asyncio.get_running_loop().run_in_executor(None, tails, files, count)
        for rank, tail in texts.items():
            kind = "refused" if tail.problem else "answered"
            job.settle(actor.label, kind, tail.problem or tail.text or "(nothing)", [rank])
        return job.start()
