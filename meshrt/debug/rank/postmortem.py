"""What happens when an endpoint raises: nothing, a stop with the live stack frames, or a file about them."""

from __future__ import annotations

import bdb
import os
import traceback
from collections.abc import Mapping
from types import FrameType

from meshrt.debug.protocol import cap
from meshrt.debug.rank.dump import Dumper
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.debug.rank.values import safe_text
from meshrt.debug.stepping import is_hidden, visible
from meshrt.errors import MeshError
from meshrt.hooks import Body, EndpointCall, RankServices

__all__ = ["MODES", "PostMortem", "aborted", "exception_facts", "exception_text"]

#: "default" stops only after a breakpoint of the same endpoint call.
MODES = ("on", "off", "dump", "default")
#: Of the exception that a thread stopped for: stack frames, and characters of its one line.
_MOST_FRAMES = 60
_LONGEST = 300
_ENVIRONMENT = {"1": "on", "0": "off", "on": "on", "off": "off", "dump": "dump"}


class PostMortem:
    """The modes of this rank: one for all actors (the name ""), and exceptions from it."""

    def __init__(self, services: RankServices, sources: SourceFetcher) -> None:
        self._modes: dict[str, str] = {}
        self._default = _ENVIRONMENT.get(os.environ.get("MESHRT_POST_MORTEM", ""), "default")
        self._dumper = Dumper(services, sources)

    def set(self, modes: Mapping[str, str]) -> None:
        """Replace the modes, by actor. Any thread; raises MeshError for an unknown one."""
        unknown = [mode for mode in modes.values() if mode not in MODES]
        if unknown:
            raise MeshError(f"{unknown[0]!r} is no mode for exceptions; expected one of {', '.join(MODES)}")
        self._modes = dict(modes)

    def mode(self, actor: str) -> str:
        """Return the mode of an actor."""
        modes = self._modes
        return modes.get(actor) or modes.get("") or self._default

    def stops(self, call: EndpointCall, exception: BaseException, session: object | None) -> bool:
        """Whether the thread is to be stopped for ``exception``; writes the file about it if that is wanted instead.

        Args:
            session: That of the endpoint call, if it has one.
        """
        # What ends an endpoint on purpose is no failure: SystemExit and cancellations are no Exception. (isinstance
        # would ask the exception itself.)
        if not issubclass(type(exception), Exception) or aborted(exception) or exception.__traceback__ is None:
            return False
        mode = self.mode(call.actor)
        if mode == "dump":
            self._dumper.dump(call, exception)
        return mode == "on" or (mode == "default" and session is not None)


def exception_text(exception: BaseException) -> str:
    """Return what Python writes last about ``exception``; what can be shown of it, if it cannot be shown."""
    try:
        return "".join(traceback.format_exception_only(exception))
    except BaseException as error:  # wrong fields of a SyntaxError, notes that are none: whatever it has in it
        why = type(error).__name__
        return f"{_name(exception)}: {_arguments(exception)}\n(it cannot be shown as usual: {why})\n"


def exception_facts(exception: BaseException) -> Body:
    """Return the stack of ``exception``, outermost first, and its one line."""
    entries: list[tuple[FrameType, int]] = []
    walker = exception.__traceback__
    while walker is not None:
        if not is_hidden(walker.tb_frame):
            entries.append((walker.tb_frame, walker.tb_lineno or 0))
        walker = walker.tb_next
    entries = visible(entries) if entries else []
    if len(entries) > _MOST_FRAMES:
        entries = entries[: _MOST_FRAMES // 2] + entries[-_MOST_FRAMES // 2 :]
    stack = [[frame.f_code.co_filename, line, frame.f_code.co_name] for frame, line in entries]
    return {"stack": stack, "headline": _headline(exception)}


def _headline(exception: BaseException) -> str:
    try:
        text = str(exception)
    except BaseException:
        text = _arguments(exception)
    first = next(iter(text[: 2 * _LONGEST].strip().splitlines()), "")
    return cap((_name(exception) + (f": {first}" if first else ""))[:_LONGEST])[:_LONGEST]


def _name(exception: BaseException) -> str:
    cls = type(exception)
    return cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"


def _arguments(exception: BaseException) -> str:
    return ", ".join(safe_text(argument) for argument in exception.args)[:2000]


def aborted(exception: BaseException) -> bool:
    """Whether ``exception`` is, or comes from, the debugger's own way to end an endpoint."""
    # Around the class of the user's exception: isinstance, its truth and its own attribute access may run any code.
    get = object.__getattribute__
    chain: BaseException | None = exception
    seen: set[int] = set()  # user code may have closed the chain to a ring
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        if issubclass(type(chain), bdb.BdbQuit):
            return True
        cause = get(chain, "__cause__")
        chain = get(chain, "__context__") if cause is None else cause
    return False
