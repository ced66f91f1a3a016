"""What variables hold: each object once, arrays by their memory, within a budget, and running nothing of the user's."""

from __future__ import annotations

import array
import collections
import ctypes
import dataclasses
import datetime
import functools
import io
import mmap
import multiprocessing
import os
import random
import re
import sqlite3
import struct
import sys
import threading
import tracemalloc
import types
import zlib
from collections.abc import Callable, Iterator
from gc import get_referents
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.files import RUNTIME_FILES
from meshrt.memory import contents, following, walk
from meshrt.memory.contents import SLICE
from meshrt.memory.hiding import hides
from meshrt.memory.sizing import Budget, Size, Snapshot
from meshrt.memory.variables import facts_of, type_name
from meshrt.store.mapping import Mapping

MIB = 1 << 20


def measure(value: Any, budget: Budget | None = None) -> Size:
    return Snapshot().measure(value, budget)


def counted(*roots: Any) -> int:
    """Count the slow and plain way: every object once, without classes and modules."""
    seen: dict[int, Any] = {}
    todo = list(roots)
    while todo:
        each = todo.pop()
        if id(each) not in seen and not isinstance(each, type | types.ModuleType):
            seen[id(each)] = each
            todo += get_referents(each)
            if isinstance(each, dict):
                todo += each  # the collector is not told of keys that are strings
    return sum(map(sys.getsizeof, seen.values()))


def near(size: Size, expected: int, slack: int = 2000) -> bool:
    return size.exact and size.estimate is None and expected <= size.bytes <= expected + slack


class Plain:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def method(self) -> None: ...


class Attributes:
    def __init__(self) -> None:
        self.a, self.b, self.c = 1, 2, 3


class Slots:
    __slots__ = ("data", "other")

    def __init__(self, data: Any) -> None:
        self.data = data


class OwnList(list[Any]):
    def __len__(self) -> int:
        raise AssertionError("asked for its length")

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("gone through")


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    def __eq__(cls, other: object) -> bool:
        raise AssertionError("compared")

    def __hash__(cls) -> int:
        raise AssertionError("hashed")


class Hostile(dict[Any, Any]):
    touched: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__()
        dict.__setitem__(self, "kept", bytearray(MIB))

    def __getattribute__(self, name: str) -> Any:
        Hostile.touched.append(name)
        raise RuntimeError(name)

    def __sizeof__(self) -> int:
        Hostile.touched.append("__sizeof__")
        raise RuntimeError("no size")


json_like = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=30,
)


@given(json_like)
def test_plain_data_is_counted_to_the_byte(value: Any) -> None:
    size = measure(value)
    assert (size.bytes, size.exact) == (counted(value), True)


@pytest.mark.parametrize(
    "value",
    [
        [[x] for x in range(20_000)],
        [[5.5] * 1000] * 1000,
        {str(n): {n, n + 0.5} for n in range(20_000)},
        tuple([float(n) for n in range(m)] for m in range(300)),
        [collections.deque([n, [n]]) for n in range(1000)],
        [collections.defaultdict(list, {f"{n}": [n], n / 7: f"v{n}"}) for n in range(1000)],
        [collections.Counter({f"{n}": n}) for n in range(1000)],
        array.array("d", range(1000)),
        [bytearray(1000)] * 3,
    ],
    ids=["nested", "the same one", "dict of sets", "ragged", "deques", "defaultdicts", "counters", "array", "buffers"],
)
def test_containers_are_counted_to_the_byte(value: Any) -> None:
    assert measure(value).bytes == counted(value)


