"""``@endpoint``: what is one, what is checked, and what is said about what is none."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.actor.actor import Actor
from meshrt.actor.endpoint import concurrent_endpoint, endpoint, endpoints_of, explain_missing
from meshrt.errors import NotAnEndpointError, UsageError


class Trainer(Actor):
    rate = 0.1

    @endpoint
    def step(self, batch: int, *, scale: float = 1.0) -> int:
        """One step."""
        return batch

    @endpoint()
    async def evaluate(self) -> None: ...

    @endpoint
    def anything(self, *args: Any, **kwargs: Any) -> None: ...

    def helper(self) -> None: ...


class Derived(Trainer):
    def step(self, batch: int, *, scale: float = 1.0) -> int:
        return 2

    @endpoint
    def helper(self) -> None: ...


def test_an_endpoint_stays_an_ordinary_method() -> None:
    assert Trainer().step(3) == 3 and Trainer.step.__doc__ == "One step."


def test_the_endpoints_of_a_class() -> None:
    specs = endpoints_of(Trainer)
    assert sorted(specs) == ["anything", "evaluate", "step"]
    assert specs["evaluate"].is_async and not specs["step"].is_async
    assert str(specs["step"].signature) == "(batch: 'int', *, scale: 'float' = 1.0) -> 'int'"
    assert specs["anything"].takes_anything and not specs["step"].takes_anything


def test_an_override_decides_for_itself() -> None:
    assert sorted(endpoints_of(Derived)) == ["anything", "evaluate", "helper"]


def test_arguments_are_checked_with_pythons_text() -> None:
    spec = endpoints_of(Trainer)["step"]
    spec.check((1,), {"scale": 2.0})
    with pytest.raises(TypeError, match=r"^step\(\) missing a required argument: 'batch'$"):
        spec.check((), {})
    with pytest.raises(TypeError, match=r"^step\(\) too many positional arguments$"):
        spec.check((1, 2), {})
    endpoints_of(Trainer)["anything"].check((1, 2), {"x": 3})


@pytest.mark.parametrize("thing", [3, property(lambda self: 1), staticmethod(len), Trainer])
def test_what_is_no_function_is_refused(thing: Any) -> None:
    with pytest.raises(UsageError, match="decorates a method"):
        endpoint(thing)


def test_a_concurrent_endpoint_is_async() -> None:
    class Server(Trainer):
        @concurrent_endpoint
        async def evaluate(self) -> None: ...

        @concurrent_endpoint()
        async def serve(self) -> None: ...

    specs = endpoints_of(Server)
    assert {name for name, spec in specs.items() if spec.is_concurrent} == {"evaluate", "serve"}
    for thing in (3, Trainer.helper, staticmethod(len)):
        with pytest.raises(UsageError, match="decorates an async def method"):
            concurrent_endpoint(thing)  # type: ignore[type-var]  # what a user may write
    with pytest.raises(UsageError, match="use @concurrent_endpoint alone"):
        concurrent_endpoint(Trainer.evaluate)
    with pytest.raises(UsageError, match="remove @endpoint") as info:
        endpoint(Server.serve)
    assert isinstance(info.value, ValueError)


def test_what_is_missing_is_explained() -> None:
    for name, kind, text in [
        ("helper", NotAnEndpointError, "Trainer.helper is a method, but not an endpoint"),
        ("rate", NotAnEndpointError, "Trainer.rate is not an endpoint"),
        ("stpe", AttributeError, "did you mean 'step'?"),
        ("zzz", AttributeError, "it has anything, evaluate, step"),
    ]:
        error = explain_missing(Trainer, name)
        assert type(error) is kind and text in str(error)
    assert "it has none" in str(explain_missing(Actor, "step"))
