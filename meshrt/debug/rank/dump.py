"""The file about a failed endpoint: what a user would look at, written before the exception is passed on.

Its content: `meshrt.debug.dumpfile`. Writing it never changes the exception: what cannot be shown or written is left
out, and reported once.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import re
import sys
import threading
import time
import traceback
from pathlib import Path
from types import CodeType, FrameType

import msgspec

from meshrt.debug.dumpfile import SCHEMA, Dump, DumpedError, DumpedFrame, LinkedError
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.hooks.facts import EndpointCall
from meshrt.hooks.services import RankServices
from meshrt.inspect.exceptions import chain_of, frames_of
from meshrt.inspect.masking import MASK, capped_message, masked, without_secrets, without_tokens
from meshrt.inspect.values import class_name, module_name, safe_text
from meshrt.inspect.variables import Variables
from meshrt.selection import Shape
from meshrt.show.records import to_text

__all__ = ["Dumper"]

#: Most files that one rank writes: a rank that fails all the time must not fill the disk.
_MOST_FILES = 20
#: Most characters of all values of a file, and of the traceback as text.
_VALUES_MAX = 1_000_000
_TRACEBACK_MAX = 200_000
_MESSAGE_MAX = 10_000
_MOST_FRAMES = 100
_SOURCE_LINES_MAX = 400


class Dumper:
    """Writes the files of this rank. On the threads of the actors."""

    def __init__(self, services: RankServices, sources: SourceFetcher) -> None:
        self._services = services
        self._sources = sources
        self._lock = threading.Lock()
        self._written = 0
        self._told = False
        self._failed = False

    def dump(self, call: EndpointCall, exception: BaseException) -> Path | None:
        """Write the file about ``exception``. Return its path, or None if it was not written. Never raises."""
        with self._lock:
            self._written += 1
            number = self._written
        if number > _MOST_FILES:
            return None
        services = self._services
        actor = re.sub(r"[^\w.-]+", "_", call.actor)[:80]
        name = f"{services.mesh_name}-{call.mesh_id}.{call.rank}-{actor}-{number}.json"
        try:
            text = to_text(SCHEMA.document(msgspec.to_builtins(self._document(call, exception))), default=safe_text)
            path = services.keep_file(f"post-mortem/{name}", text)
        except BaseException as error:  # an error here must not replace the program's own exception
            self._say_failed(error)
            return None
        if not self._told:
            self._told = True
            where = f"{call.actor}.{call.endpoint}() failed on rank {call.rank}"
            print(f"meshrt: {where}; look at it with: python -m meshrt.debug --open {path}", file=sys.stderr)
        return path

    def _say_failed(self, error: BaseException) -> None:
        if not self._failed:
            self._failed = True
            print(f"meshrt: no post-mortem file: {type(error).__name__}: {safe_text(error, str)}", file=sys.stderr)

    def _document(self, call: EndpointCall, exception: BaseException) -> Dump:
        services = self._services
        return Dump(
            actor=call.actor,
            rank=call.rank,
            host=services.host_name,
            pid=services.pid,
            time=time.time_ns() / 1e9,
            endpoint=call.endpoint,
            exception=_exception(exception),
            frames=self._frames(exception),
            mesh=services.mesh_name,
            mesh_id=call.mesh_id,
            coords=Shape.from_wire(call.view).coordinates(call.rank) if call.view else {},
            thread=threading.current_thread().name,
        )

    def _frames(self, exception: BaseException) -> list[DumpedFrame]:
        entries = frames_of(exception, _MOST_FRAMES)
        values = Variables(_VALUES_MAX)
        # Innermost frames first: if something has to be left out, it is of outer ones.
        frames = [self._frame(frame, line, values) for frame, line in reversed(entries)]
        return frames[::-1]

    def _frame(self, frame: FrameType, line: int, values: Variables) -> DumpedFrame:
        code = frame.f_code
        self._sources.ensure(code.co_filename)
        first, source = _source(code, line)
        return DumpedFrame(code.co_filename, line, code.co_name, first, source, _without_secrets(frame, values))


def _without_secrets(frame: FrameType, values: Variables) -> dict[str, str]:
    hidden = {str(name) for name in list(frame.f_locals) if masked(str(name))}
    texts = values.of(frame, hidden)
    return {name: MASK if masked(name) else without_secrets(text) for name, text in texts.items()}


def _exception(exception: BaseException) -> DumpedError:
    chain = [
        LinkedError(*_named(linked.exception), "cause" if linked.explicit else "context")
        for linked in chain_of(exception)
    ]
    try:
        text = "".join(traceback.format_exception(exception))
    except BaseException as error:  # its __str__, or a note
        text = f"(the traceback cannot be shown: {class_name(error)})"
    return DumpedError(*_named(exception), capped_message(text, _TRACEBACK_MAX), chain)


def _named(exception: BaseException) -> tuple[str, str]:
    """Return the class of an exception, with its module, and its text."""
    cls = type(exception)
    module, name = module_name(cls), str(type.__dict__["__qualname__"].__get__(cls))
    return name if module == "builtins" else f"{module}.{name}", capped_message(safe_text(exception, str), _MESSAGE_MAX)


def _source(code: CodeType, line: int) -> tuple[int, list[str]]:
    """Return the lines of a whole function, or those around ``line``, with the number of the first one."""
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno
    block = lines[max(0, first - 1) :]
    if code.co_flags & inspect.CO_OPTIMIZED:
        with contextlib.suppress(Exception):  # the text is not Python any more
            block = inspect.getblock(block)
    if len(block) > _SOURCE_LINES_MAX:
        skipped = max(0, line - first - _SOURCE_LINES_MAX // 2)
        first, block = first + skipped, block[skipped : skipped + _SOURCE_LINES_MAX]
    return first, without_tokens("".join(block)).split("\n")[: len(block)]
