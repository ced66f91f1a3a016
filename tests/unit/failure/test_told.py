"""What an exception came from, as its record has it."""

from __future__ import annotations

import pytest

from meshrt.failure.causes import STOPPED
from meshrt.failure.record import ExceptionFacts, Reference
from meshrt.failure.told import stops_behind

LOG = Reference("", "log", 0)


def stopped(relation: str = "", *linked: ExceptionFacts) -> ExceptionFacts:
    return ExceptionFacts(STOPPED, "was stopped", relation=relation, about=LOG, linked=linked)


@pytest.mark.parametrize(
    ("error", "stops"),
    [
        (stopped(), (LOG,)),
        (ExceptionFacts("RuntimeError", "no log", linked=(stopped("cause"),)), (LOG,)),
        (stopped("", ExceptionFacts("meshrt.actor.ending.StopInterrupt", relation="context")), (LOG,)),
        (stopped("", ExceptionFacts("ValueError", "bad batch", relation="context")), ()),
        (ExceptionFacts("ExceptionGroup", linked=(stopped("member"), stopped("member"))), (LOG, LOG)),
        (
            ExceptionFacts("ExceptionGroup", linked=(stopped("member"), ExceptionFacts("OSError", relation="member"))),
            (),
        ),
        (ExceptionFacts("ValueError", "bad batch"), ()),
    ],
)
def test_what_came_from_nothing_but_a_stop(error: ExceptionFacts, stops: tuple[Reference, ...]) -> None:
    assert stops_behind(error) == stops
