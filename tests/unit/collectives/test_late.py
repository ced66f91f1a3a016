"""Who has not entered a collective, and who is in another one: from the facts of ranks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from meshrt.collectives.facts import GroupFacts, WorldFacts, members_of
from meshrt.collectives.late import Late, add_collectives, late_for
from meshrt.inspect.standstill import CYCLE, LATE, MISMATCH, standstill
from meshrt.inspect.waittext import wait_lines, waits_of
from meshrt.program.waits import Waiter, WaitGraph
from meshrt.ranks import fold_ranks

NAMES = {"m": "mesh1"}
EVERYBODY = [("m", rank, "main") for rank in range(4)]


def group(
    name: str, ranks: str, number: int, operation: str = "", sizes: str = "[4]", seconds: float = 9.0
) -> GroupFacts:
    """A group whose collective with this number has not ended, or, without an operation, all have."""
    if not operation:
        return GroupFacts(f"{name} {ranks}", name, ranks, entered=number)
    return GroupFacts(f"{name} {ranks}", name, ranks, number, number, operation, sizes, seconds)


def graph_of(worlds: Mapping[int, WorldFacts]) -> WaitGraph:
    made = WaitGraph()
    for rank, world in worlds.items():
        made.nodes["m", rank, "main"] = Waiter("blocked", f"blocked at t.py:{10 + rank}")
        assert world.rank == rank
    add_collectives(made, {"m": worlds})
    return made


def inside(rank: int, *groups: GroupFacts, blocked: int = 0) -> WorldFacts:
    return WorldFacts(rank, groups, "main", blocked)


def lines(made: WaitGraph) -> list[str]:
    return wait_lines(waits_of(made, NAMES))


@given(st.sets(st.integers(0, 50), min_size=1))
def test_ranks_as_text(ranks: set[int]) -> None:
    assert list(members_of(fold_ranks(ranks))) == sorted(ranks)


def test_a_rank_that_has_not_entered_is_waited_for() -> None:
    waiting = group("dp", "0-3", 5, "all_reduce")
    made = graph_of({**{rank: inside(rank, waiting) for rank in (0, 1, 3)}, 2: WorldFacts(2, [group("dp", "0-3", 4)])})
    assert lines(made) == ["ranks 0-1,3 wait for rank 2 to enter all_reduce #5 of dp, blocked at t.py:12"]
    found = standstill(made, NAMES, [EVERYBODY[0]])
    assert found is not None and (found.kind, found.ranks) == (LATE, {"m": (2,)})
    expected = (
        "main rank 2 has not entered all_reduce #5 of dp, in which others have waited for 9 s: blocked at t.py:12"
    )
    assert found.text == expected
    add_collectives(made, {"m": {}})  # known waits stay; the same facts again add nothing
    assert len(made.nodes["m", 0, "main"].waits) == 1


def test_the_rank_at_the_end_of_all_waits_is_the_late_one() -> None:
    """Rank 0 waits for rank 2 in its group, the others for both in theirs."""
    world, dp = group("default_pg", "0-3", 1, "barrier"), group("dp", "0,2", 4, "all_reduce", seconds=7.0)
    late = [group("default_pg", "0-3", 0), group("dp", "0,2", 3)]
    made = graph_of(
        {
            0: inside(0, group("default_pg", "0-3", 0), dp, blocked=1),
            1: inside(1, world),
            2: WorldFacts(2, late),
            3: inside(3, world),
        }
    )
    found = standstill(made, NAMES, EVERYBODY)
    assert found is not None and (found.kind, found.ranks) == (LATE, {"m": (2,)})


@pytest.mark.parametrize(
    ("mine", "parties"),
    [
        (("broadcast", "[4]"), "ranks 0-1,3 in all_reduce, rank 2 in broadcast"),
        (("all_reduce", "[2]"), "ranks 0-1,3 in all_reduce of [4], rank 2 in all_reduce of [2]"),
    ],
)
def test_different_collectives_with_one_number_are_a_mismatch(mine: tuple[str, str], parties: str) -> None:
    made = graph_of(
        {
            rank: inside(rank, group("dp", "0-3", 5, *(("all_reduce", "[4]") if rank != 2 else mine)))
            for rank in range(4)
        }
    )
    assert lines(made) == [f"{parties}: a mismatch of collective #5 of dp, for 9 s"]
    found = standstill(made, NAMES, [EVERYBODY[0]])
    assert found is not None and (found.kind, found.ranks) == (MISMATCH, {"m": (0, 1, 2, 3)})
    assert found.text.startswith("collective #5 of dp is not the same on all ranks, for 9 s: main ranks 0, 1 and 3 in ")
    (told,) = waits_of(made, NAMES).waits
    assert told.mismatch and not told.cycle and [end.ranks for end in told.ends] == [[0, 1, 3], [2]]


def test_sizes_may_differ_where_an_operation_allows_it() -> None:
    made = graph_of({rank: inside(rank, group("dp", "0-1", 5, "all_to_all", f"[{rank}]")) for rank in range(2)})
    assert lines(made) == [] and not made.mismatches


def test_groups_that_are_entered_in_another_order_are_a_cycle() -> None:
    columns, rows = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
    made = graph_of(
        {
            rank: inside(rank, group("dp", columns[rank], 4, "all_reduce"), group("tp", rows[rank], 0))
            if rank in (0, 3)
            else inside(rank, group("dp", columns[rank], 3), group("tp", rows[rank], 1, "all_reduce"), blocked=1)
            for rank in range(4)
        }
    )
    found = standstill(made, NAMES, EVERYBODY)
    assert found is not None and (found.kind, found.ranks) == (CYCLE, {"m": (0, 1, 2, 3)})


def test_who_has_entered_fewer_than_one_that_has_given_up() -> None:
    failed = WorldFacts(0, [group("default_pg", "0-3", 2), group("dp", "0,2", 5)])
    others = {
        1: WorldFacts(1, [group("default_pg", "0-3", 2), group("dp", "1,3", 1)]),  # another group of that name
        2: WorldFacts(2, [group("default_pg", "0-3", 2), group("dp", "0,2", 4)]),
    }
    assert late_for(failed, others) == Late("collective #5 of dp", (2,))
    assert late_for(replace(failed, last=1), others) == Late("collective #5 of dp", (2,))
    assert late_for(replace(failed, last=0), others) is None  # in that one it has not given up
    assert late_for(failed, {1: others[1]}) is None and late_for(failed, {}) is None


def test_all_that_have_entered_wait_for_nobody_and_what_has_just_begun_is_no_wait() -> None:
    made = graph_of({rank: inside(rank, group("dp", "0-1", 5, "all_reduce")) for rank in range(2)})
    assert lines(made) == []
    begun = inside(0, group("dp", "0-1", 5, "all_reduce", seconds=0.5))
    assert lines(graph_of({0: begun, 1: WorldFacts(1, [group("dp", "0-1", 4)])})) == []
    assert lines(graph_of({0: begun.later(1.0), 1: WorldFacts(1, [group("dp", "0-1", 4)])})) != []


def test_of_a_rank_that_is_not_asked_nothing_is_said_and_one_that_has_ended_is_late() -> None:
    made = graph_of({0: inside(0, group("dp", "0-1", 5, "all_reduce"))})
    assert lines(made) == []
    made.ranks["m", 1] = ("gone", "ended: was killed by SIGKILL")
    add_collectives(made, {"m": {0: inside(0, group("dp", "0-1", 5, "all_reduce"))}})
    assert lines(made) == ["rank 0 waits for rank 1 to enter all_reduce #5 of dp, ended: was killed by SIGKILL"]
    found = standstill(made, NAMES, EVERYBODY[:1])
    assert found is not None and found.text.endswith("others have waited for 9 s: ended: was killed by SIGKILL")


def test_numbers_that_count_more_than_collectives_accuse_nobody() -> None:
    """Ranks in one collective, of which some have sent to another one before."""
    waiting = [replace(group("dp", "0-2", number, "all_reduce"), unsure=True) for number in (3, 1)]
    idle = replace(group("dp", "0-2", 2), unsure=True)
    worlds = {0: inside(0, waiting[0]), 1: inside(1, waiting[1]), 2: WorldFacts(2, [idle])}
    assert lines(graph_of(worlds)) == []
    assert late_for(worlds[0], {2: worlds[2]}) is None
    del worlds[1]
    assert lines(graph_of(worlds)) == ["rank 0 waits for rank 2 to enter all_reduce #3 of dp, blocked at t.py:12"]


def test_ranks_of_a_mesh_in_two_worlds_are_not_compared() -> None:
    """Ranks 0 and 1, and 2 and 3, each have a torch world of their own, in which they are 0 and 1."""
    busy, late, idle = group("dp", "0-1", 5, "all_reduce"), group("dp", "0-1", 4), group("dp", "0-1", 1)
    worlds = {
        0: WorldFacts(0, [busy], "main", store="4000"), 1: WorldFacts(1, [late], store="4000"),
        2: WorldFacts(0, [idle], store="5000"), 3: WorldFacts(1, [idle], store="5000"),
    }  # fmt: skip
    made = WaitGraph()
    for rank in worlds:
        made.nodes["m", rank, "main"] = Waiter("blocked", f"blocked at t.py:{10 + rank}")
    add_collectives(made, {"m": worlds})
    assert lines(made) == ["rank 0 waits for rank 1 to enter all_reduce #5 of dp, blocked at t.py:11"]
    others = {rank: worlds[rank] for rank in (1, 2, 3)}
    assert late_for(worlds[0], others) == Late("collective #5 of dp", (1,))
    unknown = {rank: replace(world, store="") for rank, world in worlds.items()}
    made.nodes["m", 0, "main"].waits = ()
    add_collectives(made, {"m": unknown})
    assert lines(made) == [] and late_for(unknown[0], {rank: unknown[rank] for rank in others}) is None


def test_a_silent_rank_is_a_member_only_where_torch_counts_as_the_mesh_does() -> None:
    """Ranks 2 and 3 are torch's ranks 0 and 2; who is torch's rank 1 is not known, and rank 1 of the mesh is not."""
    busy = group("dp", "0-2", 5, "all_reduce")
    made = WaitGraph()
    made.ranks["m", 1] = ("silent", "not answering")
    for rank in (2, 3):
        made.nodes["m", rank, "main"] = Waiter("blocked")
    add_collectives(made, {"m": {2: inside(0, busy), 3: inside(2, busy)}})
    assert lines(made) == []
