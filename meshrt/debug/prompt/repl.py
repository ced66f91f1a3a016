"""Terminal side: the prompt. It runs lines one by one; each wait for ranks has a limit.

Leaving the prompt changes nothing for the ranks.
"""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Callable, Iterable, Mapping

from meshrt.commandline.command import Offer
from meshrt.commandline.completion import Known, candidates
from meshrt.commandline.line import head
from meshrt.commandline.table import COMMANDS, Invocation
from meshrt.debug.operations import Complete, JobReport, Leave, Snapshot
from meshrt.debug.prompt.answers import Answers
from meshrt.debug.prompt.attached import Attached
from meshrt.debug.prompt.client import Client, next_of
from meshrt.debug.prompt.context import Prompt
from meshrt.debug.prompt.lines import is_for_the_mesh, parse_line, rank_words
from meshrt.debug.prompt.terminal import Terminal, Woken
from meshrt.errors import MeshError
from meshrt.escapes import escaped
from meshrt.inspect.operations import Names
from meshrt.inspect.shortening import LINES
from meshrt.show.records import error_facts
from meshrt.show.status import ExitCode
from meshrt.transport.kernel import kernel_state

__all__ = ["LEAVING", "PROMPT", "Repl"]

PROMPT = "meshrt_dbg> "
#: Printed on Ctrl-C at the mesh's prompt.
LEAVING = "`quit` (or Ctrl-D) leaves the debugger; ranks that are stopped stay stopped"
#: Seconds after which ranks that have not answered are named (a hint), and after which the prompt stops waiting.
HINT_SECONDS = 1.0
ANSWER_SECONDS = 10.0
ENDING_SECONDS = 3.0


