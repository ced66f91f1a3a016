"""The walk over everything that one variable reaches.

It goes through ``gc.get_referents``, from a list of its own instead of by recursion, and counts each object once. It
runs no user code: no ``__sizeof__``, no property, no ``__getattr__``. Objects that exist anyway are left out: modules,
classes, code, stack frames that run, and the runtime. An array is counted by the memory that it holds, once for each
owner, however many views show it.

After every `SLICE` objects the walk checks its budget. It releases the GIL too, unless the objects are only a few.
`meshrt.memory.contents` says what happens if a container is written to then.

An object with one reference was reached through that one and cannot be reached again. Most objects of a large
container are of that kind; only the others are remembered. If an earlier variable has reached an object, it is shared
with that variable, and so is everything below it.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from gc import get_referents
from itertools import chain
from mmap import PAGESIZE
from sys import getrefcount, getsizeof
from types import FunctionType
from typing import Any

from meshrt.inspect.values import class_name
from meshrt.memory.buffers import HOST, MAPPED, SHARED, Memory, Place
from meshrt.memory.contents import CONTAINERS, SLICE, Copied, Lying, Source, keys, keys_and_values
from meshrt.memory.estimating import Part, estimate
from meshrt.memory.hiding import ended
from meshrt.memory.kinds import ATOMS, PLAIN, Kind, Kinds
from meshrt.memory.marks import REGION, SLOT, SLOTS, Marks
from meshrt.memory.told import inline_values
from meshrt.store.refs import ObjectRef

__all__ = ["BUDGET", "NO_VARIABLE", "Size", "Walk", "enter_not"]

#: Small containers are asked for their referents together, up to so many bytes at a time.
_TOGETHER = 256 * SLICE
#: A container of more bytes is read by itself.
_LARGE = 8 * SLICE
#: From so many objects on the walk of a variable releases the GIL: fewer are counted faster than that takes.
_FEW = 64
#: Why a size is not exact: the budget ended the walk, or another thread changed a container.
BUDGET = "budget"
_WRITTEN = "written to while it was counted"
#: Number that means: no variable.
NO_VARIABLE = -1

#: The mark of an object: the number of the variable, and this.
_MARK = 2
_UNENTERED = NO_VARIABLE + _MARK


def enter_not(holders: Marks, objects: Iterable[object]) -> None:
    """Mark objects that no walk enters; the caller keeps them alive."""
    for each in objects:
        holders.objects.set(id(each), _UNENTERED)


@dataclass(frozen=True, slots=True)
class Size:
    """What a variable holds.

    Attributes:
        bytes: Bytes that were counted, in the memory of the processor.
        objects: Number of objects that were counted.
        exact: Whether everything was counted; otherwise the variable holds at least ``bytes``.
        estimate: Estimated total bytes, on all devices; None if the size is exact or cannot be estimated.
        why: Why the size is not exact: `BUDGET`, or what hides its memory.
        devices: Bytes in the memory of other devices, by device.
        shared: The part of ``bytes`` that earlier variables have reached, by the number of the variable.
    """

    bytes: int
    objects: int
    exact: bool = True
    estimate: int | None = None
    why: str = ""
    devices: dict[str, int] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)

    @property
    def likely(self) -> int:
        """The bytes on all devices, estimated where they were not counted."""
        return max(self.bytes + sum(self.devices.values()), self.estimate or 0)


class Walk:
    """The walk over one variable. One thread.

    Args:
        holders: Which variable reached each object first; the walk adds what it reaches. `enter_not` says which objects
            no walk enters.
        number: Number of this variable.
        value: Value of this variable.
        note: Called with each segment of shared memory that a reference refers to or an array lies in.
        places: Receives the size, by place, of arrays and mappings of a page or more that this walk reached first.
    """

    def __init__(
        self,
        kinds: Kinds,
        holders: Marks,
        number: int,
        value: object,
        note: Callable[[int], None],
        places: dict[Place, int],
    ) -> None:
        self._note = note
        self._places = places
        self._kinds = kinds
        self._holders = holders
        self._number = number
        #: Objects that other variables had reached first, and this walk has reached too.
        self._again = Marks()
        self._parts: list[Part] = []
        self._bytes = 0
        self._objects = 0
        self._devices: dict[str, int] = {}
        self._shared: dict[int, int] = {}
        #: Bytes of arrays as their shapes tell them, and the part of ``_bytes`` that is the memory behind arrays.
        self._shown = 0
        self._behind = 0
        #: Whether the objects that are looked at are below an array, and what the arrays above them show.
        self._below = False
        self._pending = 0.0
        #: Why the objects that were counted may hold more than can be seen.
        self._hidden = ""
        self._push(Lying(iter((value,))), NO_VARIABLE, twice=True)

    def go_on(self, ended: Callable[[int], bool]) -> Size:
        """Walk until all is counted or ``ended`` returns True; it is called with the number of objects so far."""
        while self._parts:
            part = self._parts[-1]
            items = part.source.take()
            part.done += len(items)
            if part.source.lost:
                self._hidden = self._hidden or _WRITTEN
            if part.source.over:
                self._parts.pop()
            self._look(items, part)
            del items
            if self._parts and ended(self._objects):
                for part in self._parts:
                    if part.source.copied:
                        part.alone = 0  # a later walk sees the reference of the copy, and remembers the object
                return self._size(BUDGET, self._estimate())
            if self._objects >= _FEW:
                time.sleep(0)  # releases the GIL to a thread that waits for it
        return self._size(self._hidden, None)

    def _estimate(self) -> int | None:
        behind = self._behind + sum(self._devices.values())
        return estimate(self._parts, own=self._bytes - self._behind, behind=behind, shown=self._shown)

    def _size(self, why: str, estimate: int | None) -> Size:
        return Size(self._bytes, self._objects, not why, estimate, why, {**self._devices}, {**self._shared})

    def _push(self, source: Source, holder: int, *, total: int = 0, twice: bool = False, shown: int = 0) -> None:
        """Put objects on the list; ``shown``: bytes that arrays show of which these are the owners."""
        if not source.over:
            pending, self._pending = shown or self._pending, 0.0
            below, before = self._below or shown > 0, self._bytes - self._behind
            alone = 0 if twice else _ALONE
            self._parts.append(Part(source, holder, alone, total, below, pending, before, self._shown))

    def _push_copy(self, copy: list[object], holder: int, *, twice: bool = False, shown: int = 0) -> None:
        total = len(copy)  # the list shrinks while it is looked at
        self._push(Copied(iter([[copy]])), holder, total=total, twice=twice, shown=shown)

    def _look(self, items: list[object], part: Part) -> None:
        """Take the objects that this walk has not met."""
        self._below = part.below
        self._pending = part.pending * len(items) / part.total if part.total else part.pending
        counts = list(map(getrefcount, items))
        alone = part.alone
        if counts and max(counts) > alone:
            others = [each for each, count in zip(items, counts, strict=True) if count > alone]
            items = [each for each, count in zip(items, counts, strict=True) if count <= alone]
            self._meet(others)
        if items:
            self._take(items, part.holder)

    def _meet(self, items: list[object]) -> None:
        """Take the objects, which have several referrers, that this walk has not met."""
        regions, add, mark = self._holders.objects.regions, self._holders.objects.add, self._number + _MARK
        new: list[object] = []
        earlier: dict[int, list[object]] = {}
        for each in items:
            address = id(each)
            numbers = regions.get(address >> REGION)
            if numbers is None:
                numbers = add(address >> REGION)
            slot = address >> SLOT & SLOTS
            first = numbers[slot]
            if not first:
                numbers[slot] = mark
                new.append(each)
            elif first not in (mark, _UNENTERED) and not self._again.objects.get(address):
                self._again.objects.set(address, 1)
                earlier.setdefault(first - _MARK, []).append(each)
        for holder, objects in earlier.items():
            self._take(objects, holder)
        if new:
            # An earlier walk has reached their referrer too, but it was ended before: it will find these to be ours.
            self._take(new, NO_VARIABLE)

    def _take(self, objects: list[object], holder: int) -> None:
        """Count objects, and put their referents on the list."""
        classes = set(map(id, map(type, objects)))  # by identity: a metaclass may compare
        if classes <= _PLAIN:
            self._take_plain(objects, holder, classes)
            return
        by_class: dict[int, list[object]] = {}
        for each in objects:
            by_class.setdefault(id(type(each)), []).append(each)
        plain = [each for cls, members in by_class.items() if cls in _PLAIN for each in members]
        if plain:
            self._take_plain(plain, holder, classes & _PLAIN)
        for cls, members in by_class.items():
            if cls not in _PLAIN:
                self._take_kind(self._kinds.of(type(members[0])), members, holder)

    def _take_plain(self, objects: list[Any], holder: int, classes: set[int]) -> None:
        if len(classes) == 1:  # takes a third of the time of getsizeof
            kind = self._kinds.of(type(objects[0]))
            sizes, head = list(map(kind.sizeof, objects)), kind.head
        else:
            sizes, head = list(map(getsizeof, objects)), 0
        total = sum(sizes) + head * len(objects)
        self._count(total, len(objects), holder)
        if self._below:
            self._behind += total
        if classes <= _ATOMS:
            return
        if max(sizes) > _LARGE:
            for each, size in zip(objects, sizes, strict=True):
                if size > _LARGE and type(each) in CONTAINERS:
                    source, length = CONTAINERS[type(each)](each)
                    self._push(source, holder, total=length)
            objects = [each for each, size in zip(objects, sizes, strict=True) if size <= _LARGE]
            total = sum(size for size in sizes if size <= _LARGE)
        if _DICT in classes:
            # The collector tells only the values of a dict whose keys are all strings.
            dicts = [each for each in objects if type(each) is dict]
            source = keys_and_values(dicts, SLICE if total <= _TOGETHER else _TOGETHER // _LARGE)
            self._push(source, holder, total=2 * sum(map(len, dicts)))
            objects = [each for each in objects if type(each) is not dict]
        if total <= _TOGETHER:
            self._push_copy(get_referents(*objects), holder)
        else:
            length = sum(len(each) for each in objects if type(each) in CONTAINERS)
            self._push(Lying(chain.from_iterable(map(get_referents, objects))), holder, total=length)

    def _take_kind(self, kind: Kind, objects: list[Any], holder: int) -> None:
        """Take objects of one class that is not plain."""
        if kind.how == "skip":
            return
        if kind.how == "reference":
            for each in objects:
                self._take_reference(each, holder)
            return
        self._hidden = self._hidden or kind.hides
        if kind.how == "frame":
            objects = list(filter(ended, objects))
        elif kind.how not in ("object", "function"):
            self._take_buffers(kind, objects, holder)
            return
        self._count(sum(map(kind.sizeof, objects)) + kind.head * len(objects), len(objects), holder)
        if kind.how == "function":
            self._push(Lying(chain.from_iterable(map(_held_by_function, objects))), holder)
        elif kind.attributes:
            referents = [get_referents(each) for each in objects]
            for held in referents:
                self._count_attributes(held, holder)
            held_by_all = list(chain.from_iterable(referents))
            self._push_copy(held_by_all, holder, twice=kind.is_dict)
        else:
            self._push(Lying(chain.from_iterable(map(get_referents, objects))), holder, twice=kind.is_dict)
        if kind.told is not None:
            self._push_copy(list(chain.from_iterable(map(kind.told, objects))), holder, twice=True)
        if kind.is_dict:
            self._push(Lying(chain.from_iterable(map(keys, objects))), holder, twice=True)

    def _count_attributes(self, referents: list[object], holder: int) -> None:
        """Count the array that holds the instance variables of an object."""
        if len(referents) != 2 or type(referents[0]) is not dict:  # otherwise they have become a dict
            self._count(inline_values(len(referents) - 1), 0, holder)  # one is its class

    def _take_buffers(self, kind: Kind, objects: list[object], holder: int) -> None:
        """Count arrays of one class; what they refer to is looked at together: a slice for each would take longer."""
        below = self._below
        owners: list[object] = []
        referents: list[object] = []
        of_owners = 0
        for each in objects:
            try:
                memory = self._kinds.buffers.memory(kind.how, each)
            except Exception as error:  # closed, or its memory cannot be read
                why = f"size of a {class_name(each)} unknown: {class_name(error)}"
                memory = Memory(kind.sizeof(each), None, 0, unknown=why)
            self._hidden = self._hidden or memory.unknown
            self._count(memory.own + kind.head, 1, holder)
            if not below:
                self._shown += memory.size
            if memory.place is not None:
                self._take_place(memory.place, memory.size, holder)
            elif memory.owner is not None:
                owners.append(memory.owner)
                of_owners += memory.size
            if memory.inside is not None:
                self._push(Lying(memory.inside), holder)
            referents += get_referents(each)
            del memory  # no reference of its own to the owner: the next slice counts references
        if referents:
            self._push_copy(referents, holder)
        if owners:
            self._push_copy(owners, holder, shown=of_owners)

    def _take_reference(self, reference: ObjectRef[object], holder: int) -> None:
        """Count what a reference keeps in shared memory, once in all; the reference itself takes almost no memory."""
        beside = reference.nbytes
        for start, size in reference.pieces():
            self._take_place((SHARED, (reference.segment, start)), size, holder)
            beside -= size
        self._take_place((SHARED, (reference.segment, -1)), beside, holder)

    def _take_place(self, place: Place, size: int, holder: int) -> None:
        """Count memory that other variables may have reached too."""
        if isinstance(place[1], tuple):
            self._note(place[1][0])  # its segment
        first = self._holders.of_place(place)
        if first == self._number + _MARK or self._again.of_place(place):
            return
        if first:
            self._again.set_place(place, 1)
            holder = first - _MARK
        else:
            self._holders.set_place(place, self._number + _MARK)
            holder = NO_VARIABLE  # a walk that was ended has reached its referrer too: it will find this to be ours
            if size >= PAGESIZE and place[0] in (HOST, MAPPED):
                self._places[place] = size
        if place[0] in (HOST, MAPPED):
            self._count(size, 0, holder)
            self._behind += size
        else:
            self._devices[place[0]] = self._devices.get(place[0], 0) + size

    def _count(self, size: int, objects: int, holder: int) -> None:
        self._bytes += size
        self._objects += objects
        if holder != NO_VARIABLE:
            self._shared[holder] = self._shared.get(holder, 0) + size


def _held_by_function(function: FunctionType) -> list[object]:
    """Return what belongs to a function: its defaults, closure and attributes; not its module."""
    elsewhere = (id(function.__globals__), id(builtins.__dict__))
    return [each for each in get_referents(function) if id(each) not in elsewhere]


def _references_of_one_alone() -> int:
    """Return the ``getrefcount`` that `Walk._look` sees for an object with one referrer, a container."""
    container: list[object] = [[] for _ in range(2)]
    items = Lying(iter(container)).take()
    return max(list(map(getrefcount, items)))


#: Classes by identity.
_PLAIN, _ATOMS, _DICT = frozenset(map(id, PLAIN)), frozenset(map(id, ATOMS)), id(dict)
_ALONE = _references_of_one_alone()
