"""How much of an answer a rank sends, and whether it says that something went wrong."""

from __future__ import annotations

import queue
import sys
import threading
from typing import Any

import msgpack
import pytest

from meshrt.debug.rank.evaluate import _HANGING_MAX
from meshrt.debug.rank_operations import EVALUATION_SECONDS, BreakSpec, CancelExpression, Evaluate, SetBreaks, Value
from meshrt.errors import MeshError
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Grouped
from meshrt.inspect.capping import TEXT_BYTES, TEXT_LIMIT, cap
from tests.support.waiting import wait_until
from tests.unit.debug import endpoints
from tests.unit.debug.endpoints import line_of
from tests.unit.debug.fakes import WAIT, FakeRank

Answers = queue.Queue[Grouped[Value, Body] | None]


class Thing:
    def __init__(self) -> None:
        self.size = 5
        self.begun = threading.Event()

    def endless(self) -> None:
        self.begun.set()
        while True:
            pass


def evaluate(rank: FakeRank, expression: str, **more: Any) -> Value:
    """Evaluate an expression in an actor that is there."""
    _, answers = begin(rank, expression, **more)
    return value(answers)


def begin(rank: FakeRank, expression: str, **more: Any) -> tuple[Thing, Answers]:
    rank.services.calls.setdefault(0, rank.debugger._sessions.call_of_thread())
    actor = rank.services.calls[0].actor
    thing = rank.services.instances[actor] = Thing()
    answers: Answers = queue.Queue()
    asked = Evaluate(actor, "p", expression, **more)
    rank.debugger._evaluator.evaluate(asked, lambda answer, error: answers.put(answer))
    return thing, answers


def value(answers: Answers) -> Value:
    answer = answers.get(timeout=WAIT)
    assert answer is not None
    return answer.same


def test_the_expression_that_is_named_is_cancelled(rank: FakeRank) -> None:
    threads = threading.active_count()
    first, second = begin(rank, "self.endless()", number=1), begin(rank, "self.endless()", number=2)
    for thing, _ in (first, second):
        assert thing.begun.wait(WAIT)
    evaluator = rank.debugger._evaluator
    assert not evaluator.cancel(CancelExpression(3)).accepted
    assert evaluator.cancel(CancelExpression(2)).accepted
    assert value(second[1]) == Value("KeyboardInterrupt", error=True)
    assert first[1].empty()
    assert not evaluator.cancel(CancelExpression(2)).accepted
    assert evaluator.cancel(CancelExpression(1)).accepted
    assert value(first[1]) == Value("KeyboardInterrupt", error=True)
    late, _ = begin(rank, "self.endless()")
    assert late.begun.wait(WAIT)
    evaluator.cancel_late("another")
    (running,) = evaluator._running
    evaluator.cancel_late(running.asked.actor)
    assert not vars(running)["interrupted"], "its question is new"
    running.since -= EVALUATION_SECONDS
    evaluator.cancel_late(running.asked.actor)
    assert vars(running)["interrupted"]
    assert evaluate(rank, "self.size") == Value("5", error=False)
    wait_until(lambda: threading.active_count() <= threads)


@pytest.mark.parametrize("text", ["", "plain", "größe \U0001f600", "x" * TEXT_LIMIT])
def test_text_that_fits_is_left_alone(text: str) -> None:
    assert cap(text) == text


@pytest.mark.parametrize("character", ["x", "\udc80", "ü", "€", "\U0001f600", "\x00"])
@pytest.mark.parametrize("length", [190_000, 300_000, 2_000_000])
def test_text_is_bounded_as_it_is_sent(character: str, length: int) -> None:
    text = cap("first " + character * length + " last")
    assert len(text) < TEXT_LIMIT + 100
    assert len(text.encode()) < TEXT_BYTES + 100
    assert len(msgpack.packb(text)) < 700_000
    assert text.startswith("first ")
    assert text.endswith(" last")


@pytest.mark.parametrize("limit", [0, 1, 2, 10, 11])
def test_text_is_cut_in_the_middle(limit: int) -> None:
    text = "0123456789" * 20
    half = limit // 2
    gone = f"\n... {200 - 2 * half} characters left out ...\n"
    assert cap(text, limit) == text[:half] + gone + text[200 - half :]
    assert cap("ü" * 12, 11) == "ü" * 5 + "\n... 2 characters left out ...\n" + "ü" * 5


