"""What a frame waits in, read from byte code, on every Python that runs these tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from meshrt.inspect.holder import holder


class Probe:
    """Everything one can do with it asks what its caller's caller stands in."""

    def __init__(self) -> None:
        self.seen = ""
        self.inner = self
        self.items = [self]

    def ask(self, *_args: Any) -> Probe:
        frame = sys._getframe(1)
        self.seen = holder(frame.f_code, frame.f_lasti)
        return self

    def __enter__(self) -> None:
        self.enter()

    def enter(self) -> None:
        frame = sys._getframe(2)
        self.seen = holder(frame.f_code, frame.f_lasti)

    def __exit__(self, *_exc: object) -> None:
        pass

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        frame = sys._getframe(1)
        self.seen = holder(frame.f_code, frame.f_lasti)
        raise StopIteration


GLOBAL = Probe()


def test_a_call() -> None:
    probe = Probe()
    probe.ask()
    assert probe.seen == "probe.ask"
    probe.inner.inner.ask(1, [2], "x")
    assert probe.seen == "probe.inner.inner.ask"
    GLOBAL.inner.ask()
    assert GLOBAL.seen == "GLOBAL.inner.ask"
    probe.items[0].ask()
    assert probe.seen == "probe.items.ask"


def test_a_call_over_several_lines_and_in_another_one() -> None:
    probe = Probe()
    str(
        probe.inner.ask(
            1,
            2,
        )
    )
    assert probe.seen == "probe.inner.ask"


def test_a_name_of_an_outer_function() -> None:
    probe = Probe()

    def inner() -> None:
        probe.ask()

    inner()
    assert probe.seen == "probe.ask"


def test_a_plain_function() -> None:
    seen = []

    def wait_here() -> None:
        frame = sys._getframe(1)
        seen.append(holder(frame.f_code, frame.f_lasti))

    wait_here()
    assert seen == ["wait_here"]


def test_entering_and_iterating() -> None:
    probe = Probe()
    with probe.inner:
        assert probe.seen == "with probe.inner"
    for _ in probe:
        pass
    assert probe.seen.startswith("for")


def test_a_very_long_name() -> None:
    probe = Probe()
    probe.inner.inner.inner.inner.inner.inner.inner.inner.inner.inner.inner.inner.ask()
    assert len(probe.seen) == 60 and probe.seen.endswith(" ...")


@pytest.mark.parametrize("lasti", [-1, 0, 1, 10_000])
def test_nothing_to_tell(lasti: int) -> None:
    assert holder(test_nothing_to_tell.__code__, lasti) == ""
