from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from meshrt.errors import ProtocolError
from meshrt.hooks.facts import Answered, Body, Unanswered
from meshrt.hooks.operations import (
    Data,
    Grouped,
    GroupedOperation,
    Nothing,
    Operation,
    Report,
    answers_of,
    body_of,
    server,
    slow_server,
)
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.tree import FROM_RANK, Event, Request


class Line(Data, frozen=True, array_like=True):
    number: int
    text: str


class Printed(Data, frozen=True):
    lines: Sequence[Line] = ()


class Lines(Operation[Printed], frozen=True, tag="logs.lines"):
    rank: int
    most: int | None = None


class Frames(Data, frozen=True):
    stack: Sequence[str]


class Stacks(GroupedOperation[Frames, Mapping[str, float]], frozen=True, tag="inspect.stacks"):
    actor: str = ""


class Stopped(Report, frozen=True, tag="debug.stopped"):
    place: Line


def sent(body: Body) -> Body:
    """The body as the other side of a connection unpacks it."""
    ((frame),) = control_decoder().receive_data(control_frame(Request(1, "x.y", body)))
    request = FROM_RANK.decode(frame.payload)
    assert isinstance(request, Request)
    return request.arguments


def test_an_operation_is_served_from_body_to_body() -> None:
    serve = server(Lines, lambda asked: Printed([Line(asked.rank, "loading")]))
    answer = sent(serve(sent(body_of(Lines(3)))))
    assert answer == {"lines": [[3, "loading"]]}
    assert Lines.read_answer(answer) == Printed([Line(3, "loading")])


def test_a_slow_operation_is_answered_or_refused_later() -> None:
    given: list[tuple[Body | None, str]] = []
    serve = slow_server(Lines, lambda asked, answer: answer(Printed(), "") if asked.rank else answer(None, "not now"))
    serve({"rank": 1}, lambda body, why: given.append((body, why)))
    serve({"rank": 0}, lambda body, why: given.append((body, why)))
    assert given == [({"lines": ()}, ""), (None, "not now")]


def test_an_operation_is_known_by_its_tag() -> None:
    assert (Lines.name(), Stacks.name(), Stopped.name()) == ("logs.lines", "inspect.stacks", "debug.stopped")


@pytest.mark.parametrize(
    ("body", "expected"),
    [({}, "logs.lines is not valid: .*missing required field `rank`"), ({"rank": "3"}, r"Expected `int`, got `str`")],
)
def test_arguments_that_are_not_valid_are_named(body: Body, expected: str) -> None:
    with pytest.raises(ProtocolError, match=expected):
        Lines.read(body)


def test_an_answer_that_is_not_valid_is_named() -> None:
    with pytest.raises(ProtocolError, match=r"the answer to logs\.lines is not valid"):
        Lines.read_answer({"lines": [[1]]})


def test_fields_of_another_version_are_ignored() -> None:
    assert Lines.read({"rank": 1, "colour": "red"}) == Lines(1)


def test_a_report_carries_data_of_its_own() -> None:
    event = Event(Stopped.name(), body_of(Stopped(Line(4, "x = 1"))))
    ((frame),) = control_decoder().receive_data(control_frame(event))
    received = FROM_RANK.decode(frame.payload)
    assert isinstance(received, Event)
    assert Stopped.read(received.body) == Stopped(Line(4, "x = 1"))


def test_answers_of_many_ranks_have_types() -> None:
    read = Stacks.read_group
    assert [
        read("m1", (0, 2), "answered", {"stack": ["main"]}, {0: {"since": 1.5}}),
        read("m1", (1,), "silent", {"state": "busy", "stack": "Thread 1"}, {}),
        read("m1", (3,), "gone", "was killed by SIGKILL", {}),
        read("m1", (4,), "refused", "no such actor", {}),
    ] == [
        Answered("m1", (0, 2), Frames(["main"]), {0: {"since": 1.5}}),
        Unanswered("m1", (1,), "silent", "", "busy", "Thread 1"),
        Unanswered("m1", (3,), "gone", "was killed by SIGKILL"),
        Unanswered("m1", (4,), "refused", "no such actor"),
    ]


def test_an_answer_of_a_rank_that_is_not_valid_counts_as_a_refusal() -> None:
    refused = Stacks.read_group("m1", (0,), "answered", {"frames": []}, {})
    assert isinstance(refused, Unanswered)
    assert (refused.kind, refused.ranks) == ("refused", (0,))
    assert "missing required field `stack`" in refused.why


def test_a_rank_answers_with_what_is_equal_and_what_differs() -> None:
    serve = server(Stacks, lambda asked: Grouped(Frames([asked.actor]), {"since": 2.0}))
    answer = sent(serve({"actor": "trainer"}))
    assert answer == {"same": {"stack": ["trainer"]}, "per": {"since": 2.0}}
    assert Stacks.read_answer(answer) == Grouped(Frames(["trainer"]), {"since": 2.0})


def test_an_operation_has_to_say_what_answers_it() -> None:
    class Untyped(Operation, frozen=True, tag="x.untyped"):  # type: ignore[type-arg]  # this is the fault
        pass

    with pytest.raises(TypeError, match="does not say what answers it"):
        Untyped.read_answer({})


def test_an_operation_without_an_answer() -> None:
    class Leave(Operation[Nothing], frozen=True, tag="x.leave"):
        pass

    assert Leave.read_answer(sent(server(Leave, lambda _asked: Nothing())({}))) == Nothing()


def test_an_answer_that_comes_later_has_its_type_and_an_invalid_one_is_an_error() -> None:
    found: list[tuple[Printed | None, str]] = []
    take = answers_of(Lines(3), lambda answer, error: found.append((answer, str(error or ""))))
    take({"lines": [[1, "one"]]}, None)
    take(None, ProtocolError("refused"))
    take({"lines": 1}, None)
    assert found[:2] == [(Printed([Line(1, "one")]), ""), (None, "refused")]
    assert found[2][0] is None and found[2][1].startswith("the answer to logs.lines is not valid: Expected `array`")
