"""The breakpoints that the user set for running ranks: which lines they are on, and whether one stops now.

::

    pending --its file or actor is loaded--> bound --reached, condition true--> hit (with ``once``: never again)
       '-- the loaded code has no such line or method --> refused: it is not looked for any more

Pure bookkeeping: `meshrt.debug.rank.monitoring` (3.12 and newer) or `meshrt.debug.rank.tracing` watches the lines. The
table is replaced on the control thread and read on every other one.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import CodeType, FrameType
from typing import NamedTuple, Protocol

from meshrt.actor.endpoint import endpoints_of
from meshrt.debug.rank.codelines import NoCodeError, Target, body_of, find, is_module, loaded_code
from meshrt.debug.rank.users_trace import TraceFunction
from meshrt.debug.rank_operations import BreakHit, BreakSpec, BreakState
from meshrt.debug.stepping import is_hidden_code
from meshrt.files import RUNTIME_FILES, is_library_file
from meshrt.hooks.facts import ActorState
from meshrt.inspect.values import class_name, safe_text
from meshrt.program.places import names_file

__all__ = ["BreakTable", "Hit", "MeshBreaks"]

_NOWHERE: Mapping[int, list[_Breakpoint]] = {}
#: Most characters of an error of a condition in a report.
_WORDS_MAX = 200


class Hit(NamedTuple):
    """A breakpoint that stops; ``error``: that of its condition, "" if there is none."""

    id: int
    error: str


class MeshBreaks(Protocol):
    """The breakpoints for all threads of this rank, as a session uses them. On the session's thread."""

    def watched(self, frame: FrameType) -> bool:
        """Whether trace functions have to look for breakpoints in the code of ``frame``."""

    def traced(self, frame: FrameType) -> bool:
        """Whether a breakpoint that a trace function has found stops here; then the session is told of the hit."""

    def marks(self, frame: FrameType) -> bool:
        """Whether the line of ``frame`` is going to be reported once more, by other means than a trace function."""

    def local(self, frame: FrameType) -> TraceFunction | None:
        """Return the trace function that looks for breakpoints in ``frame``, which is of another call; or None."""

    def follow(self, frame: FrameType | None) -> TraceFunction | None:
        """Give the thread back after a session has traced it: to a call that steps, the user's trace, or breakpoints.

        Returns the local trace function for ``frame``.
        """


class _Breakpoint:
    """One row of the table."""

    def __init__(self, spec: BreakSpec) -> None:
        self.spec = spec
        self.id = spec.id
        self.condition = spec.condition.strip()
        #: The IDE that it belongs to was attached to this rank, and has detached.
        self.left = False
        self.hits = 0
        self.done = False
        #: Its problem was reported to the user who set it.
        self.refused = False
        #: By file name; None: the file has no such line. Never changed, only replaced: other threads iterate over it.
        self.targets: dict[str, Target | None] = {}
        #: Where its method was looked for. An actor that is stopped and made again may be of another class.
        self.classes: weakref.WeakSet[type] = weakref.WeakSet()
        self.problem = ""
        #: The last error of its condition; "": none.
        self.raised = ""
        self.code: CodeType | None = None
        if self.condition:
            try:
                self.code = compile(self.condition, "<condition>", "eval")
            except (SyntaxError, ValueError) as error:
                self.problem = f"condition {self.condition!r}: {type(error).__name__}: {error}"
                self.done = True

    @property
    def line(self) -> int:
        """The actual line, if it is not the one that was requested; or 0."""
        found = {target.line for target in self.targets.values() if target is not None}
        return min(found) if self.spec.file and found and self.spec.line not in found else 0

    @property
    def trouble(self) -> str:
        """Why it stops nothing (code loaded later has no such line), or the error of its condition; "": none."""
        if self.raised:
            return f"the condition raised {self.raised}"
        return "" if any(self.targets.values()) else self.problem

    @property
    def state(self) -> str:
        if self.done and self.problem:
            return self.problem
        if any(self.targets.values()):
            return "bound"
        return self.problem or "pending"

    @property
    def wanted(self) -> bool:
        """Whether it can still stop something."""
        return not (self.done or self.refused or self.left)

    def judge(self) -> None:
        """Refuse it if it has a problem and no target, after all loaded code was searched."""
        self.refused = bool(self.problem) and not any(self.targets.values())

    def bind(self, filename: str, roots: Sequence[CodeType], *, ran: bool) -> None:
        """Look for the line in a file's code; ``ran``: as in `find`."""
        target = None
        try:
            target = find(roots, self.spec.line, ran=ran)
        except NoCodeError as error:
            self.problem = str(error)
        self.targets = {**self.targets, filename: target}

    def new_classes(self, actors: Sequence[ActorState]) -> list[type]:
        """Return the classes of actors in which its method was not looked for yet."""
        named = [each.cls for each in actors if self.spec.method and self.spec.actor in ("", each.name)]
        return [cls for cls in named if cls is not None and cls not in self.classes]

    def bind_method(self, cls: type) -> None:
        """Look for the method in an actor's class."""
        self.classes.add(cls)
        name = self.spec.method
        found = next((vars(each)[name] for each in cls.__mro__ if name in vars(each)), None)
        code = _code_of(found)
        if code is not None and not is_hidden_code(code):
            target = Target(body_of(code)[0], code.co_firstlineno, code.co_qualname)
            self.targets = {**self.targets, code.co_filename: target}
        elif not self.spec.actor:
            return  # another actor may have it
        elif callable(found) and code is None:
            self.problem = f"{name!r} of {cls.__name__} is not a Python function"
        else:
            names = ", ".join(endpoints_of(cls)) or "none"
            self.problem = f"{cls.__name__} has no method {name!r}; its endpoints: {names}"


