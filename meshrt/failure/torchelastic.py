"""TorchElastic's error files, written and read without torch: ``torchrun`` shows what stands in them.

A launcher names the file of each of its workers in the environment variable `ERROR_FILE` (empty counts as unset), and
looks into it when the worker has ended::

    {"message": {"message": "Type: text", "extraInfo": {"py_callstack": text, "timestamp": "1795215857"}}, ...}

``timestamp`` is whole seconds as text, and must be there; of several workers the smallest one is the root cause.
Further keys are kept and not looked at: under ``"meshrt"`` stands all that is known. Source of the format:
torch/distributed/elastic/multiprocessing/errors of torch 2.13; of older forms, its ``ProcessFailure``.

Reading never raises: a file may be cut off, empty, somebody else's, or of another version.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from meshrt.actor.errors import describe_exception
from meshrt.failure.record import LeftBehind
from meshrt.inspect.capping import cap
from meshrt.transport.directories import ERROR_FILE, write_atomic

__all__ = ["read", "record", "tell", "write"]

#: Characters of the texts: the launcher prints them in full, and twice.
_MESSAGE_MAX = 4000
_STACK_MAX = 60_000
_READ_MAX = 64 << 20

F = TypeVar("F", bound=Callable[..., Any])


def write(headline: str, text: str, when: float, facts: Mapping[str, Any] | None = None) -> bool:
    """Tell the launcher of this process, if there is one, why it fails; returns whether there is. Raises OSError.

    Args:
        headline: One line.
        text: What the launcher shows as traceback.
        when: Seconds since the epoch.
        facts: All that is known, as plain data.
    """
    path = os.environ.get(ERROR_FILE)
    if not path:
        return False
    document: dict[str, Any] = {
        "message": {
            "message": cap(headline, _MESSAGE_MAX),
            "extraInfo": {"py_callstack": cap(_harmless(text), _STACK_MAX), "timestamp": str(int(when))},
        }
    }
    if facts is not None:
        document["meshrt"] = dict(facts)
    write_atomic(Path(path), json.dumps(document))
    return True


def _harmless(text: str) -> str:
    """Return ``text`` without what acts on a terminal."""
    return "".join(each if each.isprintable() or each == "\n" else f"\\x{ord(each):02x}" for each in text)


def read(path: Path) -> LeftBehind | None:
    """Return what a file says; None if there is none."""
    try:
        if path.stat().st_size > _READ_MAX:
            return LeftBehind(problem="it is too large")
        text = path.read_text(encoding="utf-8", errors="backslashreplace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return LeftBehind(problem=f"it cannot be read: {error.strerror}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return LeftBehind(cap(text, _MESSAGE_MAX), problem="it is cut off, or no error file")
    message = document.get("message") if isinstance(document, dict) else None
    if isinstance(message, str):
        return LeftBehind(cap(message, _STACK_MAX), timestamp=_seconds(document.get("timestamp")))
    if not isinstance(message, dict):
        return LeftBehind(cap(text, _MESSAGE_MAX), problem="it is no error file")
    more = message.get("extraInfo")
    more = more if isinstance(more, dict) else {}
    stack = more.get("py_callstack", "")
    if isinstance(stack, list):  # of torch before 2.0
        stack = "".join(map(str, stack))
    return LeftBehind(
        cap(str(message.get("message", "")), _MESSAGE_MAX),
        cap(str(stack), _STACK_MAX),
        _seconds(more.get("timestamp", message.get("timestamp"))),
    )


def _seconds(stamp: object) -> float:
    try:
        return float(cast("str", stamp))
    except (TypeError, ValueError, OverflowError):
        return 0.0


def record(function: F) -> F:
    """Decorate the main function of a script that a launcher such as ``torchrun`` starts: why it fails is told there.

    As ``torch.distributed.elastic.multiprocessing.errors.record``, without torch. Where a rank of a mesh has failed,
    the whole report is told, at the end of the script; for that, no decorator is needed.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except Exception as error:
                tell(error)
                raise

        return cast("F", asynchronous)

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            tell(error)
            raise

    return cast("F", plain)


def tell(error: BaseException) -> None:
    """Tell the launcher of an exception; what cannot be written is left out, the exception goes on its way."""
    remote = describe_exception(error)
    text = remote.traceback or remote.type
    try:
        write(f"{remote.type}: {remote.message}".strip(), text, time.time_ns() / 1e9)
    except OSError as failure:
        os.write(2, f"meshrt: the launcher could not be told of the error: {failure.strerror}\n".encode())
