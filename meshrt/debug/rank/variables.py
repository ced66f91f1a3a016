"""Assignments to the local variables of a stopped frame, while other threads may change them too.

From 3.13 on, ``f_locals`` is a view of the variables. Before, it is a copy: reading it copies the variables, and
CPython writes all of them back as soon as a trace function returns. This would undo what a closure on another thread
has changed meanwhile. So only what a statement has changed is written back, and what was only read is not.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator, MutableMapping
from types import FrameType
from typing import Any

__all__ = ["assigned", "changed", "left_alone"]

_ABSENT = object()


@contextlib.contextmanager
def assigned(frame: FrameType) -> Iterator[MutableMapping[str, object]]:
    """Yield the variables of ``frame`` for a statement to change; write back those that are other objects then."""
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        yield frame.f_locals  # a module's are its globals
        return
    before = dict(frame.f_locals)
    left_alone(frame)
    names = dict(before)  # not the frame's own dict: reading f_locals meanwhile would undo assignments
    try:
        yield names
    finally:
        _write(frame, before, names)


def changed(before: dict[str, object], after: MutableMapping[str, object]) -> dict[str, Any]:
    """Return the variables that are another object in ``after`` than in ``before``, or new."""
    return {name: value for name, value in after.items() if before.get(name, _ABSENT) is not value}


def left_alone(frame: FrameType) -> None:
    """Prevent that variables which were read from ``frame`` are written back."""
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        _put(frame, {})


def _write(frame: FrameType, before: dict[str, object], after: dict[str, Any]) -> None:
    code = frame.f_code
    variables = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    changes = changed(before, after)
    deleted = before.keys() - after.keys()
    if deleted:
        current = frame.f_locals
        for name in deleted:
            current.pop(name, None)
        if deleted & variables:
            _to_fast(frame, clear=1)  # a single variable cannot be unbound
    _put(frame, {name: value for name, value in changes.items() if name in variables})
    # Names that are only the user's stay in the dict; variables get their new values there at the next read.
    frame.f_locals.update((name, value) for name, value in changes.items() if name not in variables)
    left_alone(frame)


def _put(frame: FrameType, values: dict[str, object]) -> None:
    """Set these variables, and drop the copies of the others."""
    names = frame.f_locals
    kept = dict(names)
    names.clear()
    names.update(values)
    _to_fast(frame, clear=0)  # missing names are left unchanged
    names.update(kept)
    names.update(values)


def _to_fast(frame: FrameType, *, clear: int) -> None:
    import ctypes  # start-up: needed only at a prompt

    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(clear))
