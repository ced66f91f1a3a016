"""Replacements of the standard streams: they lead some threads to another stream, all others to the original one."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["StandIn", "unwrapped"]


class StandIn:
    """Leads the threads in ``routed`` to ``stream``, and every other one to ``target``, for every attribute.

    User code may keep it for ever (a logging handler does). It always leads to the same target, and once ``routed`` is
    empty it behaves like that target.
    """

    __slots__ = ("__weakref__", "_routed", "_stream", "_target")

    def __init__(self, routed: Mapping[int, object], stream: object, target: object) -> None:
        object.__setattr__(self, "_routed", routed)
        object.__setattr__(self, "_stream", stream)
        object.__setattr__(self, "_target", target)

    def __getattribute__(self, name: str) -> object:
        # Also `__class__`: isinstance(sys.stdout, io.TextIOBase) gives the answer of the stream.
        return getattr(_here(self), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(_target(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_target(self), name)

    # Special methods, which the interpreter looks up in the class.

    def __iter__(self) -> Iterator[str]:
        return iter(_here(self))

    def __next__(self) -> str:
        return str(next(_here(self)))

    def __enter__(self) -> object:
        return _here(self).__enter__()

    def __exit__(self, *exc_info: object) -> object:
        return _here(self).__exit__(*exc_info)

    def __dir__(self) -> Any:
        return dir(_here(self))

    def __repr__(self) -> str:
        return repr(_here(self))


def unwrapped(stream: object) -> object:
    """Return the stream that a `StandIn` stands for, or ``stream`` itself."""
    while type(stream) is StandIn:
        stream = object.__getattribute__(stream, "_target")
    return stream


def _target(stand_in: StandIn) -> object:
    target = object.__getattribute__(stand_in, "_target")
    return _nowhere if target is None else target


def _here(stand_in: StandIn) -> Any:
    if threading.get_ident() in object.__getattribute__(stand_in, "_routed"):
        return object.__getattribute__(stand_in, "_stream")
    return _target(stand_in)


class _Nowhere(io.StringIO):
    """Discards output, as ``print`` does in a process without standard streams."""

    def write(self, text: str, /) -> int:
        return len(text)


_nowhere = _Nowhere()
