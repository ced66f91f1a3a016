"""The breakpoints that a person set for running ranks: which lines they are on, and whether one stops now.

::

    pending --its file or actor is loaded--> bound --reached, condition true--> hit (once: and then never again)

Pure bookkeeping: who looks at the lines is `meshrt.debug.rank.monitoring` (3.12 and newer) or
`meshrt.debug.rank.tracing`. The table is replaced on the control thread and read on every other one.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

from meshrt.actor.endpoint import endpoints_of
from meshrt.debug.rank.codelines import NoCodeError, Target, body_of, find, is_module, matches
from meshrt.debug.rank.loaded import loaded_code
from meshrt.debug.stepping import is_hidden_code
from meshrt.hooks import ActorState, Body

__all__ = ["BreakTable", "Hit"]

_NOWHERE: Mapping[int, list[Any]] = {}


class Hit(NamedTuple):
    """A breakpoint that stops, and what was wrong with its condition."""

    id: int
    error: str


class _Breakpoint:
    """One row of the table."""

    def __init__(self, spec: Body) -> None:
        self.spec = spec
        self.id = int(spec["id"])
        self.file = str(spec.get("file") or "")
        self.line = int(spec.get("line") or 0)
        self.endpoint = str(spec.get("endpoint") or "")
        self.actor = str(spec.get("actor") or "")
        self.condition = str(spec.get("condition") or "").strip()
        self.once = bool(spec.get("once"))
        self.hits = 0
        self.done = False
        #: By file name; None: there is no such line in it.
        self.targets: dict[str, Target | None] = {}
        self.problem = ""
        self.code: CodeType | None = None
        if self.condition:
            try:
                self.code = compile(self.condition, "<condition>", "eval")
            except (SyntaxError, ValueError) as error:
                self.problem = f"condition {self.condition!r}: {type(error).__name__}: {error}"
                self.done = True

    @property
    def state(self) -> str:
        if self.done and self.problem:
            return self.problem
        if any(self.targets.values()):
            return "bound"
        return self.problem or "pending"

    def bind(self, filename: str, roots: Sequence[CodeType], *, ran: bool) -> None:
        """Look for the line in a file's code."""
        try:
            self.targets[filename] = find(roots, self.line, ran=ran)
        except NoCodeError as error:
            self.targets[filename] = None
            self.problem = str(error)

    def bind_endpoint(self, cls: type) -> None:
        """Look for the endpoint in an actor's class."""
        if self.endpoint not in endpoints_of(cls):
            names = ", ".join(endpoints_of(cls)) or "none"
            if self.actor:
                self.problem = f"{cls.__name__} has no endpoint {self.endpoint!r}; it has {names}"
            return
        function = inspect.unwrap(inspect.getattr_static(cls, self.endpoint))
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            self.targets[code.co_filename] = Target(body_of(code)[0], code.co_firstlineno, code.co_qualname)
        else:
            self.problem = f"endpoint {self.endpoint!r} of {cls.__name__} is no Python function"


