"""Terminal side: the prompt. Obeys lines one by one, waits for no rank beyond a limit, and leaves ranks as they are."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from meshrt.debug.attached import Attached
from meshrt.debug.client import Client
from meshrt.debug.commands import COMMANDS, Invocation, help_text, parse_line
from meshrt.debug.protocol import QUITS
from meshrt.debug.render import Answers, clean, count_ranks, listing, status
from meshrt.debug.terminal import Terminal, Woken
from meshrt.errors import MeshError, UsageError
from meshrt.hooks import Body
from meshrt.selection import parse_folded

__all__ = ["PROMPT", "Repl"]

PROMPT = "meshrt_dbg> "
#: Seconds after which ranks that have not answered are named, and left to themselves.
HINT_SECONDS = 1.0
CAST_SECONDS = 10.0
ENDING_SECONDS = 3.0


class Repl:
    """One person, or one script, at the debugger's prompt.

    Args:
        may_leave: asked whenever something changed, on any thread: True ends the prompt by itself.
    """

    def __init__(
        self, client: Client, terminal: Terminal, *, may_leave: Callable[[], bool] = lambda: False, notices: bool = True
    ) -> None:
        self._client = client
        self._terminal = terminal
        self._may_leave = may_leave
        self._attached: Attached | None = None
        self._names: list[str] = []
        self._leaving = False
        self._reading = False
        if notices:
            client.on_notice = terminal.notice
        client.on_change = self.look_up

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Read and obey lines until a person leaves, nothing is left to do, or the program ends. Returns an exit code.

        Without a person, the first line that cannot be obeyed ends it, with 1.
        """
        while True:
            if self._attached is not None:
                self._attached.drain()
            self._mind_attached()
            if self._client.closed():
                return self._closed()
            if self._attached is None and self._may_leave():
                self._say("nothing is stopped any more; back to the program")
                return 0
            # Said before the last look, so that whatever comes after it rings the bell, and nothing earlier does.
            self._reading = True
            try:
                if self._news():
                    continue
                line = self._terminal.read(self._attached.prompt if self._attached else PROMPT)
            except Woken:
                continue
            except KeyboardInterrupt:
                continue
            except EOFError:
                if self._attached is None or not self._terminal.interactive:
                    return 0
                self._reading = False
                self._attached.end_of_input()
                continue
            finally:
                self._reading = False
            ok = self.execute(line)
            if self._leaving:
                return 0
            if self._client.closed():
                return self._closed()
            if not ok and not self._terminal.interactive:
                return 1

    def run_lines(self, lines: Iterable[str]) -> int:
        """Obey the lines of a script, up to the first that fails. Returns an exit code."""
        for line in lines:
            if self._attached is not None:
                self._attached.drain()
            self._mind_attached()
            if self._client.closed():
                return self._closed()
            if not self.execute(line):
                return 1
            if self._leaving:
                break
        return 0

    def _closed(self) -> int:
        pid = self._client.pid
        if _gone(pid):
            self._say(f"the program (pid {pid}) has ended")
            return 0
        self._say(f"the program (pid {pid}) has closed the connection; python -m meshrt.debug opens it again")
        return 1

    def look_up(self) -> None:
        """Something changed: end the reading of a line if that concerns it. Any thread."""
        if self._reading and self._news():
            self._terminal.wake()

    def _news(self) -> bool:
        if self._attached is not None:
            return not self._client.attached.empty()
        return self._client.closed() or self._may_leave()

    def _mind_attached(self) -> None:
        if self._attached is not None and not self._attached.here:
            self._attached = None
        if self._attached is None:
            while not self._client.attached.empty():
                self._client.attached.get_nowait()

    def execute(self, line: str) -> bool:
        """Obey one line. Returns False when it could not be obeyed."""
        try:
            if self._attached is not None:
                return self._attached.execute(line)
            return not line.strip() or self._obey(parse_line(line))
        except MeshError as error:
            self._say(clean(str(error)))
        except TimeoutError:
            self._say("the program does not answer")
        except OSError:
            if not self._client.closed():
                raise
        except KeyboardInterrupt:
            self._say("")
        finally:
            self._mind_attached()
        return False

    # -- commands ------------------------------------------------------------------------------------------------------

    def _obey(self, invocation: Invocation) -> bool:
        arguments = invocation.arguments
        match invocation.command:
            case "list":
                return self._list(verbose=bool(arguments["verbose"]))
            case "attach":
                steal = bool(arguments["steal"])
                body = self._client.ask("debug.attach", actor=arguments["actor"], rank=arguments["rank"], steal=steal)
                self._attached = Attached(self._client, self._terminal, body)
                return True
            case "cast":
                return self._cast(arguments["actor"], arguments["ranks"], arguments["line"])
            case "continue":
                return self._continue()
            case "wait":
                return self._wait(arguments["actor"], arguments["ranks"], float(arguments["seconds"]))
            case "status":
                self._say(status(self._client.ask("debug.status")))
            case "help":
                self._say(help_text(arguments["topic"]))
            case "quit":
                self._leaving = True
            case other:
                raise UsageError(f"{other} is not there yet")
        return True

    def _list(self, *, verbose: bool) -> bool:
        body = self._client.ask("debug.list")
        self._names = list(body["names"])
        self._say(listing(body["rows"], fold=not verbose, left_out=body["left_out"]))
        return True

    def _cast(self, actor: str, ranks: str, line: str) -> bool:
        if line.strip() in QUITS and self._terminal.interactive:
            try:
                answer = self._terminal.read(f"abort the endpoint of {actor} on {ranks}? the callers get errors [y/N] ")
            except (EOFError, Woken):
                answer = ""
            if answer.strip().lower() not in ("y", "yes"):
                self._say("not aborted")
                return True
        answers = self._collect(self._client.ask("debug.cast", actor=actor, ranks=ranks, line=line))
        self._show(answers)
        return bool(answers.sent) and not answers.unanswered

    def _continue(self) -> bool:
        answers = self._collect(self._client.ask("debug.continue"))
        if not answers.sent:
            self._say("nothing is stopped")
        self._show(answers)
        return not answers.unanswered

    def _wait(self, actor: str, ranks: str, seconds: float) -> bool:
        body = self._client.ask("debug.wait", actor=actor, ranks=ranks, seconds=seconds, timeout=seconds + 10)
        stopped, missing = parse_folded(body["stopped"]), parse_folded(body["missing"])
        if missing:
            self._say(f"not stopped within {seconds:g} s: {count_ranks(missing)}")
            return False
        self._say(f"stopped: {count_ranks(stopped)}")
        return True

    def _collect(self, first: Body) -> Answers:
        """Gather what becomes of a cast, within limits; Ctrl-C leaves those that have not answered."""
        answers = Answers()
        answers.add(first)
        cast = int(first["cast"])
        reports = self._client.reports(cast)
        start = time.monotonic()
        hinted = False
        try:
            while not answers.done:
                limit = start + (CAST_SECONDS if hinted else HINT_SECONDS)
                try:
                    report = reports.get(timeout=max(0.0, limit - time.monotonic()))
                except queue.Empty:
                    if hinted:
                        break
                    hinted = True
                    if self._terminal.interactive:
                        self._say(f"{answers.pending()}; Ctrl-C to leave them")
                    continue
                if report is None:
                    break
                answers.add(report)
        except KeyboardInterrupt:
            self._say("")
        finally:
            self._client.forget(cast)
        if not answers.done and not self._client.closed():
            self._client.ask("debug.leave", cast=cast)
        return answers

    def _show(self, answers: Answers) -> None:
        text = answers.text()
        if text:
            self._say(text)
        if answers.unanswered:
            self._say(f"{answers.pending()}: they are left to themselves, their next stop will be announced")

    def _say(self, text: str) -> None:
        self._terminal.write(text + "\n")

    # -- completion ----------------------------------------------------------------------------------------------------

    def complete(self, text: str) -> list[str]:
        """Return what the last word of ``text`` may become."""
        words = text.split(" ")
        if self._attached is not None:
            return ["detach"] if len(words) == 1 else []
        if len(words) == 1:
            return [command.name + (" " if " " in command.usage else "") for command in COMMANDS]
        if words[0] in ("help", "h"):
            return [command.name for command in COMMANDS] if len(words) == 2 else []
        if words[0] not in ("attach", "a", "cast", "wait"):
            return []
        if len(words) == 2:
            return [f"{name} " for name in self._actors()]
        return ["ranks("] if words[0] in ("cast", "wait") and len(words) == 3 else []

    def _actors(self) -> list[str]:
        try:
            self._names = list(self._client.ask("debug.list", timeout=1.0)["names"])
        except (MeshError, OSError):
            pass  # completion is a help, not a matter
        return self._names


def _gone(pid: int) -> bool:
    """Whether a process has ended, or does so in the next moment: a program closes its connections a little earlier."""
    deadline = time.monotonic() + ENDING_SECONDS
    while pid != os.getpid():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        if stat.rpartition(")")[2].split()[0] in "ZX":
            return True
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return False
