"""Arguments, results and exceptions that cannot be pickled: a clear error at the caller, and a mesh that goes on."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

from meshrt import Actor, ActorError, ActorMesh, ArgumentNotSerializable, ResultNotSerializable, endpoint, proc_mesh
from tests.support.actors import Echo
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

DEPTH = 100_000


class RaisesInReduce:
    def __reduce__(self) -> Any:
        raise OSError("no reduce today")


class RaisesInGetState:
    def __getstate__(self) -> Any:
        raise LookupError("no state today")


class ExitsInReduce:
    def __reduce__(self) -> Any:
        sys.exit(7)


class FailsToLoad:
    def __reduce__(self) -> Any:
        return fail_to_load, ()


class ExitsOnLoad:
    def __reduce__(self) -> Any:
        return sys.exit, (9,)


def fail_to_load() -> NoReturn:
    raise OSError("cannot be loaded")


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


class ReduceRaises(Exception):
    def __reduce__(self) -> Any:
        raise OSError("no reduce today")


class TwoArguments(Exception):
    """Pickles, and fails to load."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class StrRaises(Exception):
    def __str__(self) -> str:
        raise OSError("no text today")


class HoldsALock(Exception):
    def __init__(self) -> None:
        super().__init__("with a lock")
        self.lock = threading.Lock()


class LoadRaises(Exception):
    def __reduce__(self) -> Any:
        return fail_to_load, ()


class LoadExits(Exception):
    def __reduce__(self) -> Any:
        return sys.exit, (9,)


class ReprRaises(Exception):
    def __repr__(self) -> str:
        raise OSError("no repr today")


class EverythingRaises(Exception):
    """Even its attributes."""

    def __getattribute__(self, name: str) -> Any:
        raise OSError(f"no {name}")


SHAPES: dict[str, tuple[type[Exception], tuple[Any, ...], str]] = {
    "reduce raises": (ReduceRaises, ("told",), "told"),
    "needs two arguments": (TwoArguments, (1, 2), "1 and 2"),
    "str raises": (StrRaises, (), ""),
    "holds a lock": (HoldsALock, (), "with a lock"),
    "load raises": (LoadRaises, ("told",), "told"),
    "load exits": (LoadExits, ("told",), "told"),
    "repr raises": (ReprRaises, ("told",), "told"),
    "everything raises": (EverythingRaises, (), ""),
    "huge": (ValueError, ("x" * (3 << 20),), "characters left out"),
    "nested deeply": (ValueError, (nested(1000),), ""),  # its text is a RecursionError before Python 3.12
    "surrogates": (ValueError, ("\ud800 \0 ä",), "ä"),
}


class Odd(Actor):
    """Returns and raises what gives trouble."""

    def __init__(self) -> None:
        self.taken = 0

    @endpoint
    def give(self, what: str) -> Any:
        match what:
            case "lock":
                return threading.Lock()
            case "generator":
                return (index for index in range(3))
            case "reduce raises":
                return RaisesInReduce()
            case "state raises":
                return {"deep": [RaisesInGetState()]}
            case "reduce exits":
                return ExitsInReduce()
            case "nested deeply":
                return nested(DEPTH)
            case "fails to load":
                return FailsToLoad()
            case "exits on load":
                return ExitsOnLoad()
        return what

    @endpoint
    async def give_async(self, what: str) -> Any:
        return self.give(what)

    @endpoint
    def fail(self, shape: str) -> None:
        kind, args, _ = SHAPES[shape]
        raise kind(*args)

    @endpoint
    def take(self, _: Any) -> str:
        self.taken += 1
        return "taken"

    @endpoint
    def count(self) -> int:
        """How often `take` has run."""
        return self.taken


@pytest.fixture
def odd() -> ActorMesh[Odd]:
    return proc_mesh(n=2).spawn("odd", Odd).get(20)


def still_works(odd: ActorMesh[Odd]) -> bool:
    return odd.give.call("fine").get(20).values() == ["fine", "fine"]


