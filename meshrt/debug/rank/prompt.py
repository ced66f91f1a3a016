"""The prompt of a session: its lines, and the commands that differ from those of pdb (`COMMANDS`).

::

    RankSession --holds--> Prompt --holds--> Stepper, Statements --hold--> PdbAdapter (pdb)
         ^------ Events ------'                       ^-- Stepping, Reading, Showing --'

A ``debug`` command makes a further prompt. The prompt where it was typed holds it until it ends.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from meshrt.debug.rank.console import Released
from meshrt.debug.rank.pdb_adapter import PdbAdapter
from meshrt.debug.rank.shared import Shared
from meshrt.debug.rank.statements import Statements, interact
from meshrt.debug.rank.stepper import Stepper
from meshrt.debug.rank.suspended import runs_lines

__all__ = ["COMMANDS", "Prompt"]


class Prompt:
    """One prompt; ``outer`` is the one whose ``debug`` command made it."""

    def __init__(self, shared: Shared, outer: Prompt | None = None) -> None:
        self._shared = shared
        self._outer = outer
        #: The prompt of a running ``debug`` command.
        self.inner: Prompt | None = None
        #: Lines are read or run here. False while the debugged code runs.
        self.is_open = False
        self.pdb = PdbAdapter(shared, readrc=outer is None)
        self.steps = Stepper(self.pdb, shared)
        self._statements = Statements(self.pdb, shared)
        commands = {word: partial(action, self, word) for words, action in COMMANDS.items() for word in words}
        self.pdb.connect(self.steps, self, self._statements, commands)

    # -- for the session -----------------------------------------------------------------------------------------------

    @property
    def wants_trace(self) -> bool:
        """Whether the debugged code runs and will stop again by itself. Any thread."""
        return not self.is_open and self.steps.wants_trace

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Mark that lines are read and run here."""
        before, self.is_open = self.is_open, True
        try:
            yield
        finally:
            self.is_open = before

    # -- lines ---------------------------------------------------------------------------------------------------------

    def read(self, loop: Callable[[], None]) -> None:
        """See `Reading`."""
        if self._outer is not None:
            with self.opened():
                loop()
            return
        with self._shared.events.reads(self.steps.reason):
            try:
                loop()
            except Released as released:
                self._shared.console.rearm()
                self.pdb.leave_line()
                if released.closing:
                    self._shared.console.release(closing=True)  # for every stop that may follow
                self.steps.let_go(closing=released.closing)
        if self.steps.over:
            self._shared.events.over()

    @runs_lines
    def run_line(self, line: str, run: Callable[[str], bool]) -> bool:
        """See `Reading`."""
        # A KeyboardInterrupt that the user requested ends this line, and nothing else; so does any failure.
        resumes = False
        try:
            self._shared.line.begins()
            resumes = run(line)
            self._shared.line.ends()
        except KeyboardInterrupt:
            self._shared.line.ends()
            if not resumes:
                self.pdb.error("KeyboardInterrupt")
        except Exception:
            self._shared.line.ends()
            self.pdb.show_error()
        except BaseException:
            self._shared.line.ends()
            raise
        self._shared.console.end_line()  # else the prompt would be at the end of what the line has printed
        return resumes

    # -- commands ------------------------------------------------------------------------------------------------------

    def _value(self, word: str, argument: str) -> object:
        if not self._shared.line.brief:
            return self.pdb.own(word, argument)
        self._statements.describe(word, argument)
        return None

    def _step(self, word: str, argument: str) -> object:
        if self.steps.post_mortem:
            self.pdb.error(
                "no code is left to step through: the endpoint has raised; `c` passes the exception to the caller"
            )
            return None
        frame = self.pdb.frame
        innermost = self.pdb.index + 1 == len(self.pdb.frames) and argument.isdigit()
        if word not in ("jump", "j") or frame is None or self.steps.traced or not innermost:
            return self.pdb.own(word, argument)
        self.pdb.jump(frame, int(argument))  # at a breakpoint() the line has already begun
        return True

    def _quit(self, word: str, argument: str) -> object:
        return self.pdb.own("continue" if self.steps.post_mortem else word, argument)

    def _debug(self, _word: str, argument: str) -> None:
        frame = self.pdb.frame
        if frame is None:
            return
        inner = Prompt(self._shared, outer=self)
        inner.pdb.prompt = f"({self.pdb.prompt.strip()}) "
        self.pdb.message("ENTERING RECURSIVE DEBUGGER")
        sys.settrace(None)
        self.is_open, self.inner = False, inner
        try:
            inner.pdb.debug(argument, frame, self.pdb.names)
        except Exception:
            self.pdb.show_error()
        finally:
            self.inner, self.is_open = None, True
            sys.settrace(self.pdb.trace_dispatch if self.steps.traced else None)
        self.pdb.message("LEAVING RECURSIVE DEBUGGER")
        self.pdb.lastcmd = inner.pdb.lastcmd

    def _clear(self, word: str, argument: str) -> object:
        if argument:
            return self.pdb.own(word, argument)
        deleted = self.pdb.delete_breaks()
        self.pdb.message("\n".join(f"Deleted {text}" for text in deleted) or "There are no breakpoints")
        return None

    def _interact(self, _word: str, _argument: str) -> None:
        if self.pdb.frame is not None:
            interact({**self.pdb.frame.f_globals, **self.pdb.names})

    def _end_of_input(self, _word: str, _argument: str) -> None:
        self.pdb.message("*** end of input; `c` resumes this rank, `q` aborts its endpoint")

    def _restart(self, _word: str, _argument: str) -> None:
        self.pdb.error("a rank cannot be restarted from here")


#: The commands that differ from those of pdb, by their words. The function gets the prompt, the word and the rest of
#: the line, and returns whether the thread is resumed. All other commands are pdb's own.
COMMANDS: Mapping[tuple[str, ...], Callable[[Prompt, str, str], object]] = {
    ("next", "n", "step", "s", "return", "r", "until", "unt", "jump", "j"): Prompt._step,
    ("quit", "q", "exit"): Prompt._quit,
    ("p", "pp", "source"): Prompt._value,
    ("clear", "cl"): Prompt._clear,
    ("debug",): Prompt._debug,
    ("interact",): Prompt._interact,
    ("run", "restart"): Prompt._restart,
    ("EOF",): Prompt._end_of_input,
}
