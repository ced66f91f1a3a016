"""Memory that Python's own count of an object does not show: of arrays, tensors, mapped files, and ctypes objects.

numpy and torch are used where the program has loaded them, and never imported. Facts of an array are read through
numpy's (torch's) own class, so the code of a user's subclass is not run.
"""

from __future__ import annotations

import array
import ctypes
import mmap
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from meshrt.inspect.values import bases, class_name, module_name
from meshrt.inspect.variables import attributes
from meshrt.memory.mappings import address_of
from meshrt.memory.variables import Facts
from meshrt.store.lease import Spot, spot_at, spot_of
from meshrt.store.tensors import loaded_class

__all__ = ["HOST", "MAPPED", "SHARED", "Buffers", "Memory", "Place"]

#: Name of the memory of the processor among devices.
HOST = "cpu"
#: ... of a mapping whose address is not known.
MAPPED = "mmap"
#: ... of memory in the store of a host: other processes have it too.
SHARED = "shared memory"

#: The base of all classes of ctypes; it has no public name.
_CTYPES: Any = ctypes.Structure.__base__
#: Classes whose memory an array may show; the owner counts it.
_LENDERS = (bytes, bytearray, memoryview, array.array, mmap.mmap, _CTYPES)

Place = tuple[str, int | Spot]
"""A device, and the address of memory on it, or its part of the store: equal for all variables that reach it."""


class Memory(NamedTuple):
    """What one array holds.

    Attributes:
        own: Bytes of the object itself.
        place, size: Memory that it holds and others may hold too; place None: the memory belongs to its referents.
        owner: Object that has the memory.
        inside: Further objects that it keeps alive, beside those of which the collector knows.
        unknown: Why it may hold more than can be seen; "" if it does not.
    """

    own: int
    place: Place | None
    size: int
    owner: object = None
    inside: Iterator[object] | None = None
    unknown: str = ""


