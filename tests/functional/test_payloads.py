"""What arguments and results may be: arrays without copies, large ones, many buffers, code by value."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from typing import Any

import numpy as np
import pytest

from meshrt import Actor, endpoint, proc_mesh
from tests.support.actors import Echo

MIB = 1 << 20


class Arrays(Actor):
    """Looks at arrays where they arrive."""

    def __init__(self) -> None:
        self.kept = np.zeros(3 * MIB, np.uint8)

    @endpoint
    def facts(self, array: Any) -> dict[str, Any]:
        owner = array
        while isinstance(owner, np.ndarray) and owner.base is not None:
            owner = owner.base
        return {
            "sum": int(array.sum(dtype=np.uint64)),
            "aligned": array.ctypes.data % 64 == 0,
            "owner": type(owner).__name__,
            "dtype": str(array.dtype),
            "shape": array.shape,
            "writable": bool(array.flags.writeable),
        }

    @endpoint
    def digest(self, *parts: Any) -> str:
        state = hashlib.sha256()
        for part in parts:
            state.update(part)
        return state.hexdigest()

    @endpoint
    def make(self, size: int) -> Any:
        return np.arange(size, dtype=np.uint32).view(np.uint8)

    @endpoint
    def reuse(self, fill: int) -> Any:
        """The same memory each time: what has been sent must not change with it."""
        self.kept[:] = fill
        return self.kept


@dataclasses.dataclass
class Plain:
    name: str
    values: list[int]


class WithBuffers:
    """An object whose pickle has many buffers out of band."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    def __reduce_ex__(self, protocol: Any) -> Any:
        return WithBuffers.join, tuple(pickle.PickleBuffer(part) for part in self.parts)

    @staticmethod
    def join(*parts: Any) -> WithBuffers:
        return WithBuffers([bytes(part) for part in parts])


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        -(1 << 200),
        1.5,
        "text",
        "\ud800",
        b"\0" * 3000,
        [],
        {"a": [1, (2, {3})]},
        Plain("x", [1, 2]),
        float("inf"),
        Ellipsis,
        range(3),
        ValueError("as a value"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_plain_values_come_back_equal(value: Any) -> None:
    back = proc_mesh(n=1).spawn("echo", Echo).echo.call_one(value).get(20)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.fixture(params=["shared memory", "sockets"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How large arrays travel."""
    if request.param == "sockets":
        monkeypatch.setenv("MESHRT_STORE_LIMIT", "0")
    return str(request.param)


def test_an_array_arrives_without_a_copy_and_aligned(way: str) -> None:
    """Its memory belongs to the received message, not to the array: it was not copied out of the pickle."""
    arrays = proc_mesh(n=2).spawn("arrays", Arrays)
    array = np.arange(MIB, dtype=np.uint8)
    for facts in arrays.facts.call(array).get(20).values():
        assert facts["sum"] == int(array.sum(dtype=np.uint64))
        assert facts["aligned"] and facts["owner"] != "ndarray"
        assert facts["writable"] == (way == "sockets"), "what others see cannot be written"
        assert (facts["dtype"], facts["shape"]) == ("uint8", (MIB,))


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 65535, 65536, MIB - 1, MIB, 5 * MIB + 3])
def test_sizes_around_every_limit_of_the_wire(size: int) -> None:
    arrays = proc_mesh(n=1).spawn("arrays", Arrays)
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert arrays.digest.call_one(data.tobytes()).get(20) == hashlib.sha256(data.tobytes()).hexdigest()
    assert arrays.digest.call_one(data).get(20) == hashlib.sha256(data.tobytes()).hexdigest()
    back = arrays.make.call_one(size).get(20)
    assert back.tobytes() == np.arange(size, dtype=np.uint32).tobytes()


@pytest.mark.slow
@pytest.mark.row("S6")
def test_seventy_mebibytes_both_ways(way: str) -> None:
    """Through a socket they go in pieces."""
    arrays = proc_mesh(n=2).spawn("arrays", Arrays)
    data = np.random.default_rng(1).integers(0, 256, 70 * MIB, np.uint8)
    assert arrays.digest.call(data).get(60).values() == [hashlib.sha256(data.data).hexdigest()] * 2
    back = arrays.slice(n=0).make.call_one(18 * MIB).get(60)
    assert back.nbytes == 72 * MIB and bool((back == np.arange(18 * MIB, dtype=np.uint32).view(np.uint8)).all())


@pytest.mark.row("S6")
@pytest.mark.nightly
def test_more_than_two_gibibytes_both_ways() -> None:
    arrays = proc_mesh(n=1).spawn("arrays", Arrays)
    data = np.ones((2 << 30) + 5, np.uint8)
    facts = arrays.facts.call_one(data).get(100)
    assert (facts["shape"], facts["sum"]) == ((data.size,), data.size)
    del data
    back = arrays.make.call_one((1 << 29) + 1).get(100)
    assert back.nbytes == (2 << 30) + 4
    assert bool((back.view(np.uint32)[:: 1 << 20] == np.arange(0, (1 << 29) + 1, 1 << 20)).all())


def test_many_buffers_in_one_message() -> None:
    arrays = proc_mesh(n=1).spawn("arrays", Arrays)
    parts = [np.full(2000 + index, index % 251, np.uint8) for index in range(500)]
    expected = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
    assert arrays.digest.call_one(*parts).get(20) == expected
    echo = proc_mesh(n=1).spawn("echo", Echo)
    value = WithBuffers([bytes([index]) * (1500 * (index % 3)) for index in range(90)])
    assert echo.echo.call_one(value).get(20).parts == value.parts


def test_what_has_been_sent_does_not_change_with_the_callers_array() -> None:
    arrays = proc_mesh(n=2).spawn("arrays", Arrays).get(20)
    data = np.zeros(8 * MIB, np.uint8)
    pending = []
    for fill in range(4):
        data[:] = fill
        pending.append(arrays.facts.call(data))
    data[:] = 255
    sums = [future.get(40).values()[1]["sum"] for future in pending]
    assert sums == [fill * 8 * MIB for fill in range(4)]


def test_results_do_not_change_with_the_actors_array() -> None:
    arrays = proc_mesh(n=1).spawn("arrays", Arrays)
    pending = [arrays.reuse.call_one(fill) for fill in range(1, 6)]
    assert [int(future.get(40).min()) for future in pending] == [1, 2, 3, 4, 5]
    assert [int(future.get(40).max()) for future in pending] == [1, 2, 3, 4, 5]


def test_code_goes_by_value() -> None:
    echo = proc_mesh(n=2).spawn("echo", Echo)
    factor = 7

    def scaled(value: int) -> int:
        return value * factor

    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

        def doubled(self) -> int:
            return 2 * self.value

    assert echo.apply.call(scaled, 3).get(20).values() == [21, 21]
    assert echo.apply.call(lambda: factor + 1).get(20).values() == [8, 8]
    assert echo.apply.call(Local(4).doubled).get(20).values() == [8, 8]
    made = echo.slice(n=0).apply.call_one(lambda: Local(5)).get(20)
    assert made.doubled() == 10
    function = echo.slice(n=1).apply.call_one(lambda: lambda value: value - factor).get(20)
    assert function(10) == 3


def test_recursive_and_shared_structures_keep_their_form() -> None:
    echo = proc_mesh(n=1).spawn("echo", Echo)
    loop: list[Any] = [1]
    loop.append(loop)
    back = echo.echo.call_one(loop).get(20)
    assert back[1] is back
    array = np.ones(4000)
    first, second = echo.echo.call_one([array, array]).get(20)
    assert first is second
