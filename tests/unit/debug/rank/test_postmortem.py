"""What is told of an exception that a rank stands after, and that nothing is stepped there."""

from __future__ import annotations

import bdb
import logging
from typing import Any

import pytest

from meshrt.debug.protocol import Mode
from meshrt.debug.rank.postmortem import PostMortem, aborted, exception_facts, exception_text
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.hooks.table import Hooks
from meshrt.inspect.exceptions import chain_of, frames_of
from tests.unit.debug import endpoints
from tests.unit.debug.endpoints import line_of
from tests.unit.debug.fakes import FakeRank, FakeRankServices


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
    assert (stop["stack"], stop["headline"]) == ((), "")
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
        "*** no code is left to step through: the endpoint has raised; `c` passes the exception to the caller\n"
    )
    rank.end()
    assert isinstance(rank.error, ValueError)


def test_long_stacks_and_texts_are_cut() -> None:
    facts = exception_facts(raised(deep, 200))
    assert len(facts.stack) == 60
    assert facts.stack[-1].function == "deep"
    assert facts.headline == "ValueError: first"


@pytest.mark.parametrize(
    "error",
    [SyntaxError("x", (1, 2, 3, 4)), Hostile("text"), Hostile(Hostile())],  # type: ignore[arg-type]
)
def test_exceptions_that_cannot_be_shown(error: Exception) -> None:
    assert type(error).__name__ in exception_text(error)
    assert exception_facts(error).headline.startswith(type(error).__qualname__) or "Hostile" in exception_text(error)


class Falsy(Exception):
    """Its truth, its class and its cause are not to be asked for."""

    def __bool__(self) -> bool:
        raise RuntimeError("asked for its truth")

    @property
    def __cause__(self) -> None:  # type: ignore[override]
        raise RuntimeError("asked for its cause")


def test_chains_are_followed_around_the_classes() -> None:
    def fail() -> None:
        try:
            raise Falsy("inner")
        except Falsy:
            raise Falsy("outer") from None

    error = raised(fail)
    assert list(chain_of(error)) == []
    ((inner, explicit),) = chain_of(error, suppressed=True)
    assert inner.args == ("inner",) and not explicit
    assert not aborted(error)
    assert aborted(raised(lambda: quits_in(error)))
    assert [frame.f_code.co_name for frame, _ in frames_of(error, 60)][-1] == "fail"


def quits_in(error: BaseException) -> None:
    try:
        raise bdb.BdbQuit
    except bdb.BdbQuit:
        raise ValueError from None


@pytest.mark.parametrize(
    ("environment", "told", "mode"),
    [
        ("1", {}, "on"),
        ("1", {"": "default"}, "on"),
        ("1", {"": "off"}, "off"),
        ("dump", {"": "on", "debugee": "default"}, "dump"),
        ("", {}, "default"),
        ("", {"debugee": "off", "": "on"}, "off"),
    ],
)
def test_default_is_what_the_program_has_set(
    environment: str, told: dict[str, Mode], mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHRT_POST_MORTEM", environment)
    services: Any = FakeRankServices()
    modes = PostMortem(services, SourceFetcher(services))
    modes.set(told)
    assert modes.mode("debugee") == mode


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
