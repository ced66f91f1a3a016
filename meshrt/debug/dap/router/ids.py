"""Numbers of one session that stand for numbers of many engines. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from meshrt.debug.dap.wire import Fields

__all__ = ["Ids"]

K = TypeVar("K", bound=Hashable)


class Ids(Generic[K]):
    """Two-way table between a number here and (whose, kind, number there). Equal things have one number, ever.

    Kinds are names of DAP's fields: ``threadId``, ``frameId``, ``variablesReference``, ``sourceReference``, ...
    """

    #: Fields of answers that have such numbers, at any depth.
    FIELDS = ("variablesReference", "sourceReference")

    def __init__(self) -> None:
        self._there: dict[int, tuple[K, str, int]] = {}
        self._here: dict[tuple[K, str, int], int] = {}
        self._next = 1

    def here(self, whose: K, kind: str, number: int) -> int:
        """Return the number here of a number there. 0 means nothing, here and there."""
        if number == 0:
            return 0
        key = (whose, kind, number)
        known = self._here.get(key)
        if known is None:
            known = self._here[key] = self._next
            self._there[known] = key
            self._next += 1
        return known

    @property
    def unused(self) -> int:
        """A number that was never used here."""
        return self._next

    def there(self, number: int, kind: str) -> tuple[K, int] | None:
        """Return the owner of a number, and the number there; None if it is unknown, or forgotten."""
        found = self._there.get(number)
        return (found[0], found[2]) if found is not None and found[1] == kind else None

    def outward(self, whose: K, body: Fields) -> Fields:
        """Return an answer with the fields in `FIELDS` as numbers here, at any depth."""
        return {
            key: self.here(whose, key, each)
            if key in self.FIELDS and isinstance(each, int)
            else self._outward(whose, each)
            for key, each in body.items()
        }

    def _outward(self, whose: K, value: object) -> object:
        if isinstance(value, list):
            return [self._outward(whose, each) for each in value]
        return self.outward(whose, value) if isinstance(value, dict) else value

    def forget(self, whose: K, *kinds: str) -> None:
        """Forget the numbers of ``whose`` of these kinds; of all kinds if none is given."""
        for key in [key for key in self._here if key[0] == whose and (not kinds or key[1] in kinds)]:
            del self._there[self._here.pop(key)]
