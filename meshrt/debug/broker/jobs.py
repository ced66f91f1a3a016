"""Root side: one request to many ranks (a `Job`), and a terminal attached to one rank (an `Attachment`). No call waits.

The kinds of results: `meshrt.debug.operations`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Literal

from meshrt.debug.broker.sessions import Session
from meshrt.debug.operations import AttachedReport, JobAnswer, JobReport, Kind
from meshrt.debug.protocol import PDB_PROMPT, SessionKey
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.capping import cap
from meshrt.inspect.facts import Facts
from meshrt.program.groups import by_key
from meshrt.wire.pending import PendingTable

__all__ = ["Attachment", "Job", "Jobs"]


#: Limits in characters: the text of one job, the least that one answer in it may have, and one report to the terminal.
#: A terminal that attaches to a rank gets that rank's whole text.
ALL_CHARACTERS = 1_000_000
LEAST_CHARACTERS = 2_000
REPORT_CHARACTERS = 200_000


class Job:
    """Collects the results of a request to many ranks, and passes them to the terminal in few reports.

    Answers that arrive together are sent together, equal ones as one text with a set of ranks. On the root's loop.

    Args:
        count: How many ranks share `ALL_CHARACTERS`.
        done: Called with its number when all results are reported.
    """

    #: Seconds that an answer may wait for others.
    GATHER_SECONDS = 0.003

    def __init__(self, client: ToolClient, count: int, services: RootServices, done: Callable[[int], object]) -> None:
        self.client = client
        #: Tells its reports from those of other jobs.
        self.number = 0
        self._services = services
        self._done = done
        self._pending: dict[SessionKey, str] = {}
        self._answers: dict[tuple[str, Kind, str, bool], tuple[list[int], Facts | None]] = {}
        #: Characters that the answer of one rank may have, at most.
        self.limit = max(LEAST_CHARACTERS, ALL_CHARACTERS // max(1, count))
        self._scheduled = False
        self._started = False
        #: The terminal no longer waits for the job: all further reports are dropped.
        self.left = False
        self._finished = False
        #: What cancels its lines and expressions that still run, and returns their number.
        self.cancels: list[Callable[[], int]] = []

    @property
    def shows_stops(self) -> bool:
        """Whether the terminal shows a stop that it has asked for."""
        return not self.left

    def expect(self, key: SessionKey, label: str) -> None:
        """Wait for the rank (and actor) of ``key``; reports name the actor ``label``."""
        self._pending[key] = label

    def pending(self) -> tuple[SessionKey, ...]:
        """Return the keys of the ranks that have not answered."""
        return tuple(self._pending)

    def settle(
        self,
        label: str,
        kind: Kind,
        text: str,
        ranks: Iterable[int],
        facts: Facts | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """Report the result of ranks that are not waited for. Arguments as in `JobAnswer`; equal texts: equal facts."""
        text = cap(text, self.limit)
        self._answers.setdefault((label, kind, text, failed), ([], facts))[0].extend(ranks)

    def answer(
        self, key: SessionKey, kind: Kind, text: str, facts: Facts | None = None, *, failed: bool = False
    ) -> None:
        """Report the result of a rank that is waited for; any other rank is ignored. Arguments as in `settle`."""
        label = self._pending.pop(key, None)
        if label is None:
            return
        self.settle(label, kind, text, [key.rank], facts, failed=failed)
        if not self._started:
            return
        if not self._pending:
            self._push()
        elif not self._scheduled:
            self._scheduled = True
            self._services.call_later(self.GATHER_SECONDS, self._push)

    def start(self) -> JobReport:
        """Return the first report; later results are pushed to the terminal."""
        self._started = True
        report = self.report()
        if report.done:
            self._finished = True
            self._done(self.number)
        elif not self._pending:
            self._services.call_later(0.0, self._push)
        return report

    def report(self) -> JobReport:
        """Return the results since the last report, as many as fit into `REPORT_CHARACTERS`, at least one."""
        answers: list[JobAnswer] = []
        size = 0
        for key in list(self._answers):
            label, kind, text, failed = key
            size += len(text)
            if answers and size > REPORT_CHARACTERS:
                break
            ranks, facts = self._answers.pop(key)
            if ranks:
                answers.append(JobAnswer(label, kind, text, sorted(ranks), failed, facts))
        return JobReport(answers, self._waiting(), not self._pending and not self._answers, self.number)

    def _waiting(self) -> dict[str, list[int]]:
        waiting = by_key((label, key.rank) for key, label in self._pending.items())
        return {label: sorted(ranks) for label, ranks in waiting.items()}

    # -- Waiter

    def stopped(self, session: Session, text: str) -> bool:
        """Report the session's text as the answer. Returns whether the terminal still waits for the job."""
        at = session.at
        prompt = "" if at.prompt == PDB_PROMPT else at.prompt
        self._settle(session, "answered", session.text + prompt, at.facts, failed=bool(at.error))
        self._answered(session)
        return not self.left

    def printed(self, session: Session, text: str) -> None:
        """Do nothing: the session keeps the text until the rank answers."""

    def resumed(self, session: Session, how: str, text: str) -> None:
        """Report the rank as resumed or aborted; after a step, wait for its next stop."""
        if how != "step":
            self._settle(session, "aborted" if how == "quit" else "resumed", session.text)
            self._answered(session)

    def ended(self, session: Session, why: str) -> None:
        """Report the rank as gone if ``why`` says how its process ended, else as ended."""
        self._settle(session, "gone" if why else "ended", why or session.text)

    def replaced(self, session: Session, pid: int) -> None:
        """Report the rank as held by the terminal of process ``pid``."""
        self._settle(session, "held", f"process {pid} has attached")

    def _settle(
        self, session: Session, kind: Kind, text: str, facts: Facts | None = None, *, failed: bool = False
    ) -> None:
        if session.waiter is self:
            session.waiter = session.attachment
        self.answer(session.key, kind, text, facts, failed=failed)

    def _answered(self, session: Session) -> None:
        """Note that the terminal gets the session's text, unless it no longer waits for it."""
        if not self.left:
            session.answered = True

    def _push(self) -> None:
        self._scheduled = False
        if self._finished:
            return
        self._finished = not self._pending
        while not self.left and (self._answers or self._finished):
            self.client.report(self.report())
            if not self._answers:
                break
        if self._finished:
            self._done(self.number)


