"""How a value is shown where a person reads it in passing: in the console, at the mouse, among the watches.

In full it is had by "Copy Value", and bit by bit by expanding it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from meshrt.inspect.values import class_name, describe, is_array

__all__ = ["CONTEXTS", "WHOLE", "briefly", "cut"]

#: Where (``context`` of the request).
CONTEXTS = ("repl", "hover", "watch")
#: Key of the ``format`` of a request whose asker wants all that the engine tells.
WHOLE = "meshWhole"
#: Characters of a value, and items that the engine shows of a container.
_LONGEST = 1000
_ITEMS = 60
#: Whose length is known without running code of the user's.
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, deque)
_TEXTS = (str, bytes, bytearray)


def briefly(value: Any, text: str) -> str:
    """Return what is shown of ``value``, whose text in the engine's words is ``text``: an array as `p` shows it."""
    if is_array(value):
        text, _ = describe(value)
    kind = type(value)
    size = len(value) if kind in _SIZED else None
    more = size is not None and size > _ITEMS and kind not in _TEXTS
    what = class_name(value) if size is None else f"{class_name(value)} of {size}"
    return cut(text, what, more=more)


def cut(text: str, what: str = "", *, more: bool = False) -> str:
    """Return the beginning of a text, and what it is the beginning of, if it is long.

    Args:
        what: What the text is of.
        more: It is not all of it even if it is short.
    """
    long = len(text) > _LONGEST
    if not long and not more:
        return text
    return f"{text[:_LONGEST]}{' ...' if long else ''}  ({what or f'{len(text)} characters'})"
