"""The codec: pickle, then cloudpickle; large buffers out of band; one error for all that cannot be pickled."""

from __future__ import annotations

import errno
import functools
import pickle
import sys
import threading
from array import array as machine_array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.wire import codec
from meshrt.wire.codec import EncodeError, decode, describe, encode, text_of
from meshrt.wire.frames import Unreceived


def back(value: Any) -> Any:
    parts, lengths = encode(value)
    payload = b"".join(bytes(part) for part in parts)
    return decode(payload, lengths)


class StrRaises(Exception):
    def __str__(self) -> str:
        raise OSError("no text")


class StrExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class ReduceRaises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.binary(max_size=3000) | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=10,
    )
)
def test_plain_values_come_back(value: Any) -> None:
    assert back(value) == value


@given(st.lists(st.integers(0, 5000), max_size=6))
def test_buffers_come_back_and_the_large_ones_are_parts_of_their_own(sizes: list[int]) -> None:
    arrays = [np.arange(size, dtype=np.uint8) for size in sizes]
    parts, lengths = encode(arrays)
    large = [size for size in sizes if size >= 1024]
    assert lengths[1:] == large
    offsets = [
        sum(len(part) for part in parts[:index]) for index, part in enumerate(parts) if isinstance(part, memoryview)
    ]
    assert all(offset % 64 == 0 for offset in offsets)
    for array, again in zip(arrays, back(arrays), strict=True):
        assert np.array_equal(array, again)


def test_a_large_buffer_is_not_copied_on_either_side() -> None:
    array = np.zeros(100_000, np.uint8)
    parts, lengths = encode(array)
    view = next(part for part in parts if isinstance(part, memoryview))
    array[5] = 7
    assert view[5] == 7
    payload = bytearray(b"".join(bytes(part) for part in parts))
    again = decode(memoryview(payload), lengths)
    payload[-1] = 9
    assert again[-1] == 9


