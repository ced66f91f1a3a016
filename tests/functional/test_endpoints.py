"""Endpoints and their adverbs; what is said about an endpoint that is none, and about wrong arguments."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from meshrt import (
    Actor,
    ActorError,
    CallTimeout,
    NotAnEndpointError,
    ValueMesh,
    current_rank,
    endpoint,
    proc_mesh,
)
from tests.support.actors import AsyncEcho, Clock, Echo, Failing, Gate
from tests.support.screen import Screen
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program


class Base(Actor):
    """Endpoints are inherited, overridden and called from inside."""

    limit = 3

    @endpoint
    def inherited(self) -> str:
        return "base"

    @endpoint
    def overridden(self) -> str:
        return "base"


class Derived(Base):
    @endpoint
    def overridden(self) -> str:
        return f"derived over {super().overridden()}, beside {self.inherited()}"

    @endpoint
    def anything(self, *args: object, **kwargs: object) -> tuple[int, list[str]]:
        return len(args), sorted(kwargs)

    @staticmethod
    def helper() -> None:
        """No endpoint either."""


class BadBatch(Exception):
    def __init__(self, batch: int) -> None:
        super().__init__(batch)
        self.batch = batch


class Raising(Actor):
    """Every way to leave an endpoint by an exception."""

    @endpoint
    def raise_(self, kind: str) -> None:
        if kind == "SystemExit":
            raise SystemExit(3)
        if kind == "KeyboardInterrupt":
            raise KeyboardInterrupt
        if kind == "StopIteration":
            raise StopIteration("done")
        if kind == "GeneratorExit":
            raise GeneratorExit
        if kind == "group":
            raise ExceptionGroup("two", [ValueError("one"), TypeError("other")])
        try:
            raise KeyError("inner")
        except KeyError as error:
            failure = RuntimeError("outer")
            failure.add_note("a note")
            raise failure from error

    @endpoint
    def raise_os(self) -> None:
        raise FileNotFoundError(2, "No such file", "/data/x")

    @endpoint
    def raise_own(self) -> None:
        raise BadBatch(17)

    @endpoint
    def ok(self) -> str:
        return "ok"


def test_call_gives_a_value_mesh_of_all_ranks() -> None:
    answer = proc_mesh(hosts=2, gpus=2).spawn("echo", Echo).rank.call().get(20)
    assert isinstance(answer, ValueMesh)
    assert answer.sizes == {"hosts": 2, "gpus": 2}
    assert [(dict(point), value) for point, value in answer.items()] == [
        ({"hosts": 0, "gpus": 0}, 0),
        ({"hosts": 0, "gpus": 1}, 1),
        ({"hosts": 1, "gpus": 0}, 2),
        ({"hosts": 1, "gpus": 1}, 3),
    ]


def test_call_one_needs_one_rank() -> None:
    echo = proc_mesh(n=2).spawn("echo", Echo)
    with pytest.raises(ValueError, match=r"call_one requires exactly 1 rank, but echo has 2 \(\{n=2\}\)"):
        echo.rank.call_one()
    assert echo.slice(n=1).echo.call_one("x").get(20) == "x"


def test_choose_asks_one_rank_and_in_time_all_of_them() -> None:
    clock = proc_mesh(n=2).spawn("clock", Clock)
    answers = [clock.tick.choose() for _ in range(60)]
    assert all(isinstance(answer.get(20), int) for answer in answers)
    counts = clock.read.call().get(20).values()
    assert sum(counts) == 60 and min(counts) > 0


def test_broadcast_returns_nothing_and_keeps_its_place() -> None:
    clock = proc_mesh(n=2).spawn("clock", Clock)
    for _ in range(5):
        clock.tick.broadcast()
    assert clock.tick.call().get(20).values() == [6, 6]


def test_an_exception_of_a_broadcast_is_reported_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    failing = proc_mesh(n=2).spawn("failing", Failing)
    failing.fail.broadcast((1,))
    assert "failing.fail() raised on rank 1 (n=1) on" in err.wait_for("LookupError: rank 1 fails")
    assert failing.ok.call().get(20).values() == ["ok", "ok"]


def test_stream_gives_a_future_per_rank_in_order_of_arrival(tmp_path: object) -> None:
    gate = proc_mesh(n=3).spawn("gate", Gate)
    stream = gate.wait_for.stream(f"{tmp_path}/open", ranks=(0, 1))
    futures = list(stream)
    assert len(stream) == len(futures) == 3
    assert futures[0].get(20) == 2  # the others wait
    with pytest.raises(CallTimeout, match=r"from 2 of 3 \(ranks 0-1\)"):
        futures[1].get(0.05)
    open(f"{tmp_path}/open", "w").close()
    assert sorted(future.get(20) for future in futures) == [0, 1, 2]


def test_a_stream_is_iterated_on_an_event_loop(tmp_path: Path) -> None:
    gate, ranks = proc_mesh(n=3).spawn("gate", Gate), list[int]()

    async def iterate() -> None:
        async for future in gate.wait_for.stream(f"{tmp_path}/open", ranks=(0, 1)):
            assert future.finished
            ranks.append(await future)
            (tmp_path / "open").touch()

    asyncio.run(iterate())
    assert ranks[0] == 2 and sorted(ranks) == [0, 1, 2]


def test_stream_fails_only_the_future_of_the_rank_that_failed() -> None:
    results = []
    for future in proc_mesh(n=3).spawn("failing", Failing).fail.stream((1,)):
        error = future.exception(20)
        results.append(error.rank if isinstance(error, ActorError) else future.get(20))
    assert sorted(results) == [0, 1, 2]


def test_call_fails_at_the_first_failure_and_names_the_rank(tmp_path: object) -> None:
    """Rank 1 raises while the others wait for a file that never comes."""

    class Mixed(Gate):
        @endpoint
        def fail_on_one(self, path: str) -> None:
            if current_rank().rank == 1:
                raise ValueError("only here")
            wait_until(lambda: False, 60)

    mixed = proc_mesh(hosts=1, gpus=3).spawn("mixed", Mixed).get(20)
    with pytest.raises(ActorError) as caught:
        mixed.fail_on_one.call(f"{tmp_path}/never").get(20)
    error = caught.value
    assert (error.rank, error.endpoint, error.remote.type) == (1, "fail_on_one", "ValueError")
    text = str(error)
    assert "mixed.fail_on_one() raised on rank 1 (hosts=0, gpus=1)" in text
    assert f"pid {error.place.pid}" in text and error.place.host in text
    assert 'raise ValueError("only here")' in text and "meshrt/actor" not in text


def test_sync_and_async_endpoints_in_one_class() -> None:
    echo = proc_mesh(n=2).spawn("echo", AsyncEcho)
    assert echo.echo.call(1).get(20).values() == [1, 1]
    assert echo.sync_echo.call(2).get(20).values() == [2, 2]
    assert echo.loop_name.call().get(20).values() == ["uvloop", "uvloop"]
    with pytest.raises(ActorError, match="async and wrong") as caught:
        echo.fail.call().get(20)
    assert isinstance(caught.value.exception, ValueError)
    assert echo.echo.call(3).get(20).values() == [3, 3]


@pytest.mark.parametrize(
    "kind", ["SystemExit", "KeyboardInterrupt", "StopIteration", "GeneratorExit", "group", "chain"]
)
def test_whatever_an_endpoint_raises_arrives_and_the_actor_lives(kind: str) -> None:
    raising = proc_mesh(n=1).spawn("raising", Raising)
    with pytest.raises(ActorError) as caught:
        raising.raise_.call_one(kind).get(20)
    error = caught.value
    if kind == "group":
        assert isinstance(error.exception, ExceptionGroup)
        assert "ValueError: one" in str(error) and "TypeError: other" in str(error)
    elif kind == "chain":
        assert error.remote.notes == ("a note",) and error.__notes__ == ["a note"]
        assert error.remote.cause is not None and error.remote.cause.type == "KeyError"
        assert "direct cause" in str(error)
    else:
        assert error.remote.type == kind
    assert raising.ok.call_one().get(20) == "ok"


def test_inheritance_and_any_arguments() -> None:
    derived = proc_mesh(n=1).spawn("derived", Derived)
    assert derived.inherited.call_one().get(20) == "base"
    assert derived.overridden.call_one().get(20) == "derived over base, beside base"
    assert derived.anything.call_one(1, 2, a=3).get(20) == (2, ["a"])


@pytest.mark.parametrize("adverb", ["call", "call_one", "choose", "stream", "broadcast"])
def test_wrong_arguments_fail_at_the_call_with_pythons_text(adverb: str) -> None:
    greet = proc_mesh(n=1).spawn("echo", Echo).greet
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((), {}, r"greet\(\) missing a required argument: 'name'"),
        (("a", "b"), {}, r"greet\(\) too many positional arguments"),
        (("a",), {"loud": 1}, r"greet\(\) got an unexpected keyword argument 'loud'"),
        ((), {"nam": "a"}, r"greet\(\) got an unexpected keyword argument 'nam': did you mean 'name'\?"),
        (("a",), {"name": "b"}, r"greet\(\) multiple values for argument 'name'"),
    ]
    for args, kwargs, text in cases:
        with pytest.raises(TypeError, match=text):
            getattr(greet, adverb)(*args, **kwargs)


def test_what_is_no_endpoint_says_so() -> None:
    mesh = proc_mesh(n=1)
    echo, derived = mesh.spawn("echo", Echo), mesh.spawn("derived", Derived)
    with pytest.raises(NotAnEndpointError, match=r"Echo\.plain is a method, but not an endpoint: decorate it"):
        echo.plain  # noqa: B018 - the access is the subject
    with pytest.raises(NotAnEndpointError, match=r"Derived\.helper is a method, but not an endpoint"):
        derived.helper  # noqa: B018
    with pytest.raises(NotAnEndpointError, match=r"Derived\.limit is not an endpoint; an actor's data"):
        derived.limit  # noqa: B018
    with pytest.raises(AttributeError, match=r"Echo has no endpoint 'gret'; did you mean 'greet'\?"):
        echo.gret  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"no endpoint 'zzz'; it has apply, echo, greet"):
        echo.zzz  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(echo, "_private") and not hasattr(echo, "__len_hint__")
    with pytest.raises(TypeError, match=r"echo\.greet is an endpoint of a mesh: use echo\.greet\.call\("):
        echo.greet("Ann")  # type: ignore[operator]  # wrong on purpose


def test_the_error_of_a_rank_is_caught_by_its_own_type() -> None:
    failing = proc_mesh(n=2).spawn("raising", Raising)
    with pytest.raises(OSError, match="raised on rank 0") as caught:
        failing.slice(n=0).raise_os.call_one().get(20)
    assert (caught.value.errno, caught.value.filename) == (2, "/data/x")
    with pytest.raises(BadBatch) as bad:
        failing.slice(n=1).raise_own.call_one().get(20)
    assert isinstance(bad.value, ActorError) and (bad.value.rank, bad.value.batch) == (1, 17)
