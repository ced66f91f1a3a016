"""TorchElastic's error files, written and read without torch: ``torchrun`` shows their content.

A launcher names the file of each of its workers (`meshrt.transport.launcher`), and reads it when the worker has ended::

    {"message": {"message": "Type: text", "extraInfo": {"py_callstack": text, "timestamp": "1795215857"}}, ...}

``timestamp`` is whole seconds as text, and is required; of several workers, the smallest one is the root cause.
Further keys are kept and ignored: ``"meshrt"`` holds everything that is known. Source of the format:
torch/distributed/elastic/multiprocessing/errors of torch 2.13; of older forms, its ``ProcessFailure``.

Reading never raises: a file may be cut off, empty, of another program, or of another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from meshrt.escapes import escaped
from meshrt.failure.record import LeftBehind
from meshrt.inspect.capping import cap
from meshrt.inspect.masking import without_secrets
from meshrt.show.records import to_text
from meshrt.transport.writing import write_atomic

__all__ = ["read", "write"]

#: Characters of the texts: the launcher prints them in full, and twice.
_MESSAGE_MAX = 4000
_STACK_MAX = 60_000
_READ_MAX = 64 << 20


def write(path: Path, headline: str, text: str, second: int, facts: Mapping[str, object] | None = None) -> None:
    """Write the file at ``path`` so that its launcher shows why this process fails. Raises OSError.

    Args:
        headline: One line.
        text: What the launcher shows as traceback.
        second: Time of the failure, whole seconds since the epoch.
        facts: Everything that is known, as plain data.
    """
    document: dict[str, object] = {
        "message": {
            "message": cap(without_secrets(headline, prose=True), _MESSAGE_MAX),
            "extraInfo": {
                "py_callstack": cap(escaped(without_secrets(text, prose=True)), _STACK_MAX),
                "timestamp": str(second),
            },
        }
    }
    if facts is not None:
        document["meshrt"] = dict(facts)
    write_atomic(path, to_text(document))


def read(path: Path) -> LeftBehind | None:
    """Return the content of a file; None if there is no file. Never raises."""
    try:
        if path.stat().st_size > _READ_MAX:
            return LeftBehind(problem="the file is too large")
        text = path.read_text(encoding="utf-8", errors="backslashreplace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return LeftBehind(problem=f"the file cannot be read: {error.strerror}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return LeftBehind(cap(text, _MESSAGE_MAX), problem="the file is cut off, or not an error file")
    message = document.get("message") if isinstance(document, dict) else None
    if isinstance(message, str):
        return LeftBehind(cap(message, _STACK_MAX), timestamp=_seconds(document.get("timestamp")))
    if not isinstance(message, dict):
        return LeftBehind(cap(text, _MESSAGE_MAX), problem="not a valid error file")
    more = message.get("extraInfo")
    more = more if isinstance(more, dict) else {}
    stack = more.get("py_callstack", "")
    if isinstance(stack, list):  # written by torch before 2.0
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
