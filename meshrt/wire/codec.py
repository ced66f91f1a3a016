"""Objects to bytes and back: the only module that pickles and unpickles.

Plain pickle (protocol 5, large buffers out of band) first, cloudpickle where it cannot: for lambdas and closures, and
for objects of ``__main__``, which a rank does not have. The in-band pickle names the module of everything that
it refers to, so finding ``__main__`` in it is enough to know; a false alarm costs only time.

Encoded form: a list of parts (the pickle, then its buffers, each aligned for numpy) and their lengths.
"""

from __future__ import annotations

import collections
import copyreg
import functools
import hashlib
import io
import pickle
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from meshrt.wire import source, unpicklable
from meshrt.wire.frames import Buffer, Unreceived

__all__ = [
    "EncodeError",
    "Outside",
    "Part",
    "Reducers",
    "decode",
    "describe",
    "digest",
    "encode",
    "flat",
    "lay_out",
    "out_of_band",
    "own_attribute",
    "pickled",
    "reduce_with",
    "ship_by_value",
    "text_of",
    "unpickled",
    "warm_up",
]

Part = bytes | memoryview
Lengths = Sequence[int | list[int]]
"""Of the pickle and of each buffer; where a part is elsewhere, what stands for its length (`Outside.bytes_at`)."""
_Buffers = Callable[[pickle.PickleBuffer], object] | None
Reducers = Mapping[type, Callable[[Any], Any]]
"""How objects of exactly these classes, of any library, are pickled: what their ``__reduce__`` would return."""

_ALIGN = 64
_PADDING = bytes(_ALIGN)
#: Buffers below this stay inside the pickle: a part of their own costs more than copying them.
_OUT_OF_BAND = 1 << 10


_reducers: Callable[[], Reducers | None] | None = None


class EncodeError(Exception):
    """An object that neither pickle nor cloudpickle takes. ``text`` says which and why, without the object."""


class Outside(Protocol):
    """A payload of which parts are elsewhere, see `meshrt.store`."""

    @property
    def payload(self) -> memoryview | bytes | Unreceived:
        """Return the part that came along."""

    def bytes_at(self, place: list[int]) -> memoryview:
        """Return a part that did not, to read. ``place``: what stands for its length."""

    def __enter__(self) -> object:
        """References in what is unpickled belong to this message now."""

    def __exit__(self, *exc_info: object) -> None:
        """... and no longer."""


def encode(value: object) -> tuple[list[Part], list[int]]:
    """Pickle ``value``.

    Returns:
        The parts to send, padding included, and the lengths of the pickle and of each buffer.
    Raises:
        EncodeError: It cannot be pickled.
    """
    return lay_out(*pickled(value))


