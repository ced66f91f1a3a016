"""How objects of a class are measured, found out once for each class and without running code of the class."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple

from meshrt.inspect.values import bases, module_name
from meshrt.memory.buffers import Buffers
from meshrt.memory.hiding import hides
from meshrt.memory.told import TOLD, Told, range_size
from meshrt.store.refs import ObjectRef

__all__ = ["ATOMS", "PLAIN", "Kind", "Kinds"]

#: Of these ``sys.getsizeof`` says all, and they refer to nothing.
ATOMS = frozenset((int, float, complex, bool, str, bytes, bytearray, type(None), type(...), type(NotImplemented)))
#: Of these it says all but what they refer to.
PLAIN = ATOMS | {list, tuple, dict, set, frozenset, deque}

#: Not part of what a variable holds: they are there anyway, and everything hangs on them.
_SKIPPED = (type, ModuleType, CodeType)
#: Flags of a class (CPython's Include/object.h).
_MANAGED_WEAKREF, _MANAGED_DICT, _GC = 1 << 3, 1 << 4, 1 << 14
#: Bytes in front of an object that the collector knows, and of one whose attributes or weak references lie there.
_GC_HEAD = _MANAGED_HEAD = 16


class Kind(NamedTuple):
    """One class.

    Attributes:
        how: ``"skip"``, ``"reference"`` (to shared memory: it has nothing itself), ``"object"``, ``"function"``,
            ``"frame"``, or a kind of `Buffers`.
        sizeof: The count of the built-in class below it, whatever its own ``__sizeof__`` is.
        head: Bytes in front of the object.
        attributes: Whether its instance variables lie in an array that nobody counts.
        is_dict: Whether its objects are dicts.
        hides: Why its objects may hold more than is seen; "" where they do not.
        told: Returns what an object refers to, where the collector does not tell it; None where it does.
    """

    how: str
    sizeof: Callable[[Any], int] = object.__sizeof__
    head: int = 0
    attributes: bool = False
    is_dict: bool = False
    hides: str = ""
    told: Told | None = None


class Kinds:
    """The classes of one snapshot."""

    def __init__(self) -> None:
        self.buffers = Buffers()
        #: By identity, as a metaclass may compare; with the class, so that it stays what it is.
        self._known: dict[int, tuple[type, Kind]] = {}

    def of(self, cls: type) -> Kind:
        """Return how objects of ``cls`` are measured."""
        known = self._known.get(id(cls))
        if known is None:
            known = self._known[id(cls)] = (cls, self._find(cls))
        return known[1]

    def _find(self, cls: type) -> Kind:
        chain = bases(cls)
        if any(base is skipped for base in chain for skipped in _SKIPPED):
            return Kind("skip")
        if cls is ObjectRef:
            return Kind("reference")
        buffer = self.buffers.kind(cls)
        if not buffer and module_name(cls).partition(".")[0] == "meshrt":
            return Kind("skip")  # handles of the runtime: everything of it hangs on them
        flags = int(type.__dict__["__flags__"].__get__(cls))
        head = (_GC_HEAD if flags & _GC else 0) + (_MANAGED_HEAD if flags & (_MANAGED_DICT | _MANAGED_WEAKREF) else 0)
        sizeof = _sizeof(chain)
        if cls is FunctionType:
            return Kind("function", object.__sizeof__, head)
        if cls is FrameType:
            return Kind("frame", sizeof, head)
        if cls is range:
            return Kind("object", range_size, told=TOLD[range])
        # Of what else a container refers to, its variables cannot be told apart.
        attributes = bool(flags & _MANAGED_DICT) and sizeof is object.__sizeof__
        return Kind(
            buffer or "object",
            sizeof,
            head,
            attributes,
            any(base is dict for base in chain),
            "" if buffer else hides(chain),
            next((TOLD[known] for base in chain for known in TOLD if base is known), None),
        )


def _sizeof(chain: tuple[type, ...]) -> Callable[[Any], int]:
    """Return the ``__sizeof__`` that is written in C: one of the user's may raise, or count something else."""
    for base in chain:
        found = type.__dict__["__dict__"].__get__(base).get("__sizeof__")
        if isinstance(found, MethodDescriptorType | WrapperDescriptorType | BuiltinFunctionType):
            return found
    return object.__sizeof__
