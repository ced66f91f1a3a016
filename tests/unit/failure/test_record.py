"""Records and incidents as plain data, and reading what is damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.failure.incident import Incident
from meshrt.failure.record import ExceptionFacts, FailureRecord, Frame, Recorded, Reference
from meshrt.hooks.clock import HostClock
from meshrt.hooks.fate import Fate
from meshrt.inspect.merged import MergedStacks
from tests.unit.failure.records import death, incident, raised

PLAIN: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "record",
    [
        FailureRecord(),
        raised(0, 3.5, about=Reference("x", "m", 0)),
        death(0, 1, signal=None, exit_code=0, log_tail=("a", "")),
        raised(
            3,
            1,
            exception=ExceptionFacts(
                "A", "m", ("A",), ("note",), (Frame("f", 1, "g", "s", {"x": "1"}),), 5, "", (ExceptionFacts("B"),)
            ),
        ),
    ],
)
def test_there_and_back(record: FailureRecord) -> None:
    assert FailureRecord.from_plain(json.loads(json.dumps(record.to_plain()))) == record
    whole = incident(record, stacks=MergedStacks([], 0, [], [], 3), caller="x.py:3")
    assert Incident.from_plain(json.loads(json.dumps(whole.to_plain()))) == whole


def test_what_has_its_default_is_left_out() -> None:
    assert FailureRecord().to_plain() == {}
    assert death(0, 1, signal=None, exit_code=0).to_plain()["exit_code"] == 0
    assert raised(0, 1).to_plain()["rank"] == 0


@given(PLAIN)
def test_foreign_data_is_no_error(plain: Any) -> None:
    assert isinstance(FailureRecord.from_plain(plain), FailureRecord)
    assert isinstance(Incident.from_plain(plain), Incident)


@given(
    st.dictionaries(st.sampled_from(["rank", "exception", "low", "coordinates", "log_tail", "ranks", "kind"]), PLAIN)
)
def test_what_is_of_the_wrong_type_has_its_default(plain: dict[str, Any]) -> None:
    record = FailureRecord.from_plain(plain)
    assert type(record.rank) is int and type(record.low) is int and type(record.kind) is str
    assert isinstance(record.exception, ExceptionFacts | None)
    assert all(type(index) is int for index in record.coordinates.values())
    assert all(type(line) is str for line in (record.fate.log_tail if record.fate else ()))


def test_times_of_another_machine_are_converted_where_they_come_in() -> None:
    clock = HostClock("n2", -1000, 7, 2.0)
    record = Recorded(FailureRecord(low=5000, high=6000, time=100.0)).on_root_clock(clock).record
    assert (record.low, record.high, record.clock, record.clock_error, record.time) == (4000, 5000, "n2", 7, 102.0)
    fate = Fate("died", low=5000, high=6000).on_root_clock(clock)
    assert (fate.low, fate.high, fate.clock, fate.clock_error) == (4000, 5000, "n2", 7)
    assert FailureRecord.from_plain(record.to_plain()) == record
