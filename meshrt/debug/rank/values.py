"""What a value looks like in one line, and what is known about it as data: for comparing many ranks.

Arrays are known by their classes' names (``ndarray``, ``Tensor``) and asked through their own methods: neither numpy
nor torch is imported, and what a tensor computes, it computes on its own device.
"""

from __future__ import annotations

import contextlib
import math
import pprint
import sys
from collections.abc import Callable
from typing import Any

from meshrt.debug.protocol import cap
from meshrt.hooks import Body

__all__ = ["describe", "describe_pretty", "is_array", "safe_text"]

#: Elements of an array that is shown in full.
_SMALL = 8
_ARRAYS = ("ndarray", "Tensor")


def describe(value: Any) -> tuple[str, Body | None]:
    """Return the text of ``value``, at most `TEXT_LIMIT` characters, and its facts.

    A number: ``{"kind": "number", "value": float}``. An array: ``{"kind": "array", "type", "shape", "dtype", "device",
    "min", "max", "mean", "nan"}``; the statistics leave NaN out and are None where there are none.
    """
    return _describe(value, repr)


def describe_pretty(value: Any) -> tuple[str, Body | None]:
    """Like `describe`; other values than numbers and arrays over several lines."""
    return _describe(value, pprint.pformat)


def _describe(value: Any, shown: Callable[[Any], str]) -> tuple[str, Body | None]:
    kind = _array_type(value)
    if kind:
        with contextlib.suppress(Exception):  # what only looks like an array is shown as any other value
            return _describe_array(value, kind)
    return safe_text(value, shown), _number(value)


def safe_text(value: Any, shown: Callable[[Any], str] = repr) -> str:
    """Return ``shown(value)``, or what its ``__repr__`` raised."""
    try:
        return cap(shown(value))
    except Exception as error:
        return f"*** {type(value).__name__}.__repr__ raised {type(error).__name__}: {_message(error)}"


def is_array(value: Any) -> bool:
    """Whether `describe` would summarise ``value`` as an array."""
    return bool(_array_type(value))


def _message(error: BaseException) -> str:
    try:
        return cap(str(error), 500)
    except Exception:
        return "(and its text cannot be shown)"


def _number(value: Any) -> Body | None:
    if type(value) not in (int, float) and not (hasattr(type(value), "item") and hasattr(type(value), "dtype")):
        return None
    with contextlib.suppress(Exception):
        return {"kind": "number", "value": float(value)}
    return None


def _array_type(value: Any) -> str:
    names = [cls.__name__ for cls in type(value).__mro__]
    return next((name for name in _ARRAYS if name in names), "")


def _describe_array(value: Any, kind: str) -> tuple[str, Body | None]:
    shape = [int(size) for size in value.shape]
    dtype = str(value.dtype).removeprefix("torch.")
    device = str(getattr(value, "device", "cpu"))
    if kind == "Tensor":
        value = value.detach()
    if not shape:
        number = _number(value.item())
        if number is not None:
            return safe_text(value.item()), number
    facts: Body = {"kind": "array", "type": kind, "shape": shape, "dtype": dtype, "device": device}
    facts.update(_statistics(value, math.prod(shape)))
    if math.prod(shape) <= _SMALL:
        return " ".join(safe_text(value).split()), facts
    return _summary(facts), facts


def _statistics(value: Any, size: int) -> Body:
    facts: Body = {"min": None, "max": None, "mean": None, "nan": 0}
    if not size:
        return facts
    with contextlib.suppress(Exception), _quietly():  # of text, objects, complex numbers there are none
        absent = value != value
        facts["nan"] = int(absent.sum().item())
        if facts["nan"] == size:
            return facts
        if facts["nan"]:
            value = value[~absent]
        low, high = float(value.min().item()), float(value.max().item())
        facts["min"], facts["max"] = low, high
        facts["mean"] = float(_mean(value))
    return facts


def _mean(value: Any) -> Any:
    try:
        return value.mean().item()
    except RuntimeError:  # torch: only of floating point
        return value.double().mean().item()


def _quietly() -> contextlib.AbstractContextManager[object]:
    numpy = sys.modules.get("numpy")
    return numpy.errstate(all="ignore") if numpy is not None else contextlib.nullcontext()


def _summary(facts: Body) -> str:
    size = "x".join(map(str, facts["shape"]))
    device = "" if facts["device"] == "cpu" else f" {facts['device']}"
    words = [f"{facts['type']} {size} {facts['dtype']}{device}"]
    if facts["min"] is not None:
        words += [f"{name} {facts[name]:.6g}" for name in ("min", "max", "mean") if facts[name] is not None]
    if facts["nan"]:
        words.append(f"{facts['nan']} nan")
    return ", ".join(words)
