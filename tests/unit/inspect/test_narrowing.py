"""A part of merged stacks is what merging that part alone gives."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hypothesis import given

from meshrt.hooks.facts import Group
from meshrt.inspect import Stacks, render_stacks
from meshrt.inspect.narrowing import narrowed
from tests.unit.inspect.test_tree import SHAPE, answers


def merged(by_rank: dict[int, list[dict[str, Any]]], ranks: Iterable[int]) -> dict[str, Any]:
    stacks = Stacks()
    stacks.expect("m", "mesh", SHAPE, list(ranks))
    for rank, records in by_rank.items():
        if rank in ranks:
            per = {rank: {"since": [3.0] * len(records), "cpu": [0.0] * len(records)}}
            stacks.add(Group("m", (rank,), "answered", {"threads": records}, per))
    wire = stacks.to_wire()
    for mesh in wire["meshes"]:
        mesh["culprits"] = {"count": 0, "ranks": [], "text": ""}  # those of the whole are not those of a part
    return wire


def text_of(wire: dict[str, Any]) -> str:
    """Without the lines: of ranks that run, only the lowest and the highest were kept."""
    return re.sub(r"\.py:[\d-]+", ".py", render_stacks(wire, source=lambda _file, _line: ""))


@given(answers)
def test_a_part_is_what_merging_it_alone_gives(by_rank: dict[int, list[dict[str, Any]]]) -> None:
    # Of several threads at equal depth, the one that more ranks are at comes first: one of each rank, then.
    by_rank = {rank: records[:1] for rank, records in by_rank.items()}
    (whole,) = merged(by_rank, range(len(SHAPE)))["meshes"]
    for rank in by_rank:
        part = narrowed(whole, [rank], SHAPE)
        assert text_of({"meshes": [part], "left_out": 0}) == text_of(merged(by_rank, [rank]))


def test_ranks_without_a_stack() -> None:
    stacks = Stacks()
    stacks.expect("m", "mesh", SHAPE, range(8))
    stacks.add(Group("m", (1, 2, 5), "gone", "was killed by SIGKILL", {}))
    (whole,) = stacks.to_wire()["meshes"]
    part = narrowed(whole, [5, 6], SHAPE)
    assert part["asked"] == 2
    assert [(entry["ranks"], entry["why"]) for entry in part["without"]] == [([5], "was killed by SIGKILL")]
    assert part["waiting"]["ranks"] == [6]
