"""A value as one line of text, and facts about it as data: for comparing many ranks.

Arrays are recognised by their classes' names (``ndarray``, ``Tensor``) and read through their own methods. Neither
numpy nor torch is imported; what a tensor computes, it computes on its own device.
"""

from __future__ import annotations

import contextlib
import math
import pprint
import sys
import zlib
from collections.abc import Callable
from typing import Any, cast

from meshrt.hooks.facts import Body
from meshrt.inspect.addresses import without_addresses
from meshrt.inspect.capping import cap

__all__ = [
    "PASSED_ON",
    "bases",
    "class_name",
    "describe",
    "describe_pretty",
    "is_array",
    "module_name",
    "safe_text",
    "stored",
    "within",
]

#: Exceptions that a value's own code never raises, but the debugger does to end it; the debugger adds its own here.
PASSED_ON: list[type[BaseException]] = []
#: Most elements of an array that is shown in full.
_SMALL = 8
_ARRAYS = ("ndarray", "Tensor")
#: Kinds of numpy types that are not on the number line: complex, text, bytes, times and durations.
_NOT_NUMBERS = ("c", "U", "S", "M", "m")
_DTYPE_MAX = 200
#: Most items of a dict that are compared one by one.
_MOST_ITEMS = 200
_ITEM_MAX = 200
#: Characters of a longer item that are kept.
_ITEM_HEAD = 100


def describe(value: Any) -> tuple[str, Body | None]:
    """Return the text of ``value``, at most `TEXT_LIMIT` characters, and its facts.

    A number: ``{"kind": "number", "value": float}``. An array: ``{"kind": "array", "type", "shape", "dtype", "device",
    "min", "max", "mean", "nan"}``; the statistics leave NaN out and are None where there are none. A masked array also
    has ``"masked"``: the number of masked elements. A small dict: ``{"kind": "dict", "items": {key: text}}``,
    every item in full or, if that is long, its beginning, its length and a checksum of it without addresses.
    """
    return _describe(value, repr)


def describe_pretty(value: Any) -> tuple[str, Body | None]:
    """Return the same as `describe`, but values other than numbers and arrays over several lines."""
    return _describe(value, pprint.pformat)


def _describe(value: Any, shown: Callable[[Any], str]) -> tuple[str, Body | None]:
    kind = _array_type(value)
    if kind:
        with _PassedOver():  # a value that only looks like an array is shown like any other
            return _describe_array(value, kind)
    return safe_text(value, shown), _number(value) or _items(value)


def safe_text(value: Any, shown: Callable[[Any], str] = repr) -> str:
    """Return ``shown(value)``, or which exception its ``__repr__`` raised."""
    return cap(_whole_text(value, shown))


def _whole_text(value: Any, shown: Callable[[Any], str] = repr) -> str:
    try:
        return "".join([shown(value)])  # a plain str, not one of the user's
    except tuple(PASSED_ON):
        raise
    except BaseException as error:
        return f"*** {class_name(value)}.__repr__ raised {class_name(error)}: {_message(error)}"


def class_name(value: Any) -> str:
    """Return the name of the class of ``value``, without running code of the class or of its metaclass."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def module_name(cls: type) -> str:
    """Return the module of ``cls``, without running code of its metaclass."""
    try:
        return str(type.__dict__["__module__"].__get__(cls))
    except BaseException:
        return "?"


def stored(cls: type, name: str) -> Any:
    """Return what ``cls`` or one of its bases stores as ``name``, or None, without running code of the metaclass."""
    for base in bases(cls):
        names = type.__dict__["__dict__"].__get__(base)
        if name in names:
            return names[name]
    return None


def bases(cls: type) -> tuple[type, ...]:
    """Return ``cls`` and the classes that it inherits from, without running code of the metaclass."""
    return cast("tuple[type, ...]", type.__dict__["__mro__"].__get__(cls))


def is_array(value: Any) -> bool:
    """Whether `describe` would summarise ``value`` as an array."""
    return bool(_array_type(value))


class _PassedOver:
    """Suppresses every exception, like `contextlib.suppress`, except those of the debugger (`PASSED_ON`)."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        return kind is not None and not issubclass(kind, tuple(PASSED_ON))


