"""pdb as the debugger uses it: its commands and its texts on the console of a session.

Other objects decide which lines stop (`Stepping`), when lines are read (`Reading`), and what an expression or a
statement does (`Showing`). Names that Python's documentation does not have are in `NAMES`, see
`meshrt.debug.rank.bdb_adapter`.

A ``__repr__`` or an ``__eq__`` of the user's may raise SystemExit. Such an exception never leaves the prompt: looking
at a value must not change how the rank goes on.
"""

from __future__ import annotations

import linecache
import pdb
import sys
from collections.abc import Callable, Mapping, MutableMapping
from functools import update_wrapper
from types import FrameType, TracebackType
from typing import IO, TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

from meshrt.actor.headroom import headroom
from meshrt.debug.protocol import PDB_PROMPT
from meshrt.debug.rank.bdb_adapter import BdbAdapter, Name, Stack, Stepping
from meshrt.debug.rank.console import DEBUGGERS_OWN, routed, standard_in, standard_out
from meshrt.debug.rank.shared import Shared
from meshrt.debug.rank.variables import changed, left_alone
from meshrt.inspect.values import class_name, safe_text

__all__ = ["NAMES", "PdbAdapter", "Reading", "Showing"]

P = ParamSpec("P")
R = TypeVar("R")

NAMES = (
    Name(pdb.Pdb, "_cmdloop", "lines are read between two events of the session"),
    Name(pdb.Pdb, "_error_exc", "an error is shown, also one that cannot be shown as usual"),
    Name(pdb.Pdb, "_exec_in_closure", "what is nested in a statement sees the local variables", since=(3, 13)),
    Name(pdb.Pdb, "_getval", "expressions of `p`, `pp`, `whatis`, `source`: `await` works, `:=` reaches variables"),
    Name(pdb.Pdb, "_msg_val_func", "of a long value of `p` and `pp` the beginning is shown"),
    Name(pdb.Pdb, "_safe_repr", "... and of one of `args`, `retval` and `display`"),
    Name(pdb.Pdb, "aliases", "those of a session hold at its next prompts"),
    Name(pdb.Pdb, "bp_commands", "the commands of a breakpoint print to the console"),
    Name(pdb.Pdb, "commands_defining", "a rank that is resumed has left the definition of such commands"),
    Name(pdb.Pdb, "curframe", "the frame that a person looks at"),
    Name(pdb.Pdb, "curframe_locals", "the variables that expressions and statements see"),
    Name(pdb.Pdb, "curindex", "the index of that frame in the stack"),
    Name(pdb.Pdb, "error", "an error is told beside the text, too"),
    Name(pdb.Pdb, "forget", "what was read from the frames is not written back to them"),
    Name(pdb.Pdb, "interaction", "the prompt is opened where a thread is stopped"),
    Name(pdb.Pdb, "lookupmodule", "files that exist only in the program have a name, too"),
    Name(pdb.Pdb, "message", "text goes to the console"),
    Name(pdb.Pdb, "setup", "sources are fetched before they are shown"),
    Name(pdb.Pdb, "stack", "the stack that a person sees"),
)


class Reading(Protocol):
    """Decides when lines are read. On the stopped thread."""

    def read(self, loop: Callable[[], None]) -> None:
        """Call ``loop``, which reads and runs lines until one resumes the thread."""

    def run_line(self, line: str, run: Callable[[str], bool]) -> bool:
        """Run a line with ``run``. Return whether it resumes the thread."""


class Showing(Protocol):
    """Decides what expressions and statements do, and how their values are shown. On the stopped thread."""

    def run(self, statement: str) -> None:
        """Run a line that is not a command."""

    def value_of(self, expression: str) -> object:
        """Evaluate an expression of a command. An error is shown, and then raised."""

    def shown(self, text: str, expression: str) -> str:
        """Return the part of the text of a value that is shown."""

    def remark(self, problem: BaseException | None) -> str:
        """Return a hint to append to the text of an error, or ""."""


