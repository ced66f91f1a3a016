"""Statements that are typed at a prompt, and the expressions of commands.

* A statement may take several lines; an empty one ends a block.
* Assignments reach the variables of every frame of the stack, not only the innermost; ``await`` works in expressions.
* Of a long value the first lines are shown, and a hint how to see the rest.
"""

from __future__ import annotations

import codeop
import contextlib
import os
import sys
from code import InteractiveConsole
from collections.abc import Callable, Iterator, Mapping
from types import CodeType

from meshrt.debug.rank import awaiting
from meshrt.debug.rank.console import DEBUGGERS_OWN, catch_streams, displayed, standard_in, standard_out
from meshrt.debug.rank.pdb_adapter import PdbAdapter
from meshrt.debug.rank.shared import Shared
from meshrt.debug.rank.variables import assigned
from meshrt.files import users_part
from meshrt.inspect.facts import Facts
from meshrt.inspect.shortening import shortened
from meshrt.inspect.values import describe, describe_pretty

__all__ = ["Statements", "interact"]

#: The prompt for a further line of a statement.
CONTINUES = "...   "
#: Longest expression, in characters, that a hint repeats.
_SHORT = 60


class Statements:
    """Statements and expressions of one prompt, in the frame that the user looks at. On the stopped thread."""

    def __init__(self, pdb: PdbAdapter, shared: Shared) -> None:
        self._pdb = pdb
        self._shared = shared
        #: An expression that was sent to many ranks, while it is evaluated.
        self._asked = ""

    # -- statements

    def run(self, statement: str) -> None:
        """Run a statement that was typed; an expression shows its value. Errors are shown, not raised."""
        source = _whole(statement).removeprefix("!").strip()
        try:
            with self._assigning(), displayed(self._display):
                code = awaiting.compiled(source, "single")
                if code is not None:
                    self._run_awaiting(code)
                    return
                code = compile(source + "\n", "<stdin>", "single")
                if self._pdb.frame is None:
                    raise NameError("there is no stack frame")
                names = self._pdb.frame.f_globals, self._pdb.names
                # From 3.13 on, functions nested in the statement see the local variables, too.
                if sys.version_info < (3, 13) or not self._pdb.run_in_closure(source, *names):
                    exec(code, *names)
        except BaseException:
            self._pdb.show_error()

    def _display(self, value: object) -> None:
        if value is not None:
            self._pdb.message(self.shown(repr(value), ""))

    def _run_awaiting(self, code: CodeType) -> object:
        if self._pdb.frame is None:
            raise NameError("there is no stack frame")
        return awaiting.run(eval(code, self._pdb.frame.f_globals, self._pdb.names), self._shared.console)

    @contextlib.contextmanager
    def _assigning(self) -> Iterator[None]:
        """Make assignments of a command reach the variables of the current stack frame."""
        catch_streams()
        frame = self._pdb.frame
        if frame is None:
            yield
            return
        try:
            with assigned(frame) as self._pdb.names:
                yield
        finally:
            self._pdb.names = frame.f_locals

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Make a command see the variables as they are now: other threads may have changed them."""
        catch_streams()
        if self._pdb.frame is not None:
            self._pdb.names = self._pdb.frame.f_locals
        yield

    # -- expressions

    def value_of(self, expression: str) -> object:
        """Evaluate an expression of a command. An error is shown, and then raised."""
        self._asked = expression if self._shared.line.brief else ""
        try:
            with self._assigning() if ":=" in expression else self._reading():
                code = awaiting.compiled(expression, "eval")
                if code is None:
                    return self._pdb.own_value(expression)
                try:
                    return self._run_awaiting(code)
                except BaseException:
                    self._pdb.show_error()
                    raise
        finally:
            self._asked = ""

    def describe(self, command: str, expression: str) -> None:
        """Show the value for ``p``, ``pp`` or ``source``, and note the facts about it that can be compared."""
        how: dict[str, Callable[[object], tuple[str, Facts | None]]] = {
            "p": describe,
            "pp": describe_pretty,
            "source": lambda value: (self._shared.sources.source_of(value), None),
        }
        try:
            value = self.value_of(expression)
        except DEBUGGERS_OWN:
            raise
        except BaseException:
            return  # the error has been shown
        text, self._shared.line.facts = how[command](value)
        self._pdb.message(text)

    def shown(self, text: str, expression: str) -> str:
        """Return as much of a value's text as is wanted, and how to see the rest."""
        what = expression if 0 < len(expression) <= _SHORT else "..."
        return shortened(text, self._shared.line.lines, f"print({what}) shows all")

    def remark(self, problem: BaseException | None) -> str:
        """Return a hint for a request to many ranks whose name is unknown where this rank is stopped, or ""."""
        frame = self._pdb.frame
        if frame is None or not isinstance(problem, NameError) or problem.name not in _names_in(self._asked):
            return ""
        known = ""
        for up in range(1, self._pdb.index + 1):
            code = self._pdb.frames[self._pdb.index - up][0].f_code  # its variables are not read: see `variables`
            if problem.name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
                known = f"; {problem.name} is known in {code.co_name}(): cast ACTOR ranks(...) u {up}"
                break
        place = f"{frame.f_code.co_name}(), {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        return f" (looked up where the rank is stopped, in {place}{known})"


def _whole(statement: str) -> str:
    """Return the statement that begins with a line; further lines are read as at Python's own prompt."""
    source = statement.removeprefix("!").strip()
    try:
        compile(source + "\n", "<stdin>", "single")
        return statement
    except (SyntaxError, ValueError, OverflowError):
        pass  # incomplete or wrong: see below
    while _is_incomplete(source):
        standard_out.write(CONTINUES)
        following = standard_in.readline()
        if not following:
            break  # the end of the input: the incomplete statement is an error
        source += "\n" + following.rstrip("\n")
    return source


def _is_incomplete(source: str) -> bool:
    try:
        return codeop.compile_command(source, "<stdin>", "single") is None
    except (SyntaxError, ValueError, OverflowError):
        return False  # it is wrong, whatever follows


def _names_in(expression: str) -> tuple[str, ...]:
    try:
        return compile(expression.strip(), "<expression>", "eval").co_names
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
        return ()  # this error was shown already


class _Interpreter(InteractiveConsole):
    """Python's own prompt on the session's streams."""

    def write(self, data: str) -> None:
        standard_out.write(data)

    def showtraceback(self) -> None:
        """Show the exception that is being handled. The user's KeyboardInterrupt was raised in the debugger's code."""
        error = sys.exception()
        if error is not None:
            error.with_traceback(users_part(error.__traceback__))
        super().showtraceback()


def interact(names: Mapping[str, object]) -> None:
    """Run Python's own prompt with ``names``, until the user leaves it."""
    with contextlib.suppress(SystemExit):
        console = _Interpreter({**names, "exit": sys.exit, "quit": sys.exit})
        console.interact(banner="*interactive* (exit() or Ctrl-D returns to pdb)", exitmsg="")