def test_the_answer_to_an_expression_is_cut_on_the_rank(rank: FakeRank) -> None:
    assert evaluate(rank, "self.size") == Value("5", error=False)
    assert evaluate(rank, "'x' * 5000", limit=2000).text == cap(repr("x" * 5000), 2000)
    assert len(evaluate(rank, "print('y' * 5000)", limit=2000).text) < 2100
    assert len(evaluate(rank, "1 / 0 + " * 500 + "1", limit=2000).text) < 2100
    for limit in (TEXT_LIMIT, 10**9):
        assert TEXT_LIMIT <= len(evaluate(rank, "'x' * 5_000_000", limit=limit).text) < TEXT_LIMIT + 200


@pytest.mark.parametrize("brief", [False, True])
def test_the_answer_to_a_line_is_cut_on_the_rank(rank: FakeRank, brief: bool) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    assert len(rank.ask("p 'x' * 5000", limit=2000, brief=brief)) < 2100
    assert len(rank.ask("print('x' * 150_000)", limit=2000, brief=brief)) < 2100  # in pieces
    assert len(rank.ask("p 'x' * 5000", brief=brief)) > 5000
    rank.send("p 'x' * 5000;;c", limit=2000, brief=brief)
    assert 1900 < len(rank.event("debug.resumed")["text"]) < 2100
    rank.event("debug.ended")
    rank.join()


def test_an_expression_without_a_thread_is_refused(rank: FakeRank, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(_HANGING_MAX + 1):
            with pytest.raises(MeshError, match=r"cannot start a thread for the expression: can't start new thread"):
                evaluate(rank, "self.size")
    assert evaluate(rank, "self.size").text == "5"


def answer(rank: FakeRank, line: str) -> Body:
    """Type a line that answers without resuming; return the prompt."""
    assert rank.send(line)
    return rank.stopped()


@pytest.mark.parametrize(
    "line",
    ["p nothing", "!nothing", "nothing", "1 +", "b nosuch", "u x", "jump x", "help nosuch", "p a;;p 1", "debug 1 +"],
)
def test_a_line_that_went_wrong_says_so_once(rank: FakeRank, line: str) -> None:
    rank.start(endpoints.simple, 4)
    assert rank.stopped()["error"] == ""
    stop = answer(rank, line)
    assert stop["error"]
    assert f"*** {stop['error']}\n" in stop["text"]
    assert answer(rank, "p 1")["error"] == ""
    rank.end()


@pytest.mark.parametrize("line", ["p 1", "x = 1", "b {0}", "!print('*** mine')", "w", "ll", "help w", "args"])
def test_a_line_that_was_right_says_nothing(rank: FakeRank, line: str) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    assert answer(rank, line.format(line_of("double")))["error"] == ""
    answer(rank, "clear")
    rank.end()


def test_an_error_is_not_kept_for_the_next_stop(rank: FakeRank) -> None:
    rank.start(endpoints.calls_nested)
    rank.stopped()
    assert rank.send("p nothing;;c")
    assert "*** NameError" in rank.event("debug.resumed")["text"]
    assert rank.stopped()["error"] == ""
    rank.end()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="pdb runs such commands as lines of the prompt there")
def test_an_error_of_commands_that_run_on_is_not_kept(rank: FakeRank) -> None:
    rank.start(endpoints.loop)
    rank.stopped()
    rank.ask(f"b {line_of('total')}")
    for line in ("commands 1", "silent", "p nothing", "c"):
        answer(rank, line)
    rank.ask("tbreak {}, i == 3".format(line_of("total") + 1))
    assert rank.step("c")["error"] == ""
    answer(rank, "clear")
    rank.end()


def test_a_jump_that_fails_later_says_so(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    rank.debugger.breaks(SetBreaks([spec_of("after")]))
    stop = rank.step("j 1")
    assert stop["error"].startswith("Jump failed: ")
    assert stop["breakpoint"] in (0, 1)
    rank.debugger.breaks(SetBreaks([]))
    rank.end()


def spec_of(name: str) -> BreakSpec:
    """A breakpoint of the mesh on a line of the endpoints."""
    return BreakSpec(1, endpoints.__file__, line_of(name))
