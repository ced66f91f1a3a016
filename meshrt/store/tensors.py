"""torch's tensors on their way through the store: their bytes travel beside the pickle, as those of arrays do.

Torch pickles a tensor, whatever kind it is (a view, a parameter, a subclass, sparse, quantized), as what it is on top
of a storage, and a storage as a copy of its bytes inside the pickle. Only the latter is done otherwise here, for large
storages in the memory of the processor; so tensors that share a storage share it at the other end.

A tensor cannot be read-only, and a write to read-only memory would end the process. So a storage is made on writable
memory, of which the receiver gets private pages as it writes (`meshrt.store.lease.writable`).

Torch is looked up where the program has loaded it, and never imported.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Protocol

from meshrt.store.lease import writable
from meshrt.wire.codec import Reducers, out_of_band
from meshrt.wire.frames import Buffer

__all__ = ["loaded_class", "reducers"]


def loaded_class(module: str, name: str) -> type | None:
    """Return a class of a module that is loaded, without running anything of the module."""
    loaded = sys.modules.get(module)
    found = vars(loaded).get(name) if loaded is not None else None
    return found if isinstance(found, type) else None


class _Device(Protocol):
    type: str


class _Storage(Protocol):
    """A storage of torch: memory without a type."""

    _cdata: int
    device: _Device

    def nbytes(self) -> int: ...
    def data_ptr(self) -> int: ...


class _Typed(Protocol):
    """... and with a type."""

    dtype: object


def reducers(least: int) -> Reducers | None:
    """Return how storages are pickled, for one value; None while torch is not loaded.

    Args:
        least: Bytes of a storage below which torch's own way is as good.
    """
    if "torch" not in sys.modules:
        return None
    tensor_class, untyped = loaded_class("torch", "Tensor"), loaded_class("torch", "UntypedStorage")
    typed: Any = loaded_class("torch.storage", "TypedStorage")
    if tensor_class is None or untyped is None or typed is None:
        return None
    octet = sys.modules["torch"].uint8
    # Torch may make two objects for one storage; the pickle is to have it once.
    first: dict[int, _Storage] = {}

    def travels(storage: _Storage) -> bool:
        return bool(storage.device.type == "cpu" and storage.nbytes() >= least)

    def reduce_untyped(storage: _Storage) -> object:
        if not travels(storage):
            return storage.__reduce__()
        known = first.setdefault(storage._cdata, storage)
        if known is not storage:
            return _same, (known,)
        memory: Any = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
        memory.keeps = storage
        return _storage, (untyped, out_of_band(memory))

    def reduce_typed(storage: _Typed) -> object:
        inner: _Storage | None = getattr(storage, "_untyped_storage", None)  # of another name before torch 2
        if inner is None or not travels(inner):
            return storage.__reduce__()
        return _typed, (typed, first.setdefault(inner._cdata, inner), storage.dtype)

    def reduce_tensor(tensor: Any) -> object:
        function, arguments = tensor.__reduce_ex__(5)
        if arguments and type(arguments[0]) is untyped:
            # Of the dtypes that torch knows since 2.1 (float8, uint16): it reads what it writes here with `torch.save`
            # alone, in which the storage is of the other class.
            arguments = typed(wrap_storage=arguments[0], dtype=octet, _internal=True), *arguments[1:]
        return function, arguments

    return {tensor_class: reduce_tensor, untyped: reduce_untyped, typed: reduce_typed}


def _storage(_cls: type, buffer: Buffer) -> object:
    """Make a storage on the bytes of a buffer. Its class is in the pickle, so that torch is loaded by now."""
    torch = sys.modules["torch"]
    return torch.frombuffer(writable(memoryview(buffer)), dtype=torch.uint8).untyped_storage()


def _typed(cls: Callable[..., object], storage: object, dtype: object) -> object:
    return cls(wrap_storage=storage, dtype=dtype, _internal=True)


def _same(storage: object) -> object:
    return storage
