"""How the walk goes through what objects refer to: slice by slice, while other threads may write there.

Whoever has the GIL between two slices may write to what is being gone through, and what leaks always is written to. So
what a dict or a set holds is copied, in one call of C that keeps the GIL: it counts as it was when it was reached. A
copy loses what was handed out, so that what the program drops meanwhile is soon dropped, and so that the copy is no
reference to what is looked at. A list or a deque is gone through as far as it went when it was reached, wherever what
is in it has moved to since (`meshrt.memory.following`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Protocol

from meshrt.memory.following import SLICE, Followed

__all__ = ["CONTAINERS", "SLICE", "Copied", "Lying", "Source", "keys", "keys_and_values"]

#: Entries of a dict, a set or a deque that are copied at once: nothing else of the process runs then, for some 10 ms.
_PIECE = 128 * SLICE


class Source(Protocol):
    """What is still to be gone through.

    Attributes:
        over: Nothing is left.
        copied: What is left has a reference of its own here.
        lost: It was written to so that some of it may have been passed over, or come twice.
    """

    over: bool
    lost: bool

    @property
    def copied(self) -> bool: ...

    def take(self) -> list[Any]:
        """Return the next ones, `SLICE` at most."""
        ...


class Lying:
    """Goes through objects where they lie; nobody may change what ``items`` goes through."""

    copied = lost = False

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self.over = False

    def take(self) -> list[Any]:
        """Return the next ones; `over` is known when there are fewer than could be."""
        items = list(islice(self._items, SLICE))
        self.over = len(items) < SLICE
        return items


class Copied:
    """Goes through copies, and lets go of them bit by bit.

    Args:
        pieces: Copies that are gone through side by side, and then the next ones. The first are made at once.
    """

    copied, lost = True, False

    def __init__(self, pieces: Iterator[list[list[Any]]]) -> None:
        self._pieces = pieces
        self._copies = self._next()
        self.over = not self._copies

    def take(self) -> list[Any]:
        """Return some of the copy of which most is left: those of one slice are of one kind, and soon all were seen."""
        copy = max(self._copies, key=len)
        items = copy[-SLICE:]
        del copy[-SLICE:]
        if not any(self._copies):
            self._copies = self._next()
            self.over = not self._copies
        return items

    def _next(self) -> list[list[Any]]:
        return next(filter(any, self._pieces), [])


def keys_and_values(objects: list[dict[Any, Any]], at_once: int) -> Source:
    """Return how small dicts are gone through: so many of them are copied at once."""
    batches = (objects[start : start + at_once] for start in range(0, len(objects), at_once))
    return Copied(
        [list(chain.from_iterable(some)), list(chain.from_iterable(map(dict.values, some)))] for some in batches
    )


def keys(each: dict[Any, Any]) -> list[Any]:
    """Return the keys of a dict, whatever its class makes of ``__iter__``."""
    return list(chain.from_iterable(map(dict.__iter__, (each,))))  # from its iterator to the last key in one call


def _of_list(each: list[Any]) -> tuple[Source, int]:
    return Followed(lambda start, stop: each[start:stop], each.__len__), len(each)


def _of_deque(each: deque[Any]) -> tuple[Source, int]:
    def read(start: int, stop: int) -> list[Any]:
        return list(islice(chain.from_iterable((each,)), start, stop))  # its iterator is made when it is gone through

    return Followed(read, each.__len__, _PIECE), len(each)


def _unchanging(each: tuple[Any, ...] | frozenset[Any]) -> tuple[Source, int]:
    return Lying(iter(each)), len(each)


def _of_set(each: set[Any]) -> tuple[Source, int]:
    return Copied(_pieces((each,), len(each))), len(each)


def _of_dict(each: dict[Any, Any]) -> tuple[Source, int]:
    return Copied(_pieces((each, each.values()), len(each))), 2 * len(each)


def _pieces(views: tuple[Iterable[Any], ...], length: int) -> Iterator[list[list[Any]]]:
    for start in range(0, length, _PIECE):
        stop = min(start + _PIECE, length)
        # The chain asks the view for its iterator only when the list asks the chain: nobody can write in between.
        yield [list(islice(chain(view), start, stop)) for view in views]


#: How a large container is gone through, and how many objects that are.
CONTAINERS: dict[type, Callable[[Any], tuple[Source, int]]] = {
    list: _of_list,
    tuple: _unchanging,
    dict: _of_dict,
    set: _of_set,
    frozenset: _unchanging,
    deque: _of_deque,
}
