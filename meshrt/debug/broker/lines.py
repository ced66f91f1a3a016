"""Root side: sends lines to sessions, one at a time to each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from meshrt.debug.broker.jobs import Job
from meshrt.debug.broker.sessions import Session, SessionTable, Waiter
from meshrt.debug.protocol import BUSY, RUNNING, STEPPING, is_of_pdb
from meshrt.debug.rank_operations import CancelLine, Input
from meshrt.errors import MeshError, UsageError
from meshrt.hooks.services import RootServices
from meshrt.inspect.capping import TEXT_LIMIT
from meshrt.program.words import silence

__all__ = ["Lines", "checked"]

#: pdb's commands that resume a rank until it stops again by itself.
_CONTINUES = ("c", "cont", "continue")
#: Characters of a line at most; a control message is at most 1 MiB.
_LONGEST_LINE = 100_000


def checked(line: str) -> str:
    """Return ``line``. Raises UsageError: it is longer than `_LONGEST_LINE` characters."""
    if len(line) > _LONGEST_LINE:
        raise UsageError(f"a line has at most {_LONGEST_LINE} characters, this one has {len(line)}")
    return line


class Lines:
    """Sends lines. On the root's loop.

    Args:
        lost: Called with a session whose rank cannot be reached any more, and why.
        resumes: Called with the sessions that are about to be resumed for good, and with what resumes them: that may be
            done later, when other ranks need not stop any more.
    """

    def __init__(
        self,
        services: RootServices,
        table: SessionTable,
        lost: Callable[[Session, str], None],
        resumes: Callable[[Sequence[Session], Callable[[], None]], None],
    ) -> None:
        self._services = services
        self._table = table
        self._lost = lost
        self._resumes = resumes

    def send(
        self,
        session: Session,
        waiter: Waiter,
        line: str | None,
        *,
        resume: bool = False,
        brief: bool = False,
        limit: int = TEXT_LIMIT,
        lines: int | None = None,
    ) -> None:
        """Answer the prompt of a session; ``waiter`` gets the events that follow. Arguments as in `Input`."""
        self._send([session], waiter, line, resume=resume, brief=brief, limit=limit, lines=lines)

    def _send(
        self,
        sessions: Sequence[Session],
        waiter: Waiter,
        line: str | None,
        *,
        resume: bool,
        brief: bool,
        limit: int,
        lines: int | None = None,
    ) -> None:
        answers = []
        for session in sessions:
            key, seq = session.key, session.at.seq
            self._table.asked(session, "continue" if resume else line or "", waiter)
            answers.append((session, Input(key.actor, key.thread, seq, line, resume, brief, limit, lines)))
        if resume or (line or "").strip() in _CONTINUES:
            self._resumes(sessions, lambda: self._deliver(answers))
        else:
            self._deliver(answers)

    def _deliver(self, answers: Iterable[tuple[Session, Input]]) -> None:
        for session, answer in answers:
            key = session.key
            if self._table.get(key) is not session:
                continue  # it has ended meanwhile
            try:
                self._services.tell_rank(key.mesh_id, key.rank, answer)
            except MeshError as error:  # the rank has just ended
                self._lost(session, str(error))

    def cancel(self, sessions: Iterable[Session]) -> int:
        """Raise KeyboardInterrupt in the lines that run there, and return their number."""
        busy = [session for session in sessions if session.state == BUSY]
        for session in busy:
            key = session.key
            with contextlib.suppress(MeshError):  # the rank has just ended
                self._services.tell_rank(key.mesh_id, key.rank, CancelLine(key.actor, key.thread, session.at.seq))
        return len(busy)

    def cast(
        self,
        job: Job,
        sessions: Iterable[tuple[Session, str]],
        line: str | None,
        *,
        resume: bool = False,
        pdb_only: bool = False,
    ) -> None:
        """Answer the prompts of many sessions; those that cannot take one are reported to ``job`` with the reason.

        Args:
            sessions: Each with the label of its actor.
            resume: Resume them in place of a line.
            pdb_only: Leave out sessions where something other than pdb reads, such as ``interact``.
        """
        send, silences = [], self._services.silent()
        for session, label in sessions:
            rank = [session.key.rank]
            holder = session.holder
            silent = silences.get((session.key.mesh_id, session.key.rank))
            if holder is not None and holder.id != job.client.id:
                job.settle(label, "held", f"process {holder.pid} is attached", rank)
            elif silent is not None:
                job.settle(label, "silent", silence(silent.state), rank)
            elif session.state == BUSY:
                job.settle(label, "busy", f"still running {session.line!r}", rank)
            elif session.state in (RUNNING, STEPPING):
                job.settle(label, "running", "stepping" if session.state == STEPPING else "", rank)
            elif pdb_only and not is_of_pdb(session.at.prompt):
                job.settle(label, "busy", f"at the prompt {session.at.prompt.strip()!r}", rank)
            else:
                job.expect(session.key, label)
                send.append(session)
        self._send(send, job, line, resume=resume, brief=not resume, limit=job.limit)
        job.cancels.append(lambda: self.cancel(session for session in send if session.waiter is job))