@pytest.mark.parametrize(
    ("value", "shared"),
    [
        (np.ones((500, 500)), True),
        (np.ones((500, 500)).T, True),
        (np.ones((50, 60, 70)).transpose(2, 0, 1), True),
        (np.zeros(250_000, [("a", "f8"), ("b", "i4")]), True),
        (np.full(250_000, "x", "U8"), True),
        (np.ones(500_000)[::2], False),
        (np.ones((500, 500))[:, 10:], False),
        (np.broadcast_to(np.ones(500), (500, 500)), False),
        (np.zeros(250_000, "M8[s]"), False),
        (np.zeros(250_000, "M8[s]").view("i8"), True),
        (np.ma.masked_array(np.ones(250_000)), False),
        (np.zeros(250_000, [("a", "f8")]).view(np.recarray), False),
        (np.full(250_000, None, dtype=object), False),
        (bytes(10**6), False),
        (bytearray(10**6), False),
        (machine_array("d", bytes(10**6)), False),
        (memoryview(bytearray(10**6)), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_of_which_values_the_bytes_travel_beside_the_pickle(value: Any, shared: bool) -> None:
    """docs/tutorial.md says which: of these receivers of a host share one copy."""
    data, buffers = codec.pickled(value)
    assert [each.nbytes > 10**5 for each in buffers] == [True] * shared
    assert len(data) < 1000 or not shared


def test_code_by_value() -> None:
    number = 4
    assert back(lambda value: value + number)(3) == 7


def test_what_main_defines_goes_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank has another ``__main__``: a reference to it would not be found there."""
    main = sys.modules["__main__"]
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("class OfMain:\n    value = 3\n    def get(self): return self.value", space)
    monkeypatch.setattr(main, "OfMain", space["OfMain"], raising=False)
    parts, lengths = encode(space["OfMain"]())
    monkeypatch.delattr(main, "OfMain")
    assert decode(b"".join(bytes(part) for part in parts), lengths).get() == 3


def test_a_function_of_main_that_keeps_its_results_goes_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the results; so does a method of that kind, in a class that goes by value."""
    main = sys.modules["__main__"]
    space: dict[str, Any] = {"__name__": "__main__", "functools": functools}
    exec(
        "@functools.lru_cache(maxsize=7)\ndef twice(x): return 2 * x\n"
        "class Doubling:\n    @functools.cache\n    def twice(self, x): return twice(x)",
        space,
    )
    for name in ("twice", "Doubling"):
        monkeypatch.setattr(main, name, space[name], raising=False)
    space["twice"](1)
    encoded = [encode(value) for value in (space["twice"], space["Doubling"]())]
    for name in ("twice", "Doubling"):
        monkeypatch.delattr(main, name)
    twice, doubling = (decode(b"".join(map(bytes, parts)), lengths) for parts, lengths in encoded)
    assert twice.cache_info().currsize == 0 and twice.cache_parameters() == {"maxsize": 7, "typed": False}
    assert (twice(4), doubling.twice(4), doubling.twice(4)) == (8, 8, 8)
    assert type(doubling).twice.cache_info().hits == 1


def test_such_a_function_of_a_module_goes_by_name() -> None:
    value = codec._pickler_class, lambda: None  # the second has all go by cloudpickle
    assert back(value)[0] is codec._pickler_class


def test_what_a_module_defines_goes_by_name() -> None:
    parts, _ = encode(StrRaises)
    assert len(parts[0]) < 200 and b"StrRaises" in bytes(parts[0])


def test_a_module_that_ranks_cannot_import_goes_by_value() -> None:
    import types

    import cloudpickle

    module = types.ModuleType("only_here")
    exec("def double(value): return 2 * value", module.__dict__)
    sys.modules["only_here"] = module
    try:
        codec.ship_by_value(module)
        parts, lengths = encode(module.double)
        del sys.modules["only_here"]
        assert decode(b"".join(bytes(part) for part in parts), lengths)(4) == 8
    finally:
        sys.modules["only_here"] = module
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules["only_here"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (threading.Lock(), "_thread.lock cannot be pickled"),
        (ReduceRaises(OSError("nothing today")), "OSError: nothing today"),
        (ReduceRaises(SystemExit(3)), "SystemExit: 3"),
        (ReduceRaises(StrRaises()), "its text could not be made: OSError"),
        (ReduceRaises(StrExits()), "its text could not be made: SystemExit"),
        (ReduceRaises(GeneratorExit("x")), "GeneratorExit: x"),
        (ReduceRaises(ValueError("\ud800")), "\\ud800"),
    ],
)
def test_what_cannot_be_pickled_is_an_encode_error_with_a_text(value: Any, text: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(value)
    assert text in str(caught.value)
    str(caught.value).encode()


def test_the_global_of_a_script_that_cannot_be_pickled_is_named() -> None:
    script: dict[str, Any] = {"__name__": "not_importable"}
    exec(
        "import threading\nCHANGED, LIMIT = threading.Condition(), 3\n"
        "class Queue:\n    def put(self):\n        return [CHANGED for _ in range(LIMIT)]\n"
        "def helper():\n    return Queue().put()\n"
        "def fine():\n    return threading.Condition(), LIMIT\n",
        script,
    )
    with pytest.raises(EncodeError) as caught:
        encode((script["helper"], 1))
    assert str(caught.value) == (
        "builtins.tuple cannot be pickled: TypeError: cannot pickle '_thread.RLock' object: "
        "Queue.put() uses the global CHANGED (threading.Condition), which would be sent too; "
        "create it in __init__, or move it into a module, together with the code that uses it"
    )
    # It is no global's fault.
    with pytest.raises(EncodeError, match=r"RLock' object$"):
        encode((script["fine"], script["CHANGED"]))


def test_ctrl_c_while_pickling_is_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt):
        encode(ReduceRaises(KeyboardInterrupt()))


def test_describe_runs_no_user_code() -> None:
    class Odd:
        def __getattribute__(self, name: str) -> Any:
            raise OSError(name)

    assert describe(Odd()).endswith("Odd")
    assert describe(3) == "builtins.int"


@pytest.mark.parametrize("value", [StrRaises(), StrExits(), "plain", 3, "\ud800", "ä\0"])
def test_a_text_can_always_be_made_and_sent(value: object) -> None:
    assert isinstance(text_of(value).encode(), bytes)


def test_padding_never_reaches_the_reader() -> None:
    parts, lengths = encode([pickle.PickleBuffer(b"x" * 2000), b"y" * 3000, np.ones(300)])
    assert len(lengths) == 3 and lengths[1:] == [2000, 2400]
    first, second, third = decode(b"".join(bytes(part) for part in parts), lengths)
    assert bytes(first) == b"x" * 2000 and second == b"y" * 3000 and float(third.sum()) == 300


class Poor:
    """Its pickle is small, and there is no memory for what it makes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _out_of_memory, ()


def _out_of_memory() -> None:
    raise MemoryError


class Elsewhere:
    """A payload of which parts are elsewhere, and what came along was not received."""

    payload = Unreceived(300, MemoryError())

    def bytes_at(self, place: list[int]) -> memoryview:
        raise AssertionError(place)

    def __enter__(self) -> None:
        raise AssertionError

    def __exit__(self, *_exc_info: object) -> None:
        raise AssertionError


def test_an_error_for_want_of_memory_names_the_size() -> None:
    payload, lengths = codec.encode(Poor())
    with pytest.raises(MemoryError, match=f"not enough memory for the content of a message of {lengths[0]} bytes"):
        codec.decode(b"".join(payload), lengths)
    with pytest.raises(MemoryError, match="a message of 300 bytes was not received: the interpreter is out of memory"):
        codec.decode(Elsewhere(), [10])
    refused = Unreceived(200, OSError(errno.ENOMEM, "Cannot allocate memory"))
    with pytest.raises(MemoryError, match="a message of 200 bytes was not received: Cannot allocate memory"):
        codec.decode(refused, [10])


def test_code_by_value_keeps_its_file_names() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def outer():\n    def inner(): pass\n    return inner\n", "/somewhere/train.py", "exec"), space)
    found = back(space["outer"])
    assert found.__code__.co_filename == found().__code__.co_filename == "/somewhere/train.py"


def test_a_digest_is_that_of_the_values() -> None:
    def text() -> str:
        return "".join(["a", "b" * 3])

    shared = text()
    assert codec.digest([shared, shared]) == codec.digest([text(), text()])
    values: list[object] = [1, 1.0, True, "1", b"1", None, (1,), [1], {"a": 1}, len, int, text]
    assert len({codec.digest(value) for value in values}) == len(values)
    cyclic: list[object] = []
    cyclic.append(cyclic)
    assert codec.digest(cyclic) == codec.digest(cyclic)
    with pytest.raises(codec.EncodeError):
        codec.digest([cyclic, threading.Lock()])


def test_a_digest_names_what_other_processes_do_not_find() -> None:
    first, second = (type("Local", (), {"__module__": "__main__"}) for _ in range(2))
    assert codec.digest(first) == codec.digest(second)
    assert codec.digest(lambda: 1) == codec.digest(lambda: 1) != codec.digest(lambda: [1, 2])
