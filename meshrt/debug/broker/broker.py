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

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from meshrt.debug.broker.attachable import actor_of, orphans, session_to_attach
from meshrt.debug.broker.autoentry import AutoEntry
from meshrt.debug.broker.breaks import Breaks
from meshrt.debug.broker.inquiry import Inquiry
from meshrt.debug.broker.jobs import Attachment, Job, Jobs
from meshrt.debug.broker.lines import Lines, checked
from meshrt.debug.broker.listing import snapshot_of
from meshrt.debug.broker.notices import Notices, summarize
from meshrt.debug.broker.sessions import Session, SessionTable, key_of, label_of
from meshrt.debug.protocol import BUSY, COMPLETE, RUNNING, STEPPING, STOPPED
from meshrt.debug.switch import RUNS_CODE, refuse, switched_off
from meshrt.errors import MeshError, UsageError
from meshrt.hooks.facts import Body
from meshrt.hooks.fate import Fate
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.listing import status_of
from meshrt.program.program import program_of
from meshrt.program.targets import Selected
from meshrt.program.words import silence
from meshrt.wire.source import source_text

__all__ = ["Broker", "load"]

_Operation = Callable[[ToolClient, Body], Awaitable[Body]]

#: Operations that change something for ranks: the other terminals show what was typed.
_ACTS = (
    "debug.attach",
    "debug.send",
    "debug.cast",
    "debug.continue",
    "debug.interrupt",
    "debug.break",
    "debug.clear",
    "debug.postmortem",
)
_GATHER_SECONDS = 0.005
#: Seconds after which a terminal in ``wait`` is told why it still waits.
_HINT_SECONDS = 1.0
_LONGEST_WAIT = 24 * 3600.0
#: Stopped ranks of one actor that completion offers at most.
_MOST_NAMED = 200


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
        self._table = SessionTable()
        self._program = program_of(services)
        self._targets = self._program.targets
        self._terminals: dict[int, _Terminal] = {}
        self._attached: dict[int, Attachment] = {}
        self._jobs = Jobs(services)
        #: Ranks that do not answer, with the kind of silence, by (mesh id, base rank).
        self._silent = {
            (mesh.mesh_id, rank): silent.state for mesh in services.meshes() for rank, silent in mesh.silent.items()
        }
        self._lines = Lines(services, self._table, self._silent, self._forget)
        self._inquiry = Inquiry(services, self._table, self._targets, self._jobs, self._lines)
        self._breaks = Breaks(services, self._targets)
        self._changed: asyncio.Future[None] | None = None
        self._counted: Body = {}
        self._touched = False
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
        services.rank_events.update(
            {
                "debug.stopped": self._on_stopped,
                "debug.output": self._on_output,
                "debug.resumed": self._on_resumed,
                "debug.ended": self._on_ended,
                "debug.missed": self._on_missed,
            }
        )
        services.rank_operations["debug.source"] = self._source
        operations: dict[str, _Operation] = {
            "debug.hello": self._hello,
            "debug.names": self._names,
            "debug.status": self._status,
            "debug.attach": self._attach,
            "debug.detach": self._detach,
            "debug.send": self._send,
            "debug.complete": self._complete,
            "debug.cast": self._cast,
            "debug.continue": self._continue,
            "debug.leave": self._leave,
            "debug.wait": self._wait,
            "debug.print": self._inquiry.print,
            "debug.logs": self._inquiry.logs,
            "debug.interrupt": self._inquiry.interrupt,
            "debug.break": self._breaks.set,
            "debug.clear": self._breaks.clear,
            "debug.breaks": self._breaks.show,
            "debug.postmortem": self._breaks.post_mortem,
        }
        services.tool_operations.update(operations)
        for name in _ACTS:
            services.tool_operations[name] = self._watched(operations[name])
        if switched_off():
            services.tool_operations.update(dict.fromkeys(RUNS_CODE, refuse))
        services.client_gone.append(self._on_client_gone)
        services.rank_gone.append(self._on_rank_gone)
        services.rank_silent.append(self._on_rank_silent)
        services.tables["debug.happened"] = self._notices.happened
        services.unhandled.append(lambda mesh_id, rank, text: self._notices.said(text))

    # -- events of ranks -----------------------------------------------------------------------------------------------

    def _on_stopped(self, mesh_id: str, rank: int, body: Body) -> None:
        session = self._table.stopped(mesh_id, rank, body)
        seen = self._inquiry.stopped(session)
        waiter, attachment = session.waiter, session.attachment
        if waiter is not None:
            seen = waiter.stopped(session, str(body.get("text", ""))) or seen
        if attachment is not None and attachment is not waiter:
            attachment.stopped(session, "")  # the text is shown already: this gives the number of the new prompt
        if not seen:
            self._notices.stopped(session)
        self._touch()

    def _on_output(self, mesh_id: str, rank: int, body: Body) -> None:
        session = self._table.get(key_of(mesh_id, rank, body))
        if session is not None:
            session.add_text(str(body["text"]))
            if session.waiter is not None:
                session.waiter.printed(session, str(body["text"]))

    def _on_resumed(self, mesh_id: str, rank: int, body: Body) -> None:
        session = self._table.resumed(mesh_id, rank, body)
        if session is not None:
            waiter, attachment, how = session.waiter, session.attachment, str(body.get("how", ""))
            if waiter is not None:
                waiter.resumed(session, how, str(body.get("text", "")))
            if attachment is not None and attachment is not waiter:
                attachment.resumed(session, how, "")
        self._touch()

    def _on_ended(self, mesh_id: str, rank: int, body: Body) -> None:
        session = self._table.get(key_of(mesh_id, rank, body))
        if session is not None:
            self._forget(session, "")
        self._touch()

    def _on_missed(self, mesh_id: str, rank: int, body: Body) -> None:
        """Take in that an interrupt has no effect."""
        why = str(body.get("why") or "")
        key = key_of(mesh_id, rank, body)
        if self._inquiry.missed(key, why):
            text = f"cannot be interrupted: {why}" if why else "did not stop: the endpoint, or thread, has ended"
            self._notices.happened(mesh_id, rank, text, actor=label_of(key, self._targets.actors()))

    def _on_rank_gone(self, mesh_id: str, rank: int, fate: Fate) -> None:
        description = str(fate)
        sessions = self._table.of_rank(mesh_id, rank)
        self._silent.pop((mesh_id, rank), None)
        seen = self._inquiry.gone(mesh_id, rank, description)
        for session in sessions:
            seen = seen or session.waiter is not None
            self._forget(session, description)
        self._table.rank_gone(mesh_id, rank)
        if not seen:
            self._notices.happened(mesh_id, rank, f"is gone: {description}", f"are gone: {description}")
        self._touch()

    def _on_rank_silent(self, mesh_id: str, rank: int, state: str) -> None:
        if state:
            self._silent[mesh_id, rank] = state
        else:
            self._silent.pop((mesh_id, rank), None)
        if state:
            why = silence(state)
            self._notices.happened(mesh_id, rank, f"does not answer: {why}", f"do not answer: {why}")
        else:
            self._notices.happened(mesh_id, rank, "answers again", "answer again")

    def _forget(self, session: Session, why: str) -> None:
        self._table.remove(session)
        waiter, session.waiter, session.holder, session.attachment = session.waiter, None, None, None
        for client_id, attachment in list(self._attached.items()):
            if attachment.session is session:
                del self._attached[client_id]
                if attachment is not waiter:
                    attachment.ended(session, why)
        if waiter is not None:
            waiter.ended(session, why)

    def _source(self, mesh_id: str, rank: int, body: Body) -> Body:
        return {"text": source_text(str(body["filename"]))}

    # -- terminals -----------------------------------------------------------------------------------------------------

    def _persons(self) -> list[ToolClient]:
        return [terminal.client for terminal in self._terminals.values() if terminal.person]

    def _audience(self) -> list[ToolClient]:
        return [terminal.client for terminal in self._terminals.values() if terminal.person or terminal.listens]

    def _on_client_gone(self, client: ToolClient) -> None:
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

    async def _hello(self, client: ToolClient, body: Body) -> Body:
        terminal = self._terminals[client.id] = _Terminal(client, bool(body.get("person")), bool(body.get("listens")))
        self._counted = {}
        self._touch()
        # Stops of the present wave are announced at its end: they are left out here, so as not to be shown twice.
        coming = self._notices.coming if terminal.person or terminal.listens else ()
        stopped = [session for session in self._table if session.state == STOPPED and session not in coming]
        stops = summarize(stopped, self._targets.actors())
        # With the counts: a terminal that knows of stops must not assume until the next event that no rank is stopped.
        return {"pid": os.getpid(), "argv": sys.argv, "stops": stops, **self._counts()}

    async def _names(self, client: ToolClient, body: Body) -> Body:
        actors = self._targets.actors()
        views = [actor.mesh.shape for actor in actors] + [session.view for session in self._table if session.view]
        dims = dict.fromkeys(label for view in views for label in view.labels)
        stopped = {
            actor.label: [
                str(rank)
                for rank, session in self._table.of_actor(actor.mesh.mesh_id, actor.name, actor.thread).items()
                if session.state in (STOPPED, BUSY)
            ][:_MOST_NAMED]
            for actor in actors
        }
        return {"actors": sorted(stopped), "dims": list(dims), "stopped": stopped}

    async def _status(self, client: ToolClient, body: Body) -> Body:
        """Return the state of everything (`inspect.status`), and the pids of the terminals."""
        now = await self._program.looked() if body.get("hosts") else self._targets
        terminals = [person.pid for person in self._persons()]
        return {**status_of(now, self._services), "terminals": terminals, "own": client.pid}

    def _watched(self, operation: _Operation) -> _Operation:
        """Return ``operation`` wrapped: when it has returned, the other terminals show what was typed."""

        async def watched(client: ToolClient, body: Body) -> Body:
            attachment = self._attached.get(client.id)
            answer = await operation(client, body)
            typed = str(body.get("typed", "")).strip()
            if typed:
                where = f" at {attachment.session.name} {attachment.session.key.rank}" if attachment else ""
                self._notices.typed(client, f"process {client.pid}{where}: {typed}")
            return answer

        return watched

    # -- one rank ------------------------------------------------------------------------------------------------------

    async def _attach(self, client: ToolClient, body: Body) -> Body:
        session = session_to_attach(self._services, self._table, self._targets, str(body["actor"]), str(body["rank"]))
        holder = session.holder
        if holder is not None and holder.id != client.id and not body.get("steal"):
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
        return snapshot_of(session, actor_of(session.key, self._targets), self._targets)

    async def _detach(self, client: ToolClient, body: Body) -> Body:
        self._release(client)
        return {}

    def _attachment(self, client: ToolClient) -> Attachment:
        attachment = self._attached.get(client.id)
        if attachment is None:
            raise UsageError("this terminal is not attached to a rank any more")
        return attachment

    async def _send(self, client: ToolClient, body: Body) -> Body:
        attachment = self._attachment(client)
        session = attachment.session
        if session.state != STOPPED:
            raise UsageError(f"{session.name} rank {session.key.rank} is not at a prompt ({session.state})")
        line = body.get("line")
        seq = session.seq
        sent = None if line is None else checked(str(line))
        self._lines.send(session, attachment, line=sent, lines=body.get("lines"))
        return {"seq": seq}

    async def _complete(self, client: ToolClient, body: Body) -> Body:
        """Return completions of the last word of a line, from the attached rank."""
        key = self._attachment(client).session.key
        asked = {"actor": key.actor, "thread": key.thread, "text": str(body["text"])}
        return await self._services.request_rank(key.mesh_id, key.rank, COMPLETE, asked)

    # -- many ranks ----------------------------------------------------------------------------------------------------

    async def _cast(self, client: ToolClient, body: Body) -> Body:
        selected = self._targets.select(str(body["actor"]), str(body["ranks"]))
        label = selected.actor.label
        job = self._jobs.new(client, len(selected.ranks))
        sessions = self._table.among(selected)
        _without_session(job, selected, sessions)
        self._lines.cast(
            job,
            [(session, label) for session in sessions.values()],
            line=checked(str(body["line"])),
            brief=True,
        )
        return job.start()

    async def _continue(self, client: ToolClient, body: Body) -> Body:
        selected = None
        if body.get("actor"):
            selected = self._targets.select(str(body["actor"]), str(body.get("ranks", "")))
            sessions = [(session, selected.actor.label) for session in self._table.among(selected).values()]
        else:
            actors = self._targets.actors()
            sessions = [(session, label_of(session.key, actors)) for session in self._table]
        job = self._jobs.new(client, len(sessions))
        orphaned = orphans(self._services, self._targets, selected)
        for (mesh_id, rank), label in orphaned.items():
            self._services.tables["dap"].let_go(mesh_id, rank)
            job.settle(label, "asked", "the IDE that it stood in is gone", [rank])  # its engine sends no report
        if selected is not None and body.get("ranks"):
            _without_session(job, selected, {*self._table.among(selected), *(rank for _, rank in orphaned)})
        waiting = [(session, label) for session, label in sessions if session.state not in (RUNNING, STEPPING)]
        self._lines.cast(job, waiting, action="continue")
        return job.start()

    async def _leave(self, client: ToolClient, body: Body) -> Body:
        self._jobs.leave(client, int(body["job"]))
        return {}

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def _wait(self, client: ToolClient, body: Body) -> Body:
        """Wait until all ranks of a selection are stopped; the actor may be spawned later.

        Args:
            body: ``seconds``: the limit, at most `_LONGEST_WAIT`.
        Returns:
            ``stopped``, and ``missing``: ranks that are not stopped at the end of the wait; both ascending.
        Raises:
            UsageError: A rank has ended, or no such actor at the end of the wait.
            SelectionError: No such ranks at the end of the wait.
        """
        name, text = str(body["actor"]), str(body.get("ranks", ""))
        deadline = time.monotonic() + min(float(body.get("seconds", 0)), _LONGEST_WAIT)
        loop = asyncio.get_running_loop()
        hint = time.monotonic() + _HINT_SECONDS
        while True:
            stopped, missing, problem = self._still_missing(name, text)
            seconds = deadline - time.monotonic()
            if problem is not None and time.monotonic() > hint:
                hint = deadline
                headline = str(problem).partition("\n")[0]
                client.push("debug.notice", {"text": f"still waiting: {headline}"})
            if not missing and problem is None:
                return {"stopped": sorted(stopped), "missing": []}
            if seconds <= 0 or client.id not in self._terminals:
                if problem is not None:
                    raise problem
                return {"stopped": sorted(stopped), "missing": sorted(missing)}
            if self._changed is None:
                self._changed = loop.create_future()
            # Spawning an actor does not change the table of sessions, so `_changed` does not tell of it.
            await asyncio.wait([self._changed], timeout=min(seconds, 0.5 if problem is not None else 60.0))

    def _still_missing(self, name: str, text: str) -> tuple[set[int], set[int], MeshError | None]:
        try:
            selected = self._targets.select(name, text)
        except MeshError as problem:
            return set(), set(), problem
        ended = selected.actor.mesh.ended
        dead = [rank for rank in selected.ranks if rank in ended]
        if dead:
            raise UsageError(f"rank {dead[0]} of {selected.actor.label} will not stop: it {ended[dead[0]].how}")
        stopped = {rank for rank, session in self._table.among(selected).items() if session.state == STOPPED}
        return stopped, set(selected.ranks) - stopped, None

    def _touch(self) -> None:
        """Take in that sessions have changed: `_tell` runs once for all changes of `_GATHER_SECONDS`."""
        if not self._touched:
            self._touched = True
            self._services.call_later(_GATHER_SECONDS, self._tell)

    def _tell(self) -> None:
        """Wake the requests in `_wait`, and tell the terminals how many ranks are stopped."""
        self._touched = False
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None
        counts = self._counts()
        if counts != self._counted:
            self._counted = counts
            for terminal in self._terminals.values():
                terminal.client.push("debug.count", counts)

    def _counts(self) -> Body:
        return {"standing": self._table.count(STOPPED, BUSY, STEPPING), "resumed": self._table.count(RUNNING)}


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