class Attachment:
    """One terminal attached to one session: a `Waiter` that pushes each event of the session to the terminal."""

    def __init__(self, client: ToolClient, session: Session) -> None:
        self.client = client
        self.session = session

    def stopped(self, session: Session, text: str) -> bool:
        """Push the new prompt with its number and ``text``. Returns True: the terminal shows the stop."""
        at = session.at
        self.client.report(
            AttachedReport("stopped", at.endpoint, text, at.prompt, at.reason, at.seq, failed=bool(at.error))
        )
        return True

    def printed(self, session: Session, text: str) -> None:
        """Push ``text``, which a command has written before its end."""
        self._push("printed", text)

    def resumed(self, session: Session, how: str, text: str) -> None:
        """Push ``text`` and how the rank was resumed (``how``: continue, step, quit)."""
        self._push("resumed", text, how)

    def ended(self, session: Session, why: str) -> None:
        """Push "gone" if ``why`` says how the process ended, else "ended"."""
        self._push("gone" if why else "ended", why)

    def replaced(self, session: Session, pid: int) -> None:
        """Push "stolen": the terminal of process ``pid`` has attached to the session."""
        self._push("stolen", f"process {pid} has taken over the rank")

    def _push(self, kind: Literal["printed", "resumed", "ended", "gone", "stolen"], text: str, how: str = "") -> None:
        self.client.report(AttachedReport(kind, self.session.at.endpoint, text, how=how))


class Jobs:
    """All jobs that are not finished. On the root's loop."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._numbers = itertools.count(1)
        #: By the id of the terminal that waits for them.
        self._tables: dict[int, PendingTable[Job]] = {}

    def new(self, client: ToolClient, count: int) -> Job:
        """Return a new job for a terminal: a request to ``count`` ranks, which share `ALL_CHARACTERS` of text."""
        table = self._tables.setdefault(client.id, PendingTable(self._numbers))
        job = Job(client, count, self._services, table.remove)
        job.number = table.add(job)
        return job

    def leave(self, client: ToolClient, number: int, *, cancel: bool = False) -> int:
        """Drop job ``number`` of a terminal, which no longer waits for it; a number of another terminal is ignored.

        Args:
            cancel: Cancel its lines and expressions that still run.
        Returns:
            The number of those.
        """
        table = self._tables.get(client.id)
        job = table.remove(number) if table is not None else None
        if job is None:
            return 0
        job.left = True
        return sum(cancel_all() for cancel_all in job.cancels) if cancel else 0

    def client_gone(self, client: ToolClient) -> None:
        """Drop all jobs of a terminal that has closed."""
        table = self._tables.pop(client.id, None)
        for job in table.clear() if table is not None else ():
            job.left = True
