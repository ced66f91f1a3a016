"""How the walk reads what objects refer to: slice by slice, while other threads may write there.

Another thread may get the GIL between two slices and write to the container that is being read; a container that leaks
is written to all the time. So the contents of a dict or a set are copied in one C call that keeps the GIL: they count
as they were when the walk reached them. A copy drops each object that it has handed out. So an object that the program
drops is freed soon, and the copy adds no reference to an object that is looked at. A list or a deque is read up to the
length that it had when the walk reached it, wherever its elements have moved since (`meshrt.memory.following`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Protocol

from meshrt.memory.following import SLICE, Followed

__all__ = ["CONTAINERS", "SLICE", "Copied", "Lying", "Source", "keys", "keys_and_values"]

#: Entries of a dict, a set or a deque that are copied at once: for about 10 ms nothing else runs in the process.
_PIECE = 128 * SLICE


class Source(Protocol):
    """What is still to be read.

    Attributes:
        over: Nothing is left.
        copied: The source itself holds one reference to each object that is left.
        lost: The container was written to in a way that some objects may have been missed or come twice.
    """

    over: bool
    lost: bool

    @property
    def copied(self) -> bool: ...

    def take(self) -> list[object]:
        """Return the next objects, `SLICE` at most."""
        ...


class Lying:
    """Reads objects in place; no other thread may change what ``items`` iterates over."""

    copied = lost = False

    def __init__(self, items: Iterator[object]) -> None:
        self._items = items
        self.over = False

    def take(self) -> list[object]:
        """Return the next objects; `over` is set when fewer than `SLICE` come."""
        items = list(islice(self._items, SLICE))
        self.over = len(items) < SLICE
        return items


class Copied:
    """Reads copies, and releases them bit by bit.

    Args:
        pieces: Lists of copies: those of one list are read side by side, then those of the next. The first list is made
            at once.
    """

    copied, lost = True, False

    def __init__(self, pieces: Iterator[list[list[object]]]) -> None:
        self._pieces = pieces
        self._copies = self._next()
        self.over = not self._copies

    def take(self) -> list[object]:
        """Return some objects of the copy that has most left: a slice is of one kind, and soon all kinds were seen."""
        copy = max(self._copies, key=len)
        items = copy[-SLICE:]
        del copy[-SLICE:]
        if not any(self._copies):
            self._copies = self._next()
            self.over = not self._copies
        return items

    def _next(self) -> list[list[object]]:
        return next(filter(any, self._pieces), [])


def keys_and_values(objects: list[dict[object, object]], at_once: int) -> Source:
    """Return a source for small dicts: ``at_once`` of them are copied at a time."""
    batches = (objects[start : start + at_once] for start in range(0, len(objects), at_once))
    return Copied(
        [list(chain.from_iterable(map(dict.values, some))), list(chain.from_iterable(some))] for some in batches
    )


def keys(each: dict[object, object]) -> list[object]:
    """Return the keys of a dict, even if its class overrides ``__iter__``."""
    return list(chain.from_iterable(map(dict.__iter__, (each,))))  # from its iterator to the last key in one call


def _of_list(each: list[object]) -> tuple[Source, int]:
    return Followed(lambda start, stop: each[start:stop], each.__len__), len(each)


def _of_deque(each: deque[object]) -> tuple[Source, int]:
    def read(start: int, stop: int) -> list[object]:
        return list(islice(chain.from_iterable((each,)), start, stop))  # its iterator is made when it is read

    return Followed(read, each.__len__, _PIECE), len(each)


def _unchanging(each: tuple[object, ...] | frozenset[object]) -> tuple[Source, int]:
    return Lying(iter(each)), len(each)


def _of_set(each: set[object]) -> tuple[Source, int]:
    return Copied(_pieces((each,), len(each))), len(each)


def _of_dict(each: dict[object, object]) -> tuple[Source, int]:
    return Copied(_pieces((each.values(), each), len(each))), 2 * len(each)


def _pieces(views: tuple[Iterable[object], ...], length: int) -> Iterator[list[list[object]]]:
    for start in range(0, length, _PIECE):
        stop = min(start + _PIECE, length)
        # The chain asks the view for its iterator only when the list asks the chain: no thread can write in between.
        yield [list(islice(chain(view), start, stop)) for view in views]


#: How a large container is read, and its number of objects.
CONTAINERS: dict[type, Callable[[Any], tuple[Source, int]]] = {
    list: _of_list,
    tuple: _unchanging,
    dict: _of_dict,
    set: _of_set,
    frozenset: _unchanging,
    deque: _of_deque,
}