class Repl:
    """The debugger's prompt, for one person or one script. On one thread, except where a method says otherwise.

    Args:
        may_leave: Called after each change, on any thread; True ends the prompt by itself.
        leaving: Printed on Ctrl-C at the mesh's prompt.
        notices: False: notices are not shown.
        record: Takes the result of each line as plain data, for a program that reads it; no text is shown then.
    """

    def __init__(
        self,
        client: Client,
        terminal: Terminal,
        *,
        may_leave: Callable[[], bool] = lambda: False,
        leaving: str = LEAVING,
        notices: bool = True,
        record: Callable[[Mapping[str, object]], None] | None = None,
    ) -> None:
        self.client = client
        self.terminal = terminal
        self._may_leave = may_leave
        self._leaving_hint = leaving
        self._record = record
        self._attached: Attached | None = None
        self._known = Known()
        self._leaving = False
        #: Ctrl-C has ended the wait for answers.
        self.interrupted = False
        self._reading = False
        #: As `Prompt` has it; some may be deleted already.
        self.breaks: set[int] = set()
        if notices:
            client.read_notices(terminal.notice)
        client.on_change = self.look_up

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Read and run lines until the person leaves, nothing is left to do, or the program ends.

        Returns:
            An exit code. Without a person, the first line that fails ends the prompt with 1.
        """
        while True:
            if self._attached is not None:
                self._attached.drain()
            self._mind_attached()
            if self.client.closed():
                return self._closed()
            if self._attached is None and self._may_leave():
                self._say("nothing is stopped any more; back to the program")
                return ExitCode.OK
            # Set before the last look: every later change wakes the terminal, and no earlier one does.
            self._reading = True
            try:
                if self._news():
                    continue
                line = self.terminal.read(self._attached.prompt if self._attached else PROMPT)
            except Woken:
                continue
            except KeyboardInterrupt:
                self._say(self._how_to_leave())
                continue
            except EOFError:
                if self._attached is None or not self.terminal.interactive:
                    return ExitCode.OK
                self._reading = False
                self._attached.end_of_input()
                continue
            finally:
                self._reading = False
            ok = self.execute(line)
            if self._leaving:
                return ExitCode.OK
            if self.client.closed():
                return self._closed()
            if not ok and not self.terminal.interactive:
                return ExitCode.FAILED

    def run_lines(self, lines: Iterable[str]) -> int:
        """Run the lines of a script, up to the first that fails. Returns an exit code."""
        script = list(lines)
        for number, line in enumerate(script, 1):
            if self._attached is not None:
                self._attached.drain()
            self._mind_attached()
            if self.client.closed():
                self._closed()
                return ExitCode.FAILED
            ok = self.execute(line)
            if self._leaving:
                break
            if self.client.closed():
                self._closed()
                return ExitCode.OK if ok and number == len(script) else ExitCode.FAILED
            if not ok:
                return ExitCode.INTERRUPTED if self.interrupted else ExitCode.FAILED
        return ExitCode.OK

    def _how_to_leave(self) -> str:
        return self._leaving_hint if self._attached is None else self._attached.how_to_leave

    def _closed(self) -> int:
        pid = self.client.pid
        if _gone(pid):
            self._say(f"the program (pid {pid}) has ended")
            return ExitCode.OK
        self._say(f"the program (pid {pid}) has closed the connection; python -m meshrt.debug connects again")
        return ExitCode.FAILED

    @property
    def at_rank(self) -> bool:
        """Whether lines are for pdb of a rank. Any thread."""
        return self._attached is not None

    def look_up(self) -> None:
        """Take in that something changed: wake the terminal if the prompt has to react. Any thread."""
        if self._reading and self._news():
            self.terminal.wake()

    def _news(self) -> bool:
        if self._attached is not None:
            return not self.client.attached.empty()
        return self.client.closed() or self._may_leave()

    def _mind_attached(self) -> None:
        if self._attached is not None and not self._attached.here:
            if self._attached.pushed_out and self.terminal.forget_typed():
                self._say("lines that were typed meanwhile for that rank are discarded")
            self._attached = None
        if self._attached is None:
            while not self.client.attached.empty():
                self.client.attached.get_nowait()

    def execute(self, line: str) -> bool:
        """Run one line. Returns False if it failed."""
        self.client.typed = line[:200]
        try:
            attached = self._attached
            if attached is None or (attached.at_pdb and is_for_the_mesh(line, self._is_variable)):
                return self._at_mesh(line)
            return self._at_rank(attached, line)
        except MeshError as error:
            self._failed(line, escaped(str(error)), type(error).__name__)
        except TimeoutError:
            self._failed(line, "the program does not answer", "TimeoutError")
        except OSError:
            if not self.client.closed():
                raise
        except KeyboardInterrupt:
            self._say("")
        finally:
            self.client.typed = ""
            self._mind_attached()
        return False

    def _is_variable(self, word: str) -> bool:
        """Whether the attached rank has a variable of that name where it is stopped."""
        return self.client.ask(Complete(word), timeout=1.0).known

    def _at_rank(self, attached: Attached, line: str) -> bool:
        ok = attached.execute(line)
        facts = attached.facts()
        if self._record is not None:
            self._record({"command": "pdb", "line": line, "ok": ok, **facts})
        return ok

    def _at_mesh(self, line: str) -> bool:
        if not line.strip() or line.lstrip().startswith("#"):
            return True
        return self.run_command(parse_line(line), line)

    def run_command(self, invocation: Invocation[Prompt], line: str) -> bool:
        """Run a command, and show what it says. Returns False if it failed.

        Args:
            line: What was typed.
        Raises:
            MeshError, OSError: What the command raises.
        """
        self.client.typed = line[:200]
        outcome = invocation.run(self)
        if self._record is not None:
            self._record({"command": invocation.command.name, "line": line, "ok": outcome.ok, **outcome.data})
        elif outcome.text:
            self.terminal.page(outcome.text + "\n")
        return outcome.ok

    def _failed(self, line: str, text: str, kind: str) -> None:
        if self._record is not None:
            self._record(error_facts(head(line)[0], line, kind, text))
        else:
            self._say(text)

    def _say(self, text: str) -> None:
        if self._record is None:
            self.terminal.write(text + "\n")

    # -- what commands use ---------------------------------------------------------------------------------------------

    def attach(self, snapshot: Snapshot) -> None:
        """Attach the prompt to a rank; ``snapshot`` is the broker's answer to attach."""
        # A program that reads records gets whole values.
        most = LINES if self._record is None else None
        self._attached = Attached(self.client, self.terminal, snapshot, most=most)

    def leave(self) -> None:
        """End the prompt after the line that runs now."""
        self._leaving = True

    def collect(self, first: JobReport) -> Answers:
        """Gather the answers of a job, for at most `ANSWER_SECONDS`.

        Ctrl-C ends the wait, and cancels lines and expressions of the job that still run.
        """
        answers = Answers()
        answers.add(first)
        reports = self.client.reports(first.job)
        try:
            cancel = self._wait_for(answers, reports)
            answers.lost = self.client.closed()
            if not answers.done and not answers.lost:
                answers.cancelled = self.client.ask(Leave(first.job, cancel)).cancelled
                with contextlib.suppress(queue.Empty):  # what the program had reported before it was told
                    while (report := reports.get_nowait()) is not None:
                        answers.add(report)
        finally:
            self.client.forget(first.job)
        return answers

    def _wait_for(self, answers: Answers, reports: queue.SimpleQueue[JobReport | None]) -> bool:
        """Gather answers until all are there, or none comes any more; returns whether Ctrl-C has ended the wait."""
        start = time.monotonic()
        hinted = False
        try:
            while not answers.done:
                limit = start + (ANSWER_SECONDS if hinted else HINT_SECONDS)
                try:
                    report = next_of(reports, limit)
                except queue.Empty:
                    if hinted:
                        break
                    hinted = True
                    if self.terminal.interactive:
                        self._say(f"{answers.pending()}; Ctrl-C ends the wait")
                    continue
                if report is None:
                    break
                answers.add(report)
        except KeyboardInterrupt:
            self.interrupted = True
            self._say("")
            return True
        return False

    # -- completion ----------------------------------------------------------------------------------------------------

    def complete(self, text: str) -> list[str]:
        """Return completions of the last word of ``text``."""
        if self._attached is not None:
            return self._at_rank_names(text)
        if " " in text:
            self._learn()
        # Behind a whole word comes another one.
        whole = {*self._known.actors, *(each.name for each in COMMANDS.all() if each.arguments)}
        found = candidates(COMMANDS, text.split(" "), Offer.PROMPT, self._known)
        return [f"{word} " if word in whole else word for word in found]

    def _learn(self) -> None:
        try:
            found = self.client.ask(Names(), timeout=1.0)
        except (MeshError, OSError):
            return  # completion is optional
        self._known = Known(list(found.actors), list(found.dims), found.stopped)

    def _at_rank_names(self, text: str) -> list[str]:
        own = rank_words() if " " not in text.strip() else []
        try:
            return [*own, *self.client.ask(Complete(text), timeout=1.0).names]
        except (MeshError, OSError):
            return own


def _gone(pid: int) -> bool:
    """Whether a process has ended, or ends within `ENDING_SECONDS`: a program closes its connections before it ends."""
    deadline = time.monotonic() + ENDING_SECONDS
    while pid != os.getpid():
        if kernel_state(pid) in ("", "Z", "X"):
            return True
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return False
