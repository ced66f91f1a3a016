"""Root side: one request to many ranks (a `Job`), and a terminal attached to one rank (an `Attachment`). No call waits.

The result of a request, per rank (``kind``):

* ``answered``: the text is what the rank wrote; if it was at a prompt, it is at one again.
* ``resumed``: the rank has reported that it runs. ``asked``: it was told to run, and sends no report.
  ``ended``: its endpoint ended. ``aborted``: the line was ``q``.
* ``gone``: its process ended, the text says how. ``silent``: it has not answered in time, the text says why.
* ``refused``: not possible on that rank, the text says why. ``idle``: it runs no endpoint. ``blocked``: it is in C
  code, the text says where.
* Not asked: ``held`` (another terminal is attached), ``busy`` (has not answered an earlier line), ``running`` (was
  resumed and has not stopped again), ``missing`` (is not stopped), ``standing`` (an interrupt: is stopped already).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from meshrt.debug.broker.sessions import Session
from meshrt.debug.protocol import PDB_PROMPT, SessionKey
from meshrt.hooks.facts import Body
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.capping import cap

__all__ = ["Attachment", "Job", "Jobs"]


#: Limits in characters: the text of one job, the least that one answer in it may have, and one report to the terminal.
#: A terminal that attaches to a rank gets that rank's whole text.
ALL_CHARACTERS = 1_000_000
LEAST_CHARACTERS = 2_000
REPORT_CHARACTERS = 200_000


class Job:
    """Collects the results of a request to many ranks, and passes them to the terminal in few reports.

    Answers that arrive together are sent together, equal ones as one text with a set of ranks. On the root's loop.
    """

    #: Seconds that an answer may wait for others.
    GATHER_SECONDS = 0.003

    def __init__(
        self, number: int, client: ToolClient, count: int, services: RootServices, done: Callable[[Job], None]
    ) -> None:
        self.number = number
        self.client = client
        self._services = services
        self._done = done
        self._pending: dict[SessionKey, str] = {}
        self._answers: dict[tuple[str, str, str, bool], tuple[list[int], Any]] = {}
        self._limit = max(LEAST_CHARACTERS, ALL_CHARACTERS // max(1, count))
        self._scheduled = False
        self._started = False
        #: The terminal no longer waits for the job.
        self.left = False
        self._finished = False

    def expect(self, key: SessionKey, label: str) -> None:
        """Wait for the rank (and actor) of ``key``; reports name the actor ``label``."""
        self._pending[key] = label

    @property
    def limit(self) -> int:
        """Characters that the answer of one rank may have, at most."""
        return self._limit

    def pending(self) -> tuple[SessionKey, ...]:
        """Return the keys of the ranks that have not answered."""
        return tuple(self._pending)

    def settle(
        self, label: str, kind: str, text: str, ranks: Iterable[int], facts: Any = None, *, failed: bool = False
    ) -> None:
        """Report the result of ranks that are not waited for.

        Args:
            kind: As the module's docstring says.
            facts: The answer as plain data; equal texts have equal facts.
            failed: The line failed, and the text says why.
        """
        text = cap(text, self._limit)
        self._answers.setdefault((label, kind, text, failed), ([], facts))[0].extend(ranks)

    def answer(self, key: SessionKey, kind: str, text: str, facts: Any = None, *, failed: bool = False) -> None:
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

    def leave(self) -> None:
        """Drop all further reports: the terminal no longer waits for the job."""
        self.left = True

    def start(self) -> Body:
        """Return the first report; later results are pushed to the terminal."""
        self._started = True
        report = self.report()
        if report["done"]:
            self._finished = True
            self._done(self)
        elif not self._pending:
            self._services.call_later(0.0, self._push)
        return report

    def report(self) -> Body:
        """Return the results since the last report, as many as fit into `REPORT_CHARACTERS`, at least one."""
        answers: list[Body] = []
        size = 0
        for key in list(self._answers):
            label, kind, text, failed = key
            size += len(text)
            if answers and size > REPORT_CHARACTERS:
                break
            ranks, facts = self._answers.pop(key)
            if ranks:
                answer = {"actor": label, "kind": kind, "text": text, "ranks": sorted(ranks), "failed": failed}
                answers.append(answer if facts is None else {**answer, "facts": facts})
        return {
            "job": self.number,
            "answers": answers,
            "done": not self._pending and not self._answers,
            "waiting": self._waiting(),
        }

    def _waiting(self) -> dict[str, list[int]]:
        waiting: dict[str, list[int]] = {}
        for key, label in self._pending.items():
            waiting.setdefault(label, []).append(key.rank)
        return {label: sorted(ranks) for label, ranks in waiting.items()}

    # -- Waiter

    def stopped(self, session: Session, text: str) -> bool:
        """Report the session's text as the answer. Returns whether the terminal still waits for the job."""
        prompt = "" if session.prompt == PDB_PROMPT else session.prompt
        self._settle(session, "answered", session.text + prompt, session.facts, failed=bool(session.error))
        return not self.left

    def printed(self, session: Session, text: str) -> None:
        """Do nothing: the session keeps the text until the rank answers."""

    def resumed(self, session: Session, how: str, text: str) -> None:
        """Report the rank as resumed or aborted; after a step, wait for its next stop."""
        if how != "step":
            self._settle(session, "aborted" if how == "quit" else "resumed", session.text)

    def ended(self, session: Session, why: str) -> None:
        """Report the rank as gone if ``why`` says how its process ended, else as ended."""
        self._settle(session, "gone" if why else "ended", why or session.text)

    def replaced(self, session: Session, pid: int) -> None:
        """Report the rank as held by the terminal of process ``pid``."""
        self._settle(session, "held", f"process {pid} has attached")

    def _settle(self, session: Session, kind: str, text: str, facts: Any = None, *, failed: bool = False) -> None:
        if session.waiter is self:
            session.waiter = session.attachment
        self.answer(session.key, kind, text, facts, failed=failed)

    def _push(self) -> None:
        self._scheduled = False
        if self._finished:
            return
        self._finished = not self._pending
        while not self.left and (self._answers or self._finished):
            self.client.push("debug.report", self.report())
            if not self._answers:
                break
        if self._finished:
            self._done(self)


