"""Root side: the table of sessions. Only events of ranks change it; nothing here waits for a rank."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from meshrt.debug.protocol import BUSY, ENDED, RUNNING, STEPPING, STOPPED, SessionKey
from meshrt.debug.rank_operations import OfSession, Resumed, Stopped
from meshrt.hooks.services import ToolClient
from meshrt.inspect.capping import TEXT_LIMIT, cap
from meshrt.program import words
from meshrt.program.states import NOT_STOPPED, PostMortem, State, Stop
from meshrt.program.targets import Actor, Selected, address
from meshrt.selection import Shape

__all__ = ["Session", "SessionTable", "Waiter", "actor_of", "key_of", "label_of", "session_key"]

#: Characters of a line that are shown.
_SHORT = 80


class Waiter(Protocol):
    """Receives the events of a session: an attached terminal, or a job. On the root's loop."""

    client: ToolClient

    def stopped(self, session: Session, text: str) -> bool:
        """Take in that it is at a prompt again. Returns whether a terminal shows the stop.

        Args:
            text: Written since the last event.
        """

    def printed(self, session: Session, text: str) -> None:
        """Take in that its command has written ``text`` and goes on."""

    def resumed(self, session: Session, how: str, text: str) -> None:
        """Take in that it runs (``how``: continue, step, quit)."""

    def ended(self, session: Session, why: str) -> None:
        """Take in that its endpoint has ended, or its process (``why`` says how; "": the endpoint)."""

    def replaced(self, session: Session, pid: int) -> None:
        """Take in that the terminal of process ``pid`` has attached to it, and gets the events from now on."""


@dataclass(slots=True, eq=False)
class Session:
    """One stopped (or resumed) thread of a rank, as the root knows it."""

    key: SessionKey
    #: Its last prompt.
    at: Stopped
    #: The view through which its endpoint was called, if that is known.
    view: Shape | None = None
    #: Written since the last input: shown to a terminal that attaches (`text_for`).
    text: str = ""
    #: The text was the answer to a request to many ranks: a terminal has shown it.
    answered: bool = False
    #: The number of the terminal that was attached when the last part of the text came; 0: none.
    reader: int = 0
    state: str = STOPPED
    #: When it was resumed last (epoch seconds); 0: never.
    resumed_at: float = 0.0
    #: The last line that was sent.
    line: str = ""
    #: The attached terminal: only it may send a line; None: any terminal may.
    holder: ToolClient | None = None
    #: Receives the events of the session.
    waiter: Waiter | None = None
    #: The attached terminal as a waiter: it is `waiter` whenever no job is.
    attachment: Waiter | None = None

    @property
    def name(self) -> str:
        """Actor and thread, as a person writes them: ``actor`` or ``actor/thread``."""
        return address(self.key.actor, self.key.thread)

    @property
    def stop(self) -> State | None:
        """The state of a stopped session; None: it runs."""
        if self.state in (RUNNING, STEPPING):
            return None
        word = words.POST_MORTEM if self.at.reason == "post-mortem" else words.STOPPED
        note = "" if self.state == STOPPED else f"running {_short(self.line)!r}"
        return State(word, self.at.since, self.at.place, note)

    def add_text(self, text: str) -> None:
        """Keep ``text`` for the next terminal that attaches; a long text is shortened to `TEXT_LIMIT`."""
        before = "" if self.answered else self.text
        self.text, self.answered = cap(before + text, TEXT_LIMIT), False
        # It goes to the attached terminal, unless a job waits for it.
        self.reader = self.holder.id if self.holder is not None and self.waiter is self.attachment else 0

    def text_for(self, client: ToolClient) -> str:
        """Return what a terminal that attaches is shown; "": it was an answer, or this terminal has shown it."""
        return "" if self.answered or self.reader == client.id else self.text


