"""The root's table of what actors do."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from meshrt.hooks.fate import Fate
from meshrt.hooks.snapshot import MeshFacts, Silent
from meshrt.inspect import Activity
from meshrt.inspect.root import load
from meshrt.selection import Shape


def fake_root(**silent: Any) -> Any:
    shape, unanswering = Shape.from_extent({"n": 3}), silent.get("silent", {})
    meshes = [MeshFacts("m", "mesh1", shape, silent=unanswering), MeshFacts("n", "mesh2", shape)]
    clock = silent.get("clock", time.monotonic)
    return SimpleNamespace(
        meshes=lambda: meshes,
        tables={},
        tool_operations={},
        rank_events={},
        rank_silent=[],
        rank_gone=[],
        clock=clock,
    )


def blocked(since: float = 5.0) -> dict[str, Any]:
    body = {"actor": "a", "endpoint": "step", "state": "blocked", "since": since, "place": ["f.py", 3, "step"]}
    return {**body, "waits": [["m", "a", "ask", [2], 1, False, 3.0, 9.0]], "beside": False}


def test_what_ranks_tell() -> None:
    services = fake_root()
    load(services)
    table: Activity = services.tables["inspect.activity"]
    assert table.get("m", 1, "a") is None
    services.rank_events["inspect.progress"]("m", 1, blocked())
    row = table.get("m", 1, "a")
    assert row is not None
    assert (row.state, row.since, row.place, row.endpoint) == ("blocked", 5.0, ("f.py", 3, "step"), "step")
    assert table.get("m", 1, "b") is None and table.get("m", 2, "a") is None
    services.rank_gone[0]("m", 1, Fate("died", signal=9))
    assert table.get("m", 1, "a") is None


def test_silence_covers_what_was_known() -> None:
    services = fake_root(silent={2: Silent("busy", 3.0)})
    load(services)
    table: Activity = services.tables["inspect.activity"]
    busy = table.get("m", 2, "a")
    assert busy is not None and (busy.state, busy.since, busy.place) == ("busy", 3.0, ("", 0, ""))
    table.progress("m", 1, blocked())
    services.rank_silent[0]("m", 1, "stopped")
    row = table.get("m", 1, "a")
    assert row is not None and row.since > 5.0
    assert (row.state, row.place) == ("stopped by a signal", ("f.py", 3, "step"))
    services.rank_silent[0]("m", 1, "")
    row = table.get("m", 1, "a")
    assert row is not None and row.state == "blocked"
    services.rank_silent[0]("m", 2, "")
    row = table.get("m", 2, "a")
    assert row is not None and row.state == "running" and row.since > 5.0


def test_who_waits_for_whom_is_known_before_anybody_asks() -> None:
    clock = [100.0]
    services = fake_root(clock=lambda: clock[0])
    load(services)
    table: Activity = services.tables["inspect.activity"]
    assert table.wait_lines(4) == []
    table.progress("m", 1, blocked())
    assert table.wait_lines(4) == ["rank 1 waits for a.ask() of rank 2"]
    services.rank_silent[0]("m", 2, "stopped")
    (line,) = table.wait_lines(4)
    assert line.startswith("rank 1 waits for a.ask() of rank 2, not answering: its process was stopped by a signal")
    services.rank_silent[0]("m", 2, "")
    table.progress("m", 2, {**blocked(), "waits": [["m", "a", "ask", [1], 1, False, 5.0, None]]})
    clock[0] += 2  # deadlines stand still while a person holds a rank
    (line,) = table.wait_lines(4)
    assert line.startswith("rank 1 waits for a.ask() of rank 2, which waits for a.ask() of rank 1: a cycle, for ")
    assert line.endswith(", until a time-out in 7 s")
    table.progress("m", 2, {**blocked(), "state": "running"})
    assert table.wait_lines(4) == ["rank 1 waits for a.ask() of rank 2"]


def test_the_threads_of_further_actors() -> None:
    services = fake_root()
    load(services)
    table: Activity = services.tables["inspect.activity"]
    placed = services.rank_events["inspect.placed"]
    placed("m", 1, {"actors": [[7, "b"], [8, "c"]]})
    assert table.actors("m", 1) == {7: "b", 8: "c"} and table.actors("m", 2) == {}
    placed("m", 1, {"actors": [[7, "c"]]})  # b was stopped, and c spawned anew on a thread that has its ident
    assert table.actors("m", 1) == {7: "c"}
    placed("m", 1, {"actors": []})
    assert table.actors("m", 1) == {}
    placed("m", 1, {"actors": [[9, "b"]]})
    services.rank_gone[0]("m", 1, Fate("died", signal=9))
    assert table.actors("m", 1) == {}
