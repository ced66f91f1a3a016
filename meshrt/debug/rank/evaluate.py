"""Expressions in a running actor: evaluated beside it, while nothing is stopped.

Each expression gets a thread of its own, so that one that hangs blocks no other. It sees the actor while it changes.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from meshrt.debug.advice import how_to_stop
from meshrt.debug.rank import awaiting
from meshrt.debug.rank.by_value import named_by_value
from meshrt.debug.rank.console import routed
from meshrt.debug.rank.shared import within_limit
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.debug.rank.suspended import holding, may_break, raise_in, runs_lines, take_back
from meshrt.debug.rank_operations import EVALUATION_SECONDS, Accepted, CancelExpression, Evaluate, Value
from meshrt.errors import MeshError
from meshrt.hooks.facts import ActorState
from meshrt.hooks.operations import Answers, Grouped
from meshrt.hooks.services import RankServices
from meshrt.inspect.capping import cap
from meshrt.inspect.facts import Facts, within
from meshrt.inspect.values import describe, describe_pretty, safe_text
from meshrt.transport.threads import RuntimeThread

__all__ = ["Evaluator", "namespace_of"]

#: Most expressions that run or hang in a rank; further ones are refused.
_HANGING_MAX = 64
#: Pause until an expression is looked at again that could not be interrupted: the first and the longest, seconds.
_RETRY_SECONDS = 0.01
_RETRY_MAX_SECONDS = 0.5


class _Expression:
    """One evaluation, and what has come of it: an interrupt, if nothing else."""

    def __init__(self, asked: Evaluate) -> None:
        self.asked = asked
        self.since = time.monotonic()
        #: Of its thread, once that runs.
        self.ident = 0
        self.begun = False
        #: KeyboardInterrupt was raised in it from outside.
        self.interrupted = False
        self.output = _Output()
        self.text = KeyboardInterrupt.__name__
        self.facts: Facts | None = None
        self.failed = True


class Evaluator:
    """Evaluates and cancels.

    Args:
        quiet: Idents of threads in which breakpoints are ignored.
    """

    def __init__(self, services: RankServices, sources: SourceFetcher, quiet: set[int]) -> None:
        self._services = services
        self._sources = sources
        self._quiet = quiet
        self._running: set[_Expression] = set()
        self._lock = threading.RLock()

    def evaluate(self, asked: Evaluate, answer: Answers[Grouped[Value, Facts]]) -> None:
        """Evaluate an expression. On the control thread.

        Args:
            answer: Called once, on the thread of the expression.
        Raises:
            MeshError: Unknown actor or command, too many expressions, or no thread can be started.
        """
        name, command = asked.actor, asked.command
        actor = next((actor for actor in self._services.actors() if actor.name == name), None)
        if actor is None or actor.instance is None:
            state = "has not started yet, or has ended" if actor is not None else "is not on this rank"
            raise MeshError(f"actor {name!r} {state}")
        if command not in _COMMANDS:
            raise MeshError(f"{command!r} does not work on a running actor; expected one of {', '.join(_COMMANDS)}")
        with self._lock:
            if len(self._running) >= _HANGING_MAX:
                raise MeshError(f"{len(self._running)} expressions have not ended on this rank; no more are accepted")
            expression = _Expression(asked)
            self._running.add(expression)
        try:
            RuntimeThread(target=self._run, args=(actor, expression, answer), name="meshrt-eval", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # the system's limit of threads
            self._end(expression)
            reason = str(error) or type(error).__name__
            raise MeshError(f"this rank cannot start a thread for the expression: {reason}") from None

    def cancel(self, asked: CancelExpression) -> Accepted:
        """Raise KeyboardInterrupt in an expression, once C code returns there. On the control thread."""
        found = [expression for expression in list(self._running) if expression.asked.number == asked.number]
        for expression in found:
            self._interrupt(expression, _RETRY_SECONDS)
        return Accepted(bool(found))

    def cancel_late(self, actor: str) -> None:
        """The same of the expressions in an actor for which nobody waits any more. On the control thread."""
        before = time.monotonic() - EVALUATION_SECONDS
        for expression in list(self._running):
            if expression.asked.actor == actor and expression.since < before:
                self._interrupt(expression, _RETRY_SECONDS)

    def _interrupt(self, expression: _Expression, pause: float) -> None:
        with self._lock:
            if expression not in self._running or expression.interrupted:
                return
            if may_break(sys._current_frames().get(expression.ident)):
                expression.interrupted = True
                raise_in(expression.ident, KeyboardInterrupt)
                return
        again = min(2 * pause, _RETRY_MAX_SECONDS)
        self._services.call_later(pause, lambda: self._interrupt(expression, again))

    def _end(self, expression: _Expression) -> None:
        def end() -> None:
            self._running.discard(expression)
            if expression.interrupted:
                take_back()

        holding(self._lock, end)

    def _run(self, actor: ActorState, expression: _Expression, answer: Answers[Grouped[Value, Facts]]) -> None:
        ident = expression.ident = threading.get_ident()
        self._quiet.add(ident)
        try:
            self._work(actor, expression)
        except KeyboardInterrupt:  # it was interrupted when it had just ended: that comes once
            self._work(actor, expression)
        self._quiet.discard(ident)
        if actor.loop is not None:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                # What the loop waits for may be there now; a change by another thread does not wake it.
                actor.loop.call_soon_threadsafe(_nothing)
        limit = within_limit(expression.asked.limit)
        text = cap(expression.output.text + expression.text, limit)
        answer(Grouped(Value(text, expression.failed), within(expression.facts, limit)), "")

    def _work(self, actor: ActorState, expression: _Expression) -> None:
        if not expression.begun:
            expression.begun = True
            try:
                with routed(expression.output):
                    expression.text, expression.facts = self._show(actor, expression.asked)
                expression.failed = False
            except BaseException as problem:  # sys.exit() in an expression ends the expression
                expression.text = f"{type(problem).__name__}: {safe_text(problem, str)}".removesuffix(": ")
                if type(problem) is NameError:
                    how = _how_to_stop(actor, expression.asked.label, expression.asked.ranks)
                    expression.text += f" (the actor is running: only {_known_to(actor)} are known; for locals: {how})"
        self._end(expression)

    @runs_lines
    def _show(self, actor: ActorState, asked: Evaluate) -> tuple[str, Facts | None]:
        command, expression = asked.command, asked.expression
        namespace = namespace_of(actor)
        code = awaiting.compiled(expression, "eval")
        if code is not None:
            how = _how_to_stop(actor, asked.label, asked.ranks)
            raise SyntaxError(f"`await` works only in a stopped actor; stop the actor ({how}) or call an endpoint")
        value = eval(compile(expression.strip(), "<expression>", "eval"), namespace)
        if inspect.iscoroutine(value):
            value.close()
        if command == "source":
            return self._sources.source_of(value), None
        return _COMMANDS[command](value)


def _known_to(actor: ActorState) -> str:
    by_value = actor.script is None and named_by_value(type(actor.instance))
    return "`self`, its class and what the class uses of the script" if by_value else "`self` and its module's names"


def _how_to_stop(actor: ActorState, label: str, ranks: str) -> str:
    reachable = actor.loop is not None or actor.thread == threading.main_thread().ident
    return how_to_stop(label or actor.name, ranks, first=reachable)


def _nothing() -> None:
    pass


class _Output(io.StringIO):
    """The output of an expression; it has no input."""

    @property
    def text(self) -> str:
        printed = self.getvalue()
        return printed if not printed or printed.endswith("\n") else printed + "\n"

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        raise EOFError("input() has no input in an expression")


def namespace_of(actor: ActorState) -> dict[str, object]:
    """Return the names that an expression in ``actor`` sees: ``self``, and the globals of its class's module, or of
    the script that it runs. Of a module that the rank has by value, those are its class and what that uses.
    """
    cls = type(actor.instance)
    names: Mapping[str, object] = {}
    module = sys.modules.get(cls.__module__)
    if actor.script is not None:
        names = actor.script
    elif module is not None and module.__dict__.get(cls.__name__) is cls:
        names = module.__dict__
    else:
        names = named_by_value(cls)
    return {**names, "self": actor.instance}


def _what_is(value: Any) -> tuple[str, Facts | None]:
    """Return the text of pdb's ``whatis``."""
    function = getattr(value, "__func__", value)
    code = None
    with contextlib.suppress(Exception):
        code = function.__code__
    if code is not None:
        kind = "Method" if function is not value else "Function"
        return f"{kind} {code.co_name}", None
    if isinstance(value, type):
        return f"Class {value.__module__}.{value.__qualname__}", None
    return str(type(value)), None


_COMMANDS: dict[str, Callable[[object], tuple[str, Facts | None]]] = {
    "p": describe,
    "pp": describe_pretty,
    "whatis": _what_is,
    "source": _what_is,
}
