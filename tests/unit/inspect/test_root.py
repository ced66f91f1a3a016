"""The root's table of what actors do."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from meshrt.collectives.facts import GroupsMade
from meshrt.hooks.facts import Wait
from meshrt.hooks.fate import Fate
from meshrt.hooks.plugins import plugin_of
from meshrt.hooks.services import RootServices
from meshrt.hooks.snapshot import MeshFacts, Silent
from meshrt.inspect.operations import Placed, Progress
from meshrt.inspect.root import Activity, load
from meshrt.program.places import NOWHERE, Place
from meshrt.program.states import State
from meshrt.selection import Shape


def fake_root(clock: Callable[[], float] = time.monotonic) -> Any:
    shape = Shape.from_extent({"n": 3})
    meshes = [MeshFacts("m", "mesh1", shape), MeshFacts("n", "mesh2", shape)]
    silences: dict[tuple[str, int], Silent] = {}
    reports: dict[Any, Any] = {}
    return SimpleNamespace(
        meshes=lambda: meshes,
        tables={},
        reports=reports,
        serve_terminals=lambda operation, handler: None,
        on_report=reports.__setitem__,
        rank_silent=[],
        rank_gone=[],
        clock=clock,
        silences=silences,
        silent=lambda: silences,
    )


def loaded(services: RootServices) -> Activity:
    load(services)
    table: Activity = services.tables["inspect.activity"]
    return table


def blocked(**more: Any) -> Progress:
    facts = {
        "since": 5.0,
        "state": "blocked",
        "place": Place("f.py", 3, "step"),
        "waits": [Wait("m", "a", "ask", (2,), 1, seconds=3.0, left=9.0)],
    }
    return Progress("a", "step", **{**facts, **more})


def test_a_report_loads_what_takes_it_in() -> None:
    """A program that no terminal has looked at yet knows a report by the plug-in that its name begins with."""
    services = fake_root()
    loaded(services)
    assert {plugin_of(report.name()) for report in services.reports} == {"inspect"}
    services.reports[GroupsMade]("m", 1, GroupsMade(["dp"]))
    assert services.tables["inspect.activity"].groups("m") == {"dp": {1}}


def test_what_ranks_tell() -> None:
    services = fake_root()
    table = loaded(services)
    assert table.state("m", 1, "a") is None
    services.reports[Progress]("m", 1, blocked())
    assert table.state("m", 1, "a") == State("blocked", 5.0, Place("f.py", 3, "step"))
    assert table.state("m", 1, "b") is None and table.state("m", 2, "a") is None
    services.rank_gone[0]("m", 1, Fate("died", signal=9))
    assert table.state("m", 1, "a") is None


def test_where_actors_are_blocked() -> None:
    services = fake_root()
    table = loaded(services)
    since = time.time_ns() / 1e9 - 30
    for rank, line in enumerate((3, 3, 5, 7, 7, 7, 9)):
        table.progress("m", rank, blocked(since=since, place=Place("f.py", line, "step")))
    table.progress("m", 7, blocked(since=since, place=NOWHERE))
    table.progress("m", 8, blocked(state="stopped"))
    keys = [("m", rank, "a") for rank in range(10)]
    assert table.places(keys) == [
        "ranks 3-5 blocked at f.py:7, in step, for 30 s",
        "ranks 0-1 blocked at f.py:3, in step, for 30 s",
        "others at 2 more places",
    ]
    assert table.places(keys[6:]) == ["rank 6 blocked at f.py:9, in step, for 30 s"]
    assert table.places(keys[7:]) == []


def test_a_rank_that_answers_again_runs_since_then() -> None:
    services = fake_root()
    table = loaded(services)
    table.progress("m", 1, blocked())
    services.rank_silent[0]("m", 1, "stopped")
    assert table.state("m", 2, "a") is None
    services.rank_silent[0]("m", 1, "")
    row = table.state("m", 1, "a")
    assert row is not None and row.word == "blocked"
    services.rank_silent[0]("m", 2, "")
    row = table.state("m", 2, "a")
    assert row is not None and row.word == "running" and row.since > 5.0


def test_a_rank_that_does_not_answer_is_not_counted_where_it_was_blocked() -> None:
    services = fake_root()
    table = loaded(services)
    for rank in (0, 1):
        table.progress("m", rank, blocked(since=time.time_ns() / 1e9 - 30))
    services.silences["m", 1] = Silent("stopped", 3.0)
    assert table.places([("m", 0, "a"), ("m", 1, "a")]) == ["rank 0 blocked at f.py:3, in step, for 30 s"]


def test_who_waits_for_whom_is_known_before_anybody_asks() -> None:
    clock = [100.0]
    services = fake_root(clock=lambda: clock[0])
    table = loaded(services)
    assert table.wait_lines(4) == []
    table.progress("m", 1, blocked())
    assert table.wait_lines(4) == ["rank 1 waits for a.ask() of rank 2"]
    services.silences["m", 2] = Silent("stopped", 3.0)
    (line,) = table.wait_lines(4)
    assert line.startswith("rank 1 waits for a.ask() of rank 2, not answering: its process was stopped by a signal")
    services.silences.clear()
    table.progress("m", 2, blocked(waits=[Wait("m", "a", "ask", (1,), 1, seconds=5.0)]))
    clock[0] += 2  # deadlines stand still while a person holds a rank
    (line,) = table.wait_lines(4)
    assert line.startswith("rank 1 waits for a.ask() of rank 2, which waits for a.ask() of rank 1: a cycle, for ")
    assert line.endswith(", until a time-out in 7 s")
    table.progress("m", 2, blocked(state="running"))
    assert table.wait_lines(4) == ["rank 1 waits for a.ask() of rank 2"]


def test_the_threads_of_further_actors() -> None:
    services = fake_root()
    table = loaded(services)
    placed = services.reports[Placed]
    placed("m", 1, Placed([(7, "b"), (8, "c")]))
    assert table.actors("m", 1) == {7: "b", 8: "c"} and table.actors("m", 2) == {}
    placed("m", 1, Placed([(7, "c")]))  # b was stopped, and c spawned anew on a thread that has its ident
    assert table.actors("m", 1) == {7: "c"}
    placed("m", 1, Placed([]))
    assert table.actors("m", 1) == {}
    placed("m", 1, Placed([(9, "b")]))
    services.rank_gone[0]("m", 1, Fate("died", signal=9))
    assert table.actors("m", 1) == {}
