"""Plain data as objects of typed classes, on any thread. This module imports nothing of meshrt.

msgspec looks at a class when something is converted to it for the first time, and runs Python code meanwhile. Another
thread that converts to it, or to a class with a field of it, finds it half made, and the interpreter crashes (seen with
msgspec 0.22.0 in a terminal whose two threads got their first answers at once). So first conversions take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TypeVar

import msgspec

__all__ = ["convert"]

T = TypeVar("T")

_first = threading.Lock()
#: Types that something was converted to: msgspec knows them, and all that is in them.
_known: set[object] = set()


def convert(plain: object, kind: type[T], builtin_types: Iterable[type] = ()) -> T:
    """Return plain data as a ``kind``; as `msgspec.convert`.

    Raises:
        msgspec.ValidationError: It is not valid.
    """
    if kind in _known:
        return msgspec.convert(plain, kind, builtin_types=builtin_types)
    with _first:
        try:
            return msgspec.convert(plain, kind, builtin_types=builtin_types)
        finally:
            _known.add(kind)
