"""Exceptions of user code, read without using the attributes or methods of their classes."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

from meshrt.inspect.visibility import is_hidden
from meshrt.wire.codec import own_attribute

__all__ = ["Linked", "chain_of", "frames_of"]


class Linked(NamedTuple):
    """An exception that led to another one."""

    exception: BaseException
    #: Given by ``raise ... from``; False: it was being handled when the other one was raised.
    explicit: bool


def chain_of(exception: BaseException, *, suppressed: bool = False) -> Iterator[Linked]:
    """Iterate over the exceptions that led to ``exception``, the nearest first.

    Args:
        suppressed: Include those that ``raise ... from None`` leaves out.
    """
    seen = {id(exception)}  # user code may have made the chain a cycle
    current = exception
    while True:
        cause = own_attribute(current, "__cause__")
        following = cause
        if cause is None and (suppressed or not own_attribute(current, "__suppress_context__")):
            following = own_attribute(current, "__context__")
        if not issubclass(type(following), BaseException) or id(following) in seen:
            return
        seen.add(id(following))
        yield Linked(following, cause is not None)
        current = following


def frames_of(exception: BaseException, most: int) -> list[tuple[FrameType, int]]:
    """Return the frames and lines where ``exception`` was raised, outermost first, without the runtime's own.

    Args:
        most: Most frames; the middle of a longer stack is left out.
    """
    entries = []
    walker = own_attribute(exception, "__traceback__")
    while walker is not None:
        if not is_hidden(walker.tb_frame):
            entries.append((walker.tb_frame, walker.tb_lineno or 0))
        walker = walker.tb_next
    return entries if len(entries) <= most else entries[: most // 2] + entries[-most // 2 :]
