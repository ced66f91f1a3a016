"""What inspection sends: the form on the wire, and back."""

from __future__ import annotations

from msgspec.structs import replace

from meshrt.hooks.facts import Body, Wait
from meshrt.hooks.operations import Data, Grouped, body_of
from meshrt.inspect.facts import ArrayFacts, DictFacts, NumberFacts, within
from meshrt.inspect.operations import Listing, ListRanks, Placed, Progress, RankRow
from meshrt.inspect.records import ReadStacks, Record, StackFrame, Threads, Times
from meshrt.program.places import Place
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.tree import FROM_RANK, Request

ROW = RankRow(
    "trainer", "m", 1, {"n": 1}, [["n"], 0, [4], [1]], "node", 7, "step", "/a/b.py", 3, "step", "b", "blocked", "", 5.0,
    0, "", 0,
)  # fmt: skip


def sent(data: Data) -> Body:
    """Return the fields as the other side finds them."""
    ((frame),) = control_decoder().receive_data(control_frame(Request(1, "x.y", body_of(data))))
    request = FROM_RANK.decode(frame.payload)
    assert isinstance(request, Request)
    return request.arguments


def test_rows_say_how_much_memory_a_rank_has_only_where_it_was_asked_for() -> None:
    listing = Listing([ROW, replace(ROW, rss=0)], 3, "all")
    body = sent(listing)
    assert [row.get("rss", "none") for row in body["rows"]] == ["none", 0]
    assert ListRanks.read_answer(body) == listing


def test_the_stacks_of_a_rank() -> None:
    record = Record("MainThread", "actor", "trainer", "step", "blocked", [StackFrame("/a/b.py", 3, "step")])
    other = replace(record, kind="thread", holder="recv", beside=True, source="a dump")
    wait = Wait("m", "store", "get", (1, 2), 5, any=True, seconds=3.0, left=2.0)
    answer = Grouped(Threads([record, other]), Times([1.5, 0.0], [0.0, 0.5], [[wait], []]))
    body = sent(answer)
    assert body["same"]["threads"][0]["frames"] == [["/a/b.py", 3, "step", False]]
    found = ReadStacks.read_answer(body)
    assert found.per is not None
    (read,) = found.per.waits_of(0)
    assert (found, read.seconds, read.left) == (answer, 3.0, 2.0)
    assert sent(Grouped(Threads([]), Times()))["per"] == {} and Times().waits_of(3) == ()


def test_the_reports_of_a_rank() -> None:
    progress = Progress("trainer", "step", "blocked", 5.0, Place("/a/b.py", 3, "step"), [Wait("m", "a", "b", (1,), 1)])
    body = sent(progress)
    assert body["place"] == ["/a/b.py", 3, "step"] and Progress.read(body) == progress
    placed = Placed([(7, "loader")])
    assert Placed.read(sent(placed)) == placed


def test_facts_of_values_name_their_kind() -> None:
    array = ArrayFacts("ndarray", [2], "float64", "cpu", 0.0, None, None, 1)
    small = DictFacts({"'a'": "1"})
    number, plain, masked, items = sent(Grouped([NumberFacts(2.0), array, replace(array, masked=0), small]))["same"]
    assert (number, items) == ({"kind": "number", "value": 2.0}, {"kind": "dict", "items": {"'a'": "1"}})
    assert plain["kind"] == "array" and plain["max"] is None and "masked" not in plain and masked["masked"] == 0
    assert within(small, 3) is None and within(small, 4) is small and within(array, 0) is array
