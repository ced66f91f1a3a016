"""How values are shortened in the console, on hover, and among the watches.

"Copy Value" gives the full value, and expanding it gives its parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from typing import cast

from meshrt.inspect.values import class_name, describe, is_array

__all__ = ["CONTEXTS", "WHOLE", "briefly", "cut"]

#: The places of shortened values: ``context`` of the request.
CONTEXTS = ("repl", "hover", "watch")
#: Key of the ``format`` of a request that wants the full text of the engine.
WHOLE = "meshWhole"
#: Characters of a value, and items that the engine shows of a container.
_LONGEST = 1000
_ITEMS = 60
#: Types whose length is known without running code of the user.
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, deque)
_TEXTS = (str, bytes, bytearray)


def briefly(value: object, text: str) -> str:
    """Return the short text of ``value``. ``text`` is the engine's text of it; an array is shown as `p` shows it."""
    if is_array(value):
        text, _ = describe(value)
    kind = type(value)
    size = len(cast(Sized, value)) if kind in _SIZED else None
    more = size is not None and size > _ITEMS and kind not in _TEXTS
    what = class_name(value) if size is None else f"{class_name(value)} of {size}"
    return cut(text, what, more=more)


def cut(text: str, what: str = "", *, more: bool = False) -> str:
    """Return a text; if it is long, its beginning and a note of what it is part of.

    Args:
        what: Describes the value of the text; "": the note tells the number of characters.
        more: The text is incomplete even if it is short.
    """
    long = len(text) > _LONGEST
    if not long and not more:
        return text
    return f"{text[:_LONGEST]}{' ...' if long else ''}  ({what or f'{len(text)} characters'})"
