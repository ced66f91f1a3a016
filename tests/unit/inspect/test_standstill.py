"""What keeps ranks that do not answer: where their waits end in a cycle, or in ranks that a person has stopped."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from meshrt.hooks.facts import Wait
from meshrt.inspect.standstill import CYCLE, OWES, STOPPED, Standstill, reached, standstill
from meshrt.program.waits import Waiter, WaitGraph

NAMES = {"m": "mesh1", "s": "mesh2"}


def graph(waits: Mapping[int, tuple[int, ...]], seconds: float = 6.0, left: float | None = None) -> WaitGraph:
    made = WaitGraph()
    for rank, ranks in waits.items():
        wait = Wait("m", "a", "ask", ranks, len(ranks), seconds=seconds, left=left)
        made.nodes["m", rank, "a"] = Waiter("blocked", "blocked in recv", [wait])
    return made


def kept(made: WaitGraph, *ranks: int) -> Standstill | None:
    return standstill(made, NAMES, [("m", rank, "a") for rank in ranks])


@pytest.mark.parametrize(
    ("waits", "left", "text"),
    [
        ({1: (4,), 4: (7,), 7: (10,), 10: (4,)}, None, "a ranks 4, 7 and 10 wait for each other, for 6 s"),
        ({1: (2,), 2: (2,)}, None, "a rank 2 waits for itself, for 6 s"),
        ({1: (2,), 2: (1,)}, 3.0, "a ranks 1 and 2 wait for each other, for 6 s, until a time-out in 3 s"),
        ({rank: ((rank + 1) % 64,) for rank in range(64)}, None, "a ranks 0-63 wait for each other, for 6 s"),
        (
            {1: (2, 4), 2: (3,), 3: (2,), 4: (5,), 5: (4,)},
            None,
            "a ranks 2 and 3 wait for each other, for 6 s; in other cycles: a ranks 4 and 5",
        ),
    ],
)
def test_a_cycle(waits: dict[int, tuple[int, ...]], left: float | None, text: str) -> None:
    found = kept(graph(waits, left=left), 1)
    assert found is not None and (found.kind, found.text) == (CYCLE, text)
    assert found.reached == {"m": tuple(sorted(waits))}
    assert set(found.ranks["m"]) == {rank for rank in waits if rank != 1 or 1 in waits[waits[1][0]] or len(waits) > 9}


def test_a_cycle_elsewhere_keeps_nobody_here() -> None:
    made = graph({1: (2,), 4: (5,), 5: (4,)})
    assert kept(made, 1) is None
    assert reached(made, [("m", 1, "a")]) == {("m", 1, "a"), ("m", 2, "a")}


def test_what_has_just_begun_is_no_cycle() -> None:
    assert kept(graph({1: (2,), 2: (1,)}, seconds=0.5), 1) is None


def test_ranks_that_owe_the_answers_for_which_all_others_wait() -> None:
    made = graph({1: (3,), 2: (3,)})
    made.nodes["m", 3, "a"] = Waiter("running", "running at f.py:3, in ask")
    found = kept(made, 1, 2)
    assert found is not None and found.kind == OWES
    assert found.text == "a rank 3 has not answered a.ask() for 6 s: running at f.py:3, in ask"
    assert (found.ranks, found.reached) == ({"m": (3,)}, {"m": (1, 2, 3)})
    assert kept(made, 1, 3) is None, "one that has not answered itself is no cause that is elsewhere"
    made.nodes["m", 3, "a"] = Waiter("idle", "waits for messages")
    assert kept(made, 1, 2) is None
    made.nodes["m", 3, "a"] = Waiter("running", "running")
    made.ranks["m", 3] = "silent", "which does not answer"
    assert kept(made, 1, 2) is None
    just_now = graph({1: (3,)}, seconds=0.5)
    just_now.nodes["m", 3, "a"] = Waiter("running", "running")
    assert kept(just_now, 1) is None


def test_ranks_that_a_person_has_stopped() -> None:
    made = graph({1: (2, 3)})
    made.nodes["m", 3, "a"] = Waiter("stopped", "stopped in the debugger at f.py:3, in ask")
    made.nodes["s", 3, "a"] = Waiter("stopped", "stopped in the debugger at f.py:3, in ask")
    found = kept(made, 1)
    assert found is not None and found.kind == STOPPED
    assert found.text == "a@mesh1 rank 3 is stopped in the debugger at f.py:3, in ask"
    assert (found.ranks, found.reached) == ({"m": (3,)}, {"m": (1, 2, 3)})
    made.nodes["m", 2, "a"] = Waiter("stopped", "stopped in the debugger at f.py:9, in other")
    found = kept(made, 1)
    assert found is not None and found.text == "a@mesh1 ranks 2 and 3 are stopped in the debugger"
    # One of a cycle that was stopped to be looked at is no reason for it.
    made = graph({1: (2,), 2: (1,)})
    made.nodes["m", 2, "a"].state = "stopped"
    found = kept(made, 1)
    assert found is not None and found.kind == CYCLE
    made.ranks["m", 3] = ("gone", "ended: was killed")
    assert kept(made, 3) is None
