"""Memory that neither the collector nor ``__sizeof__`` reports: classes written in C that give it on request.

The collector knows no referents of objects that it does not track (of a class without ``Py_TPFLAGS_HAVE_GC``). Most
have none. Those that have are listed here by class, and read through the class's own descriptors, so that a user's
subclass is not run.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["TOLD", "Told", "inline_values", "range_size"]

Told = Callable[[Any], Iterable[Any]]
_POINTER = 8
#: The most attributes that instances of a class keep in an array of their own.
_MOST_INLINE = 29


def _of_zone(zone: datetime.timezone) -> Iterable[object]:
    arguments: Iterable[object] = datetime.timezone.__getinitargs__(zone)  # type: ignore[attr-defined]  # for copy, pickle
    return arguments


def _attributes(cls: type, *names: str) -> Told:
    getters = [vars(cls)[name].__get__ for name in names]
    return lambda value: [getter(value) for getter in getters]


#: Returns the referents of objects of a class, or of a subclass.
TOLD: dict[type, Told] = {
    datetime.datetime: _attributes(datetime.datetime, "tzinfo"),
    datetime.time: _attributes(datetime.time, "tzinfo"),
    datetime.timezone: _of_zone,
    range: _attributes(range, "start", "stop", "step"),
}


def range_size(value: range) -> int:
    """Return the bytes of a range itself, with the number in it that is its length."""
    start, stop, step = value.start, value.stop, value.step
    length = max(0, (stop - start + step - (1 if step > 0 else -1)) // step)
    return object.__sizeof__(value) + (0 if length <= _SMALL else sys.getsizeof(length))


#: Numbers up to this one exist anyway.
_SMALL = 256


def inline_values(count: int) -> int:
    """Return the least bytes of the array in which an instance keeps ``count`` attributes: Python does not count it.

    The array has room for one attribute more than instances of the class have had, and before it a byte for each, for
    their order. Source: ``PyDictValues`` in CPython's Objects/dictobject.c; from 3.13 on it is in the object itself.
    """
    slots = min(count + 1, _MOST_INLINE)
    if sys.version_info >= (3, 13):
        return _rounded(slots) + (slots + 1) * _POINTER
    return _rounded(slots + 2) + slots * _POINTER


def _rounded(size: int) -> int:
    return -(-size // _POINTER) * _POINTER
