"""Exceptions of user code, looked at around their classes: none of their attributes or methods is asked."""

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
    #: Named by ``raise ... from``, or else only at work when the other one was raised.
    explicit: bool


def chain_of(exception: BaseException, *, suppressed: bool = False) -> Iterator[Linked]:
    """Go through what led to ``exception``, the nearest first.

    Args:
        suppressed: Also through what ``raise ... from None`` leaves out.
    """
    seen = {id(exception)}  # user code may have closed the chain to a ring
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
    """Return where ``exception`` was raised, the outermost frame first, with lines; without the runtime's own.

    Args:
        most: Frames that are wanted; of a longer stack the middle is left out.
    """
    entries = []
    walker = own_attribute(exception, "__traceback__")
    while walker is not None:
        if not is_hidden(walker.tb_frame):
            entries.append((walker.tb_frame, walker.tb_lineno or 0))
        walker = walker.tb_next
    return entries if len(entries) <= most else entries[: most // 2] + entries[-most // 2 :]
