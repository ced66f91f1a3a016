"""``meshrt.put``: an object that is written once, for all that are given the reference."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import TYPE_CHECKING, TypeVar, cast

from meshrt.errors import UsageError
from meshrt.files import RUNTIME_FILES, is_library_file
from meshrt.transport.process import connected_to, current_runtime, has_runtime
from meshrt.wire.codec import EncodeError
from meshrt.wire.refused import argument_refused

if TYPE_CHECKING:
    from meshrt.store.refs import ObjectRef

__all__ = ["call_site", "put"]

T = TypeVar("T")

#: Installed commands that only call the module of their name.
_COMMANDS = os.path.join(sys.prefix, "bin", "")


def put(value: T, *, lazy: bool = False, spill: bool | None = None) -> ObjectRef[T]:
    """Write an object into the shared memory of this host, and return a reference to it. Any thread.

    The reference may be an argument of any endpoint, part of one, or a result. It arrives as the object, whose large
    arrays are read-only views of the shared memory. The object exists for as long as a process of the program holds a
    reference to it or sees one of its arrays.

    Args:
        lazy: Let it arrive as the reference; the receiver calls ``.get()``.
        spill: Write it to a file in the run directory where there is no memory for it; None: see
            ``MESHRT_STORE_SPILL``.
    Raises:
        ArgumentNotSerializable: It cannot be pickled.
        StoreFull: There is no room for it (and it may not spill).
        StoreTimeout: The agent of the host does not answer.
        OSError: There is no descriptor left for it, or no place on the disk.
        UsageError: No program runs in this process yet: make a mesh with `proc_mesh` first. One that this process is
            connected to does not share its memory: give the value itself to the call.
    """
    if connected_to and not has_runtime():
        raise UsageError(
            f"put(): this process is connected to {connected_to[-1]} and shares no memory with it: pass the value "
            "itself to the call: it is sent through a socket"
        )
    store = current_runtime().store
    try:
        return cast("ObjectRef[T]", store.put(value, lazy=lazy, spill=spill, site=call_site()))
    except EncodeError as error:
        raise argument_refused(f"put(): {error}", error.__cause__) from error.__cause__


def call_site() -> str:
    """Return ``file:line`` of the user's innermost frame; of the innermost one of a library if no user's called it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(RUNTIME_FILES):
        frame = frame.f_back
    found = frame
    # Not beyond the runtime's code that has called this code: frames outside of it are not related.
    while frame is not None and not (file := frame.f_code.co_filename).startswith(RUNTIME_FILES):
        if not is_library_file(file) and not file.startswith(_COMMANDS):
            found = frame
            break
        frame = frame.f_back
    return "" if found is None else f"{found.f_code.co_filename}:{found.f_lineno}"