class BreakTable:
    """All breakpoints of this rank."""

    def __init__(self) -> None:
        self._rows: dict[int, _Breakpoint] = {}
        self._lock = threading.Lock()
        #: By the id of a code object, which is kept alive: its lines with the breakpoints on them.
        self._codes: dict[int, tuple[CodeType, Mapping[int, list[_Breakpoint]]]] = {}
        #: Whether a file, by its name, has something to look for at all. Always this very dictionary.
        self.files: dict[str, bool] = {}
        #: Whether there is something to look for.
        self.active = False

    @property
    def hits(self) -> dict[int, int]:
        """How often each breakpoint has stopped something."""
        return {row.id: row.hits for row in list(self._rows.values())}

    def replace(self, specs: Iterable[Body], actors: Sequence[ActorState]) -> dict[int, str]:
        """Take a new table; rows that were there keep their hits. Returns by id "bound", "pending" or what is wrong."""
        rows = {}
        for spec in specs:
            row = _Breakpoint(spec)
            before = self._rows.get(row.id)
            if before is not None and before.spec == spec:
                row.hits, row.done = before.hits, before.done
            rows[row.id] = row
        for row in rows.values():
            if row.file and not row.problem:
                for filename, roots in loaded_code(row.file, actors):
                    row.bind(filename, roots, ran=True)
        self._bind_endpoints(rows.values(), actors)
        with self._lock:
            self._rows = rows
            self.active = any(not row.done for row in rows.values())
            self._forget_code()
        return {row.id: row.state for row in rows.values()}

    def clear_in_child(self) -> None:
        """Forget everything in a forked child, where the lock may be held by a thread that is not there."""
        self._lock = threading.Lock()
        self.replace((), ())

    def lines(self) -> dict[int, int]:
        """Return the line on which each breakpoint of a file is, if that is not the one that was asked for."""
        moved = {}
        for row in list(self._rows.values()):
            found = {target.line for target in row.targets.values() if target is not None}
            if row.file and found and row.line not in found:
                moved[row.id] = min(found)
        return moved

    def bind_endpoints(self, actors: Sequence[ActorState]) -> bool:
        """Look again for endpoints of actors that were not there; returns whether something is new."""
        rows = [row for row in list(self._rows.values()) if row.endpoint and not any(row.targets.values())]
        if not rows:
            return False
        self._bind_endpoints(rows, actors)
        if not any(any(row.targets.values()) for row in rows):
            return False
        with self._lock:
            self._forget_code()
        return True

    def _forget_code(self) -> None:
        self._codes = {}
        self.files.clear()

    @staticmethod
    def _bind_endpoints(rows: Iterable[_Breakpoint], actors: Sequence[ActorState]) -> None:
        for row in rows:
            for actor in actors:
                if row.endpoint and row.actor in ("", actor.name) and actor.instance is not None:
                    row.bind_endpoint(type(actor.instance))

    def lines_in(self, code: CodeType) -> Mapping[int, list[Any]]:
        """Return the lines of ``code`` that have breakpoints. Fast when there are none in its file."""
        filename = code.co_filename
        here = self.files.get(filename)
        if here is None:
            here = self.files[filename] = not is_hidden_code(code) and any(
                filename in row.targets or (row.file and matches(filename, row.file)) for row in self._rows.values()
            )
        if not here:
            return _NOWHERE
        known = self._codes.get(id(code))
        if known is None:
            known = self._codes[id(code)] = (code, self._find_lines(code))
        return known[1]

    def _find_lines(self, code: CodeType) -> Mapping[int, list[_Breakpoint]]:
        lines: dict[int, list[_Breakpoint]] = {}
        with self._lock:
            for row in self._rows.values():
                if row.done or (row.problem and row.code is None and row.condition):
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
        if not row.file or not matches(filename, row.file):
            return
        if code.co_name == "<module>":
            row.bind(filename, [code], ran=False)
        elif filename not in row.targets and not is_module(code):
            body = body_of(code)
            if code.co_firstlineno <= row.line <= body[-1]:
                row.bind(filename, [code], ran=True)

    def reached(self, frame: FrameType, actor: Callable[[], str]) -> Hit | None:
        """Return the breakpoint that stops ``frame`` on its line, if there is one.

        Args:
            actor: Says which actor the calling thread works for.
        """
        hit = None
        for row in self.lines_in(frame.f_code).get(frame.f_lineno, ()):
            if row.done or (row.actor and row.actor != actor()):
                continue
            error = ""
            if row.code is not None:
                try:
                    if not eval(row.code, frame.f_globals, frame.f_locals):
                        continue
                except BaseException as problem:  # whatever the expression does must not change the program
                    error = f"condition {row.condition!r} of breakpoint {row.id}: {type(problem).__name__}: {problem}"
            with self._lock:
                if row.done:
                    continue
                row.hits += 1
                row.done = row.once
                self.active = any(not other.done for other in self._rows.values())
            hit = hit or Hit(row.id, error)
        return hit
