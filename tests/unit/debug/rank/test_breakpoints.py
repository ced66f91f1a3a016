"""The breakpoint table of a rank: what it looks for, and that it stays right while it is changed."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from meshrt import Actor, endpoint
from meshrt.debug.rank import breakpoints
from meshrt.debug.rank.breakpoints import BreakTable
from meshrt.debug.rank.monitoring import Monitor
from meshrt.debug.rank_operations import BreakSpec, BreakState, ReadHits, SetBreaks
from meshrt.hooks.facts import ActorState, EndpointCall
from meshrt.hooks.table import hooks
from meshrt.program import places
from tests.unit.debug import endpoints
from tests.unit.debug.endpoints import line_of
from tests.unit.debug.fakes import WAIT, FakeRank

LATER = sys.version_info >= (3, 12)
CODE = endpoints.double.__code__
CODE_GLOBALS = endpoints.double.__globals__


class Tool(Actor):
    made_by = str

    @endpoint
    def work(self) -> int:
        return self.half(2)

    @staticmethod
    def half(number: int) -> int:
        return number // 2

    @property
    def whole(self) -> int:
        return 2

    @functools.cached_property
    def kept(self) -> int:
        return 3

    @functools.singledispatchmethod
    def of_kind(self, value: object) -> str:
        return "object"

    def times(self, number: int) -> int:
        return number

    doubled = functools.partialmethod(times, 2)


def spec(number: int = 1, **more: Any) -> BreakSpec:
    return BreakSpec(number, **more)


def on_double(number: int = 1, **more: Any) -> BreakSpec:
    return spec(number, file="debug/endpoints.py", line=line_of("double"), **more)


BEYOND = spec(1, file="debug/endpoints.py", line=99999)
NO_ENDPOINT = spec(2, method="wrok", actor="tool")
NO_CONDITION = on_double(3, condition="i =")


def tool(name: str = "tool") -> ActorState:
    return ActorState(name, 0, EndpointCall("m1", name, 0, "work", []), None, instance=Tool(), cls=Tool)


@pytest.fixture
def serving(rank: FakeRank) -> Iterator[FakeRank]:
    rank.services.calls[0] = tool().call  # type: ignore[assignment]
    rank.services.instances["tool"] = Tool()
    yield rank
    rank.debugger.breaks(SetBreaks([]))
    rank.services.calls.clear()


def looking(rank: FakeRank) -> bool:
    """Whether anything is paid for breakpoints."""
    monitor = rank.debugger._monitor
    used = monitor.tool is not None if monitor is not None else threading.gettrace() is not None
    return used or rank.debugger._tracer.wanted or rank.debugger.endpoint_enter in hooks.endpoint_enter


def left_by(rank: FakeRank) -> list[int]:
    """The breakpoints that an IDE has left."""
    return [each.id for each in rank.debugger.hits(ReadHits()).same.breaks if each.left]


@pytest.mark.parametrize("row", [BEYOND, NO_ENDPOINT, NO_CONDITION])
def test_nothing_is_looked_for_after_refusals(serving: FakeRank, row: BreakSpec) -> None:
    answer = serving.debugger.breaks(SetBreaks([row])).same
    assert (answer.breaks[0].id, answer.breaks[0].state in ("bound", "pending")) == (row.id, False)
    assert answer.price == ""
    assert not looking(serving)
    assert serving.services.signals_sent == 0
    assert serving.debugger.breaks(SetBreaks([row, on_double(9)])).same.breaks[1].state == "bound"
    assert looking(serving)
    serving.debugger.breaks(SetBreaks([row]))
    assert not looking(serving)


def test_what_is_pending_is_looked_for(serving: FakeRank) -> None:
    serving.debugger.breaks(SetBreaks([spec(file="not_loaded_yet.py", line=3)]))
    assert looking(serving)


def test_what_goes_with_an_ide_stops_nothing_that_this_ide_has_left(serving: FakeRank) -> None:
    rows = [on_double(1), on_double(2, goes="5/1")]
    serving.debugger.breaks(SetBreaks(rows[1:]))
    assert looking(serving)
    # Another one that comes and goes changes nothing: of another process, or another window of the same.
    for sessions, left in ((["6/1", "5/2"], []), (["5/1"], [2])):
        serving.debugger._rest(True, sessions)
        assert not looking(serving)
        serving.debugger._rest(False, sessions)
        assert looking(serving) is not bool(left)
        assert left_by(serving) == left
    # Nor after any other is set, until it is deleted.
    serving.debugger.breaks(SetBreaks(rows))
    assert [row.wanted for row in serving.debugger._table._now.rows.values()] == [True, False]
    # It comes back: what it has set rests, as all do, and is its own again.
    serving.debugger._rest(True, ["5/1"])
    assert left_by(serving) == []


def test_an_actor_that_comes_without_the_endpoint_ends_the_search(serving: FakeRank) -> None:
    del serving.services.instances["tool"]
    assert serving.debugger.breaks(SetBreaks([NO_ENDPOINT])).same.breaks == [BreakState(2, "pending", 0, "")]
    assert looking(serving)
    serving.services.instances["tool"] = Tool()
    call: Any = serving.services.calls[0]
    serving.debugger.endpoint_enter(call)
    assert not looking(serving)
    serving.debugger._tracer.leave()


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("work", "bound"),
        ("half", "bound"),
        ("whole", "bound"),
        ("kept", "bound"),
        ("doubled", "bound"),
        ("of_kind", "bound"),
        ("mro", "Tool has no method 'mro'; its endpoints: work"),
        ("made_by", "'made_by' of Tool is not a Python function"),
        ("spawn", "Tool has no method 'spawn'; its endpoints: work"),
    ],
)
def test_methods_of_an_actor(name: str, state: str) -> None:
    table = BreakTable()
    table.replace([spec(method=name, actor="tool")], [tool()])
    assert [each.state for each in table.states()] == [state]


class OtherTool(Actor):
    @endpoint
    def work(self) -> int:
        return 2


def test_an_actor_that_is_made_again_may_be_of_another_class() -> None:
    table = BreakTable()
    table.replace([spec(method="work", actor="tool")], [tool()])
    other = ActorState("tool", 0, None, None, cls=OtherTool)
    assert table.bind_methods([other]) and not table.bind_methods([other])
    assert table.lines_in(vars(OtherTool)["work"].__code__)


def test_an_endpoint_of_any_actor_may_still_come() -> None:
    table = BreakTable()
    table.replace([spec(method="wrok")], [tool()])
    assert table.active
    assert not table.bind_methods([tool()])
    assert table.active


def test_a_row_that_stays_is_bound_where_it_was() -> None:
    """The table may come again while an actor is made: `actors` does not have it yet, and its endpoint has begun."""
    table, row = BreakTable(), spec(method="work")
    table.replace([row], [])
    assert table.bind_methods([tool()])
    table.replace([row], [])
    assert [state.state for state in table.states()] == ["bound"]


def test_another_file_of_the_name_does_not_end_a_pending_breakpoint() -> None:
    table = BreakTable()
    table.replace([spec(file="late_one.py", line=5)], [])
    for name, text in (("/a/late_one.py", "x = 1\n"), ("/b/late_one.py", "\n\ndef f():\n    a = 1\n    return a\n")):
        lines = table.lines_in(compile(text, name, "exec"))
        assert not lines
        assert table.active
    function: dict[str, Any] = {}
    exec(compile("\n\ndef f():\n    a = 1\n    return a\n", "/b/late_one.py", "exec"), function)
    assert list(table.lines_in(function["f"].__code__)) == [5]


def once(action: Callable[[], object]) -> Callable[[], None]:
    """Let ``action`` happen at the first call only."""
    left = [action]

    def call() -> None:
        if left:
            left.pop()()

    return call


def during(monkeypatch: pytest.MonkeyPatch, wanted: str, action: Callable[[], object]) -> None:
    """Have ``action`` happen while somebody asks whether a file is meant by ``wanted``."""
    original = places.names_file
    act = once(action)

    def names_file(name: str, filename: str) -> bool:
        result = original(name, filename)
        if name == wanted:
            act()
        return result

    monkeypatch.setattr(breakpoints, "names_file", names_file)


def test_what_is_found_out_of_the_old_table_is_not_kept_for_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    table = BreakTable()
    table.replace([spec(file="other.py", line=3)], [])
    during(monkeypatch, "other.py", lambda: table.replace([on_double()], []))
    table.lines_in(CODE)
    assert list(table.lines_in(CODE)) == [line_of("double")]


def test_lines_of_the_old_table_are_not_kept_for_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    table = BreakTable()
    table.replace([spec(file="debug/endpoints.py", line=line_of("after"))], [])
    act = once(lambda: table.replace([on_double()], []))
    original = BreakTable._find_lines

    def find_lines(self: BreakTable, *args: Any) -> Any:
        lines = original(self, *args)
        act()
        return lines

    monkeypatch.setattr(BreakTable, "_find_lines", find_lines)
    assert list(table.lines_in(CODE)) == []
    assert list(table.lines_in(CODE)) == [line_of("double")]


@pytest.mark.skipif(not LATER, reason="sys.monitoring is new in 3.12")
def test_events_are_not_switched_off_for_what_the_old_table_said(monkeypatch: pytest.MonkeyPatch) -> None:
    table = BreakTable()
    monitor = Monitor(table, lambda frame: None, lambda frame: None)
    disable = sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]
    on_start, on_line = partial(monitor._on_start, CODE, 0), partial(monitor._on_line, CODE, line_of("double"))
    for ask in (on_start, on_line):
        table.replace([spec(file="other.py", line=3)], [])
        during(monkeypatch, "other.py", lambda: table.replace([spec(file="another.py", line=3)], []))
        assert ask() is None
        assert ask() is disable


def reached_while(table: BreakTable, change: Callable[[], object]) -> Any:
    """Reach the line of `on_double`; ``change()`` happens in the condition."""
    hits = []

    class Number:
        def __mul__(self, other: int) -> int:
            hits.append(table.reached(sys._getframe(1), str))
            return 1

    number: Any = Number()
    CODE_GLOBALS["change"] = change
    try:
        endpoints.double(number)
    finally:
        del CODE_GLOBALS["change"]
    return hits[0]


def test_a_breakpoint_that_is_taken_away_meanwhile_does_not_stop() -> None:
    table = BreakTable()
    table.replace([on_double(condition="not change()")], [])
    assert reached_while(table, lambda: None) == (1, "")
    assert reached_while(table, lambda: table.replace([], [])) is None


def test_a_hit_counts_although_the_table_is_replaced() -> None:
    table = BreakTable()
    row = on_double(condition="change()", once=True)
    table.replace([row], [])
    more = [row, spec(2, file="other.py", line=3)]

    def replaced() -> bool:
        table.replace(more, [])
        return True

    hit = reached_while(table, replaced)
    assert hit == (1, "")
    assert [(each.id, each.hits) for each in table.hits()] == [(1, 1), (2, 0)]
    assert reached_while(table, lambda: True) is None  # it was there for once


def test_looking_may_lead_to_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the handler of a signal does, on a thread that looks for lines just then."""
    table = BreakTable()
    table.replace([spec(file="endpoints.py", line=line_of("double"))], [])
    during(monkeypatch, "endpoints.py", lambda: None)
    late = compile("\n\ndef f():\n    return 1\n", "/x/endpoints.py", "exec")
    original = breakpoints._Breakpoint.bind
    act = once(lambda: table.lines_in(CODE))

    def bind(self: Any, *args: Any, **more: Any) -> None:
        act()
        original(self, *args, **more)

    monkeypatch.setattr(breakpoints._Breakpoint, "bind", bind)
    thread = threading.Thread(target=table.lines_in, args=(late,), daemon=True)
    thread.start()
    thread.join(WAIT)
    assert not thread.is_alive()