def _names(value: Any) -> list[str]:
    return [type.__dict__["__name__"].__get__(cls) for cls in bases(type(value))]


def _message(error: BaseException) -> str:
    try:
        return cap("".join([str(error)]), 500)
    except tuple(PASSED_ON):
        raise
    except BaseException:
        return "(and its text cannot be shown)"


def _items(value: Any) -> Body | None:
    if type(value) is not dict or not 0 < len(value) <= _MOST_ITEMS:
        return None
    texts = [(safe_text(key), _item_text(item)) for key, item in list(value.items())]
    items = dict(texts)
    # Items under one name would hide differences.
    if len(items) < len(texts) or any(len(key) > _ITEM_MAX for key in items):
        return None
    return {"kind": "dict", "items": items}


def _item_text(value: Any) -> str:
    """Return an item's text; of a long one the beginning, its length and a checksum."""
    text = describe(value)[0] if is_array(value) else _whole_text(value)
    if len(text) <= _ITEM_MAX:
        return cap(text)
    text = without_addresses(text)
    checksum = zlib.crc32(text.encode(errors="backslashreplace"))
    return f"{cap(text[:_ITEM_HEAD])} ... ({len(text)} characters, crc32 {checksum:08x})"


def within(facts: Body | None, limit: int) -> Body | None:
    """Return ``facts``, or None if their items have more than ``limit`` characters."""
    items = facts.get("items") if facts is not None else None
    too_many = items is not None and sum(len(key) + len(text) for key, text in items.items()) > limit
    return None if too_many else facts


def _number(value: Any) -> Body | None:
    cls = type(value)
    if cls is not int and cls is not float:
        if stored(cls, "item") is None or stored(cls, "dtype") is None:
            return None
        with _PassedOver():
            if _dtype_kind(value) in _NOT_NUMBERS:
                return None
    with _PassedOver():
        return {"kind": "number", "value": float(value)}
    return None


def _dtype_kind(value: Any) -> str:
    return str(getattr(value.dtype, "kind", ""))


def _array_type(value: Any) -> str:
    names = _names(value)
    return next((name for name in _ARRAYS if name in names), "")


def _describe_array(value: Any, kind: str) -> tuple[str, Body | None]:
    shape = [int(size) for size in value.shape]
    dtype = cap(str(value.dtype).removeprefix("torch."), _DTYPE_MAX)
    device = str(getattr(value, "device", "cpu"))
    if kind == "Tensor":
        value = value.detach()
    masked = "MaskedArray" in _names(value)
    if not shape and not masked and _dtype_kind(value) not in _NOT_NUMBERS:
        item = value.item()
        number = _number(item)
        if number is not None:
            return safe_text(item), number
    facts: Body = {"kind": "array", "type": kind, "shape": shape, "dtype": dtype, "device": device}
    size = math.prod(shape)
    if masked:
        facts.update(_masked_statistics(value, size))
    else:
        facts.update(_statistics(value, size))
    if size <= _SMALL:
        return " ".join(safe_text(value).split()), facts
    return _summary(facts), facts


def _masked_statistics(value: Any, size: int) -> Body:
    facts: Body = {"masked": 0}
    with _PassedOver():  # in a structured array, every field has a mask
        facts["masked"] = size - int(value.count())
        value = value.compressed()
        return {**facts, **_statistics(value, size - facts["masked"])}
    return {**facts, **_statistics(value, 0)}


def _statistics(value: Any, size: int) -> Body:
    facts: Body = {"min": None, "max": None, "mean": None, "nan": 0}
    if not size or getattr(value.dtype, "names", None):
        return facts
    with _PassedOver(), _quietly():  # text, objects and complex numbers have none
        absent = value != value
        facts["nan"] = int(absent.sum().item())
        if facts["nan"] == size or _dtype_kind(value) in _NOT_NUMBERS:
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
    except RuntimeError:  # torch: only for floating point
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
    if facts.get("masked"):
        words.append(f"{facts['masked']} masked")
    return ", ".join(words)
