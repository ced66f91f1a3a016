"""The answer that a call is owed: one, whatever happens to it."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import Mock

import pytest

from meshrt.actor.response import Response
from meshrt.errors import PortClosed
from meshrt.wire import codec
from meshrt.wire.frames import FrameDecoder
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import ERROR, RESULT

CALLER, OTHER = Identity(1, 2, 7), Identity(1, 2, 8)
TOO_LARGE = MemoryError("no memory")


class Answers:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.response = Response(CALLER, 5, self.write, list, str, ("job", "run"))

    def write(self, parts: list[Any]) -> None:
        self.written.append(b"".join(parts))

    def only(self) -> tuple[int, list[Any], Any]:
        (written,) = self.written
        (frame,) = FrameDecoder().receive_data(written)
        return frame.kind, frame.header, frame.payload


@pytest.fixture
def answers() -> Answers:
    return Answers()


def test_a_value_is_the_answer(answers: Answers) -> None:
    answers.response.send({"loss": 1.5})
    kind, (number, lengths), payload = answers.only()
    assert (kind, number) == (RESULT, 5) and codec.decode(payload, lengths) == {"loss": 1.5}


def test_an_exception_is_the_answer_with_its_data(answers: Answers) -> None:
    answers.response.fail(KeyError("x"))
    kind, (number, _, lengths, _), payload = answers.only()
    assert (kind, number) == (ERROR, 5) and codec.decode(payload, lengths).args == ("x",)


@pytest.mark.parametrize("again", ["send", "fail"])
def test_a_second_answer_is_refused(answers: Answers, again: str) -> None:
    answers.response.send(1)
    with pytest.raises(PortClosed, match=r"job\.run\(\) was already answered"):
        getattr(answers.response, again)(ValueError())
    assert len(answers.written) == 1


def test_what_cannot_be_pickled_is_an_error_of_the_result(answers: Answers) -> None:
    answers.response.send(threading.Lock())
    kind, header, _ = answers.only()
    assert kind == ERROR and header[3] == "result"


@pytest.mark.parametrize("place", ["encode_result", "split_frames", "_joined"])
def test_where_there_is_no_memory_for_a_value_the_caller_is_told(
    answers: Answers, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setattr(f"meshrt.actor.response.{place}", Mock(side_effect=TOO_LARGE))
        with pytest.raises(MemoryError):
            answers.response.send(b"x")
    kind, header, _ = answers.only()
    assert kind == ERROR and "no memory" in str(header)


def test_where_there_is_no_memory_for_an_exception_its_text_is_the_answer(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setattr("meshrt.actor.response.codec.encode", Mock(side_effect=TOO_LARGE))
        answers.response.fail(ValueError("too many"))
    kind, header, payload = answers.only()
    assert kind == ERROR and "too many" in str(header) and not payload


def test_a_dropped_one_is_closed_and_an_answered_one_is_left_alone(answers: Answers) -> None:
    answers.response.dropped()
    kind, header, _ = answers.only()
    assert kind == ERROR and "has dropped its response port" in str(header)
    answers.response.dropped()
    answers.response.cancelled()
    assert len(answers.written) == 1


def test_only_its_own_caller_withdraws_it(answers: Answers) -> None:
    answers.response.withdraw(OTHER, 5)
    answers.response.withdraw(CALLER, 6)
    assert not answers.written
    answers.response.withdraw(CALLER, 5)
    assert answers.only()[1][3] == "withdrawn"


def test_without_a_caller_nothing_is_written() -> None:
    response = Response(CALLER, 5, None, list, str, ("job", "run"))
    response.send(1)
    assert not response.take()


def test_an_exception_that_interrupts_its_pickling_is_the_answer_by_its_text(answers: Answers) -> None:
    class Interrupts(Exception):
        def __reduce__(self) -> str:
            raise KeyboardInterrupt

    answers.response.fail(Interrupts("why"))
    kind, header, payload = answers.only()
    assert kind == ERROR and "why" in str(header) and not payload


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        (lambda response: response.withdraw(CALLER, 5), "job.run() was cancelled by its caller"),
        (lambda response: response.cancelled(), "job.run() cannot be answered any more: its actor has ended"),
    ],
)
def test_who_answers_too_late_is_told_why(answers: Answers, ends: Any, text: str) -> None:
    ends(answers.response)
    answers.response.cancelled()
    with pytest.raises(PortClosed) as refused:
        answers.response.send(1)
    assert str(refused.value) == text and len(answers.written) == 1


def test_it_is_owed_until_it_is_answered(answers: Answers) -> None:
    assert str(answers.response) == "job.run(): open"
    answers.response.send(1)
    assert str(answers.response) == "job.run(): over"
    assert str(Response(CALLER, 5, None, list, str, ("job", "run"))) == "job.run(): over", "nobody waits for it"
