"""Bytes as text for users, and marks that say how sure they are."""

from __future__ import annotations

from meshrt.errors import UsageError
from meshrt.memory.operations import SizeRow
from meshrt.store.limits import parse_size

__all__ = ["UNITS", "amount", "bytes_of", "change", "size_text", "span"]

_FACTORS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
#: Values of ``--units``.
UNITS = ("auto", *_FACTORS)


def amount(count: int, unit: str = "auto") -> str:
    """Return ``count`` bytes as text, in one of `UNITS`: ``"9.2 MiB"``."""
    if unit == "auto":
        unit = next((name for name, factor in reversed(_FACTORS.items()) if abs(count) >= factor), "B")
    number = count / _FACTORS[unit]
    return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"


def bytes_of(text: str) -> int:
    """Return the number of bytes in a text such as ``4GiB``, ``500 MB`` or ``1000000``.

    Raises:
        UsageError: The text is not a size.
    """
    size = parse_size(text)
    if size is None or not 0 < size < 1 << 62:
        raise UsageError(f"{text!r} is not a size; expected a number of bytes, or one such as 500MB or 4GiB")
    return size


def change(count: int | None, unit: str = "auto") -> str:
    """Return a growth with its sign; "" if it is not known."""
    if count is None:
        return ""
    return "0" if count == 0 else ("+" if count > 0 else "") + amount(count, unit)


def span(least: str, most: str) -> str:
    """Return two amounts as one text: ``"1.0 - 1.2 MiB"``; one alone if they are the same."""
    if least == most:
        return least
    number, _, unit = least.partition(" ")
    return f"{number} - {most}" if unit == most.partition(" ")[2] else f"{least} - {most}"


def size_text(size: SizeRow, unit: str = "auto", most: int | None = None) -> str:
    """Return the size of a variable: ``"= 9.2 MiB"`` is exact, ``">= 18.1 MiB"`` a lower bound, ``"~"`` an estimate.

    Each amount has its mark: an estimate is one of all memory, on devices too.

    Args:
        most: The most bytes on one rank, if several ranks have close sizes.
    """
    bound, each = ("=", "") if size.exact else (">=", ">= ")
    least = amount(size.bytes, unit)
    text = f"{bound} {span(least, least if most is None else amount(most, unit))}"
    for device, count in sorted(size.devices.items()):
        text += f" + {each}{amount(count, unit)} {device}"
    if not size.exact and size.estimate:
        text += f" ~ {amount(size.estimate, unit)}" + (" in all" if size.devices else "")
    return text
