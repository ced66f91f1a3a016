"""An exception of user code as data: type, text, notes, causes, and a traceback without the runtime's own frames."""

from __future__ import annotations

import itertools
import os
import time
import traceback

from meshrt.errors import MeshError, RemoteException, one_line
from meshrt.files import EVENT_LOOP_FILES, RUNTIME_FILES
from meshrt.hooks.facts import EndpointCall, Raised
from meshrt.hooks.table import hooks
from meshrt.host.code.absent import why_absent
from meshrt.wire.codec import describe, own_attribute, text_of
from meshrt.wire.errors import cut

__all__ = ["describe_exception", "number_failure", "tell_stray", "type_name", "why_ended"]

_TEXT_MAX = 1 << 18
#: Characters of the reason that is given to a rank or an actor that is stopped because of an error.
_WHY = 500
_RUNTIME = (RUNTIME_FILES, EVENT_LOOP_FILES)
_numbers = itertools.count(1)
_OF_SCRIPT = (
    "On a rank, __main__ is not the script. Put functions and classes for multiprocessing into a module beside "
    "the script."
)


def type_name(error: BaseException) -> str:
    """Return the name of an exception's type as a traceback shows it. Never raises, and runs no user code."""
    return describe(error).removeprefix("builtins.").removeprefix("__main__.")


def why_ended(error: BaseException | None) -> str:
    """Name the error that ends a block, for the ``__cleanup__`` of its actors; "" for None."""
    if error is None:
        return ""
    first_line = text_of(error).partition("\n")[0]
    return one_line(f"the block of the actor has ended with {type_name(error)}: {first_line}", _WHY)


def number_failure() -> str:
    """Return a number for a failure of this process; it goes with the error and with the record."""
    return f"{os.getpid():x}.{next(_numbers)}"


def tell_stray(error: BaseException, call: EndpointCall | None, what: str) -> str:
    """Tell the hooks of an exception that no caller waits for; returns its number."""
    failure = number_failure()
    if hooks.raised:
        hooks.run(hooks.raised, Raised(failure, error, call, time.monotonic_ns(), what))
    return failure


def describe_exception(error: BaseException) -> RemoteException:
    """Return ``error`` as plain data. Never raises, whatever the exception's own methods do."""
    hint = ""
    if type(error) is ModuleNotFoundError:
        hint = why_absent(error.name)
    elif type_name(error) == "_pickle.PicklingError" and "__main__" in text_of(error):
        hint = _OF_SCRIPT
    if hint and hint not in getattr(error, "__notes__", ()):
        error.add_note(hint)
    try:
        formatted = traceback.TracebackException.from_exception(error, compact=True)
        # An error of the runtime itself, raised where no user code runs, needs no traceback.
        known = not _without_runtime(formatted) and issubclass(type(error), MeshError)
        text = "" if known else "".join(formatted.format())
    except BaseException as failure:  # an exception class may do anything in its methods
        text = f"(the traceback could not be formatted: {type_name(failure)})"
    return _describe(error, cut(text, _TEXT_MAX), 0)


def _describe(error: BaseException, text: str, depth: int) -> RemoteException:
    cause = own_attribute(error, "__cause__")
    if cause is None and not own_attribute(error, "__suppress_context__"):
        cause = own_attribute(error, "__context__")
    notes = dict.get(own_attribute(error, "__dict__"), "__notes__")
    return RemoteException(
        type_name(error),
        cut(text_of(error), _TEXT_MAX),
        text,
        tuple(text_of(note) for note in notes) if type(notes) is list else (),
        _describe(cause, "", depth + 1) if cause is not None and depth < 20 else None,
    )


def _without_runtime(formatted: traceback.TracebackException, depth: int = 0) -> bool:
    """Take the runtime's own frames away where there are others. Returns whether there are any."""
    kept = [frame for frame in formatted.stack if not frame.filename.startswith(_RUNTIME)]
    if kept:
        formatted.stack[:] = kept
    linked = [formatted.__cause__, formatted.__context__, *(formatted.exceptions or ())]
    found = bool(kept)
    for other in linked:
        if other is not None and depth < 20:
            found = _without_runtime(other, depth + 1) or found
    return found
