"""Handling of an endpoint that raises: nothing, a stop with the live stack frames, or a file about them."""

from __future__ import annotations

import bdb
import os
import traceback
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from meshrt.actor.errors import type_name
from meshrt.debug.protocol import MODES, Mode
from meshrt.debug.rank.dump import Dumper
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.debug.stepping import visible
from meshrt.debug.switch import switched_off
from meshrt.hooks.facts import EndpointCall
from meshrt.hooks.plugins import POST_MORTEM_VALUES
from meshrt.hooks.services import RankServices
from meshrt.inspect.capping import cap
from meshrt.inspect.exceptions import chain_of, frames_of
from meshrt.inspect.values import safe_text
from meshrt.program.places import Place

__all__ = ["NOTHING_RAISED", "PostMortem", "Raised", "aborted", "exception_facts", "exception_text"]

#: Most stack frames, and most characters of the headline, of the exception that a thread stopped for.
_MOST_FRAMES = 60
_LONGEST = 300


class PostMortem:
    """The modes of this rank: one for all actors (the name ""), and exceptions from it.

    Attributes:
        own: The mode that the program has set for this rank; "default" stops only after a stop in the same call.
    """

    def __init__(self, services: RankServices, sources: SourceFetcher) -> None:
        self._modes: dict[str, Mode] = {}
        own = POST_MORTEM_VALUES.get(os.environ.get("MESHRT_POST_MORTEM", ""), "default")
        self.own = next(mode for mode in MODES if mode == own)
        self._dumper = Dumper(services, sources)

    def set(self, modes: Mapping[str, Mode]) -> None:
        """Replace the modes, by actor ("": all). Any thread."""
        self._modes = dict(modes)

    def mode(self, actor: str) -> Mode:
        """Return the mode of an actor."""
        modes = self._modes
        mode = modes.get(actor) or modes.get("") or "default"
        mode = self.own if mode == "default" else mode
        return "off" if mode == "on" and switched_off() else mode

    def stops(self, call: EndpointCall, exception: BaseException, session: object | None) -> bool:
        """Whether the thread has to stop for ``exception``. In mode "dump", write a file about it instead.

        Args:
            session: The session of the endpoint call, if it has one.
        """
        # SystemExit and cancellations end an endpoint on purpose: they are not failures, and not of class Exception.
        # (isinstance would call code of the exception.)
        if not issubclass(type(exception), Exception) or aborted(exception) or exception.__traceback__ is None:
            return False
        mode = self.mode(call.actor)
        if mode == "dump":
            self._dumper.dump(call, exception)
        return mode == "on" or (mode == "default" and session is not None)


def exception_text(exception: BaseException) -> str:
    """Return the last lines of Python's report of ``exception``; if it cannot be shown, the part that can."""
    try:
        return "".join(traceback.format_exception_only(exception))
    except BaseException as error:  # wrong fields of a SyntaxError, invalid notes, and the like
        why = type(error).__name__
        return f"{type_name(exception)}: {_arguments(exception)}\n(it cannot be shown as usual: {why})\n"


class Raised(NamedTuple):
    """The stack of an exception, outermost frame first, and the exception in one line."""

    stack: Sequence[Place]
    headline: str


NOTHING_RAISED = Raised((), "")


def exception_facts(exception: BaseException) -> Raised:
    """Return what is reported of an exception that a thread is stopped for."""
    entries = frames_of(exception, _MOST_FRAMES)
    entries = visible(entries) if entries else []
    stack = [Place(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in entries]
    return Raised(stack, _headline(exception))


def _headline(exception: BaseException) -> str:
    try:
        text = str(exception)
    except BaseException:
        text = _arguments(exception)
    first = next(iter(text[: 2 * _LONGEST].strip().splitlines()), "")
    return cap((type_name(exception) + (f": {first}" if first else ""))[:_LONGEST])[:_LONGEST]


def _arguments(exception: BaseException) -> str:
    return ", ".join(safe_text(argument) for argument in exception.args)[:2000]


def aborted(exception: BaseException) -> bool:
    """Whether ``exception`` is, or was caused by, the one with which the debugger ends an endpoint."""
    chain = (linked.exception for linked in chain_of(exception, suppressed=True))
    return any(issubclass(type(each), bdb.BdbQuit) for each in (exception, *chain))