if TYPE_CHECKING:

    class _Pdb(pdb.Pdb):
        """pdb with the parts that typeshed leaves out."""

        def _cmdloop(self) -> None: ...

        def _error_exc(self) -> None: ...

        def _msg_val_func(self, arg: str, func: Callable[[object], str]) -> None: ...

        def _safe_repr(self, obj: object, expr: str) -> str: ...

        def _exec_in_closure(self, source: str, globals: Mapping[str, object], locals: object) -> bool: ...
else:
    _Pdb = pdb.Pdb


class PdbAdapter(BdbAdapter, _Pdb):
    """pdb on the streams of a session. ``readrc``: run the user's ``.pdbrc``."""

    reading: Reading
    showing: Showing

    def __init__(self, shared: Shared, *, readrc: bool) -> None:
        self._shared = shared
        #: A hint to append to the next error.
        self._remark = ""
        streams = cast(IO[str], standard_in), cast(IO[str], standard_out)
        super().__init__(stdin=streams[0], stdout=streams[1], nosigint=True, readrc=readrc)

    def connect(
        self, stepping: Stepping, reading: Reading, showing: Showing, commands: Mapping[str, Callable[[str], object]]
    ) -> None:
        """Set the objects that decide. Call it before the first stop.

        Args:
            commands: Commands that replace those of pdb, by their words. Their ``help`` is pdb's.
        """
        self.trace_by(stepping, self._shared.mesh_breaks)
        self.reading, self.showing = reading, showing
        for word, function in commands.items():
            # The name is pdb's, too: pdb uses it to know which commands of a breakpoint resume.
            setattr(self, f"do_{word}", update_wrapper(function, getattr(pdb.Pdb, f"do_{word}")))

    # -- for the prompt ------------------------------------------------------------------------------------------------

    @property
    def frames(self) -> Stack:
        """The stack that the user sees; empty while the thread runs."""
        return getattr(self, "stack", [])

    @property
    def index(self) -> int:
        """The index of `frame` in `frames`."""
        return self.curindex

    @property
    def frame(self) -> FrameType | None:
        """The frame that the user looks at; None while the thread is not stopped. Any thread."""
        return getattr(self, "curframe", None)

    @property
    def names(self) -> MutableMapping[str, object]:
        """The variables that expressions and statements see in `frame`."""
        if sys.version_info >= (3, 14):  # where pdb reads those of the frame each time
            return cast(MutableMapping[str, object], self.curframe.f_locals if self.curframe is not None else {})
        return cast(MutableMapping[str, object], self.curframe_locals)

    @names.setter
    def names(self, names: MutableMapping[str, object]) -> None:
        if sys.version_info < (3, 14):
            self.curframe_locals = names

    def open(self, frame: FrameType) -> None:
        """Open the prompt at ``frame``; returns when the thread is resumed."""
        self.interaction(frame, None)

    def open_after(self, exception: BaseException) -> None:
        """Open the prompt where ``exception`` was raised."""
        # From 3.13 on, pdb takes the exception and can show the chain of its causes.
        self.interaction(None, exception if sys.version_info >= (3, 13) else exception.__traceback__)

    def own(self, word: str, argument: str) -> object:
        """Run a command as pdb does. Return whether it resumes the thread."""
        command: Callable[[pdb.Pdb, str], object] = getattr(pdb.Pdb, f"do_{word}")
        return command(self, argument)

    def own_value(self, expression: str) -> object:
        """Evaluate an expression as pdb does. An error is shown, and then raised."""
        return super()._getval(expression)

    def run_in_closure(self, source: str, namespace: dict[str, object], names: MutableMapping[str, object]) -> bool:
        """Run a statement so that functions in it see ``names``. Return whether it has run. From 3.13 on."""
        before = dict(names)
        after = dict(before)
        done = self._exec_in_closure(source, namespace, after)
        if done:
            names.update(changed(before, after))  # pdb writes all variables, also those that other threads changed
        return done

    def debug(self, statement: str, frame: FrameType, names: Mapping[str, object]) -> None:
        """Run a statement, traced by this debugger although another one traces the thread."""
        sys.call_tracing(self.run, (statement, frame.f_globals, names))

    def show_error(self) -> None:
        """Show the exception that is being handled."""
        self._error_exc()

    def adopt(self, before: PdbAdapter) -> None:
        """Take over the aliases that the user has set at the prompts of ``before``."""
        self.aliases.update(before.aliases)

    def leave_line(self) -> None:
        """Drop what a line has begun: its remaining commands, and a definition of breakpoint commands."""
        self.cmdqueue.clear()
        self.commands_defining = False
        self.prompt = PDB_PROMPT

    # -- what pdb does otherwise ---------------------------------------------------------------------------------------

    def interaction(self, frame: FrameType | None, tb_or_exc: TracebackType | BaseException | None) -> None:
        with headroom, routed(self._shared.console):
            self._shared.events.opens()
            super().interaction(frame, tb_or_exc)  # type: ignore[arg-type]  # an exception from 3.13 on

    def _cmdloop(self) -> None:
        self.reading.read(super()._cmdloop)

    def bp_commands(self, frame: FrameType) -> bool:
        """Run the commands of a breakpoint on the console. Return whether a prompt follows.

        From 3.14 on they are the first lines of the prompt that follows in any case.
        """
        with routed(self._shared.console):
            wants_prompt = super().bp_commands(frame)
        if not wants_prompt and sys.version_info < (3, 14):
            self._shared.events.printed()
        return wants_prompt

    def onecmd(self, line: str) -> bool:
        return self.reading.run_line(line, self._run_line)

    def _run_line(self, line: str) -> bool:
        return bool(self._kept(super().onecmd, line))

    if sys.version_info < (3, 13):

        def preloop(self) -> None:
            """Show the values that are displayed at each prompt. Later versions do that by a line."""
            self.reading.run_line("", self._display)

        def _display(self, _line: str) -> bool:
            self._kept(super().preloop)
            return False

    def _kept(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except DEBUGGERS_OWN:
            raise
        except BaseException:
            self._error_exc()
            return None

    def setup(self, f: FrameType | None, tb: TracebackType | None) -> None:
        result = super().setup(f, tb)
        self._shared.sources.ensure_stack(self.stack)
        return result

    def forget(self) -> None:
        """Forget the stack; values that were read from its frames are not written back."""
        for frame, _ in self.frames:
            left_alone(frame)
        super().forget()

    def lookupmodule(self, filename: str) -> str | None:
        """Return the full name of a file, also of one that exists only in the program; None: there is none."""
        # The user's own files first: a file that exists only in the program is not on sys.path.
        return self._shared.sources.find(filename, self.stack) or super().lookupmodule(filename)

    # -- texts

    def message(self, msg: object, end: str = "\n") -> None:  # `end`: new in 3.13
        self._shared.console.write(f"{msg}{end}")

    def error(self, msg: object) -> None:
        self._shared.line.error = f"{msg}{self._remark}"
        self.message(f"*** {self._shared.line.error}")

    def _error_exc(self) -> None:
        self._remark = self.showing.remark(sys.exception())
        try:
            super()._error_exc()
        except DEBUGGERS_OWN:
            raise
        except BaseException as error:  # the exception's own text, or that of its class
            shown = error.__context__ or error
            self.error(f"{class_name(shown)}: {safe_text(shown, str)}")
        finally:
            self._remark = ""

    def format_stack_entry(self, frame_lineno: tuple[FrameType, int], lprefix: str = ": ") -> str:
        """Return a stack frame as text, also if the value that it returns cannot be shown."""
        try:
            return super().format_stack_entry(frame_lineno, lprefix)
        except DEBUGGERS_OWN:
            raise
        except BaseException:  # the value that a function returns
            frame, line = frame_lineno
            value = safe_text(frame.f_locals.get("__return__"))
            source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
            place = f"{self.canonic(frame.f_code.co_filename)}({line}){frame.f_code.co_name}()->{value}"
            return place + (lprefix + source if source else "")

    # -- expressions and statements

    def default(self, line: str) -> None:
        self.showing.run(line)

    def _getval(self, arg: str) -> object:
        return self.showing.value_of(arg)

    def _msg_val_func(self, arg: str, func: Callable[[object], str]) -> None:
        super()._msg_val_func(arg, lambda value: self.showing.shown(func(value), arg))

    def _safe_repr(self, obj: object, expr: str) -> str:
        return self.showing.shown(super()._safe_repr(obj, expr), expr)