@pytest.mark.row("S1", "S5", "S7")
@pytest.mark.parametrize("endpoint_name", ["give", "give_async"])
@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("lock", "_thread.lock"),
        ("generator", "generator"),
        ("reduce raises", "no reduce today"),
        ("state raises", "no state today"),
        ("reduce exits", "ExitsInReduce"),
        ("nested deeply", "recursion"),
    ],
)
def test_a_result_that_cannot_be_pickled(odd: ActorMesh[Odd], endpoint_name: str, what: str, text: str) -> None:
    with pytest.raises(ResultNotSerializable) as caught:
        getattr(odd, endpoint_name).call(what).get(30)
    error = caught.value
    assert issubclass(type(error), TypeError) and error.rank in (0, 1) and error.endpoint == endpoint_name
    assert text in str(error) and f"odd.{endpoint_name}() ran on rank {error.rank} (n=" in str(error)
    assert still_works(odd)


@pytest.mark.row("S4")
@pytest.mark.parametrize("what", ["fails to load", "exits on load"])
@pytest.mark.parametrize("adverb", ["call", "choose", "stream"])
def test_a_result_that_cannot_be_loaded_here(odd: ActorMesh[Odd], adverb: str, what: str) -> None:
    answer = getattr(odd.give, adverb)(what)
    future = next(iter(answer)) if adverb == "stream" else answer
    with pytest.raises(ResultNotSerializable, match="the result cannot be read here"):
        future.get(20)
    assert still_works(odd)


@pytest.mark.row("S4")
def test_only_the_call_whose_result_cannot_be_loaded_fails(odd: ActorMesh[Odd]) -> None:
    calls = [odd.give.call(what) for what in ("a", "fails to load", "b")]
    assert calls[2].get(20).values() == ["b", "b"]
    assert isinstance(calls[1].exception(20), ResultNotSerializable)
    assert calls[0].get(20).values() == ["a", "a"]


class WaitsOnLoad:
    def __init__(self, gate: str) -> None:
        self.gate = gate

    def __reduce__(self) -> Any:
        return wait_on_load, (self.gate,)


def wait_on_load(gate: str) -> str:
    wait_until(lambda: os.path.exists(gate), 30)
    return "loaded"


@pytest.mark.row("S4")
def test_only_who_wants_a_result_waits_for_its_loading(odd: ActorMesh[Odd], tmp_path: Path) -> None:
    """Neither another thread's calls nor the runtime's own threads wait with it."""
    gate = tmp_path / "gate"
    echo = proc_mesh(n=1).spawn("echo", Echo)
    slow = echo.apply.call_one(WaitsOnLoad, str(gate))
    results: list[Any] = []
    waiting = threading.Thread(target=lambda: results.append(slow.get(30)))
    waiting.start()
    wait_until(lambda: slow.finished, 20)
    called: list[Any] = []
    odd.give.call("called").add_done_callback(lambda future: called.append(future.get(0).values()))
    assert echo.echo.call_one(1).get(20) == 1 and still_works(odd)
    wait_until(lambda: called == [["called", "called"]], 20)
    assert proc_mesh(n=1).spawn("more", Echo).echo.call_one(2).get(20) == 2
    assert waiting.is_alive() and not results
    gate.touch()
    waiting.join(20)
    assert results == ["loaded"]


