"""Exceptions on their way: an object that pickle can rebuild in each process that has the class.

pickle calls the class again with the ``args`` of the exception, which is an error where its ``__init__`` takes others:
``BatchError(step, why)`` that gives one text to ``super().__init__``. Nothing of ``__init__`` need run again: what it
has set is sent.
"""

from __future__ import annotations

import types
from typing import TypeVar

from meshrt.wire.codec import own_attribute

__all__ = ["sendable"]

E = TypeVar("E", bound=BaseException)


def sendable(error: BaseException) -> object:
    """Return what to pickle for an exception; unpickled it is the exception, with its ``args`` and its attributes."""
    kind = type(error)
    own = kind.__reduce__ is not BaseException.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__
    made = isinstance(kind.__new__, types.BuiltinFunctionType) and isinstance(kind.__init__, types.FunctionType)
    return error if own or not made else _Sent(error)


class _Sent:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[object, ...]:
        error = self._error
        facts = own_attribute(error, "__dict__")
        return _rebuilt, (type(error), own_attribute(error, "args")), facts or None, None, None, _set


def _rebuilt(kind: type[E], args: tuple[object, ...]) -> E:
    return kind.__new__(kind, *args)


def _set(error: BaseException, facts: dict[str, object]) -> None:
    error.__setstate__(facts)
