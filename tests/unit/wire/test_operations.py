"""What ranks and the root ask of each other, as it arrives at the other side of a control link."""

from __future__ import annotations

from typing import TypeVar

import pytest

from meshrt.errors import ProtocolError, RemoteException
from meshrt.hooks.facts import Body
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Operation, Report, body_of
from meshrt.wire import operations
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.operations import (
    AllowRestarts,
    CutOff,
    Ended,
    Restarted,
    SpawnMesh,
    StopMesh,
    Told,
    Unhandled,
    Watch,
    WhenRestarted,
)
from meshrt.wire.tree import FROM_RANK, Answer, Event, Request

T = TypeVar("T")
A = TypeVar("A", bound=Data)

FATE = Fate("died", "node0", 7, signal=9, log_tail=["last line"])


def arrived(message: Request | Event | Answer) -> Body:
    """Return the body of a message on the other side."""
    (frame,) = control_decoder().receive_data(control_frame(message))
    found = FROM_RANK.decode(frame.payload)
    assert isinstance(found, Request | Event | Answer) and found.body is not None
    return found.body


@pytest.mark.parametrize(
    "operation",
    [
        Watch("m", 1),
        WhenRestarted("m", 1, "trainer"),
        SpawnMesh("trainer", "", [("a", 2)], {"A": "b"}, [(1, {"R": "1"})], ["json"], "m", [3, 4]),
        StopMesh("m", 2.5, ""),
        Told("m", 1, 77),
        AllowRestarts("m", [1, 2], "trainer", 3),
        CutOff([("trainer", "step")], 4, more=True),
        Unhandled("trainer", "step", RemoteException("E", "x", "tb", ("n",), RemoteException("C", "y", "")), 5),
        Unhandled("trainer", "__init__", RemoteException("E", "x", ""), 5, at=("m", 3)),
    ],
    ids=lambda operation: operation.name(),
)
def test_it_arrives_as_it_was_sent(operation: Operation[Data] | Report) -> None:
    assert operation.read(arrived(Request(1, operation.name(), body_of(operation)))) == operation


@pytest.mark.parametrize(("operation", "answer"), [(Watch, Ended(FATE)), (WhenRestarted, Restarted(2, FATE))])
def test_its_answer_arrives(operation: type[Operation[A]], answer: A) -> None:
    assert operation.read_answer(arrived(Answer(1, body_of(answer)))) == answer


def test_a_field_of_another_type_is_named() -> None:
    with pytest.raises(ProtocolError, match=r"mesh\.told is not valid: Expected `int`, got `str` - at `\$\.pid`"):
        Told.read({"mesh": "m", "rank": 1, "pid": "7"})


@pytest.mark.parametrize("base", [Operation, Report])
def test_no_two_have_one_name(base: type[Operation[Data] | Report]) -> None:
    named = [
        each.name()
        for each in vars(operations).values()
        if isinstance(each, type) and issubclass(each, base) and each is not base
    ]
    assert len(named) == len(set(named)) > 5