class Attachment:
    """One terminal attached to one session: a `Waiter` that pushes each event of the session to the terminal."""

    def __init__(self, client: ToolClient, session: Session) -> None:
        self.client = client
        self.session = session

    def stopped(self, session: Session, text: str) -> bool:
        """Push the new prompt with its number and ``text``. Returns True: the terminal shows the stop."""
        self._push(
            "stopped",
            text=text,
            prompt=session.prompt,
            reason=session.reason,
            seq=session.seq,
            failed=bool(session.error),
        )
        return True

    def printed(self, session: Session, text: str) -> None:
        """Push ``text``, which a command has written before its end."""
        self._push("printed", text=text)

    def resumed(self, session: Session, how: str, text: str) -> None:
        """Push ``text`` and how the rank was resumed (``how``: continue, step, quit)."""
        self._push("resumed", text=text, how=how)

    def ended(self, session: Session, why: str) -> None:
        """Push "gone" if ``why`` says how the process ended, else "ended"."""
        self._push("gone" if why else "ended", text=why)

    def replaced(self, session: Session, pid: int) -> None:
        """Push "stolen": the terminal of process ``pid`` has attached to the session."""
        self._push("stolen", text=f"process {pid} has taken it over")

    def _push(self, kind: str, **facts: object) -> None:
        self.client.push("debug.attached", {"kind": kind, "endpoint": self.session.endpoint, **facts})


class Jobs:
    """All jobs that are not finished, by number. On the root's loop."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._jobs: dict[int, Job] = {}
        self._number = 0

    def new(self, client: ToolClient, count: int) -> Job:
        """Return a new job for a terminal: a request to ``count`` ranks, which share `ALL_CHARACTERS` of text."""
        self._number += 1
        job = self._jobs[self._number] = Job(self._number, client, count, self._services, self._forget)
        return job

    def _forget(self, job: Job) -> None:
        self._jobs.pop(job.number, None)

    def leave(self, client: ToolClient, number: int) -> None:
        """Drop job ``number`` of a terminal, which no longer waits for it; a number of another terminal is ignored."""
        job = self._jobs.get(number)
        if job is not None and job.client.id == client.id:
            job.leave()
            del self._jobs[number]

    def client_gone(self, client: ToolClient) -> None:
        """Drop all jobs of a terminal that has closed."""
        for number in list(self._jobs):
            self.leave(client, number)
