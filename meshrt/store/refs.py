"""References to objects in the store; a message carries the reference, not the object."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from meshrt.errors import UsageError
from meshrt.store.lease import Lease, Reading, of_this_message
from meshrt.wire import codec

__all__ = ["ObjectRef", "mentions", "references_exist"]

T = TypeVar("T")

if TYPE_CHECKING:
    #: For type checkers a reference fits every parameter: it arrives as its object.
    _Argument = Any
else:
    _Argument = object

_sending = threading.local()
_exist = False


def references_exist() -> bool:
    """Whether this process has ever had a reference: else no message can mention one."""
    return _exist


class _Found(dict[int, Lease]):
    """By segment."""

    __slots__ = ("__weakref__",)


def _nothing() -> _Found | None:
    return None


@contextmanager
def mentions() -> Iterator[dict[int, Lease]]:
    """Collect the references that are pickled in the block, by segment: they are about to be sent."""
    found = _Found()
    outer = getattr(_sending, "found", _nothing)
    # Weak: if Ctrl-C is raised on the way out, what was collected goes all the same.
    _sending.found = weakref.ref(found)
    try:
        yield found
    finally:
        _sending.found = outer


class ObjectRef(Generic[T], _Argument):  # type: ignore[misc]
    """An object in the store of a host; it exists for as long as a process holds a reference or sees its arrays.

    As an argument or in a result it arrives as the object, or as a reference if it was put with ``lazy=True``.

    Attributes:
        nbytes: Its size in the store.
        site: Where it was put, ``file:line``.
        lazy: Whether it arrives as a reference.
    """

    __slots__ = ("_lease", "_lengths", "lazy", "site")

    def __init__(self, lease: Lease, lengths: list[tuple[int, int]], lazy: bool, site: str) -> None:
        global _exist
        _exist = True
        self._lease = lease
        #: Start and size of the pickle and of each of its buffers.
        self._lengths = lengths
        self.lazy: bool = lazy
        self.site: str = site

    @property
    def nbytes(self) -> int:
        """Return its size in the store, bytes."""
        return self._lease.loan.size

    @property
    def segment(self) -> int:
        """Return the number by which the stores know it."""
        return self._lease.loan.segment

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Go through what the object consists of in its segment, its pickle and each of its buffers: start and size."""
        yield from self._lengths

    def get(self) -> T:
        """Return the object; large arrays in it are read-only views of the store. Any thread.

        Raises:
            ReferenceLost: The host agent that kept it has ended.
        """
        reading = Reading(self._lease)
        views = [reading.window(start, size) for start, size in self._lengths]
        value: T = codec.unpickled(views[0], views[1:])
        return value

    def __reduce__(self) -> tuple[object, ...]:
        found: _Found | None = getattr(_sending, "found", _nothing)()
        if found is None:
            raise UsageError(
                "a reference can only be passed to an endpoint or returned by one: it ends with its program"
            )
        found[self._lease.loan.segment] = self._lease
        return _arrive, (self._lease.loan.segment, self._lengths, self.lazy, self.site)

    def __copy__(self) -> ObjectRef[T]:
        return self

    def __deepcopy__(self, _memo: object) -> ObjectRef[T]:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and other._lease.loan.segment == self._lease.loan.segment

    def __hash__(self) -> int:
        return hash(self._lease.loan.segment)

    def __repr__(self) -> str:
        where = f" put at {self.site}" if self.site else ""
        return f"<ObjectRef {self._lease.loan.segment:x}: {self.nbytes / (1 << 20):.2f} MiB{where}>"


def _arrive(segment: int, lengths: list[tuple[int, int]], lazy: bool, site: str) -> object:
    reference: ObjectRef[object] = ObjectRef(of_this_message(segment), lengths, lazy, site)
    return reference if lazy else reference.get()
