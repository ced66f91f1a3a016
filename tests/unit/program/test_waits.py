"""Who waits for whom: cycles are found and are cycles, chains end where somebody does something, equal ones are one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from meshrt.hooks.facts import UnreadError, Wait
from meshrt.inspect.merged import Party, Waits
from meshrt.inspect.operations import Progress
from meshrt.inspect.waittext import unread_lines, wait_lines, waits_of
from meshrt.program.waits import SCRIPT, Waiter, WaitGraph

RECEIVES = Wait("", "", "recv", (), 0, port=True)
NAMES = {"m": "mesh1", "s": "mesh2"}


def wait(*ranks: int, actor: str = "worker", endpoint: str = "ask", any_of_them: bool = False, more: int = 0) -> Wait:
    return Wait("s" if actor == "store" else "m", actor, endpoint, ranks, len(ranks) + more, any_of_them)


def graph(waits: Mapping[int, Wait | Sequence[Wait]], seconds: float = 43.0) -> WaitGraph:
    made = WaitGraph()
    for rank, each in waits.items():
        found = [each] if isinstance(each, Wait) else list(each)
        made.nodes["m", rank, "worker"] = Waiter(
            "blocked", "blocked in recv", [replace(one, seconds=seconds) for one in found]
        )
    return made


def lines(made: WaitGraph) -> list[str]:
    return wait_lines(waits_of(made, NAMES))


def test_two_that_wait_for_each_other() -> None:
    made = graph({0: wait(1), 1: wait(0)})
    made.script([wait(0, 1, endpoint="step")])
    assert lines(made) == [
        "rank 0 waits for worker.ask() of rank 1, which waits for worker.ask() of rank 0: a cycle, for 43 s",
        "the script waits for worker.step() of ranks 0-1, in a cycle",
    ]
    told = waits_of(made, NAMES).waits
    assert [each.cycle for each in told] == [True, False]
    assert [[call.ranks for call in step] for step in told[0].path] == [[[1]], [[0]]]
    assert told[1].waiting == Party("", "", [], 1)
    # Two looks, one after the other, at two that call each other in turn look like this.
    assert "a possible cycle, seen for less than" in lines(graph({0: wait(1), 1: wait(0)}, 0.5))[0]


def test_a_cycle_that_a_time_out_will_end() -> None:
    made = graph({0: wait(1), 1: wait(0)})
    # The thread may have been stopped and let go: what counts is how long its wait lasts.
    made.nodes["m", 1, "worker"].waits = [replace(wait(0), seconds=3.0, left=2.0)]
    told = waits_of(made, NAMES).waits[0]
    assert told.text.endswith("of rank 0: a cycle, for 3 s, until a time-out in 2 s")
    assert (told.since, told.left) == (3.0, 2.0)
    made = graph({rank: wait(rank ^ 1) for rank in range(4)})
    made.nodes["m", 3, "worker"].waits = [replace(wait(2), seconds=50.0, left=9.0)]
    told = waits_of(made, NAMES).waits[0]  # of those alike, the first that ends
    assert (told.since, told.left) == (43.0, 9.0)
    sent = Progress("worker", "ask", "blocked", 0.0, waits=[replace(wait(0), seconds=3.0, left=2.0)])
    back = Progress.read(msgspec.to_builtins(sent)).waits[0]
    assert (back, back.seconds, back.left) == (wait(0), 3.0, 2.0)


def test_one_that_waits_for_itself() -> None:
    assert lines(graph({0: wait(0, 1)})) == ["rank 0 waits for worker.ask() of rank 0: a cycle, for 43 s"]


def test_a_thousand_in_a_ring_are_one_line() -> None:
    (line,) = lines(graph({rank: wait((rank + 1) % 1024) for rank in range(1024)}))
    assert line == (
        "rank 0 waits for worker.ask() of rank 1, which waits for worker.ask() of rank 2, and so on to rank 1023, "
        "which waits for worker.ask() of rank 0: a cycle, for 43 s"
    )


def test_a_ring_as_large_as_a_mesh_may_be_is_no_larger_message() -> None:
    (told,) = waits_of(graph({rank: wait((rank + 1) % 20_000) for rank in range(20_000)}), NAMES).waits
    assert (len(told.path), told.path_left_out) == (32, 20_000 - 32) and "to rank 19999" in told.text


def test_pairs_are_one_line() -> None:
    (line,) = lines(graph({rank: wait(rank ^ 1) for rank in range(64)}))
    assert line.endswith("of rank 0: a cycle, for 43 s; in a similar cycle: ranks 2-63")


def test_a_chain_ends_where_somebody_does_something() -> None:
    made = graph({rank: wait(rank + 1) for rank in range(3)})
    made.nodes["m", 3, "worker"] = Waiter("blocked", "blocked in time.sleep at f.py:3, in ask")
    assert lines(made) == [
        "rank 0 waits for worker.ask() of rank 1, which waits for worker.ask() of rank 2, "
        "which waits for worker.ask() of rank 3, blocked in time.sleep at f.py:3, in ask"
    ]
    made.ranks["m", 3] = ("silent", "not answering: C code holds its GIL")
    assert lines(made)[0].endswith("of rank 3, not answering: C code holds its GIL")
    assert waits_of(made, NAMES).waits[0].state == "silent"


def test_many_for_one_are_one_line_and_name_the_actor() -> None:
    made = graph({rank: wait(0, actor="store") for rank in range(64)})
    made.nodes["s", 0, "store"] = Waiter("stopped", "stopped in the debugger at f.py:9, in get")
    assert lines(made) == [
        "worker ranks 0-63 wait for store.ask() of rank 0, stopped in the debugger at f.py:9, in get"
    ]


def test_of_one_that_waits_for_many_it_is_told_what_each_does() -> None:
    made = graph({0: wait(1, 2, 3), 1: wait(2)})
    made.nodes["m", 2, "worker"] = Waiter("idle", "waiting for messages")
    assert lines(made) == [
        "rank 0 waits for worker.ask() of ranks 1-3; 1 also waiting; 2 waiting for messages",
        "rank 1 waits for worker.ask() of rank 2, waiting for messages",
    ]


def test_of_very_many_the_first_are_named() -> None:
    assert lines(graph({0: wait(1, 2, more=3)})) == ["rank 0 waits for worker.ask() of ranks 1-2 and 3 more"]
    (call,) = waits_of(graph({0: wait(1, 2, more=3)}), NAMES).waits[0].path[0]
    assert (call.ranks, call.count) == ([1, 2], 5)


def test_what_is_no_deadlock_is_no_cycle() -> None:
    # Any other answer ends it; and beside a concurrent endpoint others are served.
    made = graph({0: wait(1, 2, any_of_them=True), 1: wait(0)})
    assert lines(made)[0] == "rank 0 waits for the next worker.ask() of ranks 1-2; 1 also waiting"
    assert not any(each.cycle for each in waits_of(made, NAMES).waits)
    # What keeps it there is told, and not what anybody might end.
    made = graph({0: [wait(1, 2, endpoint="next", any_of_them=True), wait(1)], 1: wait(0)})
    assert lines(made)[0].startswith("rank 0 waits for worker.ask() of rank 1, which waits for worker.ask() of rank 0:")
    made = graph({0: wait(1), 1: wait(0)})
    made.nodes["m", 1, "worker"].beside = True
    assert not any(each.cycle for each in waits_of(made, NAMES).waits)
    # Nor does it read like one.
    made = graph({rank: wait((rank + 1) % 3) for rank in range(3)})
    for node in made.nodes.values():
        node.beside = True
    keeps = "also waiting in a concurrent endpoint, which blocks no other call"
    assert lines(made) == [f"rank 0 waits for worker.ask() of rank 1, {keeps}; alike: ranks 1-2"]


def test_actors_of_one_name_and_gathered_calls() -> None:
    made = graph({0: [wait(1), wait(2), Wait("s", "worker", "ask", (0,), 1)]})
    assert lines(made) == [
        "worker@mesh1 rank 0 waits for worker@mesh1.ask() of ranks 1-2 and worker@mesh2.ask() of rank 0"
    ]


def test_ports_are_waited_for_too() -> None:
    made = graph({0: Wait("m", "worker", "send", (1,), 1, port=True), 1: wait(0), 2: RECEIVES, 3: RECEIVES})
    made.nodes["m", 4, "worker"] = Waiter("blocked", waits=[Wait(*SCRIPT[::2], "send", SCRIPT[1:2], 1, port=True)])
    assert lines(made) == [
        "rank 0 waits for worker rank 1 to receive messages from its port, which waits for worker.ask() of rank 0: "
        "a cycle, for 43 s, unless another thread receives from the port",
        "ranks 2-3 wait for a message to a port",
        "rank 4 waits for the script to receive messages from its port",
    ]
    assert [call.ranks for told in waits_of(made, NAMES).waits for step in told.path for call in step][-2:] == [[], []]


def test_only_those_that_are_meant_and_not_too_many() -> None:
    made = graph({rank: wait(rank + 100, endpoint=f"e{rank}") for rank in range(30)})
    told = waits_of(made, NAMES, lambda key: key[1] < 25)
    assert len(told.waits) == 20 and told.waits_left_out == 5
    assert wait_lines(told)[-1] == "... 5 more"
    assert len(wait_lines(told, 4)) == 5 and wait_lines(told, 4)[-1] == "... 21 more"
    assert waits_of(made, NAMES, lambda key: False) == Waits([], 0, [])


def test_what_the_script_waits_for_is_said_with_its_lines() -> None:
    made = graph({})
    made.script([replace(wait(0), seconds=0.5, line="/home/me/train.py:42")])
    assert lines(made) == ["the script (/home/me/train.py:42) waits for worker.ask() of rank 0"]
    several = [replace(wait(0), seconds=9, line="t.py:2"), replace(wait(1), seconds=7, line="t.py:1")]
    made.script([*several, replace(wait(2), seconds=8)])
    assert lines(made) == ["the script (t.py:1, t.py:2) waits for worker.ask() of ranks 0-2, for 7 s"]
    made = graph({})
    made.script([])
    assert lines(made) == []


def test_errors_that_nobody_has_read_are_said_once_for_equal_ones() -> None:
    errors = [UnreadError("m", "worker", "ask", rank, "ValueError: x") for rank in (2, 0, 1, 2)]
    told = waits_of(graph({}), NAMES, unread=[*errors, UnreadError("gone", "worker", "step", 3, "KeyError")])
    assert unread_lines(told) == [
        "unread error: worker.ask() raised on mesh1 ranks 0-2: ValueError: x",
        "unread error: worker.step() raised on gone rank 3: KeyError",
    ]
    assert told.unread[0].ranks == [0, 1, 2] and wait_lines(told) == []
    many = [UnreadError("m", "worker", f"e{number}", 0, "E") for number in range(9)]
    assert [each.endpoint for each in waits_of(graph({}), NAMES, unread=many).unread] == ["e4", "e5", "e6", "e7", "e8"]


def test_the_documentation_names_every_key() -> None:
    made = graph({0: wait(0), 1: wait(5), 2: wait(6)})
    made.nodes["m", 5, "worker"] = made.nodes["m", 6, "worker"] = Waiter("idle", "waiting for messages")
    keys: set[str] = set()
    for told in msgspec.to_builtins(waits_of(made, NAMES))["waits"]:
        parts = [told["waiting"], *told["alike"], *told["ends"], *(call for step in told["path"] for call in step)]
        keys.update(told, *parts)
    documentation = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")
    section = documentation.partition("## Who waits for whom")[2].partition("\n## ")[0]
    assert "doing" in keys
    assert {key for key in keys if f"`{key}`" not in section and f'"{key}"' not in section} == set()


edges = st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True))


@given(edges)
def test_cycles_are_cycles_and_none_is_missed(targets: dict[int, list[int]]) -> None:
    made = graph({rank: wait(*ranks) for rank, ranks in targets.items()})
    told = waits_of(made, NAMES).waits

    def reached(rank: int) -> set[int]:
        found: set[int] = set()
        left = list(targets.get(rank, ()))
        while left:
            each = left.pop()
            if each not in found:
                found.add(each)
                left += targets.get(each, ())
        return found

    assert any(each.cycle for each in told) == any(rank in reached(rank) for rank in targets)
    for each in told:
        if each.cycle:
            path = [step[0].ranks[0] for step in each.path]
            assert path[-1] == each.waiting.ranks[0] and len(set(path)) == len(path)
            assert all(after in targets[before] for before, after in zip([path[-1], *path], path, strict=False))
