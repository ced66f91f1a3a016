"""What is told of an exception that a rank stands after, and that nothing is stepped there."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from meshrt.debug.rank.postmortem import exception_facts, exception_text
from meshrt.hooks import Hooks
from tests.unit.debug import endpoints
from tests.unit.debug.endpoints import line_of
from tests.unit.debug.fakes import FakeRank


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def deep(level: int) -> None:
    if level:
        deep(level - 1)
    raise ValueError("first\nsecond " + "x" * 1000)


def raised(function: Any, *arguments: Any) -> BaseException:
    try:
        function(*arguments)
    except Exception as error:
        return error
    raise AssertionError


def test_the_event_tells_stack_and_headline(rank: FakeRank) -> None:
    rank.start(endpoints.fails, "pea")
    stop = rank.stopped()
    assert "stack" not in stop
    assert "headline" not in stop
    stop = rank.step("c")
    assert stop["headline"] == "ValueError: bad pea"
    assert [frame[2] for frame in stop["stack"]] == ["fails", "raiser"]
    assert stop["stack"][-1][:2] == [endpoints.__file__, line_of("raise")]
    rank.end()


@pytest.mark.parametrize("command", ["n", "next", "s", "step", "r", "return", "unt", "until", "j 1", "jump 1"])
def test_nothing_is_left_to_step(rank: FakeRank, command: str) -> None:
    rank.start(endpoints.fails, "pea")
    rank.stopped()
    rank.step("c")
    assert rank.ask(command) == (
        "*** nothing is left to step here: the endpoint has raised; `c` delivers the exception\n"
    )
    rank.end()
    assert isinstance(rank.error, ValueError)


def test_long_stacks_and_texts_are_cut() -> None:
    facts = exception_facts(raised(deep, 200))
    assert len(facts["stack"]) == 60
    assert facts["stack"][-1][2] == "deep"
    assert facts["headline"] == "ValueError: first"


@pytest.mark.parametrize(
    "error",
    [SyntaxError("x", (1, 2, 3, 4)), Hostile("text"), Hostile(Hostile())],  # type: ignore[arg-type]
)
def test_exceptions_that_cannot_be_shown(error: Exception) -> None:
    assert type(error).__name__ in exception_text(error)
    assert exception_facts(error)["headline"].startswith(type(error).__qualname__) or "Hostile" in exception_text(error)


def test_a_failing_hook_whose_error_cannot_be_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                raise TypeError("cannot be shown")

    hooks = Hooks()
    hooks.strict = False
    handler = Refuses()
    logging.getLogger("meshrt").addHandler(handler)

    def fails() -> None:
        raise SyntaxError("x", (1, 2, 3, 4))  # type: ignore[arg-type]

    hooks.pulse.append(fails)
    try:
        hooks.run(hooks.pulse)
    finally:
        logging.getLogger("meshrt").removeHandler(handler)
    assert hooks.pulse == []
