"""How objects of a class are measured, determined once for each class and without running code of the class."""

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
from meshrt.store.tensors import loaded_class

__all__ = ["ATOMS", "PLAIN", "Kind", "Kinds"]

#: Classes that ``sys.getsizeof`` counts completely, and that refer to nothing.
ATOMS = frozenset((int, float, complex, bool, str, bytes, bytearray, type(None), type(...), type(NotImplemented)))
#: Classes that it counts completely, except their referents.
PLAIN = ATOMS | {list, tuple, dict, set, frozenset, deque}

#: Not part of what a variable holds: these objects exist anyway, and almost everything can be reached from them.
_SKIPPED = (type, ModuleType, CodeType)
#: Flags of a class (CPython's Include/object.h).
_MANAGED_WEAKREF, _MANAGED_DICT, _GC = 1 << 3, 1 << 4, 1 << 14
#: Bytes in front of an object known to the collector, and of an object with attributes or weak references there.
_GC_HEAD = _MANAGED_HEAD = 16


class Kind(NamedTuple):
    """One class.

    Attributes:
        how: ``"skip"``, ``"reference"`` (to shared memory: it has no memory itself), ``"object"``, ``"function"``,
            ``"frame"``, or a kind of `Buffers`.
        sizeof: The ``__sizeof__`` of its built-in base class, even if the class overrides it.
        head: Bytes in front of the object.
        attributes: Whether its instance variables are in an array that no count of Python includes.
        is_dict: Whether its objects are dicts.
        hides: Why its objects may hold more than can be seen; "" if they do not.
        told: Returns the referents of an object, if the collector does not know them; None if it does.
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
        #: What a call has returned is the user's, although the runtime has the class.
        self._values = loaded_class("meshrt.mesh.value_mesh", "ValueMesh")
        #: By identity, as a metaclass may define ``==``; with the class, to keep it alive.
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
        if not buffer and module_name(cls).partition(".")[0] == "meshrt" and cls is not self._values:
            return Kind("skip")  # handles of the runtime, from which all of it can be reached
        flags = int(type.__dict__["__flags__"].__get__(cls))
        head = (_GC_HEAD if flags & _GC else 0) + (_MANAGED_HEAD if flags & (_MANAGED_DICT | _MANAGED_WEAKREF) else 0)
        sizeof = _sizeof(chain)
        if cls is FunctionType:
            return Kind("function", object.__sizeof__, head)
        if cls is FrameType:
            return Kind("frame", sizeof, head)
        if cls is range:
            return Kind("object", range_size, told=TOLD[range])
        # The instance variables of a container cannot be told apart from its other referents.
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
    """Return the ``__sizeof__`` that is written in C: a user's override may raise, or count something else."""
    for base in chain:
        found = type.__dict__["__dict__"].__get__(base).get("__sizeof__")
        if isinstance(found, MethodDescriptorType | WrapperDescriptorType | BuiltinFunctionType):
            return found
    return object.__sizeof__
