"""The broker: the hub between ranks and terminals, in the root's process and on its loop.

It is told by the ranks and never waits for one. Ranks' events change the table of sessions; terminals' requests read it
or send a line to ranks, and come back at once; what becomes of the line is pushed later. The state of a session::

    stopped --line sent--> busy --stopped--> stopped
                             |--resumed(step)--> stepping --stopped--> stopped
                             |--resumed(continue)--> running --stopped--> stopped (a new stop: announced)
    any --ended, or the process is gone--> forgotten

One terminal at a time may be attached to a session. A terminal that goes away changes nothing for the ranks.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from meshrt.debug.autoentry import AutoEntry
from meshrt.debug.cast import Attachment, Cast
from meshrt.debug.listing import rows_of, snapshot_of, status_of
from meshrt.debug.notices import Notices, summarize
from meshrt.debug.protocol import BUSY, INPUT, RUNNING, STEPPING, STOPPED
from meshrt.debug.sessions import Session, SessionTable, Waiter, key_of
from meshrt.debug.targets import Targets
from meshrt.errors import MeshError, UsageError
from meshrt.hooks import Body, RootServices, ToolClient
from meshrt.selection import fold_ranks
from meshrt.wire.source import source_text

__all__ = ["Broker", "load"]

_GATHER_SECONDS = 0.005
_LONGEST_WAIT = 24 * 3600.0


class Broker:
    """Sessions, terminals, and the lines between them. On the root's loop."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._table = SessionTable()
        self._targets = Targets(services, self._table)
        self._clients: dict[int, tuple[ToolClient, bool]] = {}
        self._attached: dict[int, Attachment] = {}
        self._casts: dict[int, Cast] = {}
        self._cast_number = 0
        self._changed: asyncio.Future[None] | None = None
        self._counted = (-1, -1)
        self._touched = False
        self._auto = AutoEntry(services, self._table, lambda: bool(self._persons()))
        self._notices = Notices(
            services, self._table, self._targets, self._persons, on_wave=self._auto.wave, own_pid=os.getpid()
        )

    def serve(self) -> None:
        """Register with the runtime."""
        services = self._services
        services.rank_events.update(
            {
                "debug.stopped": self._on_stopped,
                "debug.output": self._on_output,
                "debug.resumed": self._on_resumed,
                "debug.ended": self._on_ended,
            }
        )
        services.rank_operations["debug.source"] = self._source
        operations: dict[str, Callable[[ToolClient, Body], Awaitable[Body]]] = {
            "debug.hello": self._hello,
            "debug.list": self._list,
            "debug.status": self._status,
            "debug.attach": self._attach,
            "debug.detach": self._detach,
            "debug.send": self._send,
            "debug.cast": self._cast,
            "debug.continue": self._continue,
            "debug.leave": self._leave,
            "debug.wait": self._wait,
        }
        services.tool_operations.update(operations)
        services.client_gone.append(self._on_client_gone)
        services.rank_gone.append(self._on_rank_gone)

    # -- events of ranks -----------------------------------------------------------------------------------------------

    def _on_stopped(self, mesh_id: str, rank: int, body: Body) -> None:
        session = self._table.stopped(mesh_id, rank, body)
        if session.waiter is None or not session.waiter.stopped(session, str(body.get("text", ""))):
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
        if session is not None and session.waiter is not None:
            session.waiter.resumed(session, str(body.get("how", "")), str(body.get("text", "")))
        self._touch()

    def _on_ended(self, mesh_id: str, rank: int, body: Body) -> None:
        session = self._table.get(key_of(mesh_id, rank, body))
        if session is not None:
            self._forget(session, "")
        self._touch()

    def _on_rank_gone(self, mesh_id: str, rank: int, description: str) -> None:
        sessions = self._table.of_rank(mesh_id, rank)
        self._table.remember_gone(mesh_id, rank, description)
        actors = self._targets.actors() if sessions else []
        for session in sessions:
            label = self._targets.label(session.key, actors)
            unseen = session.waiter is None and session.state != RUNNING
            self._forget(session, description)
            if unseen:
                self._notices.ended(label, rank, description)
        self._touch()

    def _forget(self, session: Session, why: str) -> None:
        self._table.remove(session)
        waiter, session.waiter, session.holder = session.waiter, None, None
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
        return [client for client, person in self._clients.values() if person]

    def _on_client_gone(self, client: ToolClient) -> None:
        _, person = self._clients.pop(client.id, (client, False))
        if person and client.pid == os.getpid():
            self._auto.left()
        self._release(client)
        for number, cast in list(self._casts.items()):
            if cast.client.id == client.id:
                cast.leave()
                del self._casts[number]

    def _release(self, client: ToolClient) -> None:
        attachment = self._attached.pop(client.id, None)
        if attachment is not None:
            attachment.session.holder = None
            if attachment.session.waiter is attachment:
                attachment.session.waiter = None

    async def _hello(self, client: ToolClient, body: Body) -> Body:
        self._clients[client.id] = (client, bool(body.get("person")))
        self._counted = (-1, -1)
        self._touch()
        stopped = [session for session in self._table if session.state == STOPPED]
        return {"pid": os.getpid(), "argv": sys.argv, "stops": summarize(stopped, self._targets.actors())}

    async def _list(self, client: ToolClient, body: Body) -> Body:
        return rows_of(self._table, self._targets, running=bool(body.get("all")))

    async def _status(self, client: ToolClient, body: Body) -> Body:
        return status_of(self._table, self._targets, [client.pid for client in self._persons()])

    # -- one rank ------------------------------------------------------------------------------------------------------

    async def _attach(self, client: ToolClient, body: Body) -> Body:
        session = self._targets.one(str(body["actor"]), str(body["rank"]))
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
        session.waiter = attachment
        self._attached[client.id] = attachment
        actors = self._targets.actors()
        return snapshot_of(session, actors, self._targets.label(session.key, actors))

    async def _detach(self, client: ToolClient, body: Body) -> Body:
        self._release(client)
        return {}

    async def _send(self, client: ToolClient, body: Body) -> Body:
        attachment = self._attached.get(client.id)
        if attachment is None:
            raise UsageError("this terminal is not attached to a rank any more")
        session = attachment.session
        if session.state != STOPPED:
            raise UsageError(f"{session.name} rank {session.key.rank} is not at a prompt ({session.state})")
        self._to_rank(session, attachment, line=body.get("line"))
        return {}

    def _to_rank(self, session: Session, waiter: Waiter, **what: Any) -> None:
        key = session.key
        seq = session.seq
        self._table.asked(session, str(what.get("line") or what.get("action") or ""), waiter)
        body = {"actor": key.actor, "thread": key.thread, "seq": seq, **what}
        try:
            self._services.send_rank(key.mesh_id, key.rank, INPUT, body)
        except MeshError as error:  # its end is being reported already
            self._forget(session, str(error))

    # -- many ranks ----------------------------------------------------------------------------------------------------

    async def _cast(self, client: ToolClient, body: Body) -> Body:
        line = str(body["line"])
        selected = self._targets.select(str(body["actor"]), str(body["ranks"]))
        label = selected.actor.label
        cast = self._new_cast(client)
        cast.settle(label, "missing", "", selected.missing)
        self._start(cast, [(session, label) for session in selected.sessions], line=line)
        return cast.report()

    async def _continue(self, client: ToolClient, body: Body) -> Body:
        actors = self._targets.actors()
        sessions = [(session, self._targets.label(session.key, actors)) for session in self._table]
        cast = self._new_cast(client)
        waiting = [(session, label) for session, label in sessions if session.state not in (RUNNING, STEPPING)]
        self._start(cast, waiting, action="continue")
        return cast.report()

    def _new_cast(self, client: ToolClient) -> Cast:
        self._cast_number += 1
        cast = Cast(self._cast_number, client, self._services, self._cast_done)
        self._casts[cast.number] = cast
        return cast

    def _cast_done(self, cast: Cast) -> None:
        self._casts.pop(cast.number, None)

    def _start(self, cast: Cast, sessions: list[tuple[Session, str]], **what: Any) -> None:
        send = []
        for session, label in sessions:
            rank = [session.key.rank]
            holder = session.holder
            if holder is not None and holder.id != cast.client.id:
                cast.settle(label, "held", f"process {holder.pid} is attached", rank)
            elif session.state == BUSY:
                cast.settle(label, "busy", f"still at {session.line!r}", rank)
            elif session.state in (RUNNING, STEPPING):
                cast.settle(label, "running", "", rank)
            else:
                cast.expect(session, label)
                send.append(session)
        for session in send:
            self._to_rank(session, cast, **what)
        if not send:
            self._casts.pop(cast.number, None)

    async def _leave(self, client: ToolClient, body: Body) -> Body:
        cast = self._casts.pop(int(body["cast"]), None)
        if cast is not None:
            cast.leave()
        return {}

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def _wait(self, client: ToolClient, body: Body) -> Body:
        """Wait until all ranks of a selection are stopped; the actor may be spawned later."""
        name, text = str(body["actor"]), str(body.get("ranks", ""))
        deadline = time.monotonic() + min(float(body.get("seconds", 0)), _LONGEST_WAIT)
        loop = asyncio.get_running_loop()
        while True:
            stopped, missing, problem = self._still_missing(name, text)
            seconds = deadline - time.monotonic()
            if not missing and problem is None:
                return {"stopped": fold_ranks(stopped), "missing": ""}
            if seconds <= 0 or client.id not in self._clients:
                if problem is not None:
                    raise problem
                return {"stopped": fold_ranks(stopped), "missing": fold_ranks(missing)}
            if self._changed is None:
                self._changed = loop.create_future()
            # An actor without any stop does not touch the table when it is spawned.
            await asyncio.wait([self._changed], timeout=min(seconds, 0.5 if problem is not None else 60.0))

    def _still_missing(self, name: str, text: str) -> tuple[set[int], set[int], MeshError | None]:
        try:
            actor = self._targets.actor(name)
            selected = self._targets.select(name, text or "all")
        except MeshError as problem:
            return set(), set(), problem
        stopped = {session.key.rank for session in selected.sessions if session.state == STOPPED}
        wanted = {session.key.rank for session in selected.sessions} | set(selected.missing)
        if not text:
            wanted |= set(actor.mesh.shape.ranks())
        return stopped, wanted - stopped, None

    def _touch(self) -> None:
        """Sessions have changed. What follows is done once for many changes."""
        if not self._touched:
            self._touched = True
            self._services.call_later(_GATHER_SECONDS, self._tell)

    def _tell(self) -> None:
        """Wake whoever waits, and tell the terminals how many ranks stand."""
        self._touched = False
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None
        counts = (self._table.count(STOPPED, BUSY, STEPPING), self._table.count(RUNNING))
        if counts != self._counted:
            self._counted = counts
            for client, _ in self._clients.values():
                client.push("debug.count", {"standing": counts[0], "resumed": counts[1]})


def load(services: RootServices) -> None:
    """Start the broker: called once, by the first stop or by the first terminal of the debugger."""
    Broker(services).serve()
