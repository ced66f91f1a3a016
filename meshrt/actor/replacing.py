"""Classes that are spawned in place of others (`meshrt.testing.patch_actor`), in the script and in its ranks."""

from __future__ import annotations

from collections.abc import Mapping

from meshrt.transport.process import current_runtime, has_runtime

__all__ = ["Shipped", "replace", "replaced", "replacement_of"]

_replaced: dict[type, type] = {}
#: Whether there ever was one: ranks are told of the end, too.
_used = False


def replaced() -> dict[type, type]:
    """Return the classes that are replaced now, and by what."""
    return dict(_replaced)


def replace(classes: Mapping[type, type]) -> None:
    """Have these classes replaced, and no others."""
    global _used
    _used = True
    _replaced.clear()
    _replaced.update(classes)


def replacement_of(cls: type) -> type:
    """Return what is spawned in place of a class: itself, if it is not replaced."""
    return _replaced.get(cls, cls)


class Shipped:
    """A class on its way to a rank, with the replacements of this process; it arrives as the class itself."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    @staticmethod
    def of(cls: type) -> object:
        """Return what to send for a class: the class alone if nothing was ever replaced."""
        return Shipped(cls) if _used else cls

    def __reduce__(self) -> tuple[object, ...]:
        return _arrived, (self._cls, list(_replaced.items()))


def _arrived(cls: type, classes: list[tuple[type, type]]) -> type:
    if not (has_runtime() and current_runtime().is_root):  # its own are those of the block that runs now
        replace(dict(classes))
    return cls
