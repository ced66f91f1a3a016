"""Terminal side: the prompt of one rank. Every line goes to pdb, except ``detach``; each wait has a limit."""

from __future__ import annotations

import contextlib
import queue
import time

from meshrt.debug.operations import AttachedReport, Cancel, Detach, Send, Snapshot
from meshrt.debug.prompt.client import Client, next_of
from meshrt.debug.prompt.terminal import Terminal, Woken
from meshrt.debug.prompt.text import prompt_of
from meshrt.debug.protocol import BUSY, PDB_PROMPT, QUITS, RUNNING, STEPPING, is_of_pdb
from meshrt.errors import MeshError
from meshrt.escapes import escaped
from meshrt.hooks.facts import Body
from meshrt.inspect.shortening import LINES
from meshrt.program.places import Place

__all__ = ["Attached"]

#: Seconds until the mesh's prompt comes back if the rank does not stop: after a command, and after ``continue``.
COMMAND_SECONDS = 10.0
CONTINUE_SECONDS = 1.5
#: Seconds after which a message says that the rank is still at work, or running, and what Ctrl-C does.
HINT_SECONDS = 1.0


class Attached:
    """The prompt of one rank, from attach to detach.

    Args:
        snapshot: The broker's answer to attach.
        most: Lines of a printed value that are shown; None: all.
    """

    def __init__(self, client: Client, terminal: Terminal, snapshot: Snapshot, *, most: int | None = LINES) -> None:
        self._client = client
        self._most = most
        self._terminal = terminal
        self._actor = snapshot.actor
        self._rank = snapshot.rank
        self._coords = snapshot.coords
        self._endpoint = snapshot.endpoint
        self._prompt = snapshot.prompt
        self._reason = snapshot.reason
        #: The number of the prompt that the last line was for: only a stop with a higher number answers it.
        self._seq = 0
        #: False: the mesh's prompt is back.
        self.here = True
        #: It came back without a request of the person: what was typed meanwhile was meant for the rank.
        self.pushed_out = False
        self._said = ""
        #: The last line failed.
        self._failed = False
        self._how = ""
        #: The rank is at work on a line: it has neither answered nor been resumed.
        self._busy = snapshot.session == BUSY
        host = f" ({snapshot.host})" if snapshot.host else ""
        self._say(f"attached to {self.name}{host}; `detach` returns\n")
        self._text(snapshot.text, self._prompt)
        at = Place(snapshot.file, snapshot.line, snapshot.function)
        at, code = snapshot.selected or (at, snapshot.code)
        place = f"{at.file}({at.line}){at.function}()"
        # What the rank wrote last may not say where it is. One that runs, or is on its way to a prompt, is nowhere.
        if snapshot.file and place not in snapshot.text:
            if snapshot.headline:
                self._say(escaped(snapshot.headline) + "\n")
            self._say(escaped(f"> {place}" + (f"\n-> {code}" if code else "")) + "\n")
        if snapshot.breakpoint_error not in snapshot.text:  # the rank has written other text since
            self._say(escaped(snapshot.breakpoint_error) + "\n")
        for line in snapshot.limits:
            self._say(escaped(line) + "\n")
        if snapshot.session == BUSY:
            self._say(f"[{self.name} has not answered {snapshot.sent!r} yet]\n")
            self._follow(COMMAND_SECONDS)
        elif snapshot.session in (RUNNING, STEPPING):
            self._say(f"[{self.name} is running]\n")
            self._follow(CONTINUE_SECONDS)

    @property
    def name(self) -> str:
        """Actor and rank: ``"debugee 13"``."""
        return f"{self._actor} {self._rank}"

    @property
    def prompt(self) -> str:
        """The prompt of the next line: the rank's name, or the prompt of the program that reads there."""
        return prompt_of(self._actor, self._rank, self._coords) if self._is_outermost else escaped(self._prompt)

    @property
    def at_pdb(self) -> bool:
        """Whether pdb itself reads the next line, and not something that runs inside it, such as ``interact``."""
        return is_of_pdb(self._prompt)

    @property
    def _is_outermost(self) -> bool:
        """Whether pdb reads for the endpoint, and not for what a ``debug`` command runs."""
        return self._prompt == PDB_PROMPT

    @property
    def how_to_leave(self) -> str:
        """What to type to leave the prompt of the next line."""
        if not self.at_pdb:
            return "Ctrl-D ends the input here"
        other = "`c` resumes it" if self._is_outermost else "`q` ends this `debug`"
        return f"`detach` (or Ctrl-D) leaves this rank stopped, {other}"

    def execute(self, line: str) -> bool:
        """Send a line to pdb, or detach. Returns False if it failed."""
        word = line.strip()
        self._said, self._failed = "", False
        if word == "detach":
            self.leave(f"detached from {self.name}; it stays stopped")
            return True
        if word in QUITS and self._is_outermost and self._reason != "post-mortem" and not self._really():
            return True
        return self._send(line=line)

    def end_of_input(self) -> None:
        """Handle Ctrl-D: at pdb's own prompt it detaches, elsewhere it ends what reads at the rank."""
        if self.at_pdb:
            self.leave(f"detached from {self.name}; it stays stopped")
        elif self._prompt.startswith("(com)"):
            self._send(line="end")
        else:
            self._send(line=None)

    def drain(self) -> None:
        """Take in all events of the rank that have come since the last line."""
        while self.here:
            try:
                self._take(self._client.attached.get_nowait())
            except queue.Empty:
                return

    def leave(self, text: str) -> None:
        """Go back to the mesh's prompt and print ``text``; nothing changes for the rank."""
        self.here = False
        if not self._client.closed():
            with contextlib.suppress(MeshError, OSError):  # the program has just ended
                self._client.ask(Detach())
        self._say(text + "\n")

    def _really(self) -> bool:
        question = f"abort {self._endpoint} on rank {self._rank}? the caller gets an error [y/N] "
        try:
            answer = self._terminal.read(question)
        except (EOFError, KeyboardInterrupt, Woken):
            answer = ""
        if answer.strip().lower() in ("y", "yes"):
            return True
        self._say("not aborted (`detach` leaves this rank, `c` resumes it)\n")
        return False

    def _send(self, line: str | None) -> bool:
        try:
            self._seq = self._client.ask(Send(line, self._most)).seq
        except MeshError as error:
            self._say(escaped(str(error)) + "\n")
            return False
        except KeyboardInterrupt:
            self._leave_it()
            return False
        self._busy = True
        self._follow(COMMAND_SECONDS)
        return not self._failed

    def facts(self) -> Body:
        """Return the state of this prompt, and what was shown for the last line."""
        return {
            "actor": self._actor,
            "rank": self._rank,
            "coords": self._coords,
            "attached": self.here,
            "prompt": self._prompt if self.here else "",
            "text": self._said,
        }

    def _follow(self, seconds: float) -> None:
        """Wait for the rank's next prompt; after ``seconds``, go back to the mesh's prompt.

        Ctrl-C cancels the line that runs there. Where none runs, and the second time, it goes back at once.
        """
        try:
            try:
                self._wait(seconds, "is running the line; Ctrl-C cancels the line")
            except KeyboardInterrupt:
                if not (self.here and self._busy):
                    raise
                self._say("\n")
                self._client.ask(Cancel())
                self._wait(COMMAND_SECONDS, "is still running the line; Ctrl-C returns to the mesh's prompt")
        except KeyboardInterrupt:
            self._leave_it()
        except MeshError as error:  # another terminal has taken the rank over: `drain` says that
            self._say(escaped(str(error)) + "\n")

    def _wait(self, seconds: float, at_work: str) -> None:
        start = time.monotonic()
        limit = start + seconds
        hinted = not self._terminal.interactive
        while self.here:
            until = limit if hinted else min(limit, start + HINT_SECONDS)
            try:
                event = next_of(self._client.attached, until)
            except queue.Empty:
                if time.monotonic() < limit:
                    hinted = True
                    state = at_work if self._busy else "is running; Ctrl-C returns to the mesh's prompt"
                    self._say(f"[{self.name} {state}]\n")
                    continue
                self.pushed_out = True
                work = f"running the line (`interrupt {self._actor} ranks({self._rank})` cancels it)"
                self.leave(f"{self.name} is {work if self._busy else 'running'}; its next stop will be announced")
                return
            self._take(event)
            if event is None:
                continue
            if event.kind == "stopped" and event.seq > self._seq:
                return
            if event.kind == "resumed":
                limit = time.monotonic() + (CONTINUE_SECONDS if event.how == "continue" else COMMAND_SECONDS)

    def _leave_it(self) -> None:
        self._say("\n")
        self.leave(f"detached from {self.name}; its state is unchanged")

    def _take(self, event: AttachedReport | None) -> None:
        """Take in one event; None: the program has closed the connection."""
        if event is None:
            self.here = False
            return
        match event.kind:
            case "stopped":
                self._busy = False
                self._endpoint = event.endpoint  # another one, if several calls run in turns
                self._prompt = event.prompt
                self._reason = event.reason
                self._failed = event.failed
                self._text(event.text, self._prompt)
            case "printed":
                self._say(escaped(event.text))
            case "resumed":
                self._busy = False
                self._how = event.how
                self._text(event.text, "")
            case "ended" | "gone" | "stolen":
                self.here, self.pushed_out = False, True
                self._say(self._end(event))

    def _end(self, event: AttachedReport) -> str:
        """Return why the mesh's prompt is back."""
        if event.kind == "gone":
            return f"{self.name} has ended: {escaped(event.text)}\n"
        if event.kind == "stolen":
            return f"detached from {self.name}: {escaped(event.text)}\n"
        if self._how == "quit":
            return f"{self._endpoint} has ended on {self.name} after it was asked to abort\n"
        if self._reason == "post-mortem":
            return f"{self._endpoint} has raised on {self.name}: its caller gets the exception\n"
        return f"{self._endpoint} has ended on {self.name}; back at the mesh's prompt\n"

    def _text(self, text: str, prompt: str) -> None:
        if text:
            self._say(escaped(text if text.endswith("\n") or prompt not in ("", PDB_PROMPT) else text + "\n"))

    def _say(self, text: str) -> None:
        self._said += text
        self._terminal.write(text)