class SessionTable:
    """All sessions of a program, by key. It is a `meshrt.program.sources.StopSource`.

    On the root's loop, except where a method says otherwise.
    """

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, Session] = {}
        self._by_rank: dict[tuple[str, int], list[Session]] = {}
        #: By the key of a session that ended: since when the actor runs (epoch seconds).
        self._left: dict[SessionKey, float] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(sorted(self._sessions.values(), key=lambda session: (session.key[1:], session.key.mesh_id)))

    def get(self, key: SessionKey) -> Session | None:
        """Return the session of ``key``; None: there is none."""
        return self._sessions.get(key)

    def of_rank(self, mesh_id: str, rank: int) -> list[Session]:
        """Return every session of one rank."""
        return list(self._by_rank.get((mesh_id, rank), ()))

    def of_actor(self, mesh_id: str, actor: str, thread: str) -> dict[int, Session]:
        """Return the sessions of one actor (or of one named thread beside it), by base rank."""
        return {
            key.rank: session
            for key, session in self._sessions.items()
            if key.mesh_id == mesh_id and key.actor == actor and key.thread == thread
        }

    def among(self, selected: Selected) -> dict[int, Session]:
        """Return the sessions of selected ranks, by base rank."""
        actor = selected.actor
        sessions = self.of_actor(actor.mesh.mesh_id, actor.name, actor.thread)
        return {rank: sessions[rank] for rank in selected.ranks if rank in sessions}

    def threads(self) -> list[tuple[str, str, str]]:
        """Return (mesh id, actor, thread) of every session."""
        return [(session.key.mesh_id, session.key.actor, session.key.thread) for session in self]

    def views(self, mesh_id: str, actor: str, thread: str) -> Mapping[int, Shape | None]:
        """Return the views through which an actor (or thread) was called, by the base ranks that have a session."""
        return {rank: session.view for rank, session in self.of_actor(mesh_id, actor, thread).items()}

    def stop(self, mesh_id: str, rank: int, actor: str, thread: str) -> Stop:
        """Return what is known of the stop of one rank, also if it was resumed or its session has ended."""
        key = SessionKey(mesh_id, actor, rank, thread)
        session = self._sessions.get(key)
        left = self._left.get(key, 0.0)
        if session is None:
            return Stop(resumed=left) if left else NOT_STOPPED
        return Stop(
            session.stop,
            session.at.place,
            max(session.resumed_at, left),
            session.at.endpoint,
            session.view,
            session.at.breakpoint,
            session.at.breakpoint_error,
            session.holder.pid if session.holder is not None else 0,
        )

    def post_mortems(self) -> list[PostMortem]:
        """Return the sessions that are stopped after an exception."""
        return [
            PostMortem(key.mesh_id, key.rank, key.actor, at.endpoint, tuple(at.stack), at.headline)
            for key, at in ((session.key, session.at) for session in self if session.state in (STOPPED, BUSY))
            if at.stack
        ]

    def count(self, *states: str) -> int:
        """Return how many sessions are in one of ``states``. Any thread."""
        return sum(session.state in states for session in tuple(self._sessions.values()))

    def stopped(self, mesh_id: str, rank: int, at: Stopped) -> Session:
        """Take in that a rank is at a prompt. Returns its session, a new one if there was none."""
        key = key_of(mesh_id, rank, at)
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = Session(key, at)
            self._by_rank.setdefault((mesh_id, rank), []).append(session)
        session.at = at
        session.view = _shape(at.view)
        session.state = STOPPED
        session.add_text(at.text)
        return session

    def resumed(self, mesh_id: str, rank: int, report: Resumed) -> Session | None:
        """Take in that a rank runs. Returns its session; None: there is none."""
        session = self._sessions.get(key_of(mesh_id, rank, report))
        if session is not None:
            session.state = STEPPING if report.how == "step" else RUNNING
            session.resumed_at = time.time_ns() / 1e9
            session.add_text(report.text)
        return session

    def asked(self, session: Session, line: str, waiter: Waiter) -> None:
        """Take in that a line was sent to ``session``; ``waiter`` receives its events from now on."""
        session.state = BUSY
        session.line = line
        session.text, session.answered = "", False
        session.waiter = waiter

    def remove(self, session: Session) -> None:
        """Remove a session that has ended."""
        session.state = ENDED
        self._left[session.key] = session.resumed_at or time.time_ns() / 1e9
        if self._sessions.pop(session.key, None) is not None:
            address = (session.key.mesh_id, session.key.rank)
            self._by_rank[address].remove(session)
            if not self._by_rank[address]:
                del self._by_rank[address]

    def rank_gone(self, mesh_id: str, rank: int) -> None:
        """Remove what is kept of the ended sessions of a rank whose process has ended."""
        for key in [key for key in self._left if (key.mesh_id, key.rank) == (mesh_id, rank)]:
            del self._left[key]


def session_key(actor: Actor, rank: int) -> SessionKey:
    """Return the key of one rank of an actor."""
    return SessionKey(actor.mesh.mesh_id, actor.name, rank, actor.thread)


def actor_of(key: SessionKey, actors: Iterable[Actor]) -> Actor | None:
    """Return the actor of a session; None: ``actors`` does not have it."""
    return next((actor for actor in actors if session_key(actor, key.rank) == key), None)


def label_of(key: SessionKey, actors: Iterable[Actor]) -> str:
    """Return the label of a session's actor; the plain name if ``actors`` does not have it."""
    actor = actor_of(key, actors)
    return address(key.actor, key.thread) if actor is None else actor.label


def key_of(mesh_id: str, rank: int, report: OfSession) -> SessionKey:
    """Return the key that a report of a rank is about."""
    return SessionKey(mesh_id, report.actor, rank, report.thread)


def _short(line: str) -> str:
    first, newline, _ = line.partition("\n")
    return first[:_SHORT] + ("..." if newline or len(first) > _SHORT else "")


def _shape(view: Sequence[object]) -> Shape | None:
    try:
        return Shape.from_wire(view) if view else None
    except (ValueError, TypeError):
        return None
