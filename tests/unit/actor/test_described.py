"""A class without its code: the same endpoints, and arguments are checked as by the class itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from meshrt.actor.actor import Actor
from meshrt.actor.described import class_of, described, name_taken, shown
from meshrt.actor.endpoint import concurrent_endpoint, endpoint, endpoints_of
from meshrt.wire.clients import Described


class Loud:
    """Runs code when it is shown."""

    def __repr__(self) -> str:
        raise AssertionError("user code was run")


class Subject(Actor):
    """What it is."""

    @endpoint
    def plain(self, a: int, /, b: dict[str, int] | None = None, *rest: float, c: object = Loud(), **more: Any) -> str:
        """Says something."""
        return ""

    @endpoint
    async def awaits(self, function: Callable[[int], str] = str) -> None: ...

    @concurrent_endpoint
    async def beside(self) -> None: ...

    def no_endpoint(self) -> None: ...


def copied() -> type[Actor]:
    return class_of(msgspec.convert(msgspec.to_builtins(described(Subject)), Described))


def test_a_copy_has_the_same_endpoints() -> None:
    copy = copied()
    theirs, ours = endpoints_of(Subject), endpoints_of(copy)
    assert theirs.keys() == ours.keys() == {"plain", "awaits", "beside"}
    for name, spec in theirs.items():
        own = ours[name]
        assert (own.is_async, own.is_concurrent, own.takes_nothing) == (
            spec.is_async,
            spec.is_concurrent,
            spec.takes_nothing,
        )
    assert (copy.__name__, copy.__module__, copy.__doc__) == ("Subject", __name__, "What it is.")
    assert vars(copy)["plain"].__doc__ == "Says something."
    assert str(ours["plain"].signature) == (
        f"(a: int, /, b: dict[str, int] | None = None, *rest: float, c: object = <{__name__}.Loud>, **more: Any) -> str"
    )


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1,), {}), ((1, 2, 3), {"c": 4, "d": 5}), ((), {"a": 1}), ((1,), {"b": 2})]
)
def test_arguments_fit_the_copy_as_they_fit_the_class(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    def refused(cls: type) -> str:
        try:
            endpoints_of(cls)["plain"].check(args, kwargs)
        except TypeError as error:
            return str(error)
        return ""

    assert refused(copied()) == refused(Subject)


def test_values_are_shown_without_running_code_of_theirs() -> None:
    assert shown(Loud()) == f"<{__name__}.Loud>" and shown("a") == "'a'" and shown("x" * 99) == "'" + "x" * 39 + "..."


def test_why_a_name_is_taken() -> None:
    assert "give the second actor another name" in name_taken("a", [], []).message
    assert "already exists as S(1), not S(2)" in name_taken("a", ["1", "S(1)"], ["2", "S(2)"]).message
    assert "with other arguments" in name_taken("a", ["1", "S(<X>)"], ["2", "S(<X>)"]).message
    assert "that spawn() has built" in name_taken("a", [], ["2", "S(2)"]).message