@pytest.mark.row("S2", "S5")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (threading.Lock(), "_thread.lock"),
        (RaisesInReduce(), "no reduce today"),
        ([RaisesInGetState()], "no state today"),
        (ExitsInReduce(), "ExitsInReduce"),
        (nested(DEPTH), "recursion"),
        ((number for number in range(3)), "generator"),
    ],
    ids=["lock", "reduce raises", "state raises", "reduce exits", "nested deeply", "generator"],
)
@pytest.mark.parametrize("adverb", ["call", "broadcast"])
def test_an_argument_that_cannot_be_pickled_is_refused_at_the_call(
    odd: ActorMesh[Odd], adverb: str, value: Any, text: str
) -> None:
    with pytest.raises(ArgumentNotSerializable) as caught:
        getattr(odd.take, adverb)(value)
    assert isinstance(caught.value, TypeError)
    # What its own code raised.
    assert isinstance(caught.value, OSError) is (text == "no reduce today")
    assert isinstance(caught.value, LookupError) is (text == "no state today")
    assert "odd.take(): argument 1" in str(caught.value) and text in str(caught.value)
    assert odd.count.call().get(20).values() == [0, 0]
    assert still_works(odd)


@pytest.mark.row("S2")
def test_a_lambda_over_a_lock_names_the_argument(odd: ActorMesh[Odd]) -> None:
    lock = threading.Lock()
    echo = proc_mesh(n=1).spawn("echo", Echo)
    with pytest.raises(ArgumentNotSerializable, match=r"echo\.apply\(\): argument 2"):
        echo.apply.call_one(print, lambda: lock)
    with pytest.raises(ArgumentNotSerializable, match=r"argument '_'"):
        odd.take.call(_=lock)


@pytest.mark.parametrize("value", [FailsToLoad(), ExitsOnLoad()], ids=["fails", "exits"])
def test_an_argument_that_cannot_be_loaded_there(odd: ActorMesh[Odd], value: Any) -> None:
    with pytest.raises(ActorError) as caught:
        odd.take.call(value).get(20)
    assert caught.value.remote.type in ("OSError", "SystemExit")
    assert caught.value.endpoint == "take"
    assert still_works(odd)


@pytest.mark.row("S3")
@pytest.mark.parametrize("shape", SHAPES)
def test_an_exception_always_arrives_with_type_text_and_traceback(odd: ActorMesh[Odd], shape: str) -> None:
    kind, _, text = SHAPES[shape]
    with pytest.raises(ActorError) as caught:
        odd.fail.call(shape).get(30)
    error = caught.value
    assert error.remote.type.rpartition(".")[2] == kind.__name__
    assert text in error.remote.message
    assert text in str(error) and f"odd.fail() raised on rank {error.rank}" in str(error)
    assert len(str(error)) < 1 << 20
    if shape != "everything raises":
        assert "in fail" in error.remote.traceback and "raise kind(*args)" in error.remote.traceback
    assert still_works(odd)


def test_an_actor_class_or_an_argument_of_init_that_cannot_be_pickled() -> None:
    mesh = proc_mesh(n=1)
    lock = threading.Lock()

    class Holds(Actor):
        shared = lock

    with pytest.raises(ArgumentNotSerializable):
        mesh.spawn("holds", Holds)
    with pytest.raises(ArgumentNotSerializable, match=r"echo\.__init__\(\): argument 1"):
        mesh.spawn("echo", Echo, lock)  # type: ignore[call-overload]  # wrong on purpose
    assert mesh.spawn("echo", Echo).rank.call_one().get(20) == 0


@pytest.mark.slow
@pytest.mark.row("S1", "S5")
@pytest.mark.parametrize(
    ("kind", "what", "value", "text"),
    [
        (OSError, "reduce raises", RaisesInReduce(), "no reduce today"),
        (LookupError, "state raises", RaisesInGetState(), "no state today"),
    ],
)
def test_the_error_is_of_the_type_that_was_raised_as_well(
    odd: ActorMesh[Odd], kind: type[Exception], what: str, value: object, text: str
) -> None:
    with pytest.raises(kind, match=text) as argument:
        odd.take.call(value)
    assert isinstance(argument.value, ArgumentNotSerializable)
    with pytest.raises(kind, match=text) as result:
        odd.give.call(what).get(20)
    assert isinstance(result.value, ResultNotSerializable)
    for error in (argument.value, result.value):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error) and isinstance(again, TypeError)
