"""The commands of a rank's prompt, as far as they do not touch how the rank goes on: values, names, assignments.

Where it differs from `pdb.Pdb`:

* A statement may take several lines; an empty one ends a block.
* Assignments reach the variables of every frame of the stack, the innermost or not; ``await`` works in expressions.
* ``clear`` does not ask, ``interact`` uses the session's streams, breakpoints belong to one session.
* Of a long value the first lines are shown, and how to see the rest.
* A source that exists only in the program is fetched from there.
"""

from __future__ import annotations

import bdb
import code
import codeop
import contextlib
import linecache
import os
import pdb
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from meshrt.debug.rank import awaiting
from meshrt.debug.rank.console import (
    DEBUGGERS_OWN,
    Console,
    catch_streams,
    displayed,
    standard_in,
    standard_out,
)
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.debug.rank.variables import assigned, changed, left_alone
from meshrt.hooks.facts import Body
from meshrt.inspect.shortening import shortened
from meshrt.inspect.values import class_name, describe, describe_pretty, safe_text

__all__ = ["PromptOwner", "PromptPdb"]

#: The prompt for a further line of a statement.
CONTINUES = "...   "
#: Characters of an expression that is named again.
_SHORT = 60


class PromptOwner(Protocol):
    """What the commands need of their session."""

    console: Console
    sources: SourceFetcher
    facts: Body | None
    error: str
    brief: bool
    lines: int | None


if TYPE_CHECKING:

    class _Pdb(pdb.Pdb):
        """With the parts of pdb that typeshed leaves out."""

        def _error_exc(self) -> None: ...

        def _msg_val_func(self, arg: str, func: Callable[[Any], str]) -> None: ...

        def _safe_repr(self, obj: object, expr: str) -> str: ...

        def _exec_in_closure(self, source: str, global_names: Any, names: Any) -> bool: ...
else:
    _Pdb = pdb.Pdb


