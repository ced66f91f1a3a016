"""The ring of one rank: what is in it, what was pushed out, and how it is fetched."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from meshrt.hooks.facts import ActorState, EndpointCall
from meshrt.hooks.operations import body_of
from meshrt.timeline.operations import Part
from meshrt.timeline.recorder import BEGUN_BEFORE, NOT_ENDED, Recorder
from meshrt.wire.control import control_frame
from meshrt.wire.tree import Answer

ROOM = 100_000


class Bench:
    """A recorder whose clock counts its readings."""

    def __init__(self, capacity: int = 100) -> None:
        self.current: EndpointCall | None = None
        self.got = 0
        self.recorder = Recorder(lambda: self.current, capacity, itertools.count(100).__next__)

    def run(self, number: int, error: Exception | None = None) -> None:
        """Let one call begin and end."""
        call = call_of(number)
        self.recorder.enter(call)
        if error is None:
            self.recorder.exit(call)
            return
        try:
            raise error
        except type(error):
            self.recorder.exit(call)

    def take(self, *running: EndpointCall, room: int = ROOM) -> Part:
        actors = [ActorState("trainer", None, call, None) for call in running]
        part = self.recorder.take(actors, room, self.got)
        self.got = part.part
        return part


def call_of(number: int, endpoint: str = "step") -> EndpointCall:
    return EndpointCall("m", "trainer", 3, endpoint, [], 4711, number)


def rows(part: Part, what: str = "spans") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [row._asdict() for row in getattr(part, what)]
    for row in found:
        row.update({key: part.texts[row[key]] for key in ("actor", "endpoint", "raised")})
    return found


def test_a_span_says_who_called_what_and_how_it_ended() -> None:
    bench = Bench()
    bench.run(7)
    bench.run(8, LookupError("no"))
    part = bench.take()
    good, bad = rows(part)
    assert (good["actor"], good["endpoint"], good["raised"], good["cut"]) == ("trainer", "step", "", 0)
    assert (good["caller"], good["call_id"], bad["call_id"]) == (4711, 7, 8)
    assert bad["raised"] == "LookupError"
    assert 100 < good["begin"] < good["end"] < bad["begin"] < bad["end"]
    assert dict(part.threads)[good["thread"]] == "MainThread"
    assert not part.open
    assert not part.more
    assert not bench.take().spans  # fetched once


def test_the_newest_stay_and_the_others_are_counted() -> None:
    bench = Bench(capacity=4)
    for number in range(10):
        bench.run(number)
    part = bench.take(room=1)
    assert [row["call_id"] for row in rows(part)] == [6]
    assert (part.dropped, part.more) == (6, True)
    bench.run(10)
    bench.run(11)
    part = bench.take()
    assert [row["call_id"] for row in rows(part)] == [8, 9, 10, 11]
    assert (part.dropped, part.more) == (7, False)


def test_what_ran_before_is_cut_and_so_is_what_has_not_ended() -> None:
    bench = Bench()
    before, inside, gone = call_of(1, "before"), call_of(2, "inside"), call_of(3, "gone")
    task: Any = "task"
    actors = [ActorState("trainer", None, before, None, concurrent={task: gone})]
    bench.recorder.adopt(actors)
    bench.recorder.enter(inside)
    # `gone` has ended while it was taken in, and has told nobody.
    found = {row["endpoint"]: row["cut"] for row in rows(bench.take(before, inside), "open")}
    assert found == {"before": BEGUN_BEFORE | NOT_ENDED, "inside": NOT_ENDED}
    bench.recorder.exit(before)
    bench.recorder.end()
    part, again = bench.take(inside), bench.take(inside)
    [ended] = rows(part)
    assert (ended["begin"], ended["cut"]) == (bench.recorder.begun, BEGUN_BEFORE)
    assert rows(part, "open")[0]["end"] == rows(again, "open")[0]["end"]  # the recording has ended, time goes on


def test_a_call_that_is_sent_names_the_span_it_is_sent_in() -> None:
    bench = Bench()
    bench.recorder.sent(1)  # by a thread that runs no endpoint
    call = bench.current = call_of(5)
    bench.recorder.enter(call)
    bench.recorder.sent(2)
    part = bench.take(call)
    [[call_id, when, number]] = part.sends
    [running] = rows(part, "open")
    assert (call_id, number) == (2, running["number"])
    assert running["begin"] < when < running["end"]


def test_a_part_that_has_not_come_is_told_again() -> None:
    bench = Bench()
    bench.run(1)
    lost = bench.recorder.take([], ROOM, 0)
    bench.run(2)
    assert bench.take() == replace(lost, more=True)
    assert [row["call_id"] for row in rows(bench.take())] == [2]


@pytest.mark.parametrize("room", [200, 5000, 200_000])
def test_a_part_stays_within_its_room(room: int) -> None:
    bench = Bench(capacity=10_000)
    running = [call_of(number, f"wait_{number}") for number in range(1000)]
    for call in running:
        bench.current = call
        bench.recorder.enter(call)
        bench.recorder.sent(1 << 40)
    for number in range(2000):
        bench.run(number, type("E" * (number % 300), (Exception,), {})())
    slack = 1500  # of the last row, and of what is there always
    part = bench.take(*running, room=room)
    assert part.open
    while part.more:
        assert len(control_frame(Answer(1, body_of(part)))) <= room + slack
        part = bench.take(*running, room=room) if room > 1000 else replace(part, more=False)
