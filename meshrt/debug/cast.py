"""Root side: one line for many sessions, and the terminal that is attached to one. Nothing waits for either.

What becomes of a line, per rank (``kind``):

* ``answered``: it is at a prompt again; the text is what it wrote.
* ``resumed``: it runs on. ``ended``: its endpoint ended. ``aborted``: the line was ``q``.
* ``gone``: its process ended, the text says how.
* Not sent the line: ``held`` (another terminal is attached), ``busy`` (has not answered an earlier line), ``running``
  (was resumed and has not stopped again), ``missing`` (has no session).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meshrt.debug.protocol import PDB_PROMPT, cap
from meshrt.debug.sessions import Session
from meshrt.hooks import Body, RootServices, ToolClient
from meshrt.selection import fold_ranks

__all__ = ["Attachment", "Cast"]


#: Text of one cast, of one answer in it at least, and of one report to the terminal, in characters. A rank's whole text
#: is there for who attaches.
ALL_CHARACTERS = 1_000_000
LEAST_CHARACTERS = 2_000
REPORT_CHARACTERS = 200_000


class Cast:
    """Collects what becomes of a line that was sent to many sessions, and hands it on in few pieces.

    Answers that arrive together travel together, equal ones as one text with a set of ranks.
    """

    #: Seconds that an answer may wait for others.
    GATHER_SECONDS = 0.003

    def __init__(self, number: int, client: ToolClient, services: RootServices, done: Callable[[Cast], None]) -> None:
        self.number = number
        self.client = client
        self._services = services
        self._done = done
        self._pending: dict[Session, str] = {}
        self._answers: dict[tuple[str, str, str], list[int]] = {}
        self._limit = ALL_CHARACTERS
        self._scheduled = False
        self._left = False
        self._finished = False

    def expect(self, session: Session, label: str) -> None:
        """Wait for ``session``, to be named ``label``."""
        self._pending[session] = label
        self._limit = max(LEAST_CHARACTERS, ALL_CHARACTERS // len(self._pending))

    def settle(self, label: str, kind: str, text: str, ranks: Iterable[int]) -> None:
        """Report ranks that need not be waited for."""
        text = cap(text, self._limit)
        self._answers.setdefault((label, kind, text), []).extend(ranks)

    def leave(self) -> None:
        """Nobody wants to know any more."""
        self._left = True

    def report(self) -> Body:
        """Return what came in since the last report."""
        answers: list[Body] = []
        size = 0
        for key in list(self._answers):
            label, kind, text = key
            size += len(text)
            if answers and size > REPORT_CHARACTERS:
                break
            ranks = self._answers.pop(key)
            if ranks:
                answers.append({"actor": label, "kind": kind, "text": text, "ranks": fold_ranks(ranks)})
        return {
            "cast": self.number,
            "answers": answers,
            "done": not self._pending and not self._answers,
            "waiting": self._waiting(),
        }

    def _waiting(self) -> Body:
        waiting: dict[str, list[int]] = {}
        for session, label in self._pending.items():
            waiting.setdefault(label, []).append(session.key.rank)
        return {label: fold_ranks(ranks) for label, ranks in waiting.items()}

    # -- Waiter

    def stopped(self, session: Session, text: str) -> bool:
        prompt = "" if session.prompt == PDB_PROMPT else session.prompt
        self._settle(session, "answered", session.text + prompt)
        return not self._left

    def printed(self, session: Session, text: str) -> None:
        pass  # kept in the session's own text until it answers

    def resumed(self, session: Session, how: str, text: str) -> None:
        if how != "step":
            self._settle(session, "aborted" if how == "quit" else "resumed", session.text)

    def ended(self, session: Session, why: str) -> None:
        self._settle(session, "gone" if why else "ended", why or session.text)

    def replaced(self, session: Session, pid: int) -> None:
        self._settle(session, "held", f"process {pid} has attached")

    def _settle(self, session: Session, kind: str, text: str) -> None:
        label = self._pending.pop(session, None)
        if session.waiter is self:
            session.waiter = None
        if label is None:
            return
        self.settle(label, kind, text, [session.key.rank])
        if not self._pending:
            self._push()
        elif not self._scheduled:
            self._scheduled = True
            self._services.call_later(self.GATHER_SECONDS, self._push)

    def _push(self) -> None:
        self._scheduled = False
        if self._finished:
            return
        self._finished = not self._pending
        while not self._left and (self._answers or self._finished):
            report = self.report()
            self.client.push("debug.cast", report)
            if not self._answers:
                break
        if self._finished:
            self._done(self)


class Attachment:
    """One terminal at one session: everything that the session does is pushed to it."""

    def __init__(self, client: ToolClient, session: Session) -> None:
        self.client = client
        self.session = session

    def stopped(self, session: Session, text: str) -> bool:
        self._push("stopped", text=text, prompt=session.prompt, reason=session.reason, stop=session.stop)
        return True

    def printed(self, session: Session, text: str) -> None:
        self._push("printed", text=text)

    def resumed(self, session: Session, how: str, text: str) -> None:
        self._push("resumed", text=text, how=how)

    def ended(self, session: Session, why: str) -> None:
        self._push("gone" if why else "ended", text=why)

    def replaced(self, session: Session, pid: int) -> None:
        self._push("stolen", text=f"process {pid} has taken it over")

    def _push(self, kind: str, **facts: object) -> None:
        self.client.push("debug.attached", {"kind": kind, "endpoint": self.session.endpoint, **facts})
