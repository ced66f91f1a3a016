"""A value as one line of text, and facts about it as data: for comparing many ranks.

Arrays are recognised by their classes' names (``ndarray``, ``Tensor``) and read through their own methods. Neither
numpy nor torch is imported; what a tensor computes, it computes on its own device. ``Any`` is a value of user code.
"""

from __future__ import annotations

import contextlib
import math
import pprint
import sys
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from meshrt.inspect.capping import cap, without_addresses
from meshrt.inspect.facts import ArrayFacts, DictFacts, Facts, NumberFacts

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


def describe(value: object) -> tuple[str, Facts | None]:
    """Return the text of ``value``, at most `TEXT_LIMIT` characters, and the facts of a number, array or small dict."""
    return _describe(value, repr)


def describe_pretty(value: object) -> tuple[str, Facts | None]:
    """Return the same as `describe`, but values other than numbers and arrays over several lines."""
    return _describe(value, pprint.pformat)


def _describe(value: object, shown: Callable[[object], str]) -> tuple[str, Facts | None]:
    kind = _array_type(value)
    if kind:
        with _PassedOver():  # a value that only looks like an array is shown like any other
            return _describe_array(value, kind)
    return safe_text(value, shown), _number(value) or _items(value)


def safe_text(value: object, shown: Callable[[object], str] = repr) -> str:
    """Return ``shown(value)``, or which exception its ``__repr__`` raised."""
    return cap(_whole_text(value, shown))


def _whole_text(value: object, shown: Callable[[object], str] = repr) -> str:
    try:
        return "".join([shown(value)])  # a plain str, not one of the user's
    except tuple(PASSED_ON):
        raise
    except BaseException as error:
        return f"*** {class_name(value)}.__repr__ raised {class_name(error)}: {_message(error)}"


def class_name(value: object) -> str:
    """Return the name of the class of ``value``, without running code of the class or of its metaclass."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def module_name(cls: type) -> str:
    """Return the module of ``cls``, without running code of its metaclass."""
    try:
        return str(type.__dict__["__module__"].__get__(cls))
    except BaseException:
        return "?"


def stored(cls: type, name: str) -> object:
    """Return what ``cls`` or one of its bases stores as ``name``, or None, without running code of the metaclass."""
    for base in bases(cls):
        names = type.__dict__["__dict__"].__get__(base)
        if name in names:
            return names[name]
    return None


def bases(cls: type) -> tuple[type, ...]:
    """Return ``cls`` and the classes that it inherits from, without running code of the metaclass."""
    return cast("tuple[type, ...]", type.__dict__["__mro__"].__get__(cls))


def is_array(value: object) -> bool:
    """Whether `describe` would summarise ``value`` as an array."""
    return bool(_array_type(value))


class _Statistics(NamedTuple):
    """Some fields of `ArrayFacts`."""

    min: float | None = None
    max: float | None = None
    mean: float | None = None
    nan: int = 0


class _PassedOver:
    """Suppresses every exception, like `contextlib.suppress`, except those of the debugger (`PASSED_ON`)."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        return kind is not None and not issubclass(kind, tuple(PASSED_ON))


def _names(value: object) -> list[str]:
    return [type.__dict__["__name__"].__get__(cls) for cls in bases(type(value))]


def _message(error: BaseException) -> str:
    try:
        return cap("".join([str(error)]), 500)
    except tuple(PASSED_ON):
        raise
    except BaseException:
        return "(and its text cannot be shown)"


def _items(value: object) -> DictFacts | None:
    if type(value) is not dict or not 0 < len(value) <= _MOST_ITEMS:
        return None
    texts = [(safe_text(key), _item_text(item)) for key, item in list(value.items())]
    items = dict(texts)
    # Items under one name would hide differences.
    if len(items) < len(texts) or any(len(key) > _ITEM_MAX for key in items):
        return None
    return DictFacts(items)


def _item_text(value: object) -> str:
    """Return an item's text; of a long one the beginning, its length and a checksum."""
    text = describe(value)[0] if is_array(value) else _whole_text(value)
    if len(text) <= _ITEM_MAX:
        return cap(text)
    text = without_addresses(text)
    checksum = zlib.crc32(text.encode(errors="backslashreplace"))
    return f"{cap(text[:_ITEM_HEAD])} ... ({len(text)} characters, crc32 {checksum:08x})"


def _number(value: Any) -> NumberFacts | None:
    cls = type(value)
    if cls is not int and cls is not float:
        if stored(cls, "item") is None or stored(cls, "dtype") is None:
            return None
        with _PassedOver():
            if _dtype_kind(value) in _NOT_NUMBERS:
                return None
    with _PassedOver():
        return NumberFacts(float(value))
    return None


def _dtype_kind(value: Any) -> str:
    return str(getattr(value.dtype, "kind", ""))


def _array_type(value: object) -> str:
    names = _names(value)
    return next((name for name in _ARRAYS if name in names), "")


def _describe_array(value: Any, kind: str) -> tuple[str, NumberFacts | ArrayFacts]:
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
    size = math.prod(shape)
    found, count = _masked_statistics(value, size) if masked else (_statistics(value, size), None)
    facts = ArrayFacts(kind, shape, dtype, device, *found, count)
    if size <= _SMALL:
        return " ".join(safe_text(value).split()), facts
    return _summary(facts), facts


def _masked_statistics(value: Any, size: int) -> tuple[_Statistics, int]:
    """Return the statistics of what is not masked, and how many elements are masked."""
    count = 0
    with _PassedOver():  # in a structured array, every field has a mask
        count = size - int(value.count())
        return _statistics(value.compressed(), size - count), count
    return _Statistics(), count


def _statistics(value: Any, size: int) -> _Statistics:
    found = _Statistics()
    if not size or getattr(value.dtype, "names", None):
        return found
    with _PassedOver(), _quietly():  # text, objects and complex numbers have none
        absent = value != value
        found = _Statistics(nan=int(absent.sum().item()))
        if found.nan == size or _dtype_kind(value) in _NOT_NUMBERS:
            return found
        if found.nan:
            value = value[~absent]
        found = found._replace(min=float(value.min().item()), max=float(value.max().item()))
        found = found._replace(mean=_mean(value))
    return found


def _mean(value: Any) -> float:
    try:
        return float(value.mean().item())
    except RuntimeError:  # torch: only for floating point
        return float(value.double().mean().item())


def _quietly() -> contextlib.AbstractContextManager[object]:
    numpy = sys.modules.get("numpy")
    return numpy.errstate(all="ignore") if numpy is not None else contextlib.nullcontext()


def _summary(facts: ArrayFacts) -> str:
    size = "x".join(map(str, facts.shape))
    device = "" if facts.device == "cpu" else f" {facts.device}"
    words = [f"{facts.type} {size} {facts.dtype}{device}"]
    numbers = {"min": facts.min, "max": facts.max, "mean": facts.mean}
    if facts.min is not None:
        words += [f"{name} {number:.6g}" for name, number in numbers.items() if number is not None]
    if facts.nan:
        words.append(f"{facts.nan} nan")
    if facts.masked:
        words.append(f"{facts.masked} masked")
    return ", ".join(words)