def test_arrays_count_by_the_memory_that_they_hold() -> None:
    big = np.ones(MIB, dtype=np.uint8)
    assert near(measure([1, [big]]), MIB)
    assert near(measure({"a": big, "view": big[:10], "again": [big[5:].reshape(-1, 1)]}), MIB)
    assert near(measure({name: np.ones(MIB // 8) for name in "ab"}), 2 * MIB)
    assert near(measure(big[:10]), MIB), "a view of ten elements keeps all of them"
    assert near(measure(np.frombuffer(bytearray(MIB), dtype=np.uint8)), MIB)
    assert near(measure(memoryview(bytearray(MIB))[10:20]), MIB)
    assert near(measure(np.array([bytearray(MIB), None], dtype=object)), MIB)
    assert near(measure(np.ones(MIB, dtype=np.uint8).view(type("Own", (np.ndarray,), {}))), MIB)
    with mmap.mmap(-1, MIB) as mapped:
        assert near(measure([mapped, np.frombuffer(mapped, dtype=np.uint8)]), MIB)
    closed = measure(mapped)
    assert not closed.exact and "size of a mmap unknown" in closed.why


class OwnMapping(mmap.mmap):
    def __buffer__(self, _flags: int) -> memoryview:
        raise AssertionError("it was asked")


def test_what_is_of_files_or_shared_is_told_from_what_is_of_the_heap(tmp_path: Path) -> None:
    file = np.memmap(tmp_path / "file", np.uint8, "w+", shape=MIB)
    copied = np.memmap(tmp_path / "file", np.uint8, "c", shape=MIB)
    with mmap.mmap(-1, MIB) as shared, mmap.mmap(-1, MIB, mmap.MAP_PRIVATE) as alone, OwnMapping(-1, MIB) as own:
        raw = multiprocessing.RawArray("B", MIB)
        for held, expected in (
            ([shared, np.frombuffer(shared, np.uint8), memoryview(shared)], MIB),
            ([raw, np.frombuffer(raw, np.uint8)], MIB),
            (file[10:20], MIB),
            (copied, MIB),
            (own, MIB),
            (alone, 0),
            ([np.ones(MIB, np.uint8), bytearray(MIB)], 0),
        ):
            snapshot = Snapshot()
            snapshot.measure(held)
            snapshot.measure([held])
            mapped = snapshot.mapped()
            assert expected <= mapped < expected + mmap.PAGESIZE and mapped <= snapshot.unique(), held


class Both(ctypes.Structure):
    _fields_: ClassVar = [("head", ctypes.c_int), ("rest", ctypes.c_ubyte * MIB)]


def test_memory_of_ctypes_counts_once_for_all_who_see_it() -> None:
    kept: Any = (ctypes.c_double * (MIB // 8))()
    assert near(measure(kept), MIB) and near(measure(ctypes.create_string_buffer(MIB)), MIB)
    assert near(measure([kept, memoryview(kept)[5:6], np.ctypeslib.as_array(kept), np.frombuffer(kept)[:3]]), MIB)
    assert near(measure(Both().rest), MIB), "a part keeps the whole"
    lent = bytearray(MIB)
    assert near(measure([lent, (ctypes.c_char * MIB).from_buffer(lent)]), MIB)
    assert near(measure(ctypes.pointer(kept)), MIB)
    assert near(measure(multiprocessing.RawArray("b", 4 * MIB)), 4 * MIB, slack=MIB)
    assert measure([ctypes.c_int(5), ctypes.c_double(2.5)]).bytes < 500


def test_a_buffer_is_the_stores_by_its_memory() -> None:
    """Of one length, ctypes has one class for all, whoever has made it first."""
    size = MIB + 4242
    file = os.memfd_create("test")
    os.truncate(file, size)
    view = Mapping(file, size).window(0, size, None)
    os.close(file)
    own = ctypes.create_string_buffer(size)
    assert view and type(own).__module__ == "meshrt.store.mapping" and near(measure(own), size)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda kept: ctypes.pointer(kept).contents, "memory behind a pointer"),
        (lambda kept: (ctypes.c_char * MIB).from_address(ctypes.addressof(kept)), "memory of a library"),
        (lambda kept: np.asarray(Exporter(kept)), "memory of a Exporter"),
    ],
)
def test_memory_of_which_nobody_tells_whose_it_is_makes_a_lower_bound(make: Any, why: str) -> None:
    kept = ctypes.create_string_buffer(MIB)
    size = measure(make(kept))
    assert (size.exact, size.why) == (False, why)


class Exporter:
    """Shows memory, and does not say that it has it."""

    def __init__(self, kept: Any) -> None:
        self.__array_interface__ = {"shape": (MIB,), "typestr": "|u1", "data": (ctypes.addressof(kept), False)}


def test_iterators_of_arrays_keep_them() -> None:
    array = np.ones(MIB, dtype=np.uint8)
    assert near(measure(array.flat), MIB, slack=4000)
    assert near(measure(np.lib.stride_tricks.as_strided(array, (2, 2), (1, 1))), MIB)
    assert not measure(np.nditer(array)).exact


def failed() -> tuple[ValueError, Any]:
    held = bytearray(MIB)
    try:
        raise ValueError(len(held))
    except ValueError as error:
        return error, sys._getframe()


def test_an_exception_keeps_what_the_frames_of_its_traceback_held() -> None:
    error, frame = failed()
    assert near(measure(error), MIB) and near(measure(error.__traceback__), MIB) and near(measure(frame), MIB)
    snapshot = Snapshot()
    snapshot.measure(error), snapshot.measure([frame])
    assert snapshot.sharers(MIB) == [[1], [0]]

    def calls() -> tuple[ValueError, Any]:
        also = bytearray(MIB)
        assert also
        return failed()

    assert near(measure(calls()[0]), 2 * MIB, slack=4000), "a frame keeps the one that has called it"
    error.with_traceback(None)
    del frame
    assert near(measure(error), 0)


def test_frames_that_run_hold_nothing_themselves() -> None:
    here = bytearray(MIB)

    def waits() -> Iterator[Any]:
        held = bytearray(MIB)
        yield sys._getframe(), held

    waiting = waits()
    frame, _ = next(waiting)
    assert here and near(measure([sys._getframe(), frame]), 0) and near(measure(waiting), MIB)
    loops = compile("def end():\n held = bytearray(1 << 20)\n return sys._getframe()", RUNTIME_FILES + "x.py", "exec")
    names: dict[str, Any] = {"sys": sys}
    exec(loops, names)
    assert near(measure(names["end"]()), 0), "what the runtime has called"


def closed(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.close()
    return connection


@pytest.mark.parametrize(
    "make",
    [
        lambda: closed(sqlite3.connect(":memory:")),
        zlib.compressobj,
        io.StringIO,
        np.random.default_rng,
        lambda: type("Own", (io.StringIO,), {})(),
    ],
)
def test_what_c_code_keeps_to_itself_makes_a_lower_bound(make: Any) -> None:
    size = measure([make()])
    assert not size.exact and size.why.endswith("hides part of its memory")


def test_what_is_written_in_python_or_counts_itself_is_exact() -> None:
    in_slots = dataclasses.make_dataclass("InSlots", ["a", "b"], slots=True, weakref_slot=True)
    own = type("Own", (in_slots,), {"__slots__": ("c", "__dict__")})
    made: list[Any] = [in_slots(1, 2), own(1, 2), type("OwnInt", (int,), {})(7), type("OwnTuple", (tuple,), {})((1,))]
    library = [re.compile("a"), functools.partial(len), io.BytesIO(b"x"), random.Random(), np.float32(1), np.sum]
    library += [collections.OrderedDict(a=1), struct.Struct("i"), np.dtype("f4"), datetime.datetime(2000, 1, 1)]
    for each in [*made, *library]:
        assert measure(each).exact, each
    in_cython = type(np.random.default_rng)
    assert in_cython.__name__ == "cython_function_or_method" and not hides(in_cython.__mro__)


def test_objects_are_walked_into() -> None:
    held = bytearray(MIB)
    assert near(measure(Plain(a=1, b=[held])), MIB)
    assert near(measure(Slots(held)), MIB)
    own = OwnList([held, held])
    own.extra = np.ones(MIB // 8)  # type: ignore[attr-defined]
    assert near(measure(own), 2 * MIB)
    with_a_cycle: list[Any] = [held]
    with_a_cycle.append({"me": with_a_cycle})
    assert near(measure(with_a_cycle), MIB)

    another = np.ones(MIB // 8)

    def function(one: Any = held, *, other: Any = (another,)) -> Any:
        return closed_over

    closed_over = bytes(MIB)
    assert near(measure(function), 3 * MIB)
    assert near(measure(Plain(f=held).method), MIB)
    waiting = (each for each in [held])
    assert near(measure(waiting), MIB)


def test_what_is_there_anyway_is_left_out() -> None:
    assert measure(sys).bytes == measure(Plain).bytes == 0
    assert measure([sys, Plain, np, measure.__code__]).bytes < 200
    assert measure(lambda: None).bytes < 500, "the module of a function is not its own"
    actor = Plain(held=bytearray(MIB))
    assert Snapshot(stop=[actor]).measure([actor.method]).bytes < 1000


def test_nothing_of_the_users_is_run() -> None:
    value = Hostile()
    Hostile.touched.clear()
    of_meta = Meta("OfMeta", (), {})()
    object.__setattr__(of_meta, "kept", bytearray(MIB))
    assert near(measure([value, of_meta, 1]), 2 * MIB)
    assert Hostile.touched == []
    assert type_name(of_meta).endswith(".OfMeta") and facts_of(of_meta) == {} and facts_of(value) == {"length": 1}


def test_arrays_of_the_library_tell_their_length_and_type_code() -> None:
    own = type("Own", (array.array,), {"typecode": "x", "__len__": None})
    view = memoryview(bytearray(24))
    for value, facts in (
        (array.array("d", [1.0] * 3), {"length": 3, "dtype": "d"}),
        (own("i"), {"length": 0, "dtype": "i"}),
        (view[:5], {"length": 5, "dtype": "B"}),
        (view.cast("d", (1, 3)), {"shape": [1, 3], "dtype": "d"}),
    ):
        assert facts_of(value) == facts
    view.release()
    assert facts_of(view) == {}


def test_objects_that_the_collector_does_not_look_after_are_walked_into() -> None:
    dtype = np.dtype([("a", "f8"), ("b", "u1", (1016,))])
    records = np.zeros(MIB // 1024, dtype)
    for held in (
        *(records[5], records[3:9][2], records.view(np.recarray)[5], records[5]["b"], [records[1], records[7]]),
        *(np.ma.array(records)[5].base, np.void(bytes(MIB)), np.void(bytes(MIB)).copy(), np.zeros(1, f"V{MIB}")[0]),
        np.dtype("f8", metadata={"kept": bytearray(MIB)}),
    ):
        assert near(measure(held), MIB), held
    assert measure(records[5].copy()).bytes < 5000
    objects = np.array([(bytearray(MIB), 1)], dtype=[("kept", "O"), ("n", "i4")])[0]
    assert measure(objects).why == "objects in a structured array"
    snapshot = Snapshot()
    snapshot.measure(records), snapshot.measure([records[5]])
    assert snapshot.sharers(MIB) == [[1], [0]]

    class Zone(datetime.tzinfo):
        def __init__(self) -> None:
            self.kept = bytearray(MIB)

    zone: Any = Zone()  # type: ignore[abstract]
    assert near(measure(datetime.datetime(2000, 1, 1, tzinfo=zone)), MIB) and near(
        measure(datetime.time(1, tzinfo=zone)), MIB
    )
    assert near(measure(datetime.timezone(datetime.timedelta(hours=1), "x" * MIB)), MIB)
    assert near(measure(range(1 << (8 * MIB))), 2 * MIB * 16 // 15, slack=4000)
    assert measure([range(10**6)]).bytes == sys.getsizeof([1]) + sys.getsizeof(range(1)) + 2 * sys.getsizeof(10**6) + 56


@pytest.mark.parametrize(
    "make",
    [
        lambda: re.finditer("x", "x" * MIB),
        lambda: iter(range(1 << 70)),
        lambda: io.BufferedRWPair(io.BytesIO(), io.BytesIO()),
        lambda: np.str_("x"),
    ],
)
def test_what_such_objects_do_not_tell_makes_a_lower_bound(make: Any) -> None:
    size = measure(make())
    assert not size.exact and size.why.endswith("hides part of its memory")


@pytest.mark.parametrize("count", [0, 1, 3, 5, 7, 14, 20, 29])
def test_instances_take_what_the_allocator_gives_them(count: int) -> None:
    """Python has no count of the array in which an instance has its attributes."""
    lines = [f"        self.a{number} = None" for number in range(count)] or ["        pass"]
    names: dict[str, Any] = {}
    exec("\n".join(["class Own:", "    def __init__(self):", *lines]), names)
    made = [names["Own"]() for _ in range(200)]  # there is more room in the first ones of a class
    many: list[Any] = [None] * 1000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1000):
            many[number] = names["Own"]()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    size = measure(many)
    found = size.bytes - sys.getsizeof(many) - sys.getsizeof(None)
    assert len(made) == 200 and size.exact and 0.97 * taken < found <= taken


def test_what_several_hold_is_known() -> None:
    snapshot = Snapshot()
    common = [bytearray(MIB), [[n] for n in range(1000)]]
    deep = counted(common)
    first = snapshot.measure({"a": common, "own": bytearray(10)})
    second = snapshot.measure([common])
    third = snapshot.measure(bytearray(500))
    assert first.shared == {} and second.shared == {0: deep} and third.shared == {}
    assert second.bytes == counted([common])
    assert snapshot.unique() == first.bytes + second.bytes + third.bytes - deep
    assert snapshot.sharers(1000) == [[1], [0], []] and snapshot.sharers(2 * MIB) == [[], [], []]
    view = np.ones(MIB, dtype=np.uint8)
    snapshot = Snapshot()
    snapshot.measure(view[:5]), snapshot.measure([view[10:]])
    assert MIB < snapshot.unique() < MIB + 1000 and snapshot.sharers(MIB) == [[1], [0]]


@pytest.mark.parametrize("budget", [Budget(0.0), Budget(objects=10_000)], ids=["time", "objects"])
@pytest.mark.parametrize(
    "make", [lambda: list(range(10**6)), lambda: dict.fromkeys(range(10**6))], ids=["list", "dict"]
)
def test_the_budget_holds_on_one_flat_container(make: Any, budget: Budget) -> None:
    value = make()
    size = measure(value, budget)
    assert not size.exact and size.why == "budget"
    assert size.objects <= 10_000 + SLICE
    assert sys.getsizeof(value) <= size.bytes < sys.getsizeof(value) + MIB, "of 26 MiB of numbers"


def test_an_estimate_is_told_beside_the_lower_bound() -> None:
    value = [[float(n)] for n in range(50_000)]
    size = measure(value, Budget(objects=10_000))
    assert size.estimate is not None and size.bytes < counted(value) / 2
    assert 0.8 < size.estimate / counted(value) < 1.2
    nested = [[float(n) for n in range(1000)] for _ in range(200)]
    size = measure(nested, Budget(objects=50_000))
    assert size.estimate is not None and 0.5 < size.estimate / counted(nested) < 2


def test_a_budget_is_shared_out() -> None:
    whole = Budget(1000.0, objects=7)
    assert not whole.part(0.1).ended(6) and whole.part(0.1).ended(7)
    assert Budget(0.0).part(0.5).ended() and not Budget().part(0.1).ended(10**9)


def test_a_walk_goes_on_where_its_budget_has_ended() -> None:
    value = [[[float(n)] for n in range(20_000)], {str(n): n for n in range(20_000)}]
    other = [value[1]]
    snapshot = Snapshot()
    assert not snapshot.measure(value, Budget(objects=5000)).exact
    assert snapshot.measure(other).exact and snapshot.unfinished() == [0]
    assert not snapshot.go_on(0, Budget(objects=30_000)).exact
    size = snapshot.go_on(0)
    assert (size.exact, size.bytes) == (True, counted(value)) and snapshot.unfinished() == []
    assert snapshot.unique() == counted(value) + sys.getsizeof(other)
    assert snapshot.sharers(100_000) == [[1], [0]]
    arrays = [np.ones(128) for _ in range(20_000)]
    snapshot = Snapshot()
    assert not snapshot.measure([arrays, [0] * 9000], Budget(objects=5000)).exact
    assert snapshot.measure([arrays]).exact and snapshot.go_on(0).exact
    assert snapshot.unique() > 20_000 * 128 * 8, "the memory of each array once"


def test_the_gil_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(walk, "time", types.SimpleNamespace(sleep=pauses.append))
    measure(list(range(10 * SLICE)))
    assert len(pauses) >= 10 and set(pauses) == {0}


def test_arrays_take_no_slice_each(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(walk, "time", types.SimpleNamespace(sleep=pauses.append))
    size = measure({n: np.ones(16) for n in range(1000)})
    assert size.exact and size.bytes > 1000 * 16 * 8 and len(pauses) < 10


def measure_while(write: Callable[[], object], value: Any, monkeypatch: pytest.MonkeyPatch) -> Size:
    """Measure what a thread writes to each time that the walk lets go of the GIL."""
    go, done = threading.Semaphore(0), threading.Semaphore(0)
    writes = 0

    def write_on() -> None:
        nonlocal writes
        while go.acquire() and not ended.is_set():
            write()
            writes += 1
            done.release()

    def let_it_write(_seconds: float) -> None:
        go.release()
        assert done.acquire(timeout=30)

    ended = threading.Event()
    thread = threading.Thread(target=write_on)
    thread.start()
    monkeypatch.setattr(walk, "time", types.SimpleNamespace(sleep=let_it_write))
    try:
        size = measure(value)
    finally:
        ended.set()
        go.release()
        thread.join()
    assert writes > 3
    return size


def of_batches(kind: Any) -> Any:
    return kind((n, bytearray(300)) for n in range(20_000))


def put_and_drop(value: Any) -> None:
    """Write as a cache does, whose newest entry comes and whose oldest one goes."""
    value[len(value) + 10**6] = bytearray(5000)
    del value[next(iter(value))]


@pytest.mark.parametrize(
    ("make", "write"),
    [
        (lambda: of_batches(dict), lambda value: value.update({len(value): bytearray(5000)})),
        (lambda: of_batches(dict), put_and_drop),
        (lambda: of_batches(dict), dict.clear),
        (lambda: set(map(float, range(20_000))), lambda value: value.add(float(len(value)))),
        (lambda: [bytearray(300) for _ in range(20_000)], lambda value: value.append(bytearray(5000))),
        (lambda: collections.deque(bytearray(300) for _ in range(20_000)), lambda value: value.append(bytearray(5000))),
        (lambda: collections.deque(bytearray(300) for _ in range(20_000)), collections.deque.clear),
    ],
    ids=["grows", "a cache", "cleared", "set", "list", "deque", "cleared deque"],
)
def test_what_is_written_to_all_the_time_counts_as_it_was_when_it_was_reached(
    make: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = make()
    before = counted(value)
    size = measure_while(lambda: write(value), value, monkeypatch)
    assert (size.bytes, size.exact) == (before, True)


@pytest.mark.parametrize(
    "kind", [collections.OrderedDict, collections.defaultdict, dict], ids=lambda kind: kind.__name__
)
def test_what_lies_deeper_is_counted_to_its_end_though_it_is_written_to(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [kind() for _ in range(10)]
    for each in many:
        each.update((f"{m}", [m]) for m in range(2000))
    before = counted(many)

    def write() -> None:
        for each in many:
            each[f"new {len(each)}"] = [bytearray(10)]

    size = measure_while(write, many, monkeypatch)
    assert size.exact and size.bytes >= before


def test_a_very_large_dict_is_copied_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_PIECE", 2 * SLICE)
    value = of_batches(dict)
    before = counted(value)
    size = measure_while(lambda: value.update({len(value): bytearray(5000)}), value, monkeypatch)
    assert (size.bytes, size.exact) == (before, True)


def emptied_at_its_front(value: Any) -> None:
    for _ in range(1000):
        value.pop(0) if type(value) is list else value.popleft()


@pytest.mark.parametrize("kind", [list, collections.deque], ids=["list", "deque"])
def test_what_is_emptied_at_its_front_is_counted_to_its_end(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What moves forward is not passed over: only what has gone before it was counted is missing."""
    monkeypatch.setattr(contents, "_PIECE", SLICE)
    value = kind(bytearray(1000) for _ in range(20_000))
    value.extend([0] * 10 * SLICE)  # of what is there more than once, none tells where the others are
    value.append([bytearray(MIB)])
    size = measure_while(lambda: emptied_at_its_front(value), value, monkeypatch)
    assert size.exact and size.bytes >= 19_000 * sys.getsizeof(bytearray(1000)) + MIB  # 1000 go before it begins


@pytest.mark.parametrize(
    ("write", "exact"),
    [
        (lambda value: value.insert(0, [0]), True),  # nothing comes twice
        (lambda value: value.__delitem__(slice(-30, None)), True),
        (lambda value: value.__delitem__(slice(0, 15_000)), False),
        (list.reverse, False),
    ],
    ids=["filled at its front", "emptied at its end", "emptied past what was counted", "in another order"],
)
def test_where_a_list_cannot_be_followed_its_size_is_a_lower_bound(
    write: Any, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = [[n] for n in range(20_000)]
    before = counted(value) + MIB
    monkeypatch.setattr(following, "_NEAR", SLICE)
    size = measure_while(lambda: write(value), value, monkeypatch)
    assert (size.exact, size.why) == (exact, "" if exact else "written to while it was counted")
    assert size.bytes <= before


def test_a_large_deque_is_copied_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_PIECE", SLICE)
    value = collections.deque([float(n)] for n in range(50_000))
    expected = counted(value)
    tracemalloc.start()
    try:
        size = measure(value)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (size.bytes, size.exact) == (expected, True)
    assert most < 50_000 * 8, "a copy of all that is in it"


def test_a_library_that_hides_its_memory_makes_a_lower_bound() -> None:
    msgpack = pytest.importorskip("msgpack._cmsgpack")
    size = measure([msgpack.Packer()])
    assert not size.exact and "msgpack" in size.why


def test_what_numpy_hides_is_said() -> None:
    assert measure([np.random.default_rng()]).why == "lower bound: numpy hides part of its memory"


def test_locks_and_threads_are_no_obstacle() -> None:
    assert measure([threading.Lock(), threading.current_thread(), iter([1]), range(5), 1j, ...]).bytes > 0
