"""A part of merged stacks is what merging that part alone gives."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hypothesis import given
from msgspec.structs import replace

from meshrt.hooks.facts import Answered, Unanswered
from meshrt.inspect.merged import MergedStacks, RankSet
from meshrt.inspect.narrowing import narrowed
from meshrt.inspect.records import Record, Threads, Times
from meshrt.inspect.text import render_stacks
from meshrt.inspect.tree import Stacks
from tests.unit.inspect.test_tree import SHAPE, answers


def merged(by_rank: dict[int, list[Record]], ranks: Iterable[int]) -> MergedStacks:
    stacks = Stacks()
    stacks.expect("m", "mesh", SHAPE, list(ranks))
    for rank, records in by_rank.items():
        if rank in ranks:
            per = {rank: Times([3.0] * len(records), [0.0] * len(records))}
            stacks.add(Answered("m", (rank,), Threads(records), per))
    found = stacks.answer()
    # The culprits of the whole are not those of a part.
    return replace(found, meshes=[replace(mesh, culprits=RankSet()) for mesh in found.meshes])


def text_of(found: MergedStacks) -> str:
    """Without the lines: of ranks that run, only the lowest and the highest were kept."""
    return re.sub(r"\.py:[\d-]+", ".py", render_stacks(found, source=lambda _file, _line: ""))


@given(answers)
def test_a_part_is_what_merging_it_alone_gives(by_rank: dict[int, list[Record]]) -> None:
    # Of several threads at equal depth, the one that more ranks are at comes first: one of each rank, then.
    by_rank = {rank: records[:1] for rank, records in by_rank.items()}
    (whole,) = merged(by_rank, range(len(SHAPE))).meshes
    for rank in by_rank:
        part = narrowed(whole, [rank], SHAPE)
        assert text_of(MergedStacks(meshes=[part])) == text_of(merged(by_rank, [rank]))


def test_ranks_without_a_stack() -> None:
    stacks = Stacks()
    stacks.expect("m", "mesh", SHAPE, range(8))
    stacks.add(Unanswered("m", (1, 2, 5), "gone", "was killed by SIGKILL"))
    (whole,) = stacks.answer().meshes
    part = narrowed(whole, [5, 6], SHAPE)
    assert part.asked == 2
    assert [(entry.ranks, entry.why) for entry in part.without] == [([5], "was killed by SIGKILL")]
    assert part.waiting.ranks == [6]