def pickled(value: object) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of ``value``, and what belongs beside it. Raises EncodeError."""
    buffers: list[memoryview] = []
    reducers = None if _reducers is None else _reducers()

    def callback(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _OUT_OF_BAND:
            return True
        buffers.append(raw)
        return False

    data: bytes | None
    try:
        data = _pickle(value, callback, reducers) if reducers else pickle.dumps(value, 5, buffer_callback=callback)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a __reduce__ may do anything, even sys.exit
        data = None
    if data is None or b"__main__" in data or _by_value_modules():
        buffers.clear()
        data = _cloudpickle(value, callback, reducers)
    return data, buffers


def digest(value: object) -> str:
    """Return a digest that plain data have in each process of the program: what is shared within them does not count.

    Classes and functions count by their names, functions by their code as well; what stands around the definition of a
    class that is sent by value does not, as cloudpickle does not send it. Raises EncodeError.
    """
    file = io.BytesIO()
    pickler = _Digester(file, 5)
    pickler.fast = True  # without references to what came before: two equal strings may be one object, or two
    try:
        pickler.dump(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # as in `pickled`; or it contains itself
        return hashlib.sha256(b"".join(pickled(value)[:1])).hexdigest()
    return hashlib.sha256(file.getvalue()).hexdigest()


class _Digester(pickle.Pickler):
    """Pickles classes and functions as texts: those of a script are not found by name in other processes."""

    def reducer_override(self, obj: object) -> tuple[type[bytes], tuple[bytes]]:
        """Called by pickle for what is no plain data."""
        if obj is bytes or not isinstance(obj, type | types.FunctionType):
            return NotImplemented  # type: ignore[no-any-return]  # as pickle documents it
        if isinstance(obj, types.FunctionType):
            return bytes, (f"{obj.__module__}.{obj.__qualname__} ".encode() + obj.__code__.co_code,)
        return bytes, (f"{obj.__module__}.{_name_of(obj)} ".encode(),)


def _name_of(cls: type) -> str:
    """Return the name that a class has in each process: where it is sent by value, without what stands around it."""
    cloudpickle = sys.modules.get("cloudpickle")
    by_value = cloudpickle is not None and cls.__module__ in cloudpickle.list_registry_pickle_by_value()
    sent = by_value or cls.__module__ == "__main__" or "<locals>" in cls.__qualname__
    return cls.__name__ if sent else cls.__qualname__


def reduce_with(reducers: Callable[[], Reducers | None]) -> None:
    """From now on pickle with further reducers: they are asked for at every value, so they may share what is of it."""
    global _reducers
    _reducers = reducers


def out_of_band(buffer: Buffer) -> object:
    """Return what a reducer names to have memory travel beside the pickle. The other side gets a view of it."""
    return pickle.PickleBuffer(buffer)


def _pickle(value: object, callback: _Buffers, reducers: Reducers) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5, buffer_callback=callback)
    # A dict, for which the pickler need not call Python at every object.
    pickler.dispatch_table = {**copyreg.dispatch_table, **reducers}
    pickler.dump(value)
    return file.getvalue()


def lay_out(data: bytes, buffers: Sequence[memoryview]) -> tuple[list[Part], list[int]]:
    """Return the parts to send, padding included, and their lengths."""
    if not buffers:
        return [data], [len(data)]
    parts: list[Part] = [data]
    lengths = [len(data)]
    for raw in buffers:
        gap = -lengths[-1] % _ALIGN
        if gap:
            parts.append(_PADDING[:gap])
        parts.append(raw)
        lengths.append(raw.nbytes)
    return parts, lengths


def decode(payload: memoryview | bytes | Unreceived | Outside, lengths: Lengths) -> Any:
    """Unpickle what `encode` made. Runs foreign code: only for authenticated peers, never on a control thread.

    Raises:
        MemoryError: There is none for what it holds, or was none to receive it.
    """
    try:
        if not isinstance(payload, memoryview | bytes):
            return _decode_outside(payload, lengths)
        if len(lengths) == 1:
            return pickle.loads(payload)
        return _load(memoryview(payload), lengths, None)
    except MemoryError as error:
        if error.args:
            raise
        size = sum(length for length in lengths if isinstance(length, int))
        raise MemoryError(f"not enough memory for the content of a message of {size} bytes") from error


def _decode_outside(payload: Unreceived | Outside, lengths: Lengths) -> object:
    if isinstance(payload, Unreceived):
        raise payload.error()
    came = payload.payload
    if isinstance(came, Unreceived):
        raise came.error()
    with payload:
        return _load(memoryview(came), lengths, payload)


def _load(view: memoryview, lengths: Lengths, outside: Outside | None) -> object:
    buffers = []
    position = 0
    for length in lengths:
        if isinstance(length, list):
            if outside is None:
                raise ValueError("a part of this message is elsewhere")
            buffers.append(outside.bytes_at(length))
            continue
        buffers.append(view[position : position + length])
        position += length + -length % _ALIGN
    return unpickled(buffers[0], buffers[1:])


def unpickled(data: memoryview, buffers: Sequence[memoryview]) -> Any:
    """Inverse of `pickled`. As `decode`: it runs foreign code."""
    return pickle.loads(data, buffers=buffers)


def flat(buffer: memoryview) -> memoryview:
    """Return the memory of a contiguous buffer as plain bytes."""
    return pickle.PickleBuffer(buffer).raw()


def own_attribute(error: BaseException, name: str) -> Any:
    """Return an attribute of an exception that Python keeps: around its class, which may run any code for that name."""
    return BaseException.__dict__[name].__get__(error)


def describe(value: object) -> str:
    """Name the type of ``value`` for an error text; never runs user code."""
    return f"{_fact(value, '__module__')}.{_fact(value, '__qualname__')}"


def _fact(value: object, name: str) -> str:
    # Around the class and its metaclass, which may have properties of these names.
    try:
        fact = type.__dict__[name].__get__(type(value))
    except AttributeError:
        fact = None
    # `__module__` may be anything; a subclass of str may do anything when it is formatted.
    return str.__str__(fact) if issubclass(type(fact), str) else "?"


def text_of(value: object) -> str:
    """Return ``str(value)`` in a form that can be sent, also if its class raises."""
    try:
        return str(value).encode(errors="backslashreplace").decode()
    except BaseException as failure:  # user code, which may do anything, even sys.exit
        names = (_fact(value, "__name__"), _fact(failure, "__name__"))
        return f"<{names[0]}: its text could not be made: {names[1]}>"


def ship_by_value(module: types.ModuleType) -> None:
    """From now on pickle what ``module`` defines by value, because ranks cannot import it."""
    import cloudpickle  # start-up: imported where plain pickle does not do

    cloudpickle.register_pickle_by_value(module)


def _by_value_modules() -> bool:
    cloudpickle = sys.modules.get("cloudpickle")
    return cloudpickle is not None and bool(cloudpickle.list_registry_pickle_by_value())


def _cloudpickle(value: object, callback: _Buffers, reducers: Reducers | None) -> bytes:
    file = io.BytesIO()
    pickler = _pickler_class()(file, callback, reducers or {})
    try:
        pickler.dump(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = f"{_fact(error, '__name__')}: {text_of(error)}"
        hint = unpicklable.hint(pickler.functions, describe, _fails)
        why += f": {hint}" if hint else ""
        raise EncodeError(f"{describe(value)} cannot be pickled: {why}") from error
    return file.getvalue()


def _fails(value: object) -> bool:
    """Whether ``value`` alone cannot be pickled. Nothing is kept of it, nor shared."""
    try:
        _pickler_class()(io.BytesIO(), None, {}).dump(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # as in `pickled`
        return True
    return False


@functools.cache
def _pickler_class() -> type:
    import cloudpickle.cloudpickle as cp  # start-up: imported where plain pickle does not do

    def reduce_code(code: types.CodeType) -> object:
        build, facts = cp._code_reduce(code)
        return _with_file, (source.alias_of(code) or code.co_filename, build, *facts)

    def reduce_cached(function: functools._lru_cache_wrapper[object]) -> object:
        # By its name, as pickle does, where other processes find it so.
        found = cp._lookup_module_and_qualname(function)
        if found is not None and not cp._is_registered_pickle_by_value(found[0]):
            return str(function.__qualname__)
        return _cached, (function.__wrapped__, function.cache_parameters())

    class SourcePickler(cp.Pickler):  # type: ignore[misc]
        """cloudpickle that keeps the file of code, or gives it a name under which its source can be asked for."""

        _own: ClassVar = {types.CodeType: reduce_code, functools._lru_cache_wrapper: reduce_cached}
        _table: ClassVar = collections.ChainMap(_own, cp.Pickler.dispatch_table)

        def __init__(self, file: io.BytesIO, callback: _Buffers, reducers: Reducers) -> None:
            self.dispatch_table = self._table.new_child(dict(reducers))  # which the pickler looks up when it is made
            super().__init__(file, protocol=5, buffer_callback=callback)
            #: Functions that are pickled by value, for what is said if one cannot be.
            self.functions: list[types.FunctionType] = []

        def _dynamic_function_reduce(self, func: types.FunctionType) -> object:
            self.functions.append(func)
            return super()._dynamic_function_reduce(func)

    return SourcePickler


def _cached(function: Callable[..., object], parameters: Mapping[str, int | bool | None]) -> object:
    """Return an unpickled function that keeps its results: it has none yet."""
    return functools.lru_cache(**parameters)(function)  # type: ignore[arg-type]  # what `cache_parameters` has given


def _with_file(name: str, build: Callable[..., types.CodeType], *facts: object) -> types.CodeType:
    """Return unpickled code with the name of its file: from 3.1.3 on, cloudpickle writes another one in its place."""
    return build(*facts).replace(co_filename=name)


def warm_up() -> None:
    """Load cloudpickle now: in the process that ranks are forked from, so that the ranks need not."""
    _pickler_class()