class Buffers:
    """Reads arrays, for one snapshot: it does not know modules that the program loads later."""

    def __init__(self) -> None:
        self._array = loaded_class("numpy", "ndarray")
        self._flat = loaded_class("numpy", "flatiter")
        self._void = loaded_class("numpy", "void")
        self._dtype = loaded_class("numpy", "dtype")
        self._tensor = loaded_class("torch", "Tensor")
        #: How the memory of objects of a class is found.
        self._kinds: tuple[tuple[type | None, str], ...] = (
            *((mmap.mmap, "mmap"), (_CTYPES, "ctypes"), (self._array, "ndarray"), (self._flat, "flatiter")),
            *((self._void, "void"), (self._dtype, "dtype"), (self._tensor, "tensor")),
        )
        #: Whether objects of a class lend, by its identity; with the class, to keep it alive.
        self._lending: dict[int, tuple[type, bool]] = {}
        #: Looked up on torch's class, where a user's subclass cannot override it.
        self._storage: Any = getattr(self._tensor, "untyped_storage", None)

    def kind(self, cls: type) -> str:
        """Return how the memory of objects of a class is found: ``"ndarray"``, ``"mmap"``, ...; "" for others."""
        # By identity: a metaclass may define ==.
        return next((kind for base in bases(cls) for known, kind in self._kinds if base is known), "")

    def memory(self, kind: str, value: Any) -> Memory:
        """Return what ``value`` holds, given its `kind`. Raises whatever numpy or torch raise."""
        if kind == "mmap":
            size = mmap.mmap.__len__(value)
            # A user's subclass may show its memory by code of its own.
            place: Place = (HOST, address_of(value)) if type(value) is mmap.mmap else (MAPPED, id(value))
            return Memory(object.__sizeof__(value), place, size)
        if kind == "ctypes":
            return _of_ctypes(value)
        if kind == "flatiter":  # the collector is not told of its array
            return Memory(object.__sizeof__(value), None, 0, vars(self._flat)["base"].__get__(value))
        if kind == "void":
            return self._of_void(value)
        if kind == "dtype":
            getters = (vars(self._dtype)[name].__get__ for name in ("metadata", "fields", "names", "subdtype"))
            refers = [each for getter in getters if (each := getter(value)) is not None]
            return Memory(object.__sizeof__(value), None, 0, inside=iter(refers))
        return self._of_array(value) if kind == "ndarray" else self._of_tensor(value)

    def facts(self, value: Any) -> Facts:
        """Return shape, dtype and device of an array; {} for other objects. Raises whatever numpy or torch raise."""
        kind = self.kind(type(value))
        if kind == "ndarray":
            shape, dtype = self._get(value, "shape"), self._get(value, "dtype")
            return {"shape": list(shape), "dtype": str(dtype), "device": HOST}
        if kind == "tensor":
            with self._no_dispatch():
                shape, dtype, device = value.shape, value.dtype, value.device
            dtype_name = str(dtype).removeprefix("torch.")
            return {"shape": [int(size) for size in shape], "dtype": dtype_name, "device": str(device)}
        return {}

    def _get(self, array: Any, name: str) -> Any:
        return vars(self._array)[name].__get__(array)

    def _of_array(self, array: object) -> Memory:
        base, nbytes = self._get(array, "base"), int(self._get(array, "nbytes"))
        own = int(vars(self._array)["__sizeof__"](array))
        dtype = self._get(array, "dtype")
        inside: Iterator[object] | None = iter(self._get(array, "flat")) if dtype.kind == "O" else None
        unknown = "objects in a structured array" if dtype.hasobject and inside is None else ""
        if base is not None and class_name(base) != "PyCapsule":
            unknown = unknown or ("" if self._lends(type(base)) else f"memory of a {class_name(base)}")
            return Memory(own, None, nbytes, base, inside, unknown)
        owns = bool(self._get(array, "flags").owndata)
        address = int(self._get(array, "__array_interface__")["data"][0]) if nbytes else 0
        # An array that does not own its memory may show a part of what another object holds.
        unknown = unknown if owns else "memory of a library"
        place = (HOST, address) if nbytes else None
        return Memory(own - nbytes if owns else own, place, nbytes, None, inside, unknown)

    def _of_void(self, record: object) -> Memory:
        """Return what an element of a structured array holds: the whole array, unless it is a copy."""
        members, own = vars(self._void), object.__sizeof__(record)
        base, dtype = members["base"].__get__(record), members["dtype"].__get__(record)
        if base is not None:
            unknown = "" if self._lends(type(base)) else f"memory of a {class_name(base)}"
            return Memory(own, None, 0, base, unknown=unknown)
        unknown = "objects in a structured array" if dtype.hasobject else ""
        return Memory(own + int(dtype.itemsize), None, 0, unknown=unknown)

    def _lends(self, cls: type) -> bool:
        """Whether the memory that an array takes from objects of a class is counted with those objects."""
        known = self._lending.get(id(cls))
        if known is None:
            lenders = (*_LENDERS, self._array, self._tensor)
            lends = any(base is lender for base in bases(cls) for lender in lenders) or (
                module_name(cls).partition(".")[0] == "numpy"  # strides of another array
            )
            known = self._lending[id(cls)] = (cls, lends)
        return known[1]

    def _of_tensor(self, tensor: Any) -> Memory:
        with self._no_dispatch():
            held = self._storage(tensor)
            device, address, size = str(held.device), int(held.data_ptr()), int(held.nbytes())
            # The collector is not told of a gradient; what the graph of a computation holds cannot be found at all.
            grad = tensor.grad if tensor.is_leaf else None
            unknown = "" if tensor.grad_fn is None else "a graph of autograd"
        shown = spot_at(address) if device == HOST else None
        place: Place | None = (device, address) if shown is None else (SHARED, shown)
        if device == "meta":
            place = None
        inside = None if grad is None else iter((grad,))
        return Memory(object.__sizeof__(tensor), place, size, None, inside, unknown)

    @staticmethod
    def _no_dispatch() -> Any:
        """Keep torch from asking a subclass of its tensor."""
        return sys.modules["torch"]._C.DisableTorchFunctionSubclass()


def _of_ctypes(value: Any) -> Memory:
    """Return what a ctypes object has allocated, or else the owner of its memory, which the collector knows."""
    members, own = vars(_CTYPES), object.__sizeof__(value)
    start, size = ctypes.addressof(value), ctypes.sizeof(value)
    base = members["_b_base_"].__get__(value)
    if base is not None:
        first = ctypes.addressof(base)
        inside = first <= start < first + ctypes.sizeof(base)
        return Memory(own, None, 0, unknown="" if inside else "memory behind a pointer")
    if members["_b_needsfree_"].__get__(value):
        small = id(value) <= start < id(value) + own  # it is in the object itself
        return Memory(own if small else own + size, None, 0)
    shown = spot_of(dict(attributes(value)).get("origin")) or spot_at(start)
    if shown is not None:
        return Memory(own, (SHARED, shown), size)
    return Memory(own, None, 0, unknown="" if members["_objects"].__get__(value) else "memory of a library")