class PromptPdb(_Pdb):
    """pdb on the streams of a session. ``readrc``: obey the user's ``.pdbrc``."""

    def __init__(self, owner: PromptOwner, *, readrc: bool) -> None:
        self._mine: list[bdb.Breakpoint] = []
        #: An expression that is asked of many ranks, while it is evaluated.
        self._asked = ""
        #: What is said behind the next error.
        self._remark = ""
        streams: dict[str, Any] = {"stdin": standard_in, "stdout": standard_out}
        super().__init__(**streams, nosigint=True, readrc=readrc)
        self._owner = owner

    def setup(self, f: FrameType | None, tb: TracebackType | None) -> Any:
        result = super().setup(f, tb)
        self._owner.sources.ensure_stack(self.stack)
        return result

    def canonic(self, filename: str) -> str:
        # Typed code may be called "<stdin>-3"; that is no file of the current directory.
        return filename if filename.startswith("<") else super().canonic(filename)

    def lookupmodule(self, filename: str) -> str | None:
        # The user's own files first: a file that exists only in the program has no place on sys.path.
        return self._owner.sources.find(filename, self.stack) or super().lookupmodule(filename)

    def message(self, msg: object, end: str = "\n") -> None:  # `end`: new in 3.13
        self._owner.console.write(f"{msg}{end}")

    def error(self, msg: object) -> None:
        self._owner.error = f"{msg}{self._remark}"
        self.message(f"*** {self._owner.error}")

    # -- nothing leaves the prompt -------------------------------------------------------------------------------------
    # A __repr__ or an __eq__ may raise SystemExit; what is looked at must not decide how the rank goes on.

    def onecmd(self, line: str) -> bool:
        return bool(self._kept(super().onecmd, line))

    def preloop(self) -> None:
        self._kept(super().preloop)  # values that are displayed at each prompt

    def format_stack_entry(self, frame_lineno: tuple[FrameType, int], lprefix: str = ": ") -> str:
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

    def _kept(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except DEBUGGERS_OWN:
            raise
        except BaseException:
            self._error_exc()
            return None

    def _error_exc(self) -> None:
        self._remark = self._where_known(sys.exception()) if self._asked else ""
        try:
            super()._error_exc()
        except DEBUGGERS_OWN:
            raise
        except BaseException as error:  # the exception's own text, or that of its class
            shown = error.__context__ or error
            self.error(f"{class_name(shown)}: {safe_text(shown, str)}")
        finally:
            self._remark = ""

    def forget(self) -> None:
        for frame, _ in self.stack if hasattr(self, "stack") else ():
            left_alone(frame)
        super().forget()

    # -- expressions and assignments ---------------------------------------------------------------------------------

    def default(self, line: str) -> None:
        source = self._whole_statement(line).removeprefix("!").strip()
        try:
            with self._assigning(), displayed(self.displayhook):
                code = awaiting.compiled(source, "single")
                if code is not None:
                    self._run_awaiting(code)
                    return
                code = compile(source + "\n", "<stdin>", "single")
                if self.curframe is None:
                    raise NameError("there is no stack frame")
                names = self.curframe.f_globals, self.curframe_locals
                # From 3.13 on: what is nested in the statement sees the local variables, too.
                if sys.version_info < (3, 13) or not self._exec_in_closure(source, *names):
                    exec(code, *names)
        except BaseException:
            self._error_exc()

    def _exec_in_closure(self, source: str, global_names: Any, names: Any) -> bool:
        before = dict(names)
        after = dict(before)
        if not super()._exec_in_closure(source, global_names, after):
            return False
        names.update(changed(before, after))  # pdb writes all of them, also those that other threads have changed
        return True

    def _whole_statement(self, line: str) -> str:
        """Return the statement that begins with ``line``: further lines are read as at Python's own prompt."""
        source = line.removeprefix("!").strip()
        try:
            compile(source + "\n", "<stdin>", "single")
            return line
        except (SyntaxError, ValueError, OverflowError):
            pass  # incomplete, or wrong: below
        while _is_incomplete(source):
            standard_out.write(CONTINUES)
            following = standard_in.readline()
            if not following:
                break  # the end of the input: what there is, is said to be wrong
            source += "\n" + following.rstrip("\n")
        return source

    def _getval(self, arg: str) -> Any:
        self._asked = arg if self._owner.brief else ""
        try:
            return self._value_of(arg)
        finally:
            self._asked = ""

    def _value_of(self, arg: str) -> Any:
        with self._assigning() if ":=" in arg else self._reading():
            code = awaiting.compiled(arg, "eval")
            if code is None:
                return super()._getval(arg)
            try:
                return self._run_awaiting(code)
            except BaseException:
                self._error_exc()
                raise

    def _run_awaiting(self, code: CodeType) -> Any:
        if self.curframe is None:
            raise NameError("there is no stack frame")
        return awaiting.run(eval(code, self.curframe.f_globals, self.curframe_locals), self._owner.console)

    @contextlib.contextmanager
    def _assigning(self) -> Iterator[None]:
        """Let assignments of a command reach the variables of the current stack frame."""
        catch_streams()
        frame = self.curframe
        if frame is None:
            yield
            return
        try:
            with assigned(frame) as self.curframe_locals:
                yield
        finally:
            self.curframe_locals = frame.f_locals

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Let a command see the variables as they are now: other threads may have changed them."""
        catch_streams()
        if self.curframe is not None:
            self.curframe_locals = self.curframe.f_locals
        yield

    def do_p(self, arg: str) -> None:
        if self._owner.brief:
            self._describe(arg, describe)
        else:
            super().do_p(arg)

    def do_pp(self, arg: str) -> None:
        if self._owner.brief:
            self._describe(arg, describe_pretty)
        else:
            super().do_pp(arg)

    def do_source(self, arg: str) -> None:
        if self._owner.brief:
            self._describe(arg, lambda value: (self._owner.sources.source_of(value), None))
        else:
            super().do_source(arg)

    def _msg_val_func(self, arg: str, func: Callable[[Any], str]) -> None:  # of `p` and `pp`
        super()._msg_val_func(arg, lambda value: self._shown(func(value), arg))

    def _safe_repr(self, obj: object, expr: str) -> str:  # of `args`, `retval` and `display`
        return self._shown(super()._safe_repr(obj, expr), expr)

    def displayhook(self, obj: object) -> None:  # of an expression that was typed alone
        if obj is not None:
            self.message(self._shown(repr(obj), ""))

    def _shown(self, text: str, expression: str) -> str:
        """Return as much of a value's text as fits a screen, and how to see the rest; all of it, if that is wanted."""
        what = expression if 0 < len(expression) <= _SHORT else "..."
        return shortened(text, self._owner.lines, f"print({what}) shows all")

    def _where_known(self, problem: BaseException | None) -> str:
        """Return what helps somebody who asks many ranks for a name that is not known where this one stands; or ""."""
        frame = self.curframe
        if frame is None or not isinstance(problem, NameError) or problem.name not in _names_in(self._asked):
            return ""
        known = ""
        for up in range(1, self.curindex + 1):
            code = self.stack[self.curindex - up][0].f_code  # its variables are not read: see `variables`
            if problem.name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
                known = f"; {problem.name} is known {up} up, in {code.co_name}(): cast ACTOR ranks(...) u {up}"
                break
        place = f"{frame.f_code.co_name}(), {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        return f" (looked up where the rank stands, in {place}{known})"

    def _describe(self, arg: str, how: Callable[[Any], tuple[str, Body | None]]) -> None:
        try:
            value = self._getval(arg)
        except DEBUGGERS_OWN:
            raise
        except BaseException:
            return  # it has shown the error
        text, self._owner.facts = how(value)
        self.message(text)

    # -- commands ------------------------------------------------------------------------------------------------------

    def do_clear(self, arg: str) -> None:
        if arg:
            super().do_clear(arg)
            return
        mine = self._own_breaks()
        for bp in mine:
            self.clear_bpbynumber(bp.number)
            self.message(f"Deleted {bp}")
        if not mine:
            self.message("There are no breakpoints")

    do_cl = do_clear

    def do_EOF(self, arg: str) -> None:
        self.message("*** end of input; `c` resumes this rank, `q` aborts its endpoint")

    def do_run(self, arg: str) -> None:
        self.error("a rank cannot be restarted from here")

    do_restart = do_run

    def do_interact(self, arg: str) -> None:
        if self.curframe is not None:
            _Interpreter({**self.curframe.f_globals, **self.curframe_locals}).run()

    def _load_breaks(self) -> None:
        """Breakpoints of other sessions on this rank are theirs."""

    def set_break(
        self, filename: str, lineno: int, temporary: bool = False, cond: str | None = None, funcname: str | None = None
    ) -> str | None:
        problem = super().set_break(filename, lineno, temporary, cond, funcname)
        if problem is None:
            self._mine.append(bdb.Breakpoint.bplist[self.canonic(filename), lineno][-1])
        return problem

    def _own_breaks(self) -> list[bdb.Breakpoint]:
        """Return those that were set here and are there; the others on the same lines are of other sessions."""
        self._mine = [bp for bp in self._mine if bp in bdb.Breakpoint.bpbynumber]
        return list(self._mine)

    def _prune_breaks(self, filename: str, lineno: int) -> None:
        if all((bp.file, bp.line) != (filename, lineno) for bp in self._own_breaks()):
            self.breaks[filename].remove(lineno)
            if not self.breaks[filename]:
                del self.breaks[filename]

    def forget_breaks(self) -> None:
        """Drop what a session has set: its breakpoints end with it."""
        for bp in self._own_breaks():
            bp.deleteMe()
        self.breaks.clear()
        if not any(bdb.Breakpoint.bpbynumber):
            bdb.Breakpoint.clearBreakpoints()  # numbers start at 1 again, so that equal ranks give equal answers


def _is_incomplete(source: str) -> bool:
    try:
        return codeop.compile_command(source, "<stdin>", "single") is None
    except (SyntaxError, ValueError, OverflowError):
        return False  # it is wrong, whatever follows


def _names_in(expression: str) -> tuple[str, ...]:
    try:
        return compile(expression.strip(), "<expression>", "eval").co_names
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
        return ()  # that is the error which was shown


class _Interpreter(code.InteractiveConsole):
    """The ``interact`` command: Python's own prompt on the session's streams."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__({**namespace, "exit": sys.exit, "quit": sys.exit})

    def run(self) -> None:
        with contextlib.suppress(SystemExit):
            self.interact(banner="*interactive* (exit() or Ctrl-D returns to pdb)", exitmsg="")

    def write(self, data: str) -> None:
        standard_out.write(data)