def _code_of(attribute: object) -> CodeType | None:
    """Return the code of a method or property as its class has it; None: it is neither."""
    function = attribute
    if isinstance(function, property):
        function = function.fget
    elif isinstance(function, staticmethod | classmethod):
        function = function.__func__
    elif isinstance(function, functools.cached_property | functools.partialmethod | functools.singledispatchmethod):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return code if isinstance(code, CodeType) else None


def _is_runtime(file: str) -> bool:
    return file.startswith(RUNTIME_FILES)


class _Version:
    """The rows that were set together, and what was found out about them: a late finding stays with its rows."""

    def __init__(self, rows: Mapping[int, _Breakpoint]) -> None:
        self.rows = rows
        #: By the id of a code object, which is kept alive: its lines with their breakpoints.
        self.codes: dict[int, tuple[CodeType, Mapping[int, list[_Breakpoint]]]] = {}
        #: Whether a file, by its name, has breakpoints at all.
        self.files: dict[str, bool] = {}


class BreakTable:
    """All breakpoints of this rank."""

    def __init__(self) -> None:
        self._now = _Version({})
        # Reentrant: a signal, or an event of code that is called here, leads to `lines_in` on the same thread.
        self._lock = threading.RLock()
        #: Whether a file, by its name, has breakpoints at all, as far as that is known.
        self.files: Mapping[str, bool] = self._now.files
        #: Whether any breakpoint has to be looked for.
        self.active = False
        self._resting = False

    @property
    def version(self) -> object:
        """A new object after every change: earlier findings may be wrong then."""
        return self._now

    def states(self) -> list[BreakState]:
        """Return where each breakpoint is set."""
        near = self._near()
        return [BreakState(row.id, row.state, row.line, near.get(row.id, "")) for row in self._now.rows.values()]

    def hits(self) -> list[BreakHit]:
        """Return what has become of each breakpoint."""
        return [
            BreakHit(row.id, row.hits, row.line, row.trouble, row.left, row.state == "pending")
            for row in self._now.rows.values()
        ]

    def replace(self, specs: Iterable[BreakSpec], actors: Sequence[ActorState]) -> None:
        """Replace the table; rows that stay keep their hits and where they are bound. On the control thread."""
        rows = {row.id: row for row in map(_Breakpoint, specs)}
        for row in rows.values():
            if row.spec.file and not row.problem:
                for filename, roots in loaded_code(row.spec.file, actors):
                    row.bind(filename, roots, ran=True)
        self._bind_methods(rows.values(), actors)
        with self._lock:
            for row in rows.values():
                before = self._now.rows.get(row.id)
                if before is not None and before.spec == row.spec:
                    row.hits, row.done, row.left = before.hits, row.done or before.done, before.left
                    row.raised = before.raised
                    if not row.targets and not row.problem:
                        # An actor that was made meanwhile may be in its endpoint already, which looks no more.
                        row.targets, row.problem = before.targets, before.problem
                row.judge()
            self._change(rows)

    def _change(self, rows: Mapping[int, _Breakpoint]) -> None:
        # In this order: a thread that sees the new version sees what belongs to it.
        self.active = self._is_active(rows)
        self._now = _Version(rows)
        self.files = self._now.files

    def _is_active(self, rows: Mapping[int, _Breakpoint]) -> bool:
        return not self._resting and any(row.wanted for row in rows.values())

    def rest(self, resting: bool, sessions: Collection[str]) -> None:
        """Suspend all breakpoints until the next call, or (``resting`` is False) resume them.

        A breakpoint that belongs to an IDE stops nothing once this IDE has detached, even before it is removed.

        Args:
            sessions: The sessions of the IDEs that control this rank from now on, or have detached from it.
        """
        with self._lock:
            self._resting = resting
            for row in self._now.rows.values():
                if row.spec.goes and row.spec.goes in sessions:
                    row.left = not resting
            self._change(self._now.rows)

    def clear_in_child(self) -> None:
        """Forget everything in a forked child, where the lock may be held by a thread that does not exist."""
        self._lock = threading.RLock()
        self.replace((), ())

    def _near(self) -> dict[int, str]:
        """Return, by id of each breakpoint whose file is not loaded, a user's file with a similar name."""
        pending = {row.id: row.spec.file for row in self._now.rows.values() if row.spec.file and row.state == "pending"}
        if not pending:
            return {}
        files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
        names = {os.path.basename(file) for file in files if not (is_library_file(file) or _is_runtime(file))}
        found = {
            number: difflib.get_close_matches(os.path.basename(file), names, n=1) for number, file in pending.items()
        }
        return {number: close[0] for number, close in found.items() if close}

    def bind_methods(self, actors: Sequence[ActorState]) -> bool:
        """Look again for methods of actors that were not there before. Return whether anything has changed."""
        while True:
            now = self._now
            rows = [row for row in now.rows.values() if row.spec.method and row.wanted and row.new_classes(actors)]
            if not rows:
                return False
            self._bind_methods(rows, actors)
            for row in rows:
                if row.spec.actor:  # otherwise the next actor may have the method
                    row.judge()
            with self._lock:
                if self._now is not now:
                    continue
                if not any(row.refused or any(row.targets.values()) for row in rows):
                    return False
                self._change(now.rows)
                return True

    @staticmethod
    def _bind_methods(rows: Iterable[_Breakpoint], actors: Sequence[ActorState]) -> None:
        for row in rows:
            for cls in row.new_classes(actors):
                row.bind_method(cls)

    def lines_in(self, code: CodeType) -> Mapping[int, list[_Breakpoint]]:
        """Return the lines of ``code`` that have breakpoints. Fast if its file has none. Any thread."""
        now = self._now
        if self._resting:
            return _NOWHERE
        filename = code.co_filename
        here = now.files.get(filename)
        if here is None:
            here = now.files[filename] = not is_hidden_code(code) and any(
                filename in row.targets or (row.spec.file and names_file(row.spec.file, filename))
                for row in now.rows.values()
            )
        if not here:
            return _NOWHERE
        known = now.codes.get(id(code))
        if known is None:
            known = now.codes[id(code)] = (code, self._find_lines(code, now.rows.values()))
        return known[1]

    def _find_lines(self, code: CodeType, rows: Iterable[_Breakpoint]) -> Mapping[int, list[_Breakpoint]]:
        lines: dict[int, list[_Breakpoint]] = {}
        with self._lock:
            for row in rows:
                if not row.wanted:
                    continue
                self._bind_late(row, code)
                target = row.targets.get(code.co_filename)
                if target is not None and target.is_in(code):
                    lines.setdefault(target.line, []).append(row)
        return lines

    @staticmethod
    def _bind_late(row: _Breakpoint, code: CodeType) -> None:
        """Bind a breakpoint of a file that was not loaded when it was set: ``code`` is about to run."""
        filename = code.co_filename
        if not row.spec.file or not names_file(row.spec.file, filename):
            return
        if code.co_name == "<module>":
            row.bind(filename, [code], ran=False)
        elif filename not in row.targets and not is_module(code):
            body = body_of(code)
            if code.co_firstlineno <= row.spec.line <= body[-1]:
                row.bind(filename, [code], ran=True)

    def reached(self, frame: FrameType, actor: Callable[[], str]) -> Hit | None:
        """Return the breakpoint that stops ``frame`` on its line, or None. Counts the hit.

        Args:
            actor: Returns the name of the actor that the calling thread works for.
        """
        hit = None
        for row in self.lines_in(frame.f_code).get(frame.f_lineno, ()):
            if row.done or row.left or (row.spec.actor and row.spec.actor != actor()):
                continue
            error = ""
            if row.code is not None:
                try:
                    if not eval(row.code, frame.f_globals, frame.f_locals):
                        continue
                except BaseException as problem:  # a failing expression must not change the program
                    said = safe_text(problem, str).partition("\n")[0][:_WORDS_MAX]
                    row.raised = f"{class_name(problem)}: {said}"
                    error = f"condition {row.condition!r} of breakpoint {row.id} raised {row.raised}"
            with self._lock:
                now = self._now.rows.get(row.id)
                if now is None or now.spec != row.spec or now.done or now.left:
                    continue  # removed meanwhile, or hit by another thread
                now.hits += 1
                now.done = now.spec.once
                self.active = self._is_active(self._now.rows)
            hit = hit or Hit(row.id, error)
        return hit
