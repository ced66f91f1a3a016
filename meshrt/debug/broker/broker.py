"""The broker: between ranks and terminals, in the root's process and on its loop.

Ranks report to it; it never waits for a rank. Events of ranks change the table of sessions. Requests of terminals read
the table or send something to ranks, and return at once; results are pushed later. The states of a session::

    stopped --line sent--> busy --stopped--> stopped
                             |--resumed(step)--> stepping --stopped--> stopped
                             |--resumed(continue)--> running --stopped--> stopped (a new stop: announced)
    any --ended, or the process has ended--> removed

One terminal at a time may be attached to a session. When a terminal closes, nothing changes for the ranks, except that
breakpoints which were set for its lifetime are deleted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from meshrt.debug import operations as ops
from meshrt.debug.broker.all_ranks import AllRanks
from meshrt.debug.broker.attachable import orphans, session_to_attach, snapshot_of
from meshrt.debug.broker.autoentry import AutoEntry
from meshrt.debug.broker.breaks import Breaks
from meshrt.debug.broker.inquiry import Inquiry
from meshrt.debug.broker.jobs import Attachment, Job, Jobs
from meshrt.debug.broker.lines import Lines, checked
from meshrt.debug.broker.notices import Notices, summarize
from meshrt.debug.broker.sessions import Session, SessionTable, key_of, label_of
from meshrt.debug.broker.stopping import Stopping
from meshrt.debug.broker.waiting import Changes
from meshrt.debug.protocol import RUNNING, STEPPING, STOPPED, SessionKey
from meshrt.debug.rank_operations import (
    CompleteAtRank,
    Ended,
    Missed,
    Printed,
    ReadSource,
    Resumed,
    Source,
    StopOthers,
    Stopped,
)
from meshrt.debug.switch import refuse, switched_off
from meshrt.errors import UsageError
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Nothing, Served
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.program.program import program_of
from meshrt.program.targets import Selected
from meshrt.program.words import silence
from meshrt.wire.source import source_text

__all__ = ["Broker", "load"]

A = TypeVar("A", bound=Data)
Q = TypeVar("Q", bound=ops.Asked[Data])


@dataclass(frozen=True, slots=True)
class _Terminal:
    """A connection of the debugger: of a person, of a program that ``listens`` to notices, or of a script (neither)."""

    client: ToolClient
    person: bool
    listens: bool


class Broker:
    """Sessions, terminals, and what goes between them. On the root's loop."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._off = switched_off()
        self._table = SessionTable()
        self._program = program_of(services)
        self._targets = self._program.targets
        self._terminals: dict[int, _Terminal] = {}
        self._attached: dict[int, Attachment] = {}
        self._jobs = Jobs(services)
        self._stopping = Stopping(services, self._table, self._targets, self._jobs)
        self._all_ranks = AllRanks(services, self._table, self._targets, self._stopping, self._happened)
        self._lines = Lines(services, self._table, self._forget, self._all_ranks.resumes)
        self._inquiry = Inquiry(services, self._table, self._targets, self._jobs, self._lines)
        self._breaks = Breaks(services, self._targets)
        self._changes = Changes(services, self._table, self._targets)
        self._auto = AutoEntry(services, self._table, lambda: bool(self._persons()))
        self._notices = Notices(
            services,
            self._table,
            self._targets,
            self._audience,
            self._persons,
            on_wave=self._auto.wave,
            own_pid=os.getpid(),
        )

    def serve(self) -> None:
        """Register the operations, events and callbacks with the runtime."""
        services = self._services
        self._program.sources.stops = self._table
        self._program.sources.terminals = lambda: [person.pid for person in self._persons()]
        services.on_report(Stopped, self._on_stopped)
        services.on_report(Printed, self._on_output)
        services.on_report(Resumed, self._on_resumed)
        services.on_report(Ended, self._on_ended)
        services.on_report(Missed, self._on_missed)
        services.on_report(StopOthers, self._all_ranks.asked)
        services.actor_begun.append(self._all_ranks.joined)
        services.serve_ranks(ReadSource, self._source)
        self._serve(ops.Hello, self._hello)
        self._serve(ops.Attach, self._attach)
        self._serve(ops.Detach, self._detach)
        self._serve(ops.Send, self._send)
        self._serve(ops.Cancel, self._cancel)
        self._serve(ops.Complete, self._complete)
        self._serve(ops.Cast, self._cast)
        self._serve(ops.Continue, self._continue)
        self._serve(ops.Leave, self._leave)
        self._serve(ops.Wait, self._changes.wait)
        self._serve(ops.Print, self._inquiry.print)
        self._serve(ops.Logs, self._inquiry.logs)
        self._serve(ops.Interrupt, self._stopping.interrupt)
        self._serve(ops.Break, self._breaks.set)
        self._serve(ops.Clear, self._breaks.clear)
        self._serve(ops.Breaks, self._breaks.show)
        self._serve(ops.PostMortemModes, self._breaks.post_mortem)
        services.client_gone.append(self._on_client_gone)
        services.rank_gone.append(self._on_rank_gone)
        services.rank_silent.append(self._on_rank_silent)
        services.tables["debug.happened"] = self._notices.happened
        services.unhandled.append(lambda mesh_id, rank, text: self._notices.said(text))

    def _serve(self, operation: Served[Q, A], handler: Callable[[ToolClient, Q], Awaitable[A]]) -> None:
        """Serve an operation of terminals; when one that acts has returned, the others show what was typed."""

        async def serve(client: ToolClient, asked: Q) -> A:
            if asked.runs_code and self._off:
                await refuse(client, asked)
            attachment = self._attached.get(client.id)
            answer = await handler(client, asked)
            typed = asked.typed.strip()
            if typed and asked.acts:
                where = f" at {attachment.session.name} {attachment.session.key.rank}" if attachment else ""
                self._notices.typed(client, f"process {client.pid}{where}: {typed}")
            return answer

        self._services.serve_terminals(operation, serve)

    # -- events of ranks -----------------------------------------------------------------------------------------------

    def _on_stopped(self, mesh_id: str, rank: int, report: Stopped) -> None:
        session = self._table.stopped(mesh_id, rank, report)
        self._all_ranks.stopped(session.key)
        seen = self._stopping.stopped(session)
        waiter, attachment = session.waiter, session.attachment
        if waiter is not None:
            seen = waiter.stopped(session, report.text) or seen
        if attachment is not None and attachment is not waiter:
            attachment.stopped(session, "")  # the text is shown already: this gives the number of the new prompt
        if not seen:
            self._notices.stopped(session)
        self._changes.touch()

    def _on_output(self, mesh_id: str, rank: int, report: Printed) -> None:
        session = self._table.get(key_of(mesh_id, rank, report))
        if session is not None:
            session.add_text(report.text)
            if session.waiter is not None:
                session.waiter.printed(session, report.text)

    def _on_resumed(self, mesh_id: str, rank: int, report: Resumed) -> None:
        session = self._table.resumed(mesh_id, rank, report)
        if session is not None:
            if report.how != "step":
                self._all_ranks.ended(session.key)
            waiter, attachment = session.waiter, session.attachment
            if waiter is not None:
                waiter.resumed(session, report.how, report.text)
            if attachment is not None and attachment is not waiter:
                attachment.resumed(session, report.how, "")
        self._changes.touch()

    def _on_ended(self, mesh_id: str, rank: int, report: Ended) -> None:
        session = self._table.get(key_of(mesh_id, rank, report))
        if session is not None:
            self._forget(session, "")
        self._changes.touch()

    def _on_missed(self, mesh_id: str, rank: int, report: Missed) -> None:
        """Take in that an interrupt has no effect."""
        key, why = key_of(mesh_id, rank, report), report.why
        self._all_ranks.stopped(key)
        if self._stopping.missed(key, why):
            text = f"cannot be interrupted: {why}" if why else "did not stop: the endpoint or thread has ended"
            self._notices.happened(mesh_id, rank, text, actor=label_of(key, self._targets.actors()))

    def _on_rank_gone(self, mesh_id: str, rank: int, fate: Fate) -> None:
        description = str(fate)
        sessions = self._table.of_rank(mesh_id, rank)
        seen = self._stopping.gone(mesh_id, rank, description)
        for session in sessions:
            seen = seen or session.waiter is not None
            self._forget(session, description)
        self._table.rank_gone(mesh_id, rank)
        self._all_ranks.gone(mesh_id, rank)
        if not seen:
            self._notices.happened(mesh_id, rank, f"has ended: {description}", f"have ended: {description}")
        self._changes.touch()

    def _on_rank_silent(self, mesh_id: str, rank: int, state: str) -> None:
        if state:
            why = silence(state)
            self._notices.happened(mesh_id, rank, f"does not answer: {why}", f"do not answer: {why}")
        else:
            self._notices.happened(mesh_id, rank, "answers again", "answer again")

    def _happened(self, key: SessionKey, one: str, many: str) -> None:
        self._notices.happened(key.mesh_id, key.rank, one, many, actor=label_of(key, self._targets.actors()))

    def _forget(self, session: Session, why: str) -> None:
        self._table.remove(session)
        self._all_ranks.ended(session.key)
        waiter, session.waiter, session.holder, session.attachment = session.waiter, None, None, None
        for client_id, attachment in list(self._attached.items()):
            if attachment.session is session:
                del self._attached[client_id]
                if attachment is not waiter:
                    attachment.ended(session, why)
        if waiter is not None:
            waiter.ended(session, why)

    def _source(self, mesh_id: str, rank: int, asked: ReadSource) -> Source:
        return Source(source_text(asked.filename))

    # -- terminals -----------------------------------------------------------------------------------------------------

    def _persons(self) -> list[ToolClient]:
        return [terminal.client for terminal in self._terminals.values() if terminal.person]

    def _audience(self) -> list[ToolClient]:
        return [terminal.client for terminal in self._terminals.values() if terminal.person or terminal.listens]

    def _on_client_gone(self, client: ToolClient) -> None:
        self._changes.remove(client)
        terminal = self._terminals.pop(client.id, None)
        if terminal is not None and terminal.person and client.pid == os.getpid():
            self._auto.left()
        self._release(client)
        self._jobs.client_gone(client)
        self._breaks.client_gone(client)

    def _release(self, client: ToolClient) -> None:
        attachment = self._attached.pop(client.id, None)
        if attachment is not None:
            session = attachment.session
            session.holder = session.attachment = None
            if session.waiter is attachment:
                session.waiter = None

    async def _hello(self, client: ToolClient, asked: ops.Hello) -> ops.Greeting:
        terminal = self._terminals[client.id] = _Terminal(client, asked.person, asked.listens)
        # The counts, too: a terminal that knows of stops must not assume until the next event that no rank is stopped.
        count = self._changes.add(client)
        # Stops of the present wave are announced at its end: they are left out here, so as not to be shown twice.
        coming = self._notices.coming if terminal.person or terminal.listens else ()
        stopped = [session for session in self._table if session.state == STOPPED and session not in coming]
        stops = summarize(stopped, self._targets.actors())
        return ops.Greeting(os.getpid(), sys.argv, stops, count.stopped, count.resumed)

    # -- one rank ------------------------------------------------------------------------------------------------------

    async def _attach(self, client: ToolClient, asked: ops.Attach) -> ops.Snapshot:
        session = session_to_attach(self._services, self._table, self._targets, asked.actor, asked.rank)
        holder = session.holder
        if holder is not None and holder.id != client.id and not asked.steal:
            raise UsageError(
                f"{session.name} rank {session.key.rank} is held by the terminal of process {holder.pid}; "
                "attach --steal takes it over"
            )
        self._release(client)
        if holder is not None and holder.id != client.id:
            self._attached.pop(holder.id, None)
        if session.waiter is not None:
            session.waiter.replaced(session, client.pid)
        attachment = Attachment(client, session)
        session.holder = client
        session.waiter = session.attachment = attachment
        self._attached[client.id] = attachment
        return snapshot_of(session, self._targets, client)

    async def _detach(self, client: ToolClient, asked: ops.Detach) -> Nothing:
        self._release(client)
        return Nothing()

    def _attachment(self, client: ToolClient) -> Attachment:
        attachment = self._attached.get(client.id)
        if attachment is None:
            raise UsageError("this terminal is no longer attached to a rank")
        return attachment

    async def _send(self, client: ToolClient, asked: ops.Send) -> ops.Sent:
        attachment = self._attachment(client)
        session = attachment.session
        if session.state != STOPPED:
            raise UsageError(f"{session.name} rank {session.key.rank} is not at a prompt ({session.state})")
        seq = session.at.seq
        line = None if asked.line is None else checked(asked.line)
        self._lines.send(session, attachment, line, lines=asked.lines)
        return ops.Sent(seq)

    async def _cancel(self, client: ToolClient, asked: ops.Cancel) -> Nothing:
        self._lines.cancel([self._attachment(client).session])
        return Nothing()

    async def _complete(self, client: ToolClient, asked: ops.Complete) -> ops.Completions:
        key = self._attachment(client).session.key
        question = CompleteAtRank(key.actor, key.thread, asked.text)
        return await self._services.ask_rank(key.mesh_id, key.rank, question)

    # -- many ranks ----------------------------------------------------------------------------------------------------

    async def _cast(self, client: ToolClient, asked: ops.Cast) -> ops.JobReport:
        line = checked(asked.line)
        selected = self._targets.select(asked.actor, asked.ranks)
        label = selected.actor.label
        job = self._jobs.new(client, len(selected.ranks))
        sessions = self._table.among(selected)
        _without_session(job, selected, sessions)
        self._lines.cast(job, [(session, label) for session in sessions.values()], line)
        return job.start()

    async def _continue(self, client: ToolClient, asked: ops.Continue) -> ops.JobReport:
        selected = None
        if asked.actor:
            selected = self._targets.select(asked.actor, asked.ranks)
            sessions = [(session, selected.actor.label) for session in self._table.among(selected).values()]
        else:
            actors = self._targets.actors()
            sessions = [(session, label_of(session.key, actors)) for session in self._table]
        job = self._jobs.new(client, len(sessions))
        orphaned = orphans(self._services, self._targets, selected)
        for (mesh_id, rank), label in orphaned.items():
            self._services.tables["dap"].let_go(mesh_id, rank)
            # Its engine sends no report.
            job.settle(label, "asked", "the rank was stopped in an IDE that has disconnected", [rank])
        if selected is not None and asked.ranks:
            _without_session(job, selected, {*self._table.among(selected), *(rank for _, rank in orphaned)})
        waiting = [(session, label) for session, label in sessions if session.state not in (RUNNING, STEPPING)]
        self._lines.cast(job, waiting, None, resume=True)
        return job.start()

    async def _leave(self, client: ToolClient, asked: ops.Leave) -> ops.Left:
        return ops.Left(self._jobs.leave(client, asked.job, cancel=asked.cancel))


def _without_session(job: Job, selected: Selected, others: Collection[int]) -> None:
    """Report to ``job`` the selected ranks that have ended, and those alive that are not in ``others``: not stopped."""
    gone = selected.gone
    for rank, how in gone.items():
        job.settle(selected.actor.label, "gone", how, [rank])
    missing = [rank for rank in selected.ranks if rank not in gone and rank not in others]
    job.settle(selected.actor.label, "missing", "", missing)


def load(services: RootServices) -> None:
    """Start the broker. Called once, on the root's loop, by the first stop or the first terminal of the debugger."""
    Broker(services).serve()
