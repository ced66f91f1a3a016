"""The file: events as Perfetto reads them."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from meshrt.hooks.clock import HostClock
from meshrt.selection import Shape
from meshrt.timeline.collected import Collected
from meshrt.timeline.operations import Part, RanksOfMesh, Row, Sent
from meshrt.timeline.recorder import BEGUN_BEFORE, NOT_ENDED
from meshrt.timeline.trace import pieces

TEXTS = ["trainer", "step", "", "LookupError", "leaf \udc80"]
STEP, LEAF, RETURNED, RAISED = 1, 4, 2, 3


def row(number: int, begin: int, end: int, what: int = STEP, raised: int = RETURNED, **more: int) -> Row:
    caller, call_id, cut = (more.get(key, 0) for key in ("caller", "call_id", "cut"))
    return Row(number, begin, end, more.get("thread", 11), 0, what, raised, caller, call_id, cut)


def part(pid: int, spans: list[Row], **more: Any) -> Part:
    facts: dict[str, Any] = {"open": [], "sends": [], "threads": [(11, "MainThread")], "dropped": 0, **more}
    return Part(part=1, pid=pid, texts=TEXTS, spans=spans, more=False, **facts)


def collected() -> Collected:
    made = Collected()
    shape = Shape.from_extent({"hosts": 2, "gpus": 2}).to_wire()
    made.know([RanksOfMesh("m", "mesh1", shape, [], [(0, "node1"), (1, "node1")], [])])
    return made


def events(made: Collected) -> dict[str, list[dict[str, Any]]]:
    """The events of the file, by their phase."""
    document = json.loads("".join(pieces(made, {"program": "p"})))
    found: dict[str, list[dict[str, Any]]] = {}
    for event in document["traceEvents"]:
        found.setdefault(event["ph"], []).append(event)
    return found


def test_nothing_is_a_file_too() -> None:
    assert events(Collected()) == {}


def test_spans_are_on_the_threads_of_processes_that_are_named_by_coordinates() -> None:
    made = collected()
    made.add("m", 1, part(4712, [row(1, 5000, 7500, raised=RAISED, call_id=9)]))
    made.add("m", 0, part(4711, [], open=[row(2, 2000, 9000, LEAF, cut=BEGUN_BEFORE | NOT_ENDED)]))
    found = events(made)
    names = {(event["pid"], event["name"]): event["args"] for event in found["M"]}
    assert names[4712, "process_name"] == {"name": "mesh1 rank 1 (hosts=0, gpus=1)"}
    assert names[4712, "thread_name"] == {"name": "MainThread"}
    assert names[4711, "process_sort_index"]["sort_index"] < names[4712, "process_sort_index"]["sort_index"]
    running, raised = found["X"]
    assert (raised["name"], raised["pid"], raised["tid"]) == ("trainer.step", 4712, 11)
    assert (raised["ts"], raised["dur"]) == (3, 2.5)  # microseconds after the first one
    assert raised["args"] == {"actor": "trainer", "endpoint": "step", "call": 9, "outcome": "raised LookupError"}
    assert running["args"]["cut"] == "began before the recording, and had not ended when it was last seen"
    assert "outcome" not in running["args"]


def test_an_arrow_leads_from_the_span_that_sent_to_the_one_that_began() -> None:
    made = collected()
    sends = [Sent(7, 1500, 1), Sent(8, 1600, 99)]  # of the second one, the span was dropped
    made.add("m", 0, part(4711, [row(1, 1000, 4000)], sends=sends))
    called = [row(1, 2000, 3000, LEAF, caller=4711, call_id=7), row(2, 3000, 3500, LEAF, caller=4711, call_id=8)]
    made.add("m", 1, part(4712, [*called, row(3, 4000, 5000, LEAF, caller=1, call_id=7)]))
    found = events(made)
    [start], [end] = found["s"], found["f"]
    assert (start["pid"], start["ts"], end["pid"], end["ts"], end["bp"]) == (4711, 0.5, 4712, 1.0, "e")
    assert (start["id"], start["cat"], start["name"]) == (end["id"], end["cat"], end["name"])


def test_a_rank_without_an_answer_is_named_with_the_reason() -> None:
    made = collected()
    made.add("m", 2, part(4713, [row(1, 1, 2)]))
    shape = Shape.from_extent({"hosts": 2, "gpus": 2}).to_wire()
    made.know([RanksOfMesh("m", "mesh1", shape, [], [], [(2, "was killed by SIGKILL"), (3, "exited")])])
    assert made.without == {
        ("m", 2): ("mesh1 rank 2 (hosts=1, gpus=0)", "was killed by SIGKILL"),
        ("m", 3): ("mesh1 rank 3 (hosts=1, gpus=1)", "exited"),  # before anything came of it
    }
    made.add("m", 2, part(4714, [row(1, 3, 4)]))  # started again
    assert list(made.without) == [("m", 3)]
    assert [event["pid"] for event in events(made)["X"]] == [4713, 4714]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.sampled_from([11, 12])), max_size=30))
def test_bars_of_one_lane_never_overlap(spans: list[tuple[int, int, int]]) -> None:
    made = collected()
    rows = [row(number, begin, begin + took, thread=on) for number, (begin, took, on) in enumerate(spans)]
    made.add("m", 0, part(4711, rows))
    lanes: dict[int, list[tuple[float, float]]] = {}
    for event in events(made).get("X", []):
        lanes.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert sum(map(len, lanes.values())) == len(spans)
    for bars in lanes.values():
        ordered = sorted(bars)
        assert all(end <= begin + 1e-9 for (_, end), (begin, _) in itertools.pairwise(ordered))


def test_processes_of_two_machines_may_have_one_pid() -> None:
    made = collected()
    here, there = 5 << 22, 6 << 22
    made.add("m", 0, part(17, [row(1, 1000, 4000)], sends=[Sent(7, 1500, 1)], process=here | 17))
    called = [row(1, 2000, 3000, LEAF, caller=here | 17, call_id=7), row(2, 3000, 3500, LEAF, caller=17, call_id=7)]
    made.add("m", 1, part(17, called, process=there | 17))
    found = events(made)
    assert {event["pid"] for event in found["X"]} == {here | 17, there | 17}
    [start], [end] = found["s"], found["f"]
    assert (start["pid"], end["pid"], end["ts"]) == (here | 17, there | 17, 1.0)
    assert {event["args"]["caller"] for event in found["X"] if "caller" in event["args"]} == {17}


def test_times_of_another_machine_are_converted() -> None:
    clock = HostClock("n2", 1000, 5)
    made = part(17, [row(1, 2000, 3000)], open=[row(2, 2500, 2600)], sends=[Sent(7, 2100, 1)]).on_root_clock(clock)
    assert [(each.begin, each.end) for each in (*made.spans, *made.open)] == [(3000, 4000), (3500, 3600)]
    assert made.sends == [Sent(7, 3100, 1)]
