"""Root side: requests that reach stopped and running ranks: print values, show output.

A stopped rank answers at its prompt, in the stack frame where it is stopped. A running rank answers beside its own
work.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from meshrt.debug.broker.jobs import Jobs
from meshrt.debug.broker.lines import Lines, checked
from meshrt.debug.broker.sessions import SessionTable, session_key
from meshrt.debug.broker.stopping import running_of
from meshrt.debug.operations import JobReport, Logs, Print
from meshrt.debug.protocol import BUSY, STOPPED, SessionKey
from meshrt.debug.rank_operations import EVALUATION_SECONDS, CancelExpression, Evaluate, Value
from meshrt.errors import MeshError
from meshrt.hooks.facts import Answered, Gathered
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.facts import Facts
from meshrt.inspect.output import line_count, tails
from meshrt.program.targets import Targets
from meshrt.program.words import why_unanswered

__all__ = ["Inquiry"]


class Inquiry:
    """The operations of the broker that reach running ranks. On the root's loop."""

    def __init__(self, services: RootServices, table: SessionTable, targets: Targets, jobs: Jobs, lines: Lines) -> None:
        self._services = services
        self._table = table
        self._targets = targets
        self._jobs = jobs
        self._lines = lines

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
        running = running_of(selected, stopped, job)
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
                        late = group.kind == "silent" and not group.state
                        hint = f"; `interrupt {actor.label}` cancels it" if late else ""
                        job.answer(key, group.kind, why_unanswered(group) + hint)

        if running:
            limit, number = job.limit, job.number
            evaluate = Evaluate(actor.name, asked.command, asked.expression, actor.label, asked.ranks, limit, number)
            evaluated = {session_key(actor, rank) for rank in running}
            job.cancels.append(lambda: self._cancel(number, evaluated.intersection(job.pending())))
            self._services.gather({actor.mesh.mesh_id: running}, evaluate, EVALUATION_SECONDS, report)
        return job.start()

    def _cancel(self, number: int, keys: Collection[SessionKey]) -> int:
        for key in keys:
            with contextlib.suppress(MeshError):  # the rank has just ended
                self._services.tell_rank(key.mesh_id, key.rank, CancelExpression(number))
        return len(keys)

    # -- output --------------------------------------------------------------------------------------------------------

    async def logs(self, client: ToolClient, asked: Logs) -> JobReport:
        """Return the last lines that each rank has printed, as the first report of a job.

        Raises UsageError, SelectionError: no such actor or ranks, or an invalid number of lines.
        """
        selected = self._targets.select(asked.actor, asked.ranks)
        count = line_count(asked.lines)
        actor = selected.actor
        job = self._jobs.new(client, len(selected.ranks))
        if actor.mesh.joined:
            job.settle(actor.label, "elsewhere", "", list(selected.ranks))
            return job.start()
        files = {rank: self._services.log_file(actor.mesh.mesh_id, rank) for rank in selected.ranks}
        texts = await asyncio.get_running_loop().run_in_executor(None, tails, files, count)
        for rank, tail in texts.items():
            job.settle(actor.label, tail.kind, tail.problem or tail.text, [rank])
        return job.start()
